"""Row messages exactly as canal itself writes them: `FlatMessage` with all its fields, every cell a text or null."""

from itertools import chain, repeat
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from cdc_platform.formats.canal_json.messages import FIRST_13_DIGITS, OPS, Changes, Rows, column_key, of_object
from cdc_platform.formats.canal_json.sheets import Sheet
from cdc_platform.formats.canal_json.tables import Group, group_of
from cdc_platform.formats.exact_json import read_json
from cdc_platform.formats.json_scanner import JsonScanner
from cdc_platform.formats.texts import LAST_MS

_Cells = dict[str, str | None]
_Name = Annotated[str, Meta(min_length=1)]


class _FlatMessage(msgspec.Struct, frozen=True, gc=False):
    data: Annotated[list[Annotated[_Cells, Meta(min_length=1)]], Meta(min_length=1)]
    database: _Name
    es: Annotated[int, Meta(ge=FIRST_13_DIGITS, le=LAST_MS)]  # others are rare, and -0 would look like 0 here
    id: int
    isDdl: bool
    mysqlType: msgspec.Raw
    old: list[_Cells] | None
    pkNames: msgspec.Raw
    sql: str | None
    sqlType: msgspec.Raw
    table: _Name
    ts: int
    type: Literal["INSERT", "UPDATE", "DELETE", "INIT"]
    gtid: str | msgspec.UnsetType | None = msgspec.UNSET


_FIELDS = len(_FlatMessage.__struct_fields__)
_NO_OLD = (None,)


class _Columns:
    """What the `first` message of a batch and all that have the same bytes for it say of their table and its columns.
    Raises ValueError or RecursionError where that can't be used."""

    def __init__(self, first: _FlatMessage):
        self.first = first
        key, types, sql_types = (read_json(bytes(raw)) for raw in (first.pkNames, first.mysqlType, first.sqlType))
        types, sql_types = of_object(types, "mysqlType"), of_object(sql_types, "sqlType")
        if any(type(v) in (dict, list) for v in chain(types.values(), sql_types.values())):
            raise ValueError("a type is no single value")
        self.pairs = len(types) + len(sql_types)
        self._table = Rows(first.database, first.table, column_key(key), types, sql_types, [])
        self._groups: dict[tuple[str, ...], Group] = {}

    def group(self, names: tuple[str, ...]) -> Group:
        """The group of rows with these columns. Raises ValueError."""
        if (group := self._groups.get(names)) is None:
            group = self._groups[names] = group_of(self._table, names)
        return group


class Scanner(JsonScanner[_FlatMessage, _Columns]):
    """Reads rows into a sheet for each group."""

    DECODER = msgspec.json.Decoder(_FlatMessage)

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, _Columns] = {}

    def kinds(self, _start: int, messages: list[_FlatMessage | None]) -> list[_Columns | None]:
        kinds, last = [], self._last
        for m in messages:
            columns = None if m is None else last.get(m.table)
            if m is not None and not (
                columns is not None
                and m.mysqlType == (first := columns.first).mysqlType
                and m.sqlType == first.sqlType
                and m.pkNames == first.pkNames
                and m.database == first.database
            ):
                key = (m.database, m.table, bytes(m.mysqlType), bytes(m.sqlType), bytes(m.pkNames))
                columns = self.remembered(key, _Columns, m)
                if columns is not None:
                    last[m.table] = columns
            kinds.append(columns)
        return kinds

    def pairs(self, kind: _Columns, messages: list[_FlatMessage]) -> int:
        data = chain.from_iterable([m.data for m in messages])
        old = chain.from_iterable([m.old for m in messages if m.old])
        fields = (_FIELDS + kind.pairs) * len(messages) - [m.gtid for m in messages].count(msgspec.UNSET)
        return fields + sum(map(len, data)) + sum(map(len, old))

    def add(self, kind: _Columns, at: list[int], messages: list[_FlatMessage]) -> None:
        images = _images(kind, messages)
        changes = _changes(at, messages, images)
        places: dict[tuple[str, ...], list[int]] = {names: [] for names in images.groups}
        if len(places) > 1:
            for i, row in enumerate(changes.data):
                places[tuple(row)].append(i)
        for names, group in images.groups.items():
            [sheet] = self.rows.setdefault(group, [Sheet(names)])
            sheet.add(changes.take(places[names]) if len(places) > 1 else changes)


class _Images(NamedTuple):
    """Rows of messages, the `old` beside each, and the groups by names of columns."""

    data: list[_Cells]
    old: list[_Cells | None]
    groups: dict[tuple[str, ...], Group]


def _images(columns: _Columns, messages: list[_FlatMessage]) -> _Images:
    """Raises ValueError where a row has no group, or another's `old` or a column in it that it lacks."""
    images = [m.data for m in messages]
    olds = [m.old if m.old and m.type == "UPDATE" else _NO_OLD * len(m.data) for m in messages]
    if list(map(len, images)) != list(map(len, olds)):
        raise ValueError("old and data have different numbers of rows")
    data, old = list(chain.from_iterable(images)), list(chain.from_iterable(olds))
    groups = {names: columns.group(names) for names in set(map(tuple, data))}
    if len(groups) == 1:
        fine = set(chain.from_iterable(filter(None, old))) <= set(next(iter(groups)))
    else:
        fine = all(o.keys() <= d.keys() for d, o in zip(data, old, strict=True) if o)
    if not fine:
        raise ValueError("old has a column that data lacks")
    return _Images(data, old, groups)


def _changes(at: list[int], messages: list[_FlatMessage], images: _Images) -> Changes:
    rows = len(images.data)
    fields: list[list] = [
        at,
        [OPS[m.type] for m in messages],
        [m.es * 1000 for m in messages],
        [m.gtid or None for m in messages],
        [m.id > 0 for m in messages],
    ]
    place = [0] * rows
    if rows != len(messages):
        counts = [len(m.data) for m in messages]
        place = list(chain.from_iterable(map(range, counts)))
        fields = [list(chain.from_iterable(map(repeat, field, counts))) for field in fields]
    at, op, time, gtid, ordered = fields
    return Changes(at, place, op, images.data, images.old, time, gtid, [None] * rows, ordered)
