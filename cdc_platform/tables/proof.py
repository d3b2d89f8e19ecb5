"""What says how far tables are right: watermarks, comparisons with the source, certificates."""

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
from cdc_platform.tables.common import BATCH, BINLOG, DB, NOTED, SCHEMA, SOURCE, TABLE, TEXTS, WRITTEN_AT
from cdc_platform.tables.table import Table

WATERMARKS = Table(
    "watermarks",
    "Up to which time, by the source's clock, everything that the source had committed has come",
    (
        SOURCE,
        Column("scope", STRING, "partition: come into the changelog by it; source: complete in all its snapshots"),
        Column("batch", BIGINT, "of the changelog; of scope source a running number"),
        Column("topic", STRING, about="Kafka topic, of scope partition"),
        Column("partition", INT, about="Kafka partition, of scope partition"),
        Column("offset", BIGINT, "last offset of the partition in the changelog"),
        Column("source_time", TIMESTAMP, "all that was committed before it; NULL: no event has told a time so far"),
        Column(
            "proven",
            BOOLEAN,
            "of scope source: every partition tells it; false: one is idle and is taken for complete, as `reason` says",
        ),
        Column("reason", STRING, "of scope source: what holds the time back, or which partitions are idle"),
        Column(
            "behind",
            Array(
                Struct(
                    (
                        *(("db", STRING), ("schema", STRING), ("table", STRING)),
                        *(("source_time", TIMESTAMP), ("reason", STRING)),
                    )
                )
            ),
            "of scope source: snapshots that are complete up to an earlier time only, and why",
        ),
        *BINLOG,
        Column("gtid", STRING, "of scope source: set of GTIDs of which all changes are in all its snapshots"),
        WRITTEN_AT,
        Column("position_reason", STRING, "of scope source: why there is no position, or no set of GTIDs"),
        Column(
            "end_offsets",
            Array(
                Struct(
                    (
                        *(("db", STRING), ("schema", STRING), ("table", STRING)),
                        *(("topic", STRING), ("partition", INT), ("offset", BIGINT)),
                    )
                )
            ),
            "of scope source: of each partition the first offset that the time doesn't rest on; of tables in `behind`, "
            "too, where it is another; NULL: an earlier version wrote the row",
        ),
        Column(
            "assumed",
            Array(Struct((("db", STRING), ("schema", STRING), ("table", STRING)))),
            "of scope source: tables in `behind` whose time isn't proven; NULL: an earlier version wrote the row",
        ),
        Column(
            "change_batch",
            BIGINT,
            "of scope partition: batch by which a change came last, or what else tells the time; NULL: none did since "
            "an earlier version",
        ),
    ),
    partition_by=("source",),
    settings=NOTED,
    added=("position_reason", "end_offsets", "assumed", "change_batch"),
)

SEQUENCES = Table(
    "sequences",
    "Stretches of records that their sender numbered one after the other (Kafka header `ps` of Tencent DTS)",
    (
        SOURCE,
        BATCH,
        Column("topic", STRING, about="Kafka topic"),
        Column("partition", INT, about="Kafka partition"),
        Column("shard", STRING, "who numbers them beside the partition; empty: nobody"),
        Column("from_offset", BIGINT, about="offset of the first"),
        Column("to_offset", BIGINT, about="offset of the last"),
        Column("first", BIGINT, "number of the first; NULL: those from here on are not one after the other"),
        Column("last", BIGINT, about="number of the last"),
        WRITTEN_AT,
    ),
    partition_by=("source",),
    settings=NOTED,
)

RECONCILIATIONS = Table(
    "reconciliations",
    "What comparisons of snapshots with the source itself found",
    (
        SOURCE,
        DB,
        SCHEMA,
        TABLE,
        Column("against", STRING, "server: the source's own; export: a file of it; load: the table was read whole"),
        Column("equal", BOOLEAN, "true: nothing that was compared differs"),
        Column("version", BIGINT, "of the snapshot's Delta table"),
        *BINLOG,
        Column("gtid", STRING, "of the source's view, where it is told"),
        Column("rows", BIGINT, "of the source"),
        Column("digest", STRING, "SHA-256 of the source's counts and sums of row digests by bucket"),
        Column("differing", BIGINT, "rows found that are missing, too many or others"),
        Column("problems", Array(STRING), "what is wrong with the table as a whole"),
        Column("not_compared", Map(STRING, STRING), "columns of the snapshot that were left out, and why"),
        Column("lost", BIGINT, "offsets of the source that had been lost before they were landed, by then"),
        WRITTEN_AT,
        Column("made_at", TIMESTAMP, "of an export: when it was made; NULL: nobody said"),
        Column("rebuild", BIGINT, "of the snapshot then, as in `table_state`: its rows weren't made anew since"),
        Column("falls_short", Array(STRING), "why it proves nothing, though nothing differs; NULL: no such reason"),
    ),
    partition_by=("source",),
    settings=NOTED,
    added=("made_at", "rebuild", "falls_short"),
)

ERASURES = Table(
    "erasures",
    "What was erased at subjects' requests, and the proof that nothing of it is left",
    (
        SOURCE,
        Column("number", BIGINT, "of the erasure, from 1"),
        Column(
            "stage", STRING, "begun: decided, and being done; done: with the proof; again: `records` were sent again"
        ),
        DB,
        SCHEMA,
        TABLE,
        Column("key_digest", STRING, "HMAC-SHA256 of the key, under `salt`"),
        Column("keys", BIGINT, "keys that the row has had"),
        Column("by", STRING, "who asked for it, on which machine"),
        Column(
            "records",
            Array(
                Struct(
                    (("topic", STRING), ("partition", INT), ("offset", BIGINT), ("digest", STRING), ("shared", BOOLEAN))
                ),
            ),
            "landed records whose bytes are gone: HMAC-SHA256 of each value under `salt`, by which one that is read "
            "from Kafka again is known; shared: it held rows of other keys, too",
        ),
        Column("salt", STRING, "random, of this erasure"),
        Column("transactions", Array(STRING), "whose end counts rows that were erased"),
        Column("rows", Map(STRING, BIGINT), "path of a table under the lake: rows that were erased there"),
        Column("proof", STRING, "stage done: JSON of what was looked through, and what was left"),
        Column(
            "events",
            Array(
                Struct(
                    (
                        *(("topic", STRING), ("partition", INT), ("offset", BIGINT)),
                        *(("entry_index", INT), ("row_index", INT), ("file_no", BIGINT)),
                        *(("binlog_pos", UNSIGNED_BIGINT), ("digest", STRING)),
                    )
                ),
            ),
            "row changes that are gone and their places in the log: SHA-256 of `salt` and each one's content, by which "
            "one that the capture sends again is known",
        ),
        WRITTEN_AT,
    ),
    partition_by=("source",),
    settings=NOTED,
    added=("events",),
)

CERTIFICATES = Table(
    "certificates",
    "What was certified of snapshots, and when that changed",
    (
        SOURCE,
        Column("number", BIGINT, "of the certificate, from 0; of a table the highest counts"),
        DB,
        SCHEMA,
        TABLE,
        Column("verdict", STRING, "proven: equal to the source when compared; consistent: nothing is wrong; broken"),
        Column("reasons", Array(STRING), "what is wrong; of consistent: what lacks to a proof"),
        Column("complete_up_to", TIMESTAMP, "all that the source had committed before it is in the table"),
        Column("facts", STRING, "JSON of all that the verdict was made from"),
        WRITTEN_AT,
        Column("compared_at", TIMESTAMP, "when it was last compared with the source; NULL: never, or not told"),
        Column("cut", BIGINT, "number of the source's newest cut; NULL: there is none, or it isn't told"),
    ),
    partition_by=("source",),
    settings=NOTED,
    added=("compared_at", "cut"),
)

_OF = Column("source", STRING, "`of` of the pair in `cdc.yaml`")
_BY = Column("by", STRING, "`by` of the pair")
_COMPARED_AT = (
    Column("gtid", STRING, "last transaction that counts, where both feeds tell GTIDs: both have all up to it"),
    Column("source_time", TIMESTAMP, "else: rows count whose last change is older, by the source's clock"),
)

SHADOW_COMPARISONS = Table(
    "shadow_comparisons",
    "What comparisons of two feeds of the same database found, table by table",
    (
        _OF,
        _BY,
        Column("number", BIGINT, "of the comparison of this pair, from 0; of a table the highest counts"),
        DB,
        SCHEMA,
        TABLE,
        Column("table_by", STRING, "db.table as `by` spells it; NULL: it has no such table"),
        Column("state", STRING, "equal; different; behind: what there is to compare is equal; not_compared"),
        Column("reason", STRING, about="why nothing of it could be judged, or it isn't compared"),
        Column("version_of", BIGINT, "of the snapshot of `of`"),
        Column("version_by", BIGINT, "of the snapshot of `by`"),
        *_COMPARED_AT,
        Column("complete_of", TIMESTAMP, "up to when `of` was complete"),
        Column("complete_by", TIMESTAMP, "up to when `by` was complete"),
        Column("rows_of", BIGINT, "rows of the snapshot of `of`"),
        Column("rows_by", BIGINT, "rows of the snapshot of `by`"),
        Column("only_of", BIGINT, "open differences: rows that `by` lacks"),
        Column("only_by", BIGINT, "open differences: rows that `of` lacks"),
        Column("differing", BIGINT, "open differences: rows with other values"),
        Column("unsettled", BIGINT, "rows that aren't the same, and changed too late to be judged"),
        Column("not_compared", Map(STRING, STRING), "columns that were left out, and why"),
        WRITTEN_AT,
    ),
    partition_by=("source",),
    settings=NOTED,
)

SHADOW_DIFFERENCES = Table(
    "shadow_differences",
    "Rows in which two feeds of the same database differ: who lacks what, since when, until when",
    (
        _OF,
        _BY,
        Column("number", BIGINT, "of the comparison; of a table's key the highest counts"),
        DB,
        SCHEMA,
        TABLE,
        Column("key", STRING, "JSON: key column to text; of a table without a key all of the row"),
        Column("kind", STRING, "only_of, only_by, differs"),
        Column("rows", BIGINT, "1; of a table without a key how many equal rows there are more"),
        Column("columns", Array(STRING), "columns that differ"),
        Column("of_row", TEXTS, "text of each value that differs in `of`, of a row that the other lacks of all values"),
        Column("by_row", TEXTS, "the same in `by`"),
        *_COMPARED_AT,
        Column("first_seen", TIMESTAMP, about="when a comparison first found it"),
        Column("closed_at", TIMESTAMP, "when one found that it is gone; NULL: it is open"),
        WRITTEN_AT,
    ),
    partition_by=("source",),
    settings=NOTED,
)
