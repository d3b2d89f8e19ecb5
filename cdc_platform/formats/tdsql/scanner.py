"""Messages exactly as TDSQL's subscription writes them: all their fields, every literal a text."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from cdc_platform.formats.collect import Table
from cdc_platform.formats.exact_json import read_json
from cdc_platform.formats.json_scanner import JsonScanner
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
from cdc_platform.formats.tdsql.schemas import Schemas
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
_Kind = Group | type[_Any]
"""Of a message with a row its group, else its shape."""

_number = lru_cache(maxsize=4096)(number)  # mostly the same few


class _Source(NamedTuple):
    """What messages with one key say of their table. `steady`: the group of all their rows; None: that depends on where
    they stand. `groups`: by tables; None where the rows don't fit."""

    db: str
    table: str
    names: tuple[str, ...] | None
    steady: Group | None
    groups: dict[Table, Group | None]


class Scanner(JsonScanner[_Any, _Kind]):
    """Reads rows, and the events of messages without rows. `address`: topic, partition and offset of a message, by its
    number in the batch."""

    DECODER = msgspec.json.Decoder(_Any)

    def __init__(self, schemas: Schemas, address: Callable[[int], tuple[str, int, int]], options: TdsqlOptions):
        super().__init__()
        self.schemas, self.address, self.options = schemas, address, options

    def kinds(self, start: int, messages: list[_Any | None]) -> list[_Kind | None]:
        kinds = []
        for at, m in enumerate(messages, start):
            if not isinstance(m, _Row):
                kinds.append(None if m is None else type(m))
                continue
            column = None if m.column is msgspec.UNSET else bytes(m.column)
            key = (type(m), m.db, m.table, len(m.where), len(m.field), column, m.prefix or None)
            source = self.remembered(key, self._source, key)
            kinds.append(source and (source.steady or self._group(source, at, m)))
        return kinds

    def _group(self, source: _Source, at: int, m: _Row) -> Group | None:
        """The group of a row where its table's columns depend on where it stands; None: it has none."""
        try:
            where = place(m.gtid, m.begintime * MICROS)
            table = self.schemas.at(source.db, source.table, self.address(at), where, m.prefix or None)
            if table not in source.groups:
                source.groups[table] = None
                source.groups[table] = group_of(table, source.names, len(m.where), len(m.field), self.options)
        except BAD:
            return None
        return source.groups[table]

    def _source(self, key: tuple[type[_Row], str, str, int, int, bytes | None, str | None]) -> _Source | None:
        """What messages with the same `key` say. Raises one of BAD where they contradict themselves."""
        shape, db, table, where, field, column, prefix = key
        if not db or not table or (db.lower(), table.lower()) == HEARTBEAT:
            return None
        check_images(_OPS[shape], where, field)
        names = None if column is None else column_names(read_json(column), where, field)
        if self.schemas.fold:
            db, table = db.lower(), table.lower()
        steady = self.schemas.steady(db, table, prefix)
        return _Source(db, table, names, steady and group_of(steady, names, where, field, self.options), {})

    def pairs(self, _kind: _Kind, messages: list[_Any]) -> int:
        m = messages[0]  # all of a kind set the same fields
        return len(messages) * (_PAIRS[type(m)] + (isinstance(m, _Row) and m.column is not msgspec.UNSET))

    def add(self, kind: _Kind, at: list[int], messages: list[Any]) -> None:
        if isinstance(kind, Group):
            changes = _changes(at, messages)
            self.rows.setdefault(kind, []).append(changes)
        else:
            self.events += [(i, event) for i, m in zip(at, messages, strict=True) for event in self._events(i, m)]

    def _events(self, at: int, m: _Gtid | _Xid | _Query) -> list[Event]:
        """Raises one of BAD for a message with a fault."""
        gtid = m.gtid or None
        where, event_no = place(gtid, m.begintime * MICROS), _number(m.event_index)
        fields = control_fields(where, gtid, event_no, binlog_file(m.filename), self.options)
        if isinstance(m, _Query):
            refused = partial(self.schemas.emptied.reason, self.address, at)
            return query(fields, m.sql, m.db, m.prefix or None, refused, self.options)
        return commit(fields, m.xid) if isinstance(m, _Xid) else begin(fields)


def _changes(at: list[int], messages: list[_Row]) -> Changes:
    """Raises ValueError where a number is none."""
    return Changes(
        at,
        [m.where for m in messages],
        [m.field for m in messages],
        [m.begintime * MICROS for m in messages],
        [m.gtid or None for m in messages],
        [_number(m.event_index) for m in messages],
        [_number(m.sub_event_index) for m in messages],
        [binlog_file(m.filename) for m in messages],
    )
