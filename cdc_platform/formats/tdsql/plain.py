"""Messages exactly as TDSQL's subscription writes them (all their fields, every literal a text), read by their declared
shape, and rows field by field: a fraction of the time of `messages.read`, which reads whatever is not so.

What a message says of its table and columns is looked up once for all messages of a batch that say the same.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from cdc_platform.formats.exact_json import compact_pairs, decoded, read_json
from cdc_platform.formats.tdsql.messages import (
    HEARTBEAT,
    LAST_S,
    MICROS,
    Changes,
    Event,
    begin,
    binlog_file,
    check_images,
    column_names,
    commit,
    control_fields,
    number,
    place,
    query,
)
from cdc_platform.formats.tdsql.options import TdsqlOptions
from cdc_platform.formats.tdsql.rows import Group, group_of
from cdc_platform.formats.tdsql.schemas import Schemas, Table
from cdc_platform.formats.texts import BAD

_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Message(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="eventtypestr"):
    prefix: str
    filename: str
    logtype: Literal["mysqlbinlog"]
    eventtype: _Count
    db: str
    table: str
    localip: str
    localport: _Count
    begintime: Annotated[int, Meta(ge=1, le=LAST_S)]
    gtid: str
    serverid: str
    event_index: str
    gtid_commitid: str
    gtid_flag2: str
    sequence_num: str
    orgoffset: _Count


class _Gtid(_Message, frozen=True, gc=False, tag="gtid"):
    pass


class _Xid(_Message, frozen=True, gc=False, tag="xid"):
    xid: str


class _Query(_Message, frozen=True, gc=False, tag="query"):
    sql: str


class _Row(_Message, frozen=True, gc=False):
    where: list[str]
    field: list[str]
    sub_event_index: str
    column: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # newer versions'


class _Insert(_Row, frozen=True, gc=False, tag="insert"):
    pass


class _Update(_Row, frozen=True, gc=False, tag="update"):
    pass


class _Delete(_Row, frozen=True, gc=False, tag="delete"):
    pass


_OPS: dict[type[_Message], str] = {_Insert: "insert", _Update: "update", _Delete: "delete"}
_PAIRS = {
    shape: len(shape.__struct_fields__) + 1 - issubclass(shape, _Row)  # and the tag; but mostly no `column`
    for shape in (_Gtid, _Xid, _Query, *_OPS)
}
_Any = _Gtid | _Xid | _Query | _Insert | _Update | _Delete
_READ = msgspec.json.Decoder(_Any)
_AT_A_TIME = 500  # messages: so many fit, parsed, into a processor's cache

_number = lru_cache(maxsize=4096)(number)  # mostly the same few


class Plain(NamedTuple):
    """What plain messages of a batch hold: `rows`, and `events` of those without rows, each with its message.
    `others`: which messages are no such, or have a fault."""

    rows: dict[Group, list[Changes]]
    events: list[tuple[int, list[Event]]]
    others: list[int]


class _Kind(NamedTuple):
    """What a message says of the row it holds. `column`: the bytes of its columns' names, if told."""

    shape: type[_Row]
    db: str
    table: str
    where: int
    field: int
    column: bytes | None


class _Told(NamedTuple):
    """What a kind of messages says of its table. `steady`: that of all their rows; None: it depends on their place.
    `groups`: those of the rows by tables; None where they don't fit."""

    db: str
    table: str
    names: tuple[str, ...] | None
    steady: Table | None
    groups: dict[Table, Group | None]


class PlainReader:
    """Plain messages of one batch; remembers what their kinds tell. `address`: topic, partition and offset of a
    message, by its number in the batch."""

    def __init__(self, schemas: Schemas, address: Callable[[int], tuple[str, int, int]], options: TdsqlOptions):
        self.schemas, self.address, self.options = schemas, address, options
        self._known: dict[_Kind, _Told | None] = {}

    def __call__(self, values: list[bytes | None]) -> Plain:
        """The messages of the batch. Never raises for bad bytes."""
        plain = Plain({}, [], [])
        for start in range(0, len(values), _AT_A_TIME):
            kinds: dict[tuple, _Alike] = {}
            for at, m in _sound(values[start : start + _AT_A_TIME], start, plain.others):
                if isinstance(m, _Row):
                    column = None if m.column is msgspec.UNSET else bytes(m.column)
                    kind = (type(m), m.db, m.table, len(m.where), len(m.field), column)
                    kinds.setdefault(kind, []).append((at, m))
                    continue
                try:
                    plain.events.append((at, _events(m, self.options)))
                except BAD:
                    plain.others.append(at)
            for kind, alike in kinds.items():
                self._add(plain, _Kind(*kind), alike)
        return Plain(plain.rows, plain.events, sorted(plain.others))

    def _add(self, plain: Plain, kind: _Kind, alike: "_Alike") -> None:
        """Puts the rows of some messages of a kind where they belong."""
        if kind not in self._known:
            try:
                self._known[kind] = self._told(kind)
            except BAD:
                self._known[kind] = None
        told = self._known[kind]
        for table, rows in self._by_table(told, alike).items():
            group = told and table and self._group(kind, told, table)
            changes, faulty = _changes(rows) if group else ([], rows)
            plain.others.extend(at for at, _ in faulty)
            if group and changes:
                plain.rows.setdefault(group, []).extend(changes)

    def _told(self, kind: _Kind) -> _Told | None:
        """None: it's for `messages.read`. Raises one of BAD where the messages contradict themselves."""
        db, table = kind.db, kind.table
        if not db or not table or (db.lower(), table.lower()) == HEARTBEAT:
            return None
        check_images(_OPS[kind.shape], kind.where, kind.field)
        names = None if kind.column is None else column_names(read_json(kind.column), kind.where, kind.field)
        if self.schemas.fold:
            db, table = db.lower(), table.lower()
        return _Told(db, table, names, self.schemas.steady(db, table), {})

    def _by_table(self, told: _Told | None, alike: "_Alike") -> dict[Table | None, "_Alike"]:
        """Messages of a kind by the tables where they stand; None: it isn't known."""
        if told is None or told.steady is not None:
            return {told and told.steady: alike}
        found: dict[Table | None, _Alike] = {}
        for at, m in alike:
            try:
                table = self.schemas.at(told.db, told.table, self.address(at), place(m.gtid, m.begintime * MICROS))
            except BAD:
                table = None
            found.setdefault(table, []).append((at, m))
        return found

    @staticmethod
    def _group(kind: _Kind, told: _Told, table: Table) -> Group | None:
        if table not in told.groups:
            try:
                told.groups[table] = group_of(table, told.names, kind.where, kind.field)
            except ValueError:
                told.groups[table] = None
        return told.groups[table]


_Alike = list[tuple[int, _Row]]
"""Messages with their numbers in the batch."""


def _events(m: _Gtid | _Xid | _Query, options: TdsqlOptions) -> list[Event]:
    """Raises one of BAD for a message with a fault."""
    gtid = m.gtid or None
    where, event_no = place(gtid, m.begintime * MICROS), _number(m.event_index)
    told = control_fields(where, gtid, event_no, binlog_file(m.filename), options)
    if isinstance(m, _Query):
        return query(told, m.sql, m.db, options)
    return commit(told, m.xid) if isinstance(m, _Xid) else begin(told)


def _sound(values: list[bytes | None], start: int, others: list[int]) -> list[tuple[int, _Any]]:
    """The plain messages among some, the first of which has the number `start`. Adds the rest to `others`."""
    parsed = decoded(_READ, values)
    found = [(at, m) for at, m in enumerate(parsed, start) if m is not None]
    others += [at for at, m in enumerate(parsed, start) if m is None]
    # What a text shows beyond what was parsed is a name that stands twice. No message shows less than was parsed of
    # it, so equal sums are equal in each.
    if compact_pairs(b"".join([values[at - start] or b"" for at, _ in found])) == sum([_pairs(m) for _, m in found]):
        return found
    clear = [(at, m) for at, m in found if compact_pairs(values[at - start] or b"") == _pairs(m)]
    others += {at for at, _ in found} - {at for at, _ in clear}
    return clear


def _pairs(m: _Any) -> int:
    return _PAIRS[type(m)] + (isinstance(m, _Row) and m.column is not msgspec.UNSET)


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
