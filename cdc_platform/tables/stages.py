"""Tables of one source's stages: what landing, envelopes and changes write, and what they remember."""

from cdc_platform.tables.columns import BIGINT, BINARY, BOOLEAN, INT, STRING, TIMESTAMP, UNSIGNED_BIGINT, Column
from cdc_platform.tables.common import (
    ADDRESS,
    BINLOG,
    DB,
    DDL,
    ENTRY_INDEX,
    GTID,
    HEADERS,
    INFO,
    LANDED_AT,
    NOTED,
    OP,
    RECORD_KEY,
    SCHEMA,
    STAGED,
    TABLE,
    TEXTS,
)
from cdc_platform.tables.table import Location, Table

CARRIED = Location("carried/{source}", "Rows of a batch from before DDL as rows of today, while it is worked on")
CHECKPOINT = Location("_checkpoints/{room}/{source}", "Structured Streaming checkpoint of one stage of one source")

ERASED = Column(
    "erased",
    BINARY,
    "Arrow stream of the events (EVENT) that are left of the message, where its bytes were erased at a subject's "
    "request (`cdc-platform erase`); NULL: nothing was",
)

LANDING = Table(
    "landing/{source}",
    "Kafka records, byte for byte",
    (
        *ADDRESS,
        Column("timestamp", TIMESTAMP, "Kafka timestamp"),
        Column("timestamp_type", INT, "0 create time, 1 log append time"),
        RECORD_KEY,
        Column("value", BINARY, "the record, byte for byte; NULL is a Kafka tombstone"),
        HEADERS,
        Column("landed_at", TIMESTAMP, "start of the landing batch"),
        ERASED,
    ),
    added=("erased",),
    stats=("topic", "partition", "offset", "timestamp", "landed_at"),
    settings=STAGED,
)

_SHARD = "who numbered the parts beside the partition"
_SEQ = "running number the vendor gave the first part"

ENVELOPES = Table(
    "envelopes/{source}",
    "Complete logical messages",
    (
        *ADDRESS,
        Column("last_offset", BIGINT, "Kafka offset of the last part"),
        Column("parts", INT, "number of Kafka records that made this message"),
        Column("shard", STRING, _SHARD),
        Column("seq", UNSIGNED_BIGINT, _SEQ),
        Column("timestamp", TIMESTAMP, "Kafka timestamp of the first part"),
        RECORD_KEY,
        Column("value", BINARY, "the parts put together"),
        HEADERS,
        LANDED_AT,
        ERASED,
    ),
    added=("erased",),
    stats=("topic", "partition", "offset", "last_offset", "timestamp", "landed_at"),
    settings=STAGED,
)

WAITING = Table(
    "envelopes_waiting/{source}",
    "Parts that wait for the rest of their message: the reassembly's state after each batch",
    (
        Column("batch", BIGINT, "this is the state after that batch"),
        *ADDRESS,
        Column("timestamp", TIMESTAMP, about="Kafka timestamp"),
        RECORD_KEY,
        HEADERS,
        LANDED_AT,
        Column("total", BIGINT, about="parts of the message"),
        Column("index", BIGINT, about="this part, from 0"),
        Column("data", BINARY, about="payload of this part"),
        Column("shard", STRING, about=f"{_SHARD}; empty: nobody"),
        Column("seq", UNSIGNED_BIGINT, about="running number the vendor gave this part, if it gives one"),
    ),
    partition_by=("batch",),
    settings={"delta.checkpointInterval": "20", "delta.dataSkippingNumIndexedCols": "1"},
)

CHANGES = Table(
    "changes/{format}/{source}",
    "Decoded events as the format tells them",
    (
        *ADDRESS,
        Column("entry_index", INT, "event within the message"),
        Column("row_index", INT, "row within the event"),
        Column("kind", STRING, "row, ddl, schema, begin, commit, rollback, heartbeat, checkpoint, skip, error"),
        Column("reason", STRING, "of error and skip"),
        DB,
        SCHEMA,
        TABLE,
        OP,
        Column("key", TEXTS, about="primary key of the row before (insert and read: of the row)"),
        Column("before", TEXTS, about="canonical text; absent key: not in the image; null value: NULL"),
        Column("after", TEXTS, about="image of the row after the change; keys and values as in `before`"),
        Column("schema_version", STRING, about="names the columns that describe the row (kind schema: states)"),
        Column("columns", STRING, "kind schema: JSON of name, type, key"),
        DDL,
        Column("source_time", TIMESTAMP, about="commit time at the source"),
        LANDED_AT,
        Column("txn_id", STRING, about="transaction, if the format provides it"),
        Column("txn_seq", BIGINT, about="number within the transaction, if the format provides it"),
        Column("txn_last", BOOLEAN, about="last of its transaction, if the format provides it"),
        GTID,
        *BINLOG,
        Column("lineage", STRING, "whose binlog the position belongs to"),
        Column("file_no", BIGINT, about="number at the end of `binlog_file`; NULL: no position"),
        Column("event_no", BIGINT, about="order of events that share a position"),
        Column("row_no", BIGINT, about="order of rows within the event, as the source counts them"),
        INFO,
        Column("retold", BOOLEAN, "true: by a later decoding of a message that was in quarantine"),
    ),
    stats=("topic", "partition", "offset", "kind", "db", "table", "file_no", "binlog_pos"),
    settings=STAGED,
)

DDL_SEEN = Table(
    "ddl/{source}",
    "DDL statements ahead of the decoder, for formats whose rows mean nothing without them; and, with entry_index -1 "
    "and without a statement, where each set of a TDSQL was seen first",
    (
        *ADDRESS,
        Column("source_time", TIMESTAMP, about="commit time at the source"),
        GTID,
        Column("event_no", BIGINT, about="order of events that share a position"),
        DB,
        DDL,
        ENTRY_INDEX,
        Column("lineage", STRING, "whose binlog the position belongs to"),
        Column("file_no", BIGINT, about="number of the binlog file"),
        Column("binlog_pos", UNSIGNED_BIGINT, about="position in it, if the format provides it"),
        INFO,
    ),
    added=("entry_index", "lineage", "file_no", "binlog_pos", "info"),
    settings=NOTED,
)

CONTEXTS = Table(
    "contexts/{source}",
    "What the DDL seen told the decoder, and when waiting messages were last decoded with it",
    (
        Column("number", BIGINT, about="of the decoding, from 0"),
        Column("digest", STRING, "of what the DDL seen told the decoder"),
        Column("at", TIMESTAMP, about="when the row was written"),
        Column("inputs", STRING, "digest of that DDL and of the options"),
        Column("context", STRING, "JSON of what it told"),
    ),
    added=("inputs", "context"),
    settings=NOTED,
)
