"""A workload through a format's encoder and decoder: what is wrong with the events."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cdc_platform.feeds.shop import Table
from cdc_platform.feeds.workload import Transaction
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.mysql.types import parse_type
from tests.formats.contexts import decode_with_context
from tests.oracle.feeds import FEEDS, options, whole
from tests.oracle.replay import Replay, segments
from tests.oracle.session import Told

_LANDED = datetime(2026, 11, 20, tzinfo=UTC)
NO_SESSION = ("canal_json", "dataworks")
"""Formats whose messages tell a statement's table, not its session's database."""
LOOSE = ("debezium",)
"""Formats whose messages tell types that are poorer than MySQL's."""


def problems(format: str, source: list[Transaction], told: Told) -> list[str]:
    """What is wrong with a format's decoded rows; [] when they are the database's own."""
    feed, encoder, parts, messages = FEEDS[format], FEEDS[format].encoder(), [], []
    for part, known in segments(source, told):
        records = encoder.encode(part)
        for record in whole(records) if feed.split else records:
            headers = [{"key": k, "value": v} for k, v in record.headers]
            message = {"topic": record.topic, "partition": 0, "offset": len(messages), "timestamp": _LANDED}
            messages.append(
                message | {"key": record.key, "value": record.value, "headers": headers, "landed_at": _LANDED}
            )
        parts.append((len(messages), known, part))
    events = list(_events(format, messages, parts))
    replay, at = Replay(feed.as_sent), 0
    shapes = {e["schema_version"]: json.loads(e["columns"]) for e in events if e["kind"] == "schema"}
    for end, known, part in parts:
        told_changes: Counter = Counter()
        statements: list[tuple[str, str]] = []
        while at < len(events) and events[at]["offset"] < end:
            event = events[at]
            at += 1
            told_changes[event["kind"]] += 1
            where = f"offset {event['offset']}/{event['entry_index']}/{event['row_index']} {event['op'] or ''}"
            if event["kind"] == "error":
                replay.problems.append(f"{where}: {event['reason']}")
            elif event["kind"] == "row" and event["op"] != "truncate":
                if fault := _shape_fault(replay.tables[event["table"]], shapes[event["schema_version"]], event, format):
                    replay.problems.append(f"{where}: {fault}")
                images = [None if event[i] is None else dict(event[i]) for i in ("before", "after")]
                replay.row(event["table"], *images, where)
            elif event["kind"] == "ddl":
                statements.append((event["db"], event["ddl"]))
        if any(tx.events for tx in part) and not told_changes["row"]:
            replay.problems.append(f"no rows up to offset {end}")
        sent = [(tx.ddl.target[0] if format in NO_SESSION else tx.ddl.db, tx.ddl.sql) for tx in part if tx.ddl]
        # Debezium takes statements apart.
        if statements != sent and (format != "debezium" or len(statements) < len(sent)):
            replay.problems.append(f"DDL up to offset {end}: {statements}, expected {sent}")
        replay.reached(known)
    return [p for p in replay.problems if format != "dataworks" or not any(m in p.lower() for m in _REFUSED)]


_REFUSED = ("truncate without sequenceid", ": [], expected [('oracle', 'truncate ")
"""DataWorks' DDL tells no sequenceId: its TRUNCATE is refused aloud, and these are all that may be missing."""


def _events(format: str, messages: list[dict[str, Any]], parts: list[Any]) -> Iterator[dict[str, Any]]:
    if format != "dataworks":
        batch = pa.RecordBatch.from_pylist(messages, schema=MESSAGE)
        yield from decode_with_context(FORMATS[format], batch, options(format, ())).to_pylist()
        return
    start = 0
    for end, _, part in parts:
        batch = pa.RecordBatch.from_pylist(messages[start:end], schema=MESSAGE)
        yield from FORMATS[format].decode(batch, options(format, part)).to_pylist()
        start = end


def _shape_fault(table: Table, told: list[dict[str, Any]], event: dict[str, Any], format: str) -> str | None:
    """What is wrong with the columns that a row states, or its key."""
    want = [(c.name, c.key, None if format in LOOSE else parse_type(c.type).spark) for c in table.columns]
    got = [(c["name"], c["key"], None if format in LOOSE else parse_type(c["type"]).spark) for c in told]
    row = dict(event["before"] or event["after"])
    if want != got:
        return f"columns are {got}, expected {want}"
    key = {k: row.get(k) for k in table.key}
    return f"key is {event['key']}, expected {key}" if dict(event["key"] or {}) != key else None
