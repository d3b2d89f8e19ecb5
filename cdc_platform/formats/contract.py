"""What every wire format gives and gets. Nothing outside `formats/` knows a vendor.

A decoder is a function of one Arrow batch of whole messages (`MESSAGE`) to one Arrow batch of change events
(`EVENT`). It never raises for bad bytes: what can't be used becomes an event of kind `error` with the reason.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from cdc_platform.mysql.types import MySqlType

_STR_MAP = pa.map_(pa.string(), pa.string())

MESSAGE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),  # of the message's first Kafka record
        ("timestamp", pa.timestamp("us", "UTC")),  # Kafka's
        ("key", pa.binary()),
        ("value", pa.binary()),  # null: Kafka tombstone
        # For `Part.parse` only: decoders get none.
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("landed_at", pa.timestamp("us", "UTC")),
    ]
)
"""One complete logical message, as decoders get it."""

KINDS = ("row", "ddl", "schema", "begin", "commit", "rollback", "heartbeat", "checkpoint", "skip", "error")
"""
row         a row change, an initial-load row or a truncate (see `op`)
ddl         a DDL statement, in `ddl`
schema      the columns of a table as this message states them, in `columns`; once per batch and version
begin, commit, rollback, heartbeat, checkpoint: control events, details in `info`
skip        a message that rightly holds nothing (a tombstone, an empty packet), why in `reason`
error       something that could not be used, why in `reason`; db, schema, table and key as far as the message tells
            them, the bad column, where it is one, in `info` under BAD_COLUMN
"""

BAD_COLUMN = "column"

OPS = ("insert", "update", "delete", "read", "truncate")

EVENT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("entry_index", pa.int32()),  # event within the message, from 0
        ("row_index", pa.int32()),  # row within the event, from 0
        ("kind", pa.string()),  # one of KINDS
        ("reason", pa.string()),  # for error and skip
        ("db", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("op", pa.string()),  # one of OPS, for kind row
        ("key", _STR_MAP),  # primary key values of the row before (insert/read: of the row)
        ("before", _STR_MAP),  # canonical text; absent key = not in the image, null value = NULL
        ("after", _STR_MAP),
        ("schema_version", pa.string()),  # `schema_version(...)` of the columns that describe this row
        ("columns", pa.string()),  # kind schema only: JSON, see `columns_json`
        ("ddl", pa.string()),
        ("source_time", pa.timestamp("us", "UTC")),
        ("landed_at", pa.timestamp("us", "UTC")),
        ("txn_id", pa.string()),
        ("txn_seq", pa.int64()),
        ("txn_last", pa.bool_()),
        ("gtid", pa.string()),
        ("binlog_file", pa.string()),
        ("binlog_pos", pa.decimal128(20, 0)),
        ("lineage", pa.string()),  # whose binlog the position belongs to (server id); null: not told
        ("file_no", pa.int64()),  # number at the end of binlog_file; null: no position told
        ("event_no", pa.int64()),  # order of events that share a position
        ("row_no", pa.int64()),  # order of rows within the event, as the source counts them
        ("info", _STR_MAP),  # control events: what they say, field by field; errors: BAD_COLUMN
    ]
)
"""One decoded event: the row of `changes/<format>/<source>`."""


class FormatOptions(BaseModel):
    """`options:` of a source. Each format derives its own model; every field has a description."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Part:
    """How a format's Kafka records state their place in a split message (see `envelopes/`)."""

    parse: Callable[[pa.RecordBatch], pa.RecordBatch]
    """MESSAGE batch → PART batch (below), same rows, same order."""


PART = pa.schema(
    [
        ("total", pa.int64()),  # parts of the message; 1 = not split
        ("index", pa.int64()),  # this part, from 0
        ("data", pa.binary()),  # payload of this part
        ("shard", pa.string()),  # who numbers the parts besides the partition ('' = nobody)
        ("seq", pa.decimal128(20, 0)),  # vendor's running number within (partition, shard); null = not told
        ("error", pa.string()),  # why this record is no part of anything; null = fine
    ]
)


@dataclass(frozen=True, slots=True)
class Context:
    """What a format's messages mean beyond their own bytes: told by the DDL of the whole source."""

    build: Callable[[Any, list[dict[str, Any]]], Any]
    """(options, DDL events as dicts of DDL, in any order) → a value that JSON can say, handed to `decode` on every
    executor. Called on the driver, once per run."""
    marker: bytes
    """Stands in every message that may hold DDL: the others needn't be looked at for it."""
    waiting: str
    """How the reasons of error events begin whose message may mean something once more DDL is seen."""


DDL = ("topic", "partition", "offset", "source_time", "gtid", "event_no", "db", "ddl")
"""Columns of EVENT that `Context.build` gets; `source_time` in µs."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a format's messages can't tell of the values of some columns: said in the snapshot's metadata."""

    text: str
    concerns: Callable[[MySqlType], bool]
    """Whether it is so of a column of that type."""
    unless: str | None = None
    """The option that settles it, where the configuration gives it."""
    writer: str | None = None
    """Only of tables whose columns this tool told: `info` of kind schema, `writer` (else the format's name)."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """What a feed sends by itself while its source has no changes: by that a broken feed is told from a quiet one."""

    text: str
    """A clause for people, e.g. "Tencent DTS sends a checkpoint about every 10 s"."""
    limit_s: int | None = None
    """Seconds without any record after which something is wrong; None: the format promises no interval."""


@dataclass(frozen=True, slots=True)
class Format:
    """A wire format is a value: the registry, the assets, the command line and the docs read it."""

    name: str
    version: str  # stamped on every changelog row
    summary: str  # one line for docs and the UI
    options: type[FormatOptions]
    decode: Callable[..., pa.RecordBatch]  # (MESSAGE batch, options[, context]) → EVENT batch
    liveness: Liveness
    part: Part | None = None  # None: a record is always a whole message
    context: Context | None = None  # None: every message tells all that it needs
    limits: tuple[Limit, ...] = ()
    transactions: Literal["brackets", "counts"] | None = None
    """How control events tell where transactions end, if they do. brackets: begin and commit (or rollback) stand around
    a transaction's rows, in the rows' own order. counts: a commit says, per table, how many rows its transaction has
    (`info`: event_count, data_collections), wherever they are; rows in such a transaction have `txn_seq`."""
