"""Debezium's JSON change events (MySQL, MariaDB, PostgreSQL, SQL Server) and dtle's Debezium-like ones.

Per message: `{"schema":…,"payload":…}`, `"schema":null` or the bare payload, mixed at will; dtle is known by
`source.version` 0.0.1 without `connector`. JSON is read by msgspec, which keeps every digit and refuses
trailing bytes and bad UTF-8; repeated object keys are refused too, as nobody can tell which one was meant.

Bare payloads tell no types. The option `columns`, the schema-change topic or a `schema_file` do; then values are read
by Debezium's encodings under the modes set. Without any they stay as written, as `longtext`, and the columns are those
of the image at hand. The key is the table's primary key where it is known so: that of Kafka may be set to columns that
aren't unique (`message.key.columns`).

dtle's faults. Repaired always: a TIMESTAMP of year 1 (its zero date), snapshot years 100..255 (2000 on).
Repaired by option: BIGINT UNSIGNED above 2^63 and fractions of TIME(n<6) (`columns`), DATETIME with a time
zone (`dtle_time_zone`), base64 TEXT and JSON (`dtle_text_base64`), snapshot years 1901..1969
(`dtle_snapshot_year`). Not repairable from the message: negative DECIMALs whose magnitude fills its bytes
(-2.00 reads as 0.56), DATETIME digits below ms, TIMESTAMP fractions, zero DATE and DATETIME (1970-01-01),
trailing zeros of BINARY(n), ENUM labels holding commas or quotes (the type text, not the values). dtle's
source time is its own clock.

TiCDC's rows don't keep the order of the source's log: they are marked so, and tell no time; its watermarks do.
"""

from contextlib import suppress
from typing import Any

import pyarrow as pa

from cdc_platform.formats.collect import Collector, Converted
from cdc_platform.formats.contract import Beat, Context, ControlTopics, Format, Limit, Liveness
from cdc_platform.formats.debezium.connectors import check_connector, database_of, schema_of
from cdc_platform.formats.debezium.control import WATERMARK, control_events, message_event
from cdc_platform.formats.debezium.groups import Group, described, is_dtle, is_snapshot, load_of, of_message, of_row
from cdc_platform.formats.debezium.options import DebeziumOptions
from cdc_platform.formats.debezium.rows import Changes, Row, Table, place_of_row, row_changes
from cdc_platform.formats.events import Addresses, Event, collection_paused
from cdc_platform.formats.exact_json import certain_json
from cdc_platform.formats.kafka_connect.types import NULL_AS_DEFAULT, TYPE_UNTOLD, ZONE_UNTOLD
from cdc_platform.formats.kafka_connect.wrapper import Schema, Unwrapper
from cdc_platform.formats.limits import any_type, finer_than, of
from cdc_platform.formats.table_schemas.lookup import Columns, TableSchemas
from cdc_platform.formats.table_schemas.states import States, build
from cdc_platform.formats.texts import BAD, an_object, shown

_MANY = 10_000  # tables × schemas kept for one decode call; beyond it something invents schemas
_OPS = {"c": "insert", "u": "update", "d": "delete", "r": "read", "t": "truncate"}
_FLATTENED = (
    "no op, before and after: this is no Debezium change event. If ExtractNewRecordState (unwrap) flattens "
    "the messages, remove that SMT from the connector"
)
_CLOUD_EVENTS = "CloudEvents aren't read: set the connector's value.converter to JsonConverter"
_ROUTING = "__dbz__physicalTableIdentifier"  # added to the key by ByLogicalTableRouter; no column


class _Collector(Collector[Group, Changes, Table]):
    CHANGES, NO_VALUE, SCHEMA_RANK = Changes, "tombstone", 2

    def __init__(self, messages: pa.RecordBatch, options: DebeziumOptions, states: States | None):
        super().__init__(messages)
        self.options = options
        self.schemas = TableSchemas(states)
        self.values, self.keys = Unwrapper(), Unwrapper()
        self.tables: dict[Group, Table] = {}
        self.topics, self.kafka_keys = (messages.column(name).to_pylist() for name in ("topic", "key"))
        self.addresses = Addresses(messages)

    def parse(self, at: int, value: bytes) -> tuple[Schema | None, Any]:
        """The schema and the payload."""
        return self.values(self.topics[at] or "", value)

    def certain(self, value: bytes) -> tuple[Schema | None, Any]:
        """As `parse`: no schema is sure of a value that can't be parsed."""
        found = certain_json(value)
        return None, found.get("payload", found) if type(found) is dict else None

    def read(self, at: int, message: tuple[Schema | None, Any]) -> None:
        schema, payload = message
        if payload is None:  # dtle's tombstone is the text {"schema":null,"payload":null}
            self.rare.append((at, {"kind": "skip", "reason": self.NO_VALUE}))
            return
        if type(payload) is not dict:
            raise ValueError(f"payload {shown(payload)} is no object")
        if "op" in payload:
            self._row(at, schema, payload)
            return
        events = control_events(payload, self.topics[at] or "", schema.name if schema else None)
        if events is None:
            raise ValueError(_CLOUD_EVENTS if "specversion" in payload else _FLATTENED)
        self.rare.extend((at, event) for event in events)

    def of_message(self, at: int, message: tuple[Schema | None, Any] | None) -> Event:
        schema, payload = message or (None, None)
        if type(payload) is not dict or "op" not in payload:
            return {}
        source = payload.get("source")
        known = None
        if type(source) is dict and not self.schemas.empty:
            with suppress(*BAD):
                known = self._known(at, source, ())
        return of_message(payload, schema, self._key(at), self.options, known)

    def of_row(self, group: Group, row: Row) -> Event:
        return of_row(self.table(group), row.key)

    def table(self, group: Group) -> Table:
        table = self.tables.get(group)
        if table is None:
            table = described(group, self.options)
            if len(self.tables) < _MANY:
                self.tables[group] = table
        return table

    def convert(self, _group: Group, table: Table, rows: Changes) -> Converted[Changes]:
        return row_changes(self.messages, table, rows), rows, {}

    def _row(self, at: int, schema: Schema | None, payload: dict) -> None:
        op = payload["op"]
        if op == "m":
            self.rare.append((at, message_event(payload)))
            return
        source = _source(op, payload, self.options)
        before, after = _images(op, payload)
        key_schema, key_row = self._key(at) if op != "t" else (None, None)
        snapshot = is_snapshot(source)
        dtle = is_dtle(source)
        names = tuple(key_row) if key_row else ()
        shape = None if schema is not None else _shape(before, after)
        known = None if self.schemas.empty else self._known(at, source, shape or _names(schema))
        of = database_of(source), schema_of(source)
        load = dtle and snapshot
        taken = load_of(source, dtle=dtle) if snapshot and op in "cr" else None
        group = Group(schema, key_schema, source["db"], source["table"], dtle, load, names, shape, known, *of, taken)
        table = self.table(group)
        if not table.key_names:
            key_row = None
        elif op in "ud" and before is not None and _has_key(before, table):
            key_row = before  # the row before; dtle's Kafka key is that already
        elif op in "cr" and after is not None and table.key_set <= after.keys():
            key_row = after
        if op == "d" and before is None and key_row is None:
            raise ValueError("delete without before and without a readable key: no telling which row")
        name = "read" if op == "c" and snapshot else _OPS[op]  # 0.x and dtle write snapshot rows as c
        self.add(group, Row(at, name, before, after, key_row, source, an_object(payload, "transaction")))

    def _known(self, at: int, source: dict, names: tuple[str, ...]) -> Columns | None:
        """What the schema history says of the columns of a row's table."""
        db, table = source.get("db"), source.get("table")
        if type(db) is not str or type(table) is not str or database_of(source) != "mysql":
            return None  # schema histories and files are MySQL's
        return self.schemas.steady(db, table) or self.schemas.of_row(
            db, table, place_of_row(self.addresses(at), source, dtle=is_dtle(source)), names
        )

    def _key(self, at: int) -> tuple[Schema | None, dict | None]:
        """A message's Kafka key: its schema and columns; nothing when it is null, junk or without columns (no key)."""
        key = self.kafka_keys[at]
        if key is None:
            return None, None
        try:
            schema, payload = self.keys(self.topics[at] or "", key)
        except BAD:
            return None, None
        if type(payload) is not dict:
            return None, None
        payload.pop(_ROUTING, None)
        return (schema, payload) if payload else (None, None)


def _has_key(before: dict, table: Table) -> bool:
    """Whether the row before tells its key: PostgreSQL's has NULL in columns that its replica identity lacks."""
    names = table.key_set
    return names <= before.keys() and (table.database == "mysql" or all(before[n] is not None for n in names))


def _source(op: object, payload: dict, options: DebeziumOptions) -> dict:
    """The source block of a row message with a known op, naming a table: where it has none, that of the options."""
    if type(op) is not str or op not in _OPS:
        raise ValueError(f"unknown op {shown(op)}; known: {', '.join(_OPS)}, m")
    source = payload.get("source")
    if source is None and not (options.database and options.table):
        raise ValueError("no source, which names the table; options database and table name one for all such messages")
    if source is not None and type(source) is not dict:
        raise ValueError(f"source {shown(source)} is no object")
    source = source or {}
    check_connector(source)
    db, table = source.get("db"), source.get("table")
    if type(db) is str and db and type(table) is str and table:
        return source
    db, table = db or options.database, table or options.table
    if not (type(db) is str and db and type(table) is str and table):
        told = f"db {shown(source.get('db'))}, table {shown(source.get('table'))}"
        raise ValueError(f"source names no table: {told}; options database and table name one for all such messages")
    return {**source, "db": db, "table": table}


def _names(schema: Schema | None) -> tuple[str, ...]:
    return schema.names if schema else ()


def _shape(before: dict | None, after: dict | None) -> tuple[str, ...]:
    """Column names of a bare row, in the order of its images."""
    if after and before and after.keys() != before.keys():
        return tuple({**after, **before})
    return tuple(after or before or ())


def _images(op: str, payload: dict) -> tuple[dict | None, dict | None]:
    """before and after of a row message, checked against what its op needs."""
    before, after = an_object(payload, "before") or None, an_object(payload, "after")  # CloudCanal has {} for none
    if op == "t":
        return None, None
    if op == "d":
        return before, None
    if after is None:
        raise ValueError(f"op {op} without after")
    return (before if op == "u" else None), after


def decode(messages: pa.RecordBatch, options: DebeziumOptions, states: States | None = None) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes. `states`: the tables'
    columns over time, as `table_schemas.states.build` gives them."""
    with collection_paused():
        return _Collector(messages, options, states).decode()


LIMITS = (
    Limit(
        "a date with a zero (0000-00-00) arrives as NULL, in a column that is NOT NULL as 1970-01-01",
        of("date", "datetime", "timestamp"),
        writer="debezium",
    ),
    Limit(
        "NULL arrives as the column's default, unless the connector's converter sets replace.null.with.default=false: "
        "option replace_null_with_default says so",
        any_type,
        stated=NULL_AS_DEFAULT,
        writer="debezium",
    ),
    Limit(
        "a converter writes it as text without an offset, which is read in UTC: option time_zone names its zone",
        of("timestamp"),
        unless="time_zone",
        stated=ZONE_UNTOLD,
        writer="debezium",
    ),
    *(
        limit
        for writer in ("postgresql", "sqlserver")
        for limit in (
            Limit(
                "NULL arrives as the column's default, unless the connector's converter sets "
                "replace.null.with.default=false: option replace_null_with_default says so",
                any_type,
                stated=NULL_AS_DEFAULT,
                writer=writer,
            ),
            Limit(
                "the messages have no schema, so its type isn't told: it is text as written, also of times, decimals "
                "and bytes, unless option columns names the type",
                any_type,
                stated=TYPE_UNTOLD,
                writer=writer,
            ),
        )
    ),
    Limit("negative decimals whose leading bit is set arrive as positive ones", of("decimal"), writer="dtle"),
    Limit("a date with a zero (0000-00-00) arrives as 1970-01-01", of("date", "datetime"), writer="dtle"),
    Limit("digits beyond milliseconds aren't sent", finer_than(3, "datetime"), writer="dtle"),
    Limit("fractions of a second aren't sent", finer_than(0, "timestamp"), writer="dtle"),
    Limit(
        "shifted, if the dtle job sets DateTimeZone: option dtle_time_zone has to name it",
        of("datetime"),
        unless="dtle_time_zone",
        writer="dtle",
    ),
    Limit(
        "its bytes may be swapped, if dtle is older than 2022-05",
        lambda t: t.family == "bit" and (*t.args, 1)[0] > 8,
        writer="dtle",
    ),
)
"""docs/types.md, "What a feed can't tell"."""

FORMAT = Format(
    name="debezium",
    version="2",
    summary="Debezium JSON (MySQL, MariaDB, PostgreSQL, SQL Server) with or without schema, and dtle's flavour of it",
    options=DebeziumOptions,
    decode=decode,
    # heartbeats, and where the database tells no time transactions, are stamped by the connector
    log_times=frozenset({"row", "checkpoint"}),
    capture_clocks=("dtle:",),
    log_positions=True,
    beats=(Beat("heartbeat"), Beat("checkpoint", WATERMARK)),
    # not that of schema changes: a statement is a change; a table may be called transaction, but has no such events
    control_topics=(
        ControlTopics(r"__debezium-heartbeat(\..+)?"),
        ControlTopics(r".+\.transaction", frozenset({"begin", "commit"})),
    ),
    liveness=Liveness("Debezium sends heartbeats only where heartbeat.interval.ms is set"),
    part=None,
    context=Context(build=build, marker='ddl"'),
    transactions="counts",
    limits=LIMITS,
)
