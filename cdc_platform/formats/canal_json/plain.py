"""Row messages exactly as canal itself writes them (`FlatMessage` with all its fields, every cell a text or
null), read by their declared shape, and field by field: a fifth of the time of `messages.read`, which reads
whatever is not so.

What a message says of its columns is parsed once for all messages that say it in the same bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from cdc_platform.formats.canal_json.messages import LAST_MS, OPS, Changes, Rows, column_key, of_object
from cdc_platform.formats.canal_json.tables import Group, group_of
from cdc_platform.formats.kafka_connect.json import compact_pairs, read_json

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


class Plain(NamedTuple):
    """`rows`: those of the plain messages of a batch. `others`: which messages are no such, or have a fault."""

    rows: list[tuple[Group, Changes]]
    others: list[int]


def read_plain(values: list[bytes | None]) -> Plain:
    """The messages of a batch, as far as they are plain. Never raises for bad bytes."""
    others: list[int] = []
    alike = _by_columns(_parsed(values), others)
    # What a text shows beyond what was parsed is a name that stands twice or a field that is unknown. No message
    # shows less than was parsed of it, so equal sums are equal in each.
    if _pairs_of(values, chain.from_iterable(a.at for a in alike)) != sum(a.pairs(a.messages) for a in alike):
        for a in alike:
            others += a.keep(lambda at, m, a=a: _pairs_of(values, [at]) == a.pairs([m]))
    rows: list[tuple[Group, Changes]] = []
    for a in alike:
        of_it, faulty = a.rows()
        rows += of_it
        others += faulty
    return Plain(rows, sorted(others))


def _parsed(values: list[bytes | None]) -> list[_FlatMessage | None]:
    """None: not of the declared shape."""
    found: list[_FlatMessage | None] = []
    rest = iter(values)
    while len(found) < len(values):
        try:
            found.extend(map(_READ.decode, rest))  # pyright: ignore[reportArgumentType] - a null is a TypeError
        except (ValueError, TypeError, RecursionError):  # msgspec's errors are ValueErrors
            found.append(None)  # what came before it is in the list; the next round goes on behind it
    return found


def _pairs_of(values: list[bytes | None], which: Iterable[int]) -> int | None:
    """`compact_pairs` of some of the messages together."""
    return compact_pairs(b"".join([values[at] or b"" for at in which]))


class _Alike:
    """Messages of a batch, `at` their numbers, that say the same of their table and its columns. Raises ValueError or
    RecursionError where the `first` says nothing that can be used."""

    def __init__(self, first: _FlatMessage):
        self.first = first
        self.at: list[int] = []
        self.messages: list[_FlatMessage] = []
        key, types, sql_types = (read_json(bytes(raw)) for raw in (first.pkNames, first.mysqlType, first.sqlType))
        types, sql_types = of_object(types, "mysqlType"), of_object(sql_types, "sqlType")
        if any(type(v) in (dict, list) for v in chain(types.values(), sql_types.values())):
            raise ValueError("a type is no single value")
        self._told = Rows(first.database, first.table, column_key(key), types, sql_types, [])
        self._groups: dict[tuple[str, ...], Group] = {}

    def pairs(self, messages: list[_FlatMessage]) -> int:
        """Pairs of all objects in some of the messages, as far as they were kept."""
        cells = chain.from_iterable(chain.from_iterable((m.data, m.old or ()) for m in messages))
        told = _FIELDS + len(self._told.types) + len(self._told.sql_types)
        return told * len(messages) - [m.gtid for m in messages].count(msgspec.UNSET) + sum(map(len, cells))

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
        of_each, olds = [m.data for m in messages], list(map(_olds, messages))
        if list(map(len, of_each)) != list(map(len, olds)):
            return None
        data, old = list(chain.from_iterable(of_each)), list(chain.from_iterable(olds))
        try:
            groups = {names: self._group(names) for names in set(map(tuple, data))}
        except ValueError:
            return None
        if len(groups) == 1:
            fine = set(chain.from_iterable(filter(None, old))) <= set(*groups)
        else:
            fine = all(o.keys() <= d.keys() for d, o in zip(data, old, strict=True) if o)
        return _Images(data, old, groups) if fine else None

    def _group(self, names: tuple[str, ...]) -> Group:
        if (group := self._groups.get(names)) is None:
            group = self._groups[names] = group_of(self._told, names)
        return group

    def _changes(self, images: "_Images") -> Changes:
        messages, rows = self.messages, len(images.data)
        at, place = self.at, [0] * rows
        op, time, gtid = (
            [OPS[m.type] for m in messages],
            [m.es * 1000 for m in messages],
            [m.gtid or None for m in messages],
        )
        if rows != len(messages):
            counts = [len(m.data) for m in messages]
            place = list(chain.from_iterable(map(range, counts)))
            at, op, time, gtid = (list(chain.from_iterable(map(repeat, of, counts))) for of in (at, op, time, gtid))
        return Changes(at, place, op, images.data, images.old, time, gtid, [None] * rows)


class _Images(NamedTuple):
    """Rows of messages, the `old` beside each, and the groups by names of columns."""

    data: list[_Cells]
    old: list[_Cells | None]
    groups: dict[tuple[str, ...], Group]


def _olds(m: _FlatMessage) -> Sequence[_Cells | None]:
    """`old` of each row; that of anything but an update tells nothing."""
    return (m.old if m.type == "UPDATE" else None) or _NO_OLD * len(m.data)


def _by_columns(read: list[_FlatMessage | None], others: list[int]) -> list[_Alike]:
    """Messages by what they say of their columns; adds those that say nothing that can be used to `others`."""
    known: dict[tuple[str, str, bytes, bytes, bytes], _Alike | None] = {}
    last: dict[str, _Alike] = {}
    for at, m in enumerate(read):
        if m is None:
            others.append(at)
            continue
        alike = last.get(m.table)
        if (
            alike is None
            or m.mysqlType != (first := alike.first).mysqlType
            or m.sqlType != first.sqlType
            or m.pkNames != first.pkNames
            or m.database != first.database
        ):
            told = (m.database, m.table, bytes(m.mysqlType), bytes(m.sqlType), bytes(m.pkNames))
            if told not in known:
                known[told] = _first(m)
            if (alike := known[told]) is None:
                others.append(at)
                continue
            last[m.table] = alike
        alike.at.append(at)
        alike.messages.append(m)
    return [alike for alike in known.values() if alike is not None]


def _first(m: _FlatMessage) -> _Alike | None:
    try:
        return _Alike(m)
    except (ValueError, RecursionError):
        return None
