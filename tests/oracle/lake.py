"""Records straight into landing (no Kafka), the stages behind it, and their snapshots against the database's SELECT."""

import base64
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from cdc_platform import chain, tables
from cdc_platform.config import Config
from cdc_platform.feeds.compare import read_snapshot, with_digits
from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import Column, Table
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.snapshots.target import Target
from tests.oracle.catalog import Rows, Text
from tests.oracle.feeds import Sent, is_zero
from tests.oracle.session import Checkpoint

SOURCE = "oracle"
_LANDED = datetime(2026, 11, 20, tzinfo=UTC)
_ROOMS = ("envelopes", "changes", "changelog", "snapshots")


class Lake:
    """A source `oracle` of one format over a lake of its own; rules: more of its `tables`."""

    def __init__(
        self, spark: Any, make_config: Callable[..., Config], format: str, options: dict[str, Any], **rules: Any
    ):
        told = {"name": SOURCE, "format": format, "topic_pattern": ".*", "tables": {"include": ["oracle.*"], **rules}}
        self.spark, self.config = spark, make_config([told | ({"options": options} if options else {})])
        self._offsets: Counter = Counter()

    def land(self, records: Iterable[Record], at: datetime = _LANDED) -> None:
        """One batch, landed at this time. Records without a partition go by their key's hash to one of two."""
        rows = []
        for r in records:
            partition = zlib.crc32(r.key or b"") % 2 if r.partition is None else r.partition
            offset = self._offsets[(r.topic, partition)]
            self._offsets[(r.topic, partition)] += 1
            headers = [{"key": k, "value": v} for k, v in r.headers]
            address = {"topic": r.topic, "partition": partition, "offset": offset}
            rows.append(
                address | {"timestamp": at, "landed_at": at, "headers": headers} | {"key": r.key, "value": r.value}
            )
        path = tables.LANDING.at(self.config.lake, source=SOURCE)
        write_deltalake(path, pa.Table.from_pylist(rows, MESSAGE), mode="append")

    def catch_up(self) -> None:
        """Every room behind landing, once."""
        for room in _ROOMS:
            chain.STAGES[room](self.spark, self.config, self.config.source(SOURCE))

    def problems(self, checkpoint: Checkpoint, as_sent: Sent, exact: bool) -> list[str]:
        """How the snapshots differ from SELECT at this position; [] when they don't. `exact`: also in the order of
        columns, and in those that no row has told yet. A table that never had a row needs no snapshot."""
        found = []
        for name, (table, rows) in checkpoint.tables.items():
            path = Target.of(self.config, SOURCE, table.db, name).snapshot.uri()
            if DeltaTable.is_deltatable(path):
                found += [
                    f"{name}: {problem}" for problem in compared(table, rows, read_snapshot(path), as_sent, exact)
                ]
            elif rows:
                found.append(f"{name}: no snapshot, {len(rows)} rows expected")
        return found

    def quarantined(self) -> list[tuple]:
        """(reason, count) of what could not be used."""
        path = tables.QUARANTINE.at(self.config.lake)
        if not DeltaTable.is_deltatable(path):
            return []
        reasons = DeltaTable(path).to_pyarrow_dataset().to_table(columns=["reason"])["reason"].to_pylist()
        return sorted(Counter(reasons).items())

    def stopped(self) -> list[tuple]:
        """(table, reason) of tables that were stopped."""
        states = DeltaTable(tables.TABLE_STATE.at(self.config.lake)).to_pyarrow_dataset().to_table().to_pylist()
        return sorted({(r["table"], r["reason"]) for r in states if r["state"] == "stopped"})


def compared(table: Table, rows: Rows, snapshot: pa.Table, as_sent: Sent, exact: bool) -> Iterable[str]:
    """How a snapshot differs from the rows of a SELECT."""
    names, want = [n for n in snapshot.column_names if not n.startswith("_cdc_")], [c.name for c in table.columns]
    # What columns no row has told yet hold nothing.
    untold = {} if exact else {n: None for n in want if n not in names and all(row[n] is None for row in rows)}
    if (names if exact else sorted([*names, *untold])) != (want if exact else sorted(want)):
        yield f"columns are {names}, expected {want}"
        return
    got: dict[tuple, list[Any]] = defaultdict(list)
    for row in snapshot.to_pylist():
        text = {c.name: _text(c, (row | untold)[c.name]) for c in table.columns}
        got[tuple(text[k] for k in table.key or want)].append(text)
    for row in rows:
        told = {c.name: as_sent(c, row[c.name]) for c in table.columns}
        # A snapshot has NULL for a date that doesn't exist.
        sent = {c.name: None if is_zero(c, told[c.name]) else _shown(c, told[c.name]) for c in table.columns}
        key = tuple(sent[k] for k in table.key or want)
        found = got[key].pop() if got.get(key) else None
        if found != sent:
            off = found and {k: (v, found[k]) for k, v in sent.items() if found[k] != v}
            yield f"row {key}: {f'expected and found {off}' if off else 'is missing'}"[:600]
    for key, more in got.items():
        if more:
            yield f"row {key} should not be there"[:300]


def _shown(column: Column, text: Text) -> Text:
    return with_digits(text, column.fsp) if column.base == "time" and text is not None else text


def _text(column: Column, value: Any) -> str | None:
    """A snapshot's cell in canonical text."""
    if value is None:
        return None
    if column.base == "year":
        return f"{value:04d}"
    if column.base == "float" and isinstance(value, float):
        return repr(float(str(np.float32(value))))
    return next((text(value) for kind, text in _TEXTS if isinstance(value, kind)), str(value))


def _moment(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    return (text.rstrip("0") if "." in text else text) + ("Z" if value.tzinfo else "")


_TEXTS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (bytes, lambda v: base64.b64encode(v).decode()),
    (bool, lambda v: str(int(v))),
    (Decimal, lambda v: f"{v:f}"),
    (float, repr),
    (datetime, _moment),
    (date, str),
)
