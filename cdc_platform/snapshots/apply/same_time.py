"""Few changes of a table without a position, where several partitions told them: whether two of a key, or one and what
is there of its key, have one source time by two partitions. Then nothing says which is newer (partitions.py). Offsets
of one partition say it. Runs on the executors; no Spark here."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog import ties
from cdc_platform.changelog.order_key import ORDER, PARTITIONS
from cdc_platform.lake import deletion_vectors
from cdc_platform.lake.data_files import Unit, footer, read
from cdc_platform.lake.store import File, Store
from cdc_platform.mysql.types import MySqlType
from cdc_platform.snapshots.apply.cast import typed
from cdc_platform.snapshots.apply.replace_rows import DataFile, numbers_of
from cdc_platform.snapshots.reduce import images

_POS, _EVENT = (ORDER.get_field_index(f) for f in ("pos", "event"))

KeyColumns = tuple[tuple[pa.Field, MySqlType], ...]
"""Key columns of a snapshot's files with their types at the source."""


class Unplaced(NamedTuple):
    """What is to be looked at of a table. time: the source time that both changes and rows may have, none of these a
    later one and none of those an earlier one; None: all changes are newer than what is there. stones: files of
    tombstones with such a time."""

    time: int | None
    stones: tuple[File, ...]


@dataclass(slots=True)
class Looked:
    """A table's changes, as a task reads them."""

    unplaced: Unplaced
    keys: KeyColumns
    hashed: list[ties.Hashed] = field(default_factory=list)
    near: list[pa.Table] = field(default_factory=list)

    def add(self, heads: pa.RecordBatch) -> None:
        """More changes, as latest_by_key.head gives them. Raises ValueError where a key is Spark's to read."""
        order = np.column_stack([heads.column(f"o{i}") for i, _ in enumerate(ORDER)])
        self.hashed.append(ties.hashed([heads.column(f"t{i}") for i, _ in enumerate(self.keys)], order))
        if self.unplaced.time is not None:
            some = heads.filter(pa.array(order[:, _POS] == self.unplaced.time))
            columns = [typed(some.column(f"t{i}"), type_, f.type) for i, (f, type_) in enumerate(self.keys)]
            self.near.append(_table(columns, some.column(f"o{_EVENT}")))

    def tied(self) -> bool:
        """Whether a key has two changes at one time by two partitions."""
        return bool(self.hashed) and len(ties.joined(self.hashed).tied()) > 0

    def tied_to(self, snapshot: Store, files: Sequence[DataFile], found: Iterable[pa.RecordBatch]) -> bool:
        """The same of a change and a row of its key, or its tombstone, or that it isn't newer. found: where
        rows with these keys stand, as replace_rows.rows_of tells."""
        near = pa.concat_tables(self.near) if self.near else None
        return bool(near) and any(_meet(near, some) for some in self._there(snapshot, files, found))

    def _there(self, snapshot: Store, files: Sequence[DataFile], found: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        order = pa.field("_cdc_order", ORDER)
        at, by_number = numbers_of(found), {f.number: f for f in files}
        for number, rows in at.items():
            live = rows - deletion_vectors.read(snapshot, by_number[number].vector)
            schema = pa.schema([*(f for f, _ in self.keys), order])
            places = np.fromiter(live, np.int64, len(live))
            yield from self._stored(images.rows_at(by_number[number].file, places, schema))
        names = [pa.field(f"_k{i}", f.type) for i, (f, _) in enumerate(self.keys)]
        for file in self.unplaced.stones:
            whole = Unit(file, 0, footer(file).num_row_groups, 0)
            yield from self._stored(read(whole, pa.schema([*names, order])))

    def _stored(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Those of some rows that have this time: keys first, `_cdc_order` last."""
        for batch in batches:
            fields = dict(zip(ORDER.names, batch.column("_cdc_order").flatten(), strict=True))
            mine = pc.and_(pc.less(fields["file"], 0), pc.equal(fields["pos"].cast(pa.int64()), self.unplaced.time))
            yield _table([c.filter(mine) for c in batch.columns[: len(self.keys)]], fields["event"].filter(mine))


def _table(keys: list[pa.Array], event: pa.Array) -> pa.Table:
    """k0, k1, …, event."""
    return pa.table([*keys, event.cast(pa.int64())], [*(f"k{i}" for i, _ in enumerate(keys)), "event"])


def _meet(changes: pa.Table, rows: pa.Table) -> bool:
    """Whether a change and a row of its key are of two partitions, or the change isn't the later."""
    both = changes.join(rows, changes.schema.names[:-1], join_type="inner", right_suffix="_there", use_threads=False)
    event, there = (both.column(c).to_numpy() for c in ("event", "event_there"))
    return bool(((event % PARTITIONS != there % PARTITIONS) | (event <= there)).any())
