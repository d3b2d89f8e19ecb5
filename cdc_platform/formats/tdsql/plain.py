"""Row messages exactly as TDSQL's subscription writes them (all their fields, every literal a text), read by their
declared shape, and field by field: a fraction of the time of `messages.read`, which reads whatever is not so.

What a message says of its table and columns is looked up once for all messages of a batch that say the same.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from cdc_platform.formats.kafka_connect.json import compact_pairs, read_json
from cdc_platform.formats.kafka_connect.values import BAD
from cdc_platform.formats.tdsql.messages import (
    HEARTBEAT,
    LAST_S,
    MICROS,
    Changes,
    binlog_file,
    check_images,
    column_names,
    number,
    place,
)
from cdc_platform.formats.tdsql.rows import Group, group_of
from cdc_platform.formats.tdsql.schemas import Schemas, Table

_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, Meta(min_length=1)]


class _Message(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    prefix: str
    filename: str
    logtype: Literal["mysqlbinlog"]
    eventtype: _Count
    eventtypestr: Literal["insert", "update", "delete"]
    db: _Name
    table: _Name
    localip: str
    localport: _Count
    begintime: Annotated[int, Meta(ge=1, le=LAST_S)]
    gtid: str
    serverid: str
    event_index: str
    gtid_commitid: str
    gtid_flag2: str
    where: list[str]
    field: list[str]
    sub_event_index: str
    sequence_num: str
    orgoffset: _Count
    column: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_FIELDS = len(_Message.__struct_fields__) - 1  # `column` only newer versions have
_READ = msgspec.json.Decoder(_Message)
_AT_A_TIME = 500  # messages: so many fit, parsed, into a processor's cache

_number = lru_cache(maxsize=4096)(number)  # mostly the same few


class Plain(NamedTuple):
    """`rows`: those of the plain messages of a batch. `others`: which messages are no such, or have a fault."""

    rows: dict[Group, list[Changes]]
    others: list[int]


class _Kind(NamedTuple):
    """What a message says of the row it holds. `column`: the bytes of its columns' names, if told."""

    op: str
    db: str
    table: str
    where: int
    field: int
    column: bytes | None


class _Told(NamedTuple):
    """What a kind of messages says of its table. `group`: that of all their rows; None: it depends on their place."""

    db: str
    table: str
    names: tuple[str, ...] | None
    group: Group | None


class PlainReader:
    """Plain messages of one batch; remembers what their kinds tell. `address`: topic, partition and offset of a
    message, by its number in the batch."""

    def __init__(self, schemas: Schemas, address: Callable[[int], tuple[str, int, int]]):
        self.schemas, self.address = schemas, address
        self._known: dict[_Kind, _Told | None] = {}
        self._groups: dict[tuple[_Kind, Table], Group] = {}

    def __call__(self, values: list[bytes | None]) -> Plain:
        """The messages of the batch. Never raises for bad bytes."""
        plain = Plain({}, [])
        for start in range(0, len(values), _AT_A_TIME):
            kinds: dict[_Kind, _Alike] = {}
            for at, m in _sound(values[start : start + _AT_A_TIME], start, plain.others):
                column = None if m.column is msgspec.UNSET else bytes(m.column)
                kind = _Kind(m.eventtypestr, m.db, m.table, len(m.where), len(m.field), column)
                kinds.setdefault(kind, []).append((at, m))
            for kind, alike in kinds.items():
                self._add(plain, kind, alike)
        return Plain(plain.rows, sorted(plain.others))

    def _add(self, plain: Plain, kind: _Kind, alike: "_Alike") -> None:
        """Puts the rows of some messages of a kind where they belong."""
        if kind not in self._known:
            try:
                self._known[kind] = self._told(kind)
            except BAD:
                self._known[kind] = None
        told = self._known[kind]
        groups: dict[Group | None, _Alike] = {}
        if told is None or told.group is not None:
            groups[told and told.group] = alike
        else:
            for at, m in alike:
                groups.setdefault(self._group(kind, told, at, m), []).append((at, m))
        for group, rows in groups.items():
            changes, faulty = ([], rows) if group is None else _changes(rows)
            plain.others.extend(at for at, _ in faulty)
            if group is not None and changes:
                plain.rows.setdefault(group, []).extend(changes)

    def _told(self, kind: _Kind) -> _Told | None:
        """None: it's for `messages.read`. Raises one of BAD where the messages contradict themselves."""
        db, table = kind.db, kind.table
        if (db.lower(), table.lower()) == HEARTBEAT:
            return None
        check_images(kind.op, kind.where, kind.field)
        names = None if kind.column is None else column_names(read_json(kind.column), kind.where, kind.field)
        if self.schemas.fold:
            db, table = db.lower(), table.lower()
        steady = self.schemas.steady(db, table)
        return _Told(db, table, names, steady and group_of(steady, names, kind.where, kind.field))

    def _group(self, kind: _Kind, told: _Told, at: int, m: _Message) -> Group | None:
        """Where the row of message `at` belongs; None: nowhere."""
        try:
            table = self.schemas.at(told.db, told.table, self.address(at), place(m.gtid, m.begintime * MICROS))
            if (kind, table) not in self._groups:
                self._groups[kind, table] = group_of(table, told.names, kind.where, kind.field)
        except ValueError:
            return None
        return self._groups[kind, table]


_Alike = list[tuple[int, _Message]]
"""Messages with their numbers in the batch."""


def _sound(values: list[bytes | None], start: int, others: list[int]) -> _Alike:
    """The plain messages among some, the first of which has the number `start`. Adds the rest to `others`."""
    parsed = _parsed(values)
    found = [(at, m) for at, m in enumerate(parsed, start) if m is not None]
    others += [at for at, m in enumerate(parsed, start) if m is None]
    # What a text shows beyond what was parsed is a name that stands twice. No message shows less than was parsed of
    # it, so equal sums are equal in each.
    if compact_pairs(b"".join([values[at - start] or b"" for at, _ in found])) == sum([_pairs(m) for _, m in found]):
        return found
    clear = [(at, m) for at, m in found if compact_pairs(values[at - start] or b"") == _pairs(m)]
    others += {at for at, _ in found} - {at for at, _ in clear}
    return clear


def _pairs(m: _Message) -> int:
    return _FIELDS + (m.column is not msgspec.UNSET)


def _parsed(values: list[bytes | None]) -> list[_Message | None]:
    """None: not of the declared shape."""
    found: list[_Message | None] = []
    rest = iter(values)
    while len(found) < len(values):
        try:
            found.extend(map(_READ.decode, rest))  # pyright: ignore[reportArgumentType] - a null is a TypeError
        except (ValueError, TypeError, RecursionError):  # msgspec's errors are ValueErrors
            found.append(None)  # what came before it is in the list; the next round goes on behind it
    return found


def _changes(alike: _Alike) -> tuple[list[Changes], _Alike]:
    """Rows of some messages, and the messages that have a fault."""
    try:
        return [_changes_of(alike)], []
    except ValueError:
        if len(alike) == 1:
            return [], alike
    found, faulty = zip(*(_changes([one]) for one in alike), strict=True)
    return list(chain.from_iterable(found)), list(chain.from_iterable(faulty))


def _changes_of(alike: _Alike) -> Changes:
    """Raises ValueError where a number is none."""
    messages = [m for _, m in alike]
    return Changes(
        [at for at, _ in alike],
        [m.where for m in messages],
        [m.field for m in messages],
        [m.begintime * MICROS for m in messages],
        [m.gtid or None for m in messages],
        [_number(m.event_index) for m in messages],
        [_number(m.sub_event_index) for m in messages],
        [binlog_file(m.filename) for m in messages],
    )
