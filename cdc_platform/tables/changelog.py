"""Tables that the changelog stage writes for all sources: row changes, schema history, control events, quarantine."""

from cdc_platform.tables.columns import BIGINT, BOOLEAN, STRING, TIMESTAMP, Column
from cdc_platform.tables.common import (
    ADDRESS,
    DB,
    DDL,
    DECODER,
    ENTRY_INDEX,
    INFO,
    LANDED_AT,
    NOTED,
    OP,
    ORDER,
    ORDER_KEY,
    POSITION,
    REASON,
    ROW_INDEX,
    SCHEMA,
    SOURCE,
    STAGED,
    TABLE,
    TEXTS,
    WRITTEN_AT,
)
from cdc_platform.tables.table import Table

CHANGELOG = Table(
    "changelog",
    "Row changes of all sources in one vocabulary",
    (
        *DECODER,
        *ADDRESS,
        ENTRY_INDEX,
        ROW_INDEX,
        DB,
        SCHEMA,
        TABLE,
        OP,
        Column("key", TEXTS, "primary key of the row before"),
        Column("before", TEXTS, "absent key: not in the image; null value: NULL"),
        Column("after", TEXTS, about="image of the row after the change; keys and values as in `before`"),
        Column("schema_version", STRING, "row of schema_history in force"),
        *POSITION,
        ORDER_KEY,
        Column("decoded_by", STRING, "digest of its decoder's code and of what that was told; NULL: not noted"),
    ),
    partition_by=("source",),
    stats=(
        *("topic", "partition", "offset", "db", "table", "op"),
        *("order_key.epoch", "order_key.file", "order_key.pos", "source_time", "landed_at"),
    ),
    settings=STAGED,
    added=("decoded_by",),
)

SCHEMA_HISTORY = Table(
    "schema_history",
    "DDL statements and column lists, by position",
    (
        *DECODER,
        *ADDRESS,
        ENTRY_INDEX,
        Column("kind", STRING, "ddl: a statement of the source; message: columns as the messages state them"),
        DB,
        SCHEMA,
        TABLE,
        Column("schema_version", STRING, "kind message: names this state of the columns"),
        Column("columns", STRING, "kind message: JSON array of name, type, key"),
        DDL,
        INFO,
        *POSITION,
        ORDER_KEY,
    ),
    partition_by=("source",),
    settings=NOTED,
)

SCHEMA_CHANGES = Table(
    "schema_changes",
    "What every DDL statement did to the snapshots",
    (
        SOURCE,
        *ADDRESS,
        ENTRY_INDEX,
        DDL,
        Column("db_before", STRING, about="the table's database before the statement"),
        Column("table_before", STRING, "NULL: the table begins here"),
        Column("db_after", STRING, about="and after it"),
        Column("table_after", STRING, "NULL: it ends here"),
        Column("decision", STRING, "no effect, applied, rebuilt, emptied, stopped, not placed"),
        REASON,
        Column("order_key", ORDER, about="of the statement"),
        WRITTEN_AT,
    ),
    partition_by=("source",),
    settings=NOTED,
)

SCHEMA_EFFECTS = Table(
    "schema_effects",
    "What the DDL parsers made of a source's statements, so that they are asked once",
    (SOURCE, Column("digest", STRING, "of the statements"), Column("effects", STRING, "JSON"), WRITTEN_AT),
    partition_by=("source",),
    settings=NOTED,
)

TYPES_KNOWN = Table(
    "types_known",
    "Column lists whose rows were compared with what became known of their table's types later",
    (
        SOURCE,
        Column("number", BIGINT, "of the comparison, from 0; of a list the highest counts"),
        DB,
        TABLE,
        Column("schema_version", STRING, about="names the column list"),
        Column("digest", STRING, "of what was known of its columns; where a row didn't fit, of the options, too"),
        Column("replaced", BOOLEAN, "true: its rows were decoded again and have another list now"),
        WRITTEN_AT,
    ),
    partition_by=("source",),
    settings=NOTED,
)

CONTROL_EVENTS = Table(
    "control_events",
    "Begin, commit, heartbeat and checkpoint events",
    (
        *DECODER,
        *ADDRESS,
        ENTRY_INDEX,
        Column("kind", STRING, "begin, commit, rollback, heartbeat, checkpoint"),
        DB,
        INFO,
        *POSITION,
        ORDER_KEY,
    ),
    partition_by=("source",),
    settings=NOTED,
)

QUARANTINE = Table(
    "quarantine",
    "What could not be used, and why; the bytes are in landing under the same address",
    (
        *DECODER,
        Column("room", STRING, "envelopes, changes, changelog"),
        *ADDRESS,
        ENTRY_INDEX,
        ROW_INDEX,
        DB,
        TABLE,
        REASON,
        LANDED_AT,
        Column("quarantined_at", TIMESTAMP, about="when it was found"),
        Column("resolved_at", TIMESTAMP, "when a later decoding took its place; NULL: it holds"),
        SCHEMA,
        Column("key", TEXTS, "primary key of the row before, as far as it can be read"),
        Column("column", STRING, "the column whose value could not be used, where it is one"),
    ),
    partition_by=("source",),
    settings={**NOTED, "delta.appendOnly": "false"},  # `resolved_at` is noted later
    added=("schema", "key", "column"),
)
