"""What became of the events of a message: where each stands, and if it stands nowhere, why not. Arrow for the rules of
the changelog stage, which are asked here, not written again."""

import fnmatch
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from cdc_platform import tables
from cdc_platform.changelog import log_epochs
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.order_key import replayed
from cdc_platform.changelog.unify import outcome
from cdc_platform.changes.file_stats import KINDS
from cdc_platform.config import Config, Source
from cdc_platform.explain.records import Address
from cdc_platform.formats import FORMATS
from cdc_platform.lake import delta_table, handles, order_places, stores
from cdc_platform.lake.queries import Partition, columns, query, text
from cdc_platform.tables import CHANGES, Name, name_in

Event = dict[str, Any]
_PLACES = {"row": tables.CHANGELOG, "ddl": tables.SCHEMA_HISTORY, "error": tables.QUARANTINE}
"""Kind of event → where it is applied; others: in CONTROL_EVENTS."""
_ROW = ("entry_index", "row_index")


def events_of(config: Config, source: Source, message: Address) -> list[Event]:
    """Rows of `changes` that a message (its first record) was decoded to, in order, maps as dicts."""
    from deltalake import QueryBuilder
    from deltalake.exceptions import TableNotFoundError

    path = CHANGES.at(stores.lake(config), format=source.format, source=source.name)
    try:
        with handles.handle(path) as opened:
            sql = f"SELECT * FROM t WHERE {message.condition()} ORDER BY entry_index, row_index"
            rows = pa.table(QueryBuilder().register("t", opened.table).execute(sql).read_all())
    except TableNotFoundError:
        return []
    return rows.to_pylist(maps_as_pydicts="strict")


def outcomes(config: Config, source: Source, message: Address, events: list[Event]) -> list[dict[str, Any]]:
    """Per event: outcome (applied, control, filtered, quarantined, resolved, duplicate, not applied yet) and `why`, in
    words; `of`: the address of the stored change that a duplicate repeats."""
    stored = {kind: _stored(config, source, message, table) for kind, table in _PLACES.items()}
    arrivals = _arrivals(config, source)
    end = reached(config, source).get((message.topic, message.partition), -1)
    by_rule = _by_rule(source, events)
    replays = _replayed(message, events, arrivals)
    found = []
    for event, rule, again in zip(events, by_rule, replays, strict=True):
        found.append(_outcome(config, source, event, rule, stored, again=again, end=end))
    return found


def _outcome(
    config: Config,
    source: Source,
    event: Event,
    rule: str,
    stored: dict[str, dict[tuple[Any, ...], Event]],
    *,
    again: bool,
    end: int,
) -> dict[str, Any]:
    row = event["kind"] == "row"
    if (there := _where_it_stands(event, stored)) is not None:
        return there
    if event["offset"] > end:
        return _NOT_YET
    if row and rule != "filtered" and (repeat := _repeat(config, source, event, again=again)) is not None:
        return repeat
    if row and rule != "filtered" and not _once_left_out(config, source, name_in(event)):
        return _NOT_YET
    if row or rule == "filtered":
        then = "the rules left its table out when it came; a run with today's rules takes it from `changes`"
        return {"outcome": "filtered", "why": left_out_by(source, name_in(event)) or then}
    outcome = rule if rule in ("quarantined", "erased") else "control"
    return {"outcome": outcome, "why": event["reason"]}


def _repeat(config: Config, source: Source, event: Event, *, again: bool) -> dict[str, Any] | None:
    """The outcome of a row change that is there already; None: none like it is."""
    first = _first(config, source, event)
    if again:
        return {"outcome": "duplicate", "why": "the log was sent again here", "of": first}
    if first is None:
        return None
    return {"outcome": "duplicate", "why": "the same change is there already", "of": first}


_NOT_YET = {"outcome": "not applied yet", "why": "the changelog stage hasn't come to it: `cdc-platform run` does"}


def _where_it_stands(event: Event, stored: dict[str, dict[tuple[Any, ...], Event]]) -> dict[str, Any] | None:
    """Its outcome by the table that has it; None: none has."""
    kind, at = event["kind"], tuple(event[c] for c in _ROW)
    if (kind == "row" and at in stored["row"]) or (kind == "ddl" and (at[0], None) in stored["ddl"]):
        return {"outcome": "applied", "why": None}
    held = stored["error"].get(at) if kind in KINDS["errors"] else None
    if held is None:
        return None
    resolved, why = held["resolved_at"], held["reason"]
    if resolved is None:
        return {"outcome": "quarantined", "why": why}
    return {"outcome": "resolved", "why": f"{why}; a later decoding used it ({resolved:%F %T})"}


def left_out_by(source: Source, name: Name | None) -> str | None:
    """Which rule of the configuration leaves a table out; None: none."""
    if name is None or source.tables.wanted(*name):
        return None
    spelled = ".".join(name)
    pattern = next((p for p in source.tables.exclude if fnmatch.fnmatchcase(spelled, p)), None)
    if pattern is not None:
        return f"tables.exclude: {pattern!r} fits {spelled}"
    return f"tables.include: none of {', '.join(map(repr, source.tables.include))} fits {spelled}"


def _by_rule(source: Source, events: list[Event]) -> list[str]:
    """As the changelog stage decides by the event alone."""
    names = ("kind", "op", "db", "schema", "table")
    schema = CHANGES.arrow(*names)
    return outcome(
        pa.RecordBatch.from_pylist([{n: e[n] for n in names} for e in events], schema), source.tables, {}
    ).to_pylist()


def _replayed(message: Address, events: list[Event], arrivals: Arrivals) -> list[bool]:
    schema = CHANGES.arrow("topic", "partition", "offset", "entry_index")
    rows = [{**message._asdict(), "entry_index": e["entry_index"]} for e in events]
    return replayed(pa.RecordBatch.from_pylist(rows, schema), arrivals).to_pylist()


def _arrivals(config: Config, source: Source) -> Arrivals:
    if not delta_table.exists(tables.LOG_EPOCHS.at(stores.lake(config))):
        return Arrivals({}, {}, {})
    log, segments = log_epochs.now(config, source)
    return Arrivals.of(segments, log.before)


def reached(config: Config, source: Source) -> dict[Partition, int]:
    """(topic, partition) → offset up to which the changelog stage has accounted for messages."""
    found = query(
        f"SELECT topic, partition, max(to_offset) AS last FROM t WHERE source = {text(source.name)} "
        "AND room = 'changelog' GROUP BY topic, partition",
        t=tables.OFFSET_LEDGER.at(stores.lake(config)),
    )
    return {(r["topic"], r["partition"]): r["last"] for r in found or []}


def _once_left_out(config: Config, source: Source, name: Name | None) -> bool:
    """Whether rules that were in force once leave a table out."""
    if name is None:
        return False
    rows = query(
        f'SELECT "include", "exclude" FROM t WHERE source = {text(source.name)} AND room = \'changelog\'',
        t=tables.TABLE_RULES.at(stores.lake(config)),
    )
    then = (source.tables.model_copy(update={k: list(r[k] or ()) for k in ("include", "exclude")}) for r in rows or [])
    return any(not rules.wanted(*name) for rules in then)


def _stored(config: Config, source: Source, message: Address, table: tables.Table) -> dict[tuple[Any, ...], Event]:
    """Rows of a table of all sources that are of the message, by entry and row."""
    path = table.at(stores.lake(config))
    there = columns(path) or ()
    wanted = [c for c in (*_ROW, "reason", "resolved_at") if c in there]
    if not wanted:
        return {}
    rows = query(
        f"SELECT {', '.join(wanted)} FROM t WHERE source = {text(source.name)} AND {message.condition()}", t=path
    )
    return {tuple(r.get(c) for c in _ROW): r for r in rows or []}


def _first(config: Config, source: Source, event: Event) -> str | None:
    """The stored change that another one repeats: of the same place at the source, with the same operation on the same
    table and row; None: there is none, or it isn't told which."""
    if event["binlog_pos"] is None:
        return None
    images = ("key",)
    if event["binlog_file"] is not None:
        at = f"binlog_file = {text(event['binlog_file'])} AND binlog_pos = {int(event['binlog_pos'])}"
    elif FORMATS[source.format].order == "position" and event["file_no"] is not None:
        # A place without a file: of the format's own making. There whatever is the same but for its address is one.
        at, images = order_places.at({"file": event["file_no"], "pos": event["binlog_pos"]}), ("key", "before", "after")
    else:
        return None
    same = " AND ".join(f'"{c}" = {text(event[c])}' for c in ("db", "table", "op"))
    rows = query(
        f'SELECT topic, partition, "offset", entry_index, row_index, {", ".join(images)} FROM t '
        f"WHERE source = {text(source.name)} AND {same} AND {at} "
        'ORDER BY topic, partition, "offset", entry_index, row_index',
        t=tables.CHANGELOG.at(stores.lake(config)),
    )
    alike = [r for r in rows or [] if all(dict(r[i] or ()) == (event[i] or {}) for i in images)]
    if not alike:
        return None
    return kafka_address(alike[0])


def kafka_address(change: Mapping[str, Any]) -> str:
    """Where a change stands in Kafka, for people and as an argument of `show`."""
    address = Address(change["topic"], change["partition"], change["offset"])
    return f"{address} entry {change['entry_index']} row {change['row_index']}"
