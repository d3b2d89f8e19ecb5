"""Columns and properties that several tables have."""

from cdc_platform.tables.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    INT,
    STRING,
    TIMESTAMP,
    UNSIGNED_BIGINT,
    Array,
    Column,
    Map,
    Struct,
)

STAGED = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 3650 days",  # `replay` reads commits from the first on
}
"""Properties of tables that only ever grow and are taken commit by commit."""
NOTED = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "10",  # who opens one reads the commits since the last checkpoint, each by a request
    "delta.logRetentionDuration": "interval 7 days",  # a commit a round, thousands a day; Delta asks for a week
}
"""Properties of tables in which the stages note what they did."""

TEXTS = Map(STRING, STRING)

SOURCE = Column("source", STRING, about="the source in `cdc.yaml`")
WRITTEN_AT = Column("at", TIMESTAMP, about="when the row was written")
BATCH = Column("batch", BIGINT, about="number of the batch")
REASON = Column("reason", STRING, about="why")

ADDRESS = (
    Column("topic", STRING, "Kafka topic"),
    Column("partition", INT, "Kafka partition"),
    Column("offset", BIGINT, "Kafka offset (of the first record of a split message)"),
)
MESSAGE_AT = tuple(c.name for c in ADDRESS)
"""Columns that tell a message from all others of its table."""
ENTRY_INDEX = Column("entry_index", INT, about="event within the message, from 0")
ROW_INDEX = Column("row_index", INT, about="row within the event, from 0")

RECORD_KEY = Column("key", BINARY, about="Kafka key")
HEADERS = Column("headers", Array(Struct((("key", STRING), ("value", BINARY)))), about="Kafka headers")
LANDED_AT = Column("landed_at", TIMESTAMP, about="start of the landing batch that brought the record")

DECODER = (
    SOURCE,
    Column("format", STRING, about="its wire format"),
    Column("decoder_version", STRING, about="version of the decoder that read the message"),
)
DB = Column("db", STRING, about="database, as the source spells it")
SCHEMA = Column("schema", STRING, about="schema, where the source has one between database and table")
TABLE = Column("table", STRING, about="table, as the source spells it")
OP = Column("op", STRING, "insert, update, delete, read, truncate")
DDL = Column("ddl", STRING, about="the statement")
INFO = Column("info", TEXTS, about="what else the message says, by name")
GTID = Column(
    "gtid",
    STRING,
    about="GTID of the transaction, if the format provides it; of `canal_json`, and of `canal` without `curtGtid`, the "
    "set of all that was executed with it",
)
BINLOG = (
    Column("binlog_file", STRING, about="binlog file, if the format provides it"),
    Column("binlog_pos", UNSIGNED_BIGINT, about="position in it, if the format provides it"),
)

ORDER = Struct(
    (
        ("epoch", BIGINT),
        ("file", BIGINT),
        ("pos", UNSIGNED_BIGINT),
        ("event", BIGINT),
        ("row", BIGINT),
        ("landed", BIGINT),
    )
)
"""epoch: log of the source, in the order in which its partitions read them; file, pos: place in it; event, row: order
at one place, by arrival (Kafka offset; event and row within the message; 2^60 + the number in the transaction, where a
capture of Debezium's tells it) or as one says it whose positions alone order;
landed: Kafka offset. Without a position file is -1, pos the latest source time in the partition by then (ms; without
one the Kafka offset), and event offset * 2^16 + a number of the partition. Compared field by field, all numbers."""

POSITION = (
    Column("source_time", TIMESTAMP, "commit time at the source"),
    Column("landed_at", TIMESTAMP, "when the raw record was landed"),
    Column("txn_id", STRING, "transaction, where the format tells"),
    Column("txn_seq", BIGINT, "place in the transaction, where the format tells"),
    Column("txn_last", BOOLEAN, "last of its transaction, where the format tells"),
    GTID,
    *BINLOG,
)
"""Where an event stands at its source, as the format states it."""

ORDER_KEY = Column("order_key", ORDER, "numeric order within the source")
