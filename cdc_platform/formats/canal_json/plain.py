"""Row messages exactly as canal itself writes them (`FlatMessage` with all its fields, every cell a text or
null), read by their declared shape, and field by field: a third of the time of `messages.read`, which reads
whatever is not so.

What a message says of its columns is parsed once for all messages that say it in the same bytes.
"""

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from cdc_platform.formats.canal_json.messages import LAST_MS, OPS, Changes, Rows, column_key, of_object
from cdc_platform.formats.canal_json.sheets import Sheet
from cdc_platform.formats.canal_json.tables import Group, group_of
from cdc_platform.formats.exact_json import compact_pairs, decoded, read_json

_Cells = dict[str, str | None]
_Name = Annotated[str, Meta(min_length=1)]


class _FlatMessage(msgspec.Struct, frozen=True, gc=False):
    data: Annotated[list[Annotated[_Cells, Meta(min_length=1)]], Meta(min_length=1)]
    database: _Name
    es: Annotated[int, Meta(ge=1, le=LAST_MS)]  # -0 would look like 0 here
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
_READ = msgspec.json.Decoder(_FlatMessage)
_NO_OLD = (None,)
_AT_A_TIME = 500  # messages: so many fit, parsed, into a processor's cache


class Plain(NamedTuple):
    """`rows`: those of the plain messages of a batch. `others`: which messages are no such, or have a fault."""

    rows: dict[Group, Sheet]
    others: list[int]


class _Columns:
    """What the `first` message of a batch and all that use the same bytes for it say of their table and its columns.
    Raises ValueError or RecursionError when it says nothing that can be used."""

    def __init__(self, first: _FlatMessage):
        self.first = first
        key, types, sql_types = (read_json(bytes(raw)) for raw in (first.pkNames, first.mysqlType, first.sqlType))
        types, sql_types = of_object(types, "mysqlType"), of_object(sql_types, "sqlType")
        if any(type(v) in (dict, list) for v in chain(types.values(), sql_types.values())):
            raise ValueError("a type is no single value")
        self.pairs = len(types) + len(sql_types)
        self._told = Rows(first.database, first.table, column_key(key), types, sql_types, [])
        self._groups: dict[tuple[str, ...], Group] = {}

    def group(self, names: tuple[str, ...]) -> Group:
        """The group of rows with these columns. Raises ValueError."""
        if (group := self._groups.get(names)) is None:
            group = self._groups[names] = group_of(self._told, names)
        return group


class PlainReader:
    """Plain messages of one batch; remembers what they say of their columns."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes, bytes, bytes], _Columns | None] = {}
        self._last: dict[str, _Columns] = {}

    def __call__(self, values: list[bytes | None]) -> Plain:
        """The messages of the batch. Never raises for bad bytes."""
        rows: dict[Group, Sheet] = {}
        others: list[int] = []
        for start in range(0, len(values), _AT_A_TIME):
            part = values[start : start + _AT_A_TIME]
            for alike in self._alike(part, start, others):
                found, faulty = alike.rows()
                for group, changes in found:
                    if group not in rows:
                        rows[group] = Sheet(group)
                    rows[group].add(changes)
                others += faulty
        return Plain(rows, sorted(others))

    def _alike(self, values: list[bytes | None], start: int, others: list[int]) -> "Iterable[_Alike]":
        """Messages by what they say of their columns. Adds those that aren't plain to `others`."""
        found: dict[_Columns, _Alike] = {}
        for at, m in enumerate(decoded(_READ, values), start):
            columns = None if m is None else self._columns(m)
            if m is None or columns is None:
                others.append(at)
                continue
            alike = found.get(columns)
            if alike is None:
                alike = found[columns] = _Alike(columns)
            alike.at.append(at)
            alike.messages.append(m)
        # What a text shows beyond what was parsed is a name that stands twice or a field that is unknown. No message
        # shows less than was parsed of it, so equal sums are equal in each.
        shown = compact_pairs(b"".join([values[at - start] or b"" for alike in found.values() for at in alike.at]))
        if shown != sum(alike.pairs(alike.messages) for alike in found.values()):
            for alike in found.values():
                others += alike.keep(lambda at, m, of=alike: compact_pairs(values[at - start] or b"") == of.pairs([m]))
        return found.values()

    def _columns(self, m: _FlatMessage) -> _Columns | None:
        """What a message says of its columns; None: nothing that can be used."""
        columns = self._last.get(m.table)
        if (
            columns is not None
            and m.mysqlType == (first := columns.first).mysqlType
            and m.sqlType == first.sqlType
            and m.pkNames == first.pkNames
            and m.database == first.database
        ):
            return columns
        told = (m.database, m.table, bytes(m.mysqlType), bytes(m.sqlType), bytes(m.pkNames))
        if told not in self._known:
            try:
                self._known[told] = _Columns(m)
            except (ValueError, RecursionError):
                self._known[told] = None
        if (columns := self._known[told]) is not None:
            self._last[m.table] = columns
        return columns


class _Alike:
    """Messages that say the same of their `columns`; `at`: their numbers in the batch."""

    def __init__(self, columns: _Columns):
        self.columns = columns
        self.at: list[int] = []
        self.messages: list[_FlatMessage] = []

    def pairs(self, messages: list[_FlatMessage]) -> int:
        """Pairs of all objects in some of the messages, as far as they were kept."""
        data = chain.from_iterable([m.data for m in messages])
        old = chain.from_iterable([m.old for m in messages if m.old])
        fields = (_FIELDS + self.columns.pairs) * len(messages) - [m.gtid for m in messages].count(msgspec.UNSET)
        return fields + sum(map(len, data)) + sum(map(len, old))

    def keep(self, fine: Callable[[int, _FlatMessage], bool]) -> list[int]:
        """Forgets the messages that aren't fine; their numbers."""
        found = [(at, m, fine(at, m)) for at, m in zip(self.at, self.messages, strict=True)]
        self.at, self.messages = [at for at, _, ok in found if ok], [m for _, m, ok in found if ok]
        return [at for at, _, ok in found if not ok]

    def rows(self) -> tuple[list[tuple[Group, Changes]], list[int]]:
        """The rows by their groups, and which messages have none, for they have a fault."""
        images, faulty = self._images(self.messages), []
        if images is None:
            faulty = self.keep(lambda _, m: self._images([m]) is not None)
            images = self._images(self.messages)
        if images is None or not self.messages:
            return [], faulty
        changes = self._changes(images)
        if len(images.groups) == 1:
            return [(group, changes) for group in images.groups.values()], faulty
        places: dict[tuple[str, ...], list[int]] = {names: [] for names in images.groups}
        for i, row in enumerate(changes.data):
            places[tuple(row)].append(i)
        return [(group, changes.chosen(places[names])) for names, group in images.groups.items()], faulty

    def _images(self, messages: list[_FlatMessage]) -> "_Images | None":
        """None: there is a row without a group, or one that has another's `old` or a column in it that it lacks."""
        told = [m.data for m in messages]
        olds = [m.old if m.old and m.type == "UPDATE" else _NO_OLD * len(m.data) for m in messages]
        if list(map(len, told)) != list(map(len, olds)):
            return None
        data, old = list(chain.from_iterable(told)), list(chain.from_iterable(olds))
        try:
            groups = {names: self.columns.group(names) for names in set(map(tuple, data))}
        except ValueError:
            return None
        if len(groups) == 1:
            fine = set(chain.from_iterable(filter(None, old))) <= set(next(iter(groups)))
        else:
            fine = all(o.keys() <= d.keys() for d, o in zip(data, old, strict=True) if o)
        return _Images(data, old, groups) if fine else None

    def _changes(self, images: "_Images") -> Changes:
        messages, rows = self.messages, len(images.data)
        fields: list[list] = [
            self.at,
            [OPS[m.type] for m in messages],
            [m.es * 1000 for m in messages],
            [m.gtid or None for m in messages],
        ]
        place = [0] * rows
        if rows != len(messages):
            counts = [len(m.data) for m in messages]
            place = list(chain.from_iterable(map(range, counts)))
            fields = [list(chain.from_iterable(map(repeat, field, counts))) for field in fields]
        at, op, time, gtid = fields
        return Changes(at, place, op, images.data, images.old, time, gtid, [None] * rows)


class _Images(NamedTuple):
    """Rows of messages, the `old` beside each, and the groups by names of columns."""

    data: list[_Cells]
    old: list[_Cells | None]
    groups: dict[tuple[str, ...], Group]
