"""Records of loaded rows into landing, chunk by chunk in one commit each, and how far a load is."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from cdc_platform.config import Config, Source
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.loaded import Record, decode, encoded, record_of
from cdc_platform.kafka.reader import RECORD
from cdc_platform.lake import commits, delta_table, stores
from cdc_platform.lake.data_files import Output, Sink
from cdc_platform.lake.store import Store
from cdc_platform.landing import counting
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.spark import delta_sql
from cdc_platform.tables import LANDING, LOADED

_ROWS, _BYTES = 2_000, 8 << 20
"""Of a record, unless one row is larger."""


def path_of(config: Config, source: Source) -> Store:
    """Where records land."""
    return delta_sql.ensure(LANDING, LANDING.at(stores.lake(config), source=source.name))


def next_offset(path: Store, epoch: int) -> int:
    """Of the next record that lands in an epoch's partition."""
    sql = f'SELECT max("offset") AS last FROM {{t}} WHERE topic = \'{LOADED}\' AND "partition" = {epoch:d}'
    last = delta_table.ask(sql, t=path)[0]["last"]
    return 0 if last is None else int(last) + 1


def key_of(db: str, name: str, kind: str) -> bytes:
    """What stands in place of a Kafka key."""
    return json.dumps({"db": db, "table": name, "kind": kind}, ensure_ascii=False).encode()


def newest(path: Store, epoch: int, db: str, name: str, kind: str) -> Record | None:
    """The last record of a table, of a kind, in an epoch's partition; None: there is none. Where one behind it was
    erased, nothing says how far its load came: it tells nothing to go on behind."""
    of = f"topic = '{LOADED}' AND \"partition\" = {epoch:d}"
    rows = delta_table.ask(
        f'SELECT value, "offset" FROM {{t}} WHERE {of} '
        f"AND key = decode('{key_of(db, name, kind).hex()}', 'hex') ORDER BY \"offset\" DESC LIMIT 1",
        t=path,
    )
    if not rows:
        return None
    record = record_of(rows[0]["value"])
    erased = f'SELECT "offset" FROM {{t}} WHERE {of} AND "offset" > {rows[0]["offset"]:d} AND value IS NULL LIMIT 1'
    if record.next is not None and delta_table.ask(erased, t=path):
        return msgspec.structs.replace(record, next=None)
    return record


def parted(record: Record) -> list[Record]:
    """A record as several, none of which is too large. Keys that are gone stand in the first, what says how
    far a load is in the last one."""
    if len(record.rows) <= 1 or (len(record.rows) <= _ROWS and len(encoded(record)) <= _BYTES):
        return [record]
    middle = len(record.rows) // 2
    first = msgspec.structs.replace(record, rows=record.rows[:middle], next=None, last=False)
    return [*parted(first), *parted(msgspec.structs.replace(record, rows=record.rows[middle:], gone=[]))]


def land(path: Store, source: Source, epoch: int, records: Iterable[Record]) -> int:
    """Records in one commit, each written as it comes; the next offset. Where they end by an error, none of them.
    Raises LoadRefused for a value that the decoder doesn't take."""
    first, now = next_offset(path, epoch), datetime.now(UTC)
    out, offset = Output(Sink(path, RECORD, LANDING.stats, ("topic", "timestamp_type"))), first
    notes = counting.Notes(counting.Asked())
    try:
        for offset, record in enumerate(records, first):
            batch = _landed(record, epoch, offset, now)
            _check(source, batch)
            out.write(batch)
            notes.add(batch)
    except BaseException:
        out.discard()
        raise
    out.note = notes.to_json()
    written = out.close()
    assert written is not None
    commits.append_files(out.sink, [written], (f"load {source.name} {epoch}", first))
    return offset + 1


def _landed(record: Record, epoch: int, offset: int, now: datetime) -> pa.RecordBatch:
    row = {
        **{"topic": LOADED, "partition": epoch, "offset": offset, "headers": None, "landed_at": now},
        **{"timestamp": datetime.fromtimestamp(record.time_us / 1e6, UTC), "timestamp_type": 0},
        **{"key": key_of(record.db, record.table, record.kind), "value": encoded(record)},
    }
    return pa.RecordBatch.from_pylist([row], RECORD)


def _check(source: Source, batch: pa.RecordBatch) -> None:
    """What the decoder wouldn't take isn't landed."""
    events = decode(batch.select(MESSAGE.names))
    reasons = [
        r
        for kind, r in zip(*(events.column(c).to_pylist() for c in ("kind", "reason")), strict=True)
        if kind == "error"
    ]
    if reasons:
        choices = ["to load when the feed has come to the statement that changed the column"]
        raise LoadRefused(source.name, f"a row can't be told as the feed states its table: {reasons[0]}", choices)
