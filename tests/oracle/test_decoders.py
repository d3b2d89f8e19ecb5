"""A real database's workload through every format's encoder and decoder: the rows must be the database's own."""

import base64
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_platform.demo.compare import time_text
from cdc_platform.demo.shop import Column, Table
from cdc_platform.demo.workload import Transaction
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.mysql.types import parse_type
from tests.formats.contexts import decode_with_context
from tests.oracle import server
from tests.oracle.binlog import transactions
from tests.oracle.feeds import FEEDS, options, whole
from tests.oracle.replay import Replay, segments, source_events
from tests.oracle.workload import Told, Workload

LANDED = datetime(2026, 11, 20, tzinfo=UTC)
CHANGES, STATEMENTS = 2300, 110
NO_SESSION = ("canal_json", "dataworks")
LOOSE = ("debezium",)
"""Formats whose messages tell types that are poorer than MySQL's."""


@pytest.fixture(scope="module")
def workload() -> tuple[list[Transaction], Told]:
    if reason := server.missing():
        pytest.skip(reason)
    return made(seed=20261121, changes=CHANGES, ddl=STATEMENTS)


def made(seed: int, changes: int, ddl: int, checkpoints: int = 3, **more: Any) -> tuple[list[Transaction], Told]:
    """A workload, run on a server of its own: what its binlog says, and what the database said."""
    with tempfile.TemporaryDirectory(prefix="oracle") as folder, server.running(Path(folder)) as running:
        told = Workload(running, seed, **more).run(changes, ddl, checkpoints)
        return list(transactions(running, told.ddl)), told


def _moment(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    return (text.rstrip("0") if "." in text else text) + ("Z" if value.tzinfo else "")


_TEXT = {
    "decimal": lambda v: f"{v:f}", "datetime": _moment, "timestamp": _moment, "time": time_text, "double": repr,
    "float": lambda v: repr(float(str(np.float32(v)))), "year": lambda v: f"{v:04d}",
}  # fmt: skip


def _canonical(column: Column, value: Any) -> str | None:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return None if value is None else _TEXT.get(column.base, str)(value)


def test_the_binlog_leads_to_what_the_database_says(workload):
    """The oracle's own two sides agree: the independent reader of the binlog, and SELECT."""
    source, told = workload
    assert sum(len(tx.events) for tx in source) >= 2000 and len(told.ddl) >= 100
    replay = Replay(lambda _, text: text)
    for part, known in segments(source, told):
        for tx in part:
            for name, before, after in source_events(tx, _canonical):
                replay.row(name, before, after, tx.gtid[-6:])
        replay.reached(known)
    assert replay.problems == []


@pytest.mark.parametrize("format", FEEDS)
def test_decoded_rows_are_the_database_s(workload, format):
    source, told = workload
    assert decoded_problems(format, source, told) == []


def _shape_fault(table: Table, told: list[dict[str, Any]], event: dict[str, Any], format: str) -> str | None:
    """What is wrong with the columns that a row states, or its key."""
    want = [(c.name, c.key, None if format in LOOSE else parse_type(c.type).spark) for c in table.columns]
    got = [(c["name"], c["key"], None if format in LOOSE else parse_type(c["type"]).spark) for c in told]
    row = dict(event["before"] or event["after"])
    if want != got:
        return f"columns are {got}, expected {want}"
    key = {k: row.get(k) for k in table.key}
    return f"key is {event['key']}, expected {key}" if dict(event["key"] or {}) != key else None


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


def decoded_problems(format: str, source: list[Transaction], told: Told) -> list[str]:
    """What is wrong with a format's decoded rows; [] when they are the database's own."""
    feed, encoder, parts, messages = FEEDS[format], FEEDS[format].encoder(), [], []
    for part, known in segments(source, told):
        records = encoder.encode(part)
        for record in whole(records) if feed.split else records:
            headers = [{"key": k, "value": v} for k, v in record.headers]
            message = {"topic": record.topic, "partition": 0, "offset": len(messages), "timestamp": LANDED}
            messages.append(
                message | {"key": record.key, "value": record.value, "headers": headers, "landed_at": LANDED}
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
        # FlatMessage and DataWorks tell a statement's table, not its session's database.
        sent = [(tx.ddl.target[0] if format in NO_SESSION else tx.ddl.db, tx.ddl.sql) for tx in part if tx.ddl]
        # Debezium takes statements apart.
        if statements != sent and (format != "debezium" or len(statements) < len(sent)):
            replay.problems.append(f"DDL up to offset {end}: {statements}, expected {sent}")
        replay.reached(known)
    return replay.problems
