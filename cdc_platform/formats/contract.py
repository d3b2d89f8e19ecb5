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
from cdc_platform.tables import CHANGES, DDL_SEEN, LANDING, WAITING

MESSAGE = LANDING.arrow(but=("timestamp_type", "erased"))
"""One complete logical message, as decoders get it: `offset` of its first Kafka record, `value` put together from all
of them (null: a Kafka tombstone). `headers` are for `Part.parse` only: decoders get none."""

KINDS = ("row", "ddl", "schema", "begin", "commit", "rollback", "heartbeat", "checkpoint", "skip", "error", "erased")
"""
row         a row change, an initial-load row or a truncate (see `op`)
ddl         a DDL statement, in `ddl`
schema      the columns of a table as this message states them, in `columns`; once per batch and version
begin, commit, rollback, heartbeat, checkpoint: control events, details in `info`
skip        a message that rightly holds nothing (a tombstone, an empty packet), why in `reason`
error       something that could not be used, why in `reason`; db, schema, table and key as far as the message tells
            them, the bad column, where it is one, in `info` under BAD_COLUMN
erased      says that a message's bytes were erased at a subject's request (formats/erased.py); no decoder gives it
"""

BAD_COLUMN = "column"
UNORDERED = "unordered"
"""Key in `info` of a row whose writer doesn't keep the order of the source's log: what came before it needn't be all
that the source had committed before."""

LOAD, LOAD_END = "load", "load_end"
"""In `info` of kind schema, of columns of rows that a snapshot (a full load) sent: where in the log it was taken, as
text, one for all of its rows ("": not told). Of its last row LOAD_END, too: `table`, of this table; `all`, of all."""

LOAD_WHOLE = "load_whole"
"""Beside LOAD where the load itself says that it is of all rows of its table, as they were at the place of the first or
later."""

OPS = ("insert", "update", "delete", "read", "truncate")

EVENT = CHANGES.arrow(but=("retold",))
"""One decoded event: the row of `changes/<format>/<source>`, without the column that the stage itself fills
(cdc_platform/tables/stages.py says what each column holds). Beyond that: `kind` is one of KINDS; `op`, of kind row, one
of OPS; `schema_version` is `schema_version(...)` of the columns that describe the row; `columns`, of kind schema, is
`columns_json(...)`; `info`, of kind error, names the bad column under BAD_COLUMN."""


class FormatOptions(BaseModel):
    """`options:` of a source. Each format derives its own model; every field has a description."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Part:
    """How a format's Kafka records state their place in a split message (see `envelopes/`)."""

    parse: Callable[[pa.RecordBatch], pa.RecordBatch]
    """MESSAGE batch → PART batch (below), same rows, same order."""


PART = pa.schema([*WAITING.arrow("total", "index", "data", "shard", "seq"), ("error", pa.string())])
"""Which part of a message a Kafka record is. total: 1 = not split; shard: '' = nobody numbers the parts besides the
partition; seq: running number within (partition, shard), null = not given; error: why this record is no part of
anything, null = fine."""


UNKNOWN = "the table's columns aren't known"
"""How the reasons of rows begin that can be read once more is known of their table: they wait for that."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a format's messages mean beyond their own bytes: told by the DDL of the whole source."""

    build: Callable[[Any, list[dict[str, Any]]], Any]
    """(options, DDL events as dicts of DDL, in any order) → a value that JSON can say, handed to `decode` on every
    executor. Called on the driver, once per run."""
    marker: str | None = None
    """Regular expression (RE2) that every message matches that may hold DDL: such messages are looked at before rows
    are decoded. None: rows are decoded by what is known before, and once more where the DDL beside them tells more."""
    senders: str | None = None
    """Regular expression (RE2) with one named group, of what tells the part of the source that a message comes from.
    Only with a marker: where each was seen first goes to `build`, too (`senders.of`)."""
    waiting: str = UNKNOWN
    """How the reasons of error events begin whose message may mean something once more DDL is seen."""

    @property
    def room(self) -> str | None:
        """Of the checkpoint of the pass over messages ahead of the decoder's; None: there is no such pass. Another one
        where senders are asked for, so that messages of which only DDL was put aside before are asked once more."""
        return None if self.marker is None else "ddl" if self.senders is None else "ddl-senders"


DDL = DDL_SEEN.names
"""Columns of EVENT that `Context.build` gets; `source_time` in µs."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a format's messages can't tell of the values of some columns: said in the snapshot's metadata."""

    text: str
    concerns: Callable[[MySqlType], bool]
    """Whether it is so of a column of that type."""
    unless: str | None = None
    """The option that settles it, where the configuration gives it."""
    stated: str | None = None
    """Only of columns whose `limits` in the column list name this."""
    writer: str | None = None
    """Only of tables whose columns this tool told: `info` of kind schema, `writer` (else the format's name)."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """What a feed sends by itself while its source has no changes: by that a broken feed is told from a quiet one."""

    text: str
    """A clause for people, e.g. "Tencent DTS sends a checkpoint about every 10 s"."""
    interval_s: int | None = None
    """Seconds between the records that it promises; None: the format promises no interval."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Control events that a feed sends at an interval, also while nothing changes. type: those alone whose `info` says
    that type; None: all of the kind."""

    kind: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class ControlTopics:
    """Topics by which no changes come, whatever is still to come. name: regular expression of theirs; kinds: of control
    events, one of which must have come by it, where the name alone may be that of another topic (empty: it can't)."""

    name: str
    kinds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GtidSets:
    """Which control events say the set of all GTIDs so far. name: its key in `info`, or the column `gtid`. with_next:
    kinds of those whose set has the transaction, too, whose rows come behind them."""

    name: str
    with_next: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Format:
    """A wire format is a value: the registry, the assets, the command line and the docs read it."""

    name: str
    version: str  # stamped on every changelog row; raised when what bytes decode to changes (scripts/decoders.py)
    summary: str  # one line for docs and the UI
    options: type[FormatOptions]
    decode: Callable[..., pa.RecordBatch]  # (MESSAGE batch, options[, context]) → EVENT batch
    liveness: Liveness
    part: Part | None = None  # None: a record is always a whole message
    context: Context | None = None  # None: every message tells all that it needs
    limits: tuple[Limit, ...] = ()
    order: Literal["arrival", "position"] = "arrival"
    """What orders changes of a partition. arrival: they come as the source's log has them, but for replays
    (changelog/epochs.py). position: a number that the source gives each change (`file_no`, `binlog_pos`), however they
    come; those without one as they come."""
    evidence: Callable[[pa.RecordBatch], dict[str, str]] | None = None
    """MESSAGE batch → option → value, of options that the messages themselves show."""
    log_times: frozenset[str] = frozenset()
    """Kinds of events whose `source_time` is by the clock of the source, when its log had them: what the source had
    committed before has come by then. Not so of heartbeats that a capture makes by its own clock: it may lag. Rows of a
    load, changes whose position alone orders, and rows marked UNORDERED are left out by themselves
    (changelog/watermarks.py)."""
    capture_clocks: tuple[str, ...] = ()
    """How lineages begin whose events a capture has stamped by its own clock."""
    rows_have_places: bool = False
    """Whether rows without a place in the binlog are from a writer that doesn't keep the log's order."""
    beats: tuple[Beat, ...] = ()
    """What comes at an interval: by its absence a dead feed is told. Not what comes with each transaction, as GTID
    entries do: a source without changes sends none."""
    control_topics: tuple[ControlTopics, ...] = ()
    """Topics that a capture keeps for control events alone: a source's changes are complete without them."""
    log_positions: bool = False
    """Whether `binlog_file` and `binlog_pos` of its events are a place in the source's log: TDSQL's number stands for a
    transaction."""
    gtid_sets: GtidSets | None = None
    transactions: Literal["brackets", "counts"] | None = None
    """How control events tell where transactions end, if they do. brackets: begin and commit (or rollback) stand around
    a transaction's rows, in the rows' own order. counts: a commit says, per table, how many rows its transaction has
    (`info`: event_count, data_collections), wherever they are; rows in such a transaction have `txn_seq`."""
