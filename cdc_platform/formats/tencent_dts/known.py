"""Types that `originalType` leaves open (labels, lengths, digits; or all), as the source's schema history has them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.errors import UnknownType
from cdc_platform.formats.events import file_number
from cdc_platform.formats.protobuf.arrow import Lists
from cdc_platform.formats.table_schemas.lookup import TableSchemas
from cdc_platform.formats.table_schemas.places import Place
from cdc_platform.formats.tencent_dts.wire import Messages
from cdc_platform.mysql.types import lower_outside_quotes, parse_type

_BARE = frozenset(("enum", "set", "decimal", "bit", "char", "varchar", "binary", "varbinary"))


def completed(
    batch: pa.RecordBatch, messages: Messages, header: pa.StructArray, rows: np.ndarray, schemas: TableSchemas
) -> Messages:
    """The same messages, with column lists of their own for entries whose types are known better. `rows`: entries that
    are row events."""
    if schemas.empty or not len(rows):
        return messages
    columns = messages.columns
    told = columns.values.field("originalType").dictionary_encode()
    open_type = np.array([*(_open(t) for t in told.dictionary.to_pylist()), False], bool)
    open_column = open_type[told.indices.to_numpy()]
    ends = np.append(0, np.cumsum(open_column))
    has = ends[columns.starts + columns.lengths] > ends[columns.starts]
    mine = rows[has[messages.block[rows]]]
    if not len(mine):
        return messages
    return _Completing(batch, messages, header, schemas, open_column).of(mine)


def _open(text: str | None) -> bool:
    """Whether `originalType` leaves something of a type open."""
    clean = lower_outside_quotes((text or "").strip())
    try:
        parse_type(clean)
    except UnknownType:
        return True
    return "(" not in clean and clean.split()[0] in _BARE


class _Completing:
    def __init__(
        self,
        batch: pa.RecordBatch,
        messages: Messages,
        header: pa.StructArray,
        schemas: TableSchemas,
        open_column: np.ndarray,
    ):
        self.batch, self.messages, self.header, self.schemas = batch, messages, header, schemas
        self.open, self.columns = open_column, messages.columns
        self.names = messages.columns.values.field("name").to_pylist()
        self.types: list[str] = messages.columns.values.field("originalType").to_pylist()
        lengths = messages.items.lengths
        self.own = False
        self.message = np.repeat(np.arange(len(lengths)), lengths)
        self.lists: dict[tuple[int, tuple[str, ...]], int] = {}
        """(a list, types in place of its own) → number of the new list."""

    def of(self, entries: np.ndarray) -> Messages:
        """The messages, after entries whose lists leave something open."""
        block = self.messages.block.copy()
        self.own = bool(np.array_equal(block, np.arange(len(self.columns.starts))))  # no entries share a list
        steady: dict[tuple[int, str, str], int | None] = {}
        for entry in entries.tolist():
            db, table = (self.header.field(n)[entry].as_py() for n in ("schemaName", "tableName"))
            if not self.schemas.knows(db, table):
                continue
            of = int(block[entry]), db, table
            if of not in steady:
                steady[of] = self._steady(*of)
            number = steady[of]
            block[entry] = self._at(entry, *of) if number is None else number
        if self.own:
            types = pa.array(self.types, pa.string())
            return replace(self.messages, columns=replace(self.columns, values=_with_types(self.columns.values, types)))
        if not self.lists:
            return self.messages
        return replace(self.messages, columns=self._columns(), block=block)

    def _steady(self, block: int, db: str, table: str) -> int | None:
        """The list for a table wherever its rows stand; None: that depends."""
        found = {i: self.schemas.always(db, table, self.names[i]) for i in self._open_of(block)}
        if None in found.values():
            return None
        return self._list(block, {i: told[0] for i, told in found.items() if told})

    def _at(self, entry: int, block: int, db: str, table: str) -> int:
        known = self.schemas.of_row(db, table, self._place(entry), tuple(self.names[i] for i in self._of(block)))
        return self._list(block, {i: known and known.type_of(self.names[i]) for i in self._open_of(block)})

    def _of(self, block: int) -> range:
        start = int(self.columns.starts[block])
        return range(start, start + int(self.columns.lengths[block]))

    def _open_of(self, block: int) -> list[int]:
        return [i for i in self._of(block) if self.open[i]]

    def _list(self, block: int, known: dict[int, str | None]) -> int:
        types = tuple(_better(self.types[i], known.get(i)) for i in self._of(block))
        if types == tuple(self.types[i] for i in self._of(block)):
            return block
        if self.own:
            self.types[self._of(block).start : self._of(block).stop] = types
            return block
        return self.lists.setdefault((block, types), len(self.columns.starts) + len(self.lists))

    def _columns(self) -> Lists:
        """All lists, the new ones behind those that came."""
        values, starts = self.columns.values, []
        end = int(self.columns.starts[-1] + self.columns.lengths[-1])
        parts = [values.slice(0, end)]
        for block, types in self.lists:
            mine = values.slice(self._of(block).start, len(types))
            parts.append(_with_types(mine, pa.array(types, pa.string())))
            starts.append(end)
            end += len(types)
        lengths = [int(self.columns.lengths[block]) for block, _ in self.lists]
        return Lists(
            pa.concat_arrays(parts),
            np.append(self.columns.starts, starts).astype(self.columns.starts.dtype),
            np.append(self.columns.lengths, lengths).astype(self.columns.lengths.dtype),
        )

    def _place(self, entry: int) -> Place:
        at = int(self.message[entry])
        topic, partition, offset = (self.batch.column(n)[at].as_py() for n in ("topic", "partition", "offset"))
        file, pos, server, seconds = (
            self._header_field(n, entry) for n in ("fileName", "position", "serverId", "timestamp")
        )
        number = file_number(file) if file else None
        place = None if number is None or pos is None else (number, int(pos))
        first = int(np.searchsorted(self.message, at))
        lineage = str(server) if server else None
        return Place(
            topic, partition, offset, entry - first, lineage, place, int(seconds) * 1_000_000 if seconds else None
        )

    def _header_field(self, name: str, entry: int) -> Any:
        return self.header.field(name)[entry].as_py()


def _with_types(columns: pa.StructArray, types: pa.StringArray) -> pa.StructArray:
    """Columns with other types than they came with."""
    arrays = [types if f.name == "originalType" else columns.field(f.name) for f in columns.type]
    return pa.StructArray.from_arrays(arrays, fields=list(columns.type))


def _better(told: str, known: str | None) -> str:
    """The known type, where it is of the family that is told, if one is."""
    if not known:
        return told
    try:
        found = parse_type(lower_outside_quotes(told.strip()))
    except UnknownType:
        return known
    return known if parse_type(known).family == found.family else told
