"""What runs remember of all sources: offsets, lineages, rules and options in force, states of tables, cuts."""

from cdc_platform.tables.columns import (
    BIGINT,
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
from cdc_platform.tables.common import (
    BATCH,
    BINLOG,
    DB,
    DECODER,
    GTID,
    NOTED,
    ORDER,
    SCHEMA,
    SOURCE,
    TABLE,
    TEXTS,
    WRITTEN_AT,
)
from cdc_platform.tables.table import Table

_NUMBER = Column("number", BIGINT, "of the change, from 0")

OFFSET_LEDGER = Table(
    "offset_ledger",
    "Accounted ranges of offsets: landed equals the sum of all other outcomes but lost",
    (
        SOURCE,
        Column("batch", BIGINT, "batch of the stage; below zero: a back-fill"),
        Column("room", STRING, about="the stage that accounts for them"),
        Column("topic", STRING, about="Kafka topic"),
        Column("partition", INT, about="Kafka partition"),
        Column("from_offset", BIGINT, about="first offset"),
        Column("to_offset", BIGINT, "last, inclusive; -2: nothing more of the partition is landed"),
        Column(
            "outcome",
            STRING,
            "landed, applied, control, filtered, waiting, joined, duplicate, quarantined, erased, lost",
        ),
        Column("records", BIGINT, "offsets with this outcome; negative takes back what was counted under it before"),
        Column("base", BIGINT, "where the partition began again: what is added to Kafka's offsets from here on"),
        Column(
            "topic_id",
            STRING,
            "with base: id of the topic, if it is another than before; with to_offset -2: of the one that is gone",
        ),
        Column("lost_at", TIMESTAMP, "of lost ones: when that was seen"),
    ),
    partition_by=("source",),
    settings=NOTED,
    added=("base", "topic_id", "lost_at"),
)

LINEAGES = Table(
    "lineages",
    "Written by versions before 0.2: whose binlogs were seen, in the order of their first appearance, and how far",
    (
        SOURCE,
        Column("lineage", STRING, "server id; NULL: not told"),
        Column("epoch", BIGINT, about="its number, from 0, as in `order_key`"),
        BATCH,
        Column("high_file", BIGINT, "binlog position reached after the batch"),
        Column("high_pos", UNSIGNED_BIGINT, about="position in that file"),
    ),
    partition_by=("source",),
    settings=NOTED,
)

LOG_EPOCHS = Table(
    "log_epochs",
    "Which events of a partition are of which epoch of the source's log, and which were sent again",
    (
        SOURCE,
        BATCH,
        Column("topic", STRING, about="Kafka topic"),
        Column("partition", INT, about="Kafka partition"),
        Column("first", BIGINT, "arrival of the first of them: Kafka offset * 2^20 + event within the message"),
        Column("last", BIGINT, "arrival of the last"),
        Column("epoch", BIGINT, "as in `order_key`"),
        Column("replay", BOOLEAN, "true: all were stored before"),
        Column("low_file", BIGINT, "binlog file of the first; -1: no position"),
        Column("low_pos", UNSIGNED_BIGINT, about="position in it"),
        Column("high_file", BIGINT, "binlog file of the last; -1: no position"),
        Column("high_pos", UNSIGNED_BIGINT, about="position in it"),
        Column("servers", Array(STRING), "servers that they name"),
        Column("since", BIGINT, "their earliest source time, ms since 1970; NULL: none was told"),
        Column("clock", BIGINT, "latest source time in the partition by then, ms since 1970; NULL: none was told"),
        Column("until", BIGINT, "their latest source time, ms since 1970; NULL: none was told"),
    ),
    added=("until",),
    partition_by=("source",),
    settings=NOTED,
)

TABLE_RULES = Table(
    "table_rules",
    "By which of the configuration's rules the tables of a source were chosen, and since when",
    (
        SOURCE,
        Column("room", STRING, "changelog, snapshots"),
        _NUMBER,
        Column("stage", STRING, "begun: what the change asks for is being done; done: these are in force"),
        Column("include", Array(STRING), about="patterns of tables that are taken"),
        Column("exclude", Array(STRING), about="and of those that are not"),
        Column("routes", Array(Struct((("pattern", STRING), ("target", STRING)))), about="tables merged into one"),
        Column("version", BIGINT, "of changes: it was taken up to there under the rules before"),
        WRITTEN_AT,
    ),
    partition_by=("source",),
    settings=NOTED,
)

DECODED_WITH = Table(
    "decoded_with",
    "Which options a source's messages were decoded with, and since which offsets",
    (
        SOURCE,
        _NUMBER,
        *DECODER[1:],
        Column("options", STRING, "JSON of all options of the format; of a file the digest of its content"),
        Column("digest", STRING, "of format and options"),
        Column(
            "offsets",
            Map(STRING, BIGINT),
            "topic/partition: first offset that they apply to; one that is not in it: all",
        ),
        WRITTEN_AT,
    ),
    partition_by=("source",),
    settings=NOTED,
)

TOPICS = Table(
    "topics",
    "Topics under the ids with which they were landed",
    (
        SOURCE,
        Column("topic", STRING, about="Kafka topic"),
        Column("topic_id", STRING, "Kafka topic id"),
        Column("seen_at", TIMESTAMP, about="when it was first seen under that id"),
    ),
    partition_by=("source",),
    settings=NOTED,
)

TABLE_STATE = Table(
    "table_state",
    "What each batch did to each table it touched; the row with the highest rebuild and batch holds",
    (
        SOURCE,
        DB,
        TABLE,
        BATCH,
        Column(
            "state",
            STRING,
            "live; stopped: not followed any more; dropped at the source; left_out by other rules; stale: this run or "
            "the next makes it anew from the changelog",
        ),
        Column("reason", STRING, "why it is stopped, dropped or left out; of a live one what the feed does not tell"),
        Column("changes", BIGINT, "row changes of the batch"),
        Column("invalid_dates", BIGINT, "dates that do not exist, NULL in the snapshot"),
        Column("partial", BIGINT, "row images that tell a part of the row"),
        Column("high_order", ORDER, "of the newest change; NULL of a table without a key"),
        Column("rebuild", BIGINT, "how often the table had been built anew from the changelog"),
        WRITTEN_AT,
        SCHEMA,
        Column("entries", BIGINT, "how many rows of batches this one stands for since upkeep folded them; NULL: one"),
        Column("rows", BIGINT, "rows of the snapshot after the batch; NULL: not counted"),
    ),
    partition_by=("source",),
    settings=NOTED,
    added=("schema", "entries", "rows"),
)

BESIDE_STATE = Table(
    "beside_state",
    "Histories and typed changes that are kept beside snapshots, and whether they have all changes; the row with the "
    "highest number holds",
    (
        SOURCE,
        Column("kind", STRING, "history, typed_changes"),
        Column("number", BIGINT, "of a run that noted something, from 0"),
        DB,
        SCHEMA,
        TABLE,
        Column("state", STRING, "kept; lacking: it lacks changes, each run tries to make it; left: nobody asks for it"),
        Column("reason", STRING, "why it lacks changes"),
        WRITTEN_AT,
    ),
    partition_by=("source",),
    settings=NOTED,
)

CUT_LACKS = (
    "events are in quarantine",
    "offsets were lost before they were landed",
    "records never came, by their sender's numbers",
)
"""Ends of a cut's `reason` where changes from before it aren't in its snapshots."""

CUTS = Table(
    "cuts",
    "Versions of all snapshots of a source that belong together",
    (
        SOURCE,
        Column("cut", BIGINT, "number within the source, from 1"),
        Column("kind", STRING, "transaction: no transaction is in it by half; position: the feed cannot tell that"),
        Column("reason", STRING, "why it is of kind position"),
        Column("order_key", ORDER, "of the newest row change in it"),
        *BINLOG,
        GTID,
        Column("source_time", TIMESTAMP, "commit time of that change at the source"),
        Column(
            "offsets",
            Map(STRING, BIGINT),
            "topic/partition: last offset of a row change or of a mark of transactions in it",
        ),
        Column(
            "snapshots",
            Array(Struct((("db", STRING), ("table", STRING), ("path", STRING), ("version", BIGINT)))),
            "every live snapshot of the source: path under the lake, Delta version at this cut",
        ),
        Column(
            "work",
            BIGINT,
            "rows of table_state and schema_changes of the source: what had been done to its tables",
        ),
        WRITTEN_AT,
        Column("schemas", TEXTS, "path under the lake: the schema of its table, where it has one"),
        Column("folder", STRING, "under `snapshots`, that they are in; NULL: the source's name"),
        Column(
            "ddl_offsets",
            Map(STRING, BIGINT),
            "topic/partition: last offset of DDL in it, of those that aren't in `offsets` (a topic of DDL alone)",
        ),
    ),
    partition_by=("source",),
    settings=NOTED,
    added=("schemas", "folder", "ddl_offsets"),
)

SNAPSHOT_FOLDERS = Table(
    "snapshot_folders",
    "Which source's tables are in which folder of `snapshots`, since `shadow cutover` exchanged those of two",
    (
        SOURCE,
        Column("folder", STRING, "name of a source: its tables lie where that one's did"),
        Column("number", BIGINT, "of the exchange, from 1; of a source the highest counts"),
        Column("in_use", BOOLEAN, "whether this is the source that took the other's place"),
        Column("cut", BIGINT, "the highest number of a cut of either before it"),
        WRITTEN_AT,
    ),
    settings=NOTED,
)
