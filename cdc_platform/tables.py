"""Every Delta table: columns, properties and path, one frozen record each. No Spark at import."""

import hashlib
from dataclasses import dataclass, field

STATS = "delta.dataSkippingStatsColumns"
"""Property of a table: columns whose lowest and highest values its log tells, file by file."""

_STAGED = {  # stages that only ever grow and can be rebuilt: what every one of them shares
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 3650 days",  # `replay` reads commits from the first on
}

_ADDRESS = """
  topic STRING COMMENT 'Kafka topic',
  `partition` INT COMMENT 'Kafka partition',
  `offset` BIGINT COMMENT 'Kafka offset (of the first record of a split message)'"""

_ORDER = "STRUCT<epoch: BIGINT, file: BIGINT, pos: DECIMAL(20,0), event: BIGINT, `row`: BIGINT, landed: BIGINT>"
"""epoch: lineage of binlogs, in the order of their first appearance; file, pos: binlog position; event, row:
order at one position; landed: Kafka offset, a last tie-break. Compared field by field, all numbers."""

_POSITION = f"""
  source_time TIMESTAMP COMMENT 'commit time at the source',
  landed_at TIMESTAMP COMMENT 'when the raw record was landed',
  txn_id STRING COMMENT 'transaction, where the format tells',
  txn_seq BIGINT COMMENT 'place in the transaction, where the format tells',
  txn_last BOOLEAN COMMENT 'last of its transaction, where the format tells',
  gtid STRING,
  binlog_file STRING,
  binlog_pos DECIMAL(20,0),
  order_key {_ORDER} COMMENT 'numeric order within the source'"""


@dataclass(frozen=True, slots=True)
class Table:
    """A Delta table of the lake: path template, columns as DDL, partition columns, properties."""

    path: str
    columns: str
    comment: str
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    added: tuple[str, ...] = ()  # columns that tables made by earlier versions lack until `lake.ensure` adds them

    def at(self, lake: str, **names: str) -> str:
        """Path under `lake`; the names are escaped so that no name leaves it."""
        return f"{lake}/" + self.path.format(**{k: path_name(v) for k, v in names.items()})


_LONGEST_SEGMENT = 240


def path_name(name: str) -> str:
    """Injective name → path segment: ASCII letters, digits, `_`, `-` and inner `.` stay, a leading `_` or `.` and
    every other UTF-8 byte become `~XX` (a percent sign would make delta-rs readers miss the table). What would be
    too long for a file system (255 bytes) is cut, and told apart by `~~` and a hash of the name."""
    out = []
    last = len(name) - 1
    for i, c in enumerate(name):
        plain = c.isascii() and (c.isalnum() or c in "_-" or (c == "." and 0 < i < last))
        if plain and not (i == 0 and c in "_."):
            out.append(c)
        else:
            out.extend(f"~{b:02X}" for b in c.encode("utf-8", "surrogatepass"))
    text = "".join(out) or "~"
    if len(text) <= _LONGEST_SEGMENT:
        return text
    return (
        text[: _LONGEST_SEGMENT - 34]
        + "~~"
        + hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    )


LANDING = Table(
    "landing/{source}",
    f"""{_ADDRESS},
  timestamp TIMESTAMP COMMENT 'Kafka timestamp',
  timestamp_type INT COMMENT '0 create time, 1 log append time',
  `key` BINARY, value BINARY COMMENT 'the record, byte for byte; NULL is a Kafka tombstone',
  headers ARRAY<STRUCT<`key`: STRING, value: BINARY>>,
  landed_at TIMESTAMP COMMENT 'start of the landing batch'""",
    "Kafka records, byte for byte",
    properties={
        **_STAGED,
        "delta.dataSkippingStatsColumns": "topic,partition,offset,timestamp,landed_at",
    },
)

ENVELOPES = Table(
    "envelopes/{source}",
    f"""{_ADDRESS},
  last_offset BIGINT COMMENT 'Kafka offset of the last part',
  parts INT COMMENT 'number of Kafka records that made this message',
  shard STRING COMMENT 'who numbered the parts beside the partition',
  seq DECIMAL(20,0) COMMENT 'running number the vendor gave the first part',
  timestamp TIMESTAMP COMMENT 'Kafka timestamp of the first part',
  `key` BINARY, value BINARY COMMENT 'the parts put together',
  headers ARRAY<STRUCT<`key`: STRING, value: BINARY>>,
  landed_at TIMESTAMP""",
    "Complete logical messages",
    properties={
        **_STAGED,
        "delta.dataSkippingStatsColumns": "topic,partition,offset,last_offset,timestamp,landed_at",
    },
)

WAITING = Table(
    "envelopes_waiting/{source}",
    f"""batch BIGINT COMMENT 'this is the state after that batch',
  {_ADDRESS.strip()},
  timestamp TIMESTAMP, `key` BINARY, headers ARRAY<STRUCT<`key`: STRING, value: BINARY>>, landed_at TIMESTAMP,
  total BIGINT, `index` BIGINT, data BINARY, shard STRING, seq DECIMAL(20,0)""",
    "Parts that wait for the rest of their message: the reassembly's state after each batch",
    partition_by=("batch",),
    properties={"delta.checkpointInterval": "20", "delta.dataSkippingNumIndexedCols": "1"},
)

CHANGES = Table(
    "changes/{format}/{source}",
    f"""{_ADDRESS},
  entry_index INT COMMENT 'event within the message', row_index INT COMMENT 'row within the event',
  kind STRING COMMENT 'row, ddl, schema, begin, commit, rollback, heartbeat, checkpoint, skip, error',
  reason STRING COMMENT 'of error and skip',
  db STRING, schema STRING, `table` STRING, op STRING COMMENT 'insert, update, delete, read, truncate',
  `key` MAP<STRING, STRING>, before MAP<STRING, STRING>, after MAP<STRING, STRING>,
  schema_version STRING, columns STRING COMMENT 'kind schema: JSON of name, type, key', ddl STRING,
  source_time TIMESTAMP, landed_at TIMESTAMP, txn_id STRING, txn_seq BIGINT, txn_last BOOLEAN, gtid STRING,
  binlog_file STRING, binlog_pos DECIMAL(20,0), lineage STRING COMMENT 'whose binlog the position belongs to',
  file_no BIGINT, event_no BIGINT, row_no BIGINT, info MAP<STRING, STRING>,
  retold BOOLEAN COMMENT 'true: by a later decoding of a message that was in quarantine'""",
    "Decoded events as the format tells them",
    properties={
        **_STAGED,
        "delta.dataSkippingStatsColumns": "topic,partition,offset,kind,db,table,file_no,binlog_pos",
    },
)

DDL_SEEN = Table(
    "ddl/{source}",
    f"""{_ADDRESS}, source_time TIMESTAMP, gtid STRING, event_no BIGINT, db STRING, ddl STRING""",
    "DDL statements ahead of the decoder, for formats whose rows mean nothing without them",
    properties=_STAGED,
)

CONTEXTS = Table(
    "contexts/{source}",
    """number BIGINT, digest STRING COMMENT 'of what the DDL seen told the decoder', at TIMESTAMP""",
    "What was known when the messages waiting in quarantine were last decoded anew",
    properties=_STAGED,
)

CHANGELOG = Table(
    "changelog",
    f"""source STRING, format STRING, decoder_version STRING,{_ADDRESS},
  entry_index INT, row_index INT,
  db STRING, schema STRING, `table` STRING, op STRING COMMENT 'insert, update, delete, read, truncate',
  `key` MAP<STRING, STRING> COMMENT 'primary key of the row before',
  before MAP<STRING, STRING> COMMENT 'absent key: not in the image; null value: NULL', after MAP<STRING, STRING>,
  schema_version STRING COMMENT 'row of schema_history in force',{_POSITION}""",
    "Row changes of all sources in one vocabulary",
    partition_by=("source",),
    properties={
        **_STAGED,
        "delta.dataSkippingStatsColumns": (
            "topic,partition,offset,db,table,op,order_key.epoch,order_key.file,order_key.pos,source_time,landed_at"
        ),
    },
)

SCHEMA_HISTORY = Table(
    "schema_history",
    f"""source STRING, format STRING, decoder_version STRING,{_ADDRESS}, entry_index INT,
  kind STRING COMMENT 'ddl: a statement of the source; message: columns as the messages state them',
  db STRING, schema STRING, `table` STRING,
  schema_version STRING COMMENT 'kind message: names this state of the columns',
  columns STRING COMMENT 'kind message: JSON array of name, type, key', ddl STRING,
  info MAP<STRING, STRING>,{_POSITION}""",
    "DDL statements and column lists, by position",
    partition_by=("source",),
    properties=_STAGED,
)

SCHEMA_CHANGES = Table(
    "schema_changes",
    f"""source STRING,{_ADDRESS}, entry_index INT, ddl STRING,
  db_before STRING, table_before STRING COMMENT 'NULL: the table begins here',
  db_after STRING, table_after STRING COMMENT 'NULL: it ends here',
  decision STRING COMMENT 'no effect, applied, rebuilt, emptied, stopped, not placed',
  reason STRING, order_key {_ORDER}, at TIMESTAMP""",
    "What every DDL statement did to the snapshots",
    partition_by=("source",),
    properties=_STAGED,
)

SCHEMA_EFFECTS = Table(
    "schema_effects",
    """source STRING, digest STRING COMMENT 'of the statements', effects STRING COMMENT 'JSON', at TIMESTAMP""",
    "What the DDL parsers made of a source's statements, so that they are asked once",
    partition_by=("source",),
    properties=_STAGED,
)

CONTROL_EVENTS = Table(
    "control_events",
    f"""source STRING, format STRING, decoder_version STRING,{_ADDRESS}, entry_index INT,
  kind STRING COMMENT 'begin, commit, rollback, heartbeat, checkpoint',
  db STRING, info MAP<STRING, STRING>,{_POSITION}""",
    "Begin, commit, heartbeat and checkpoint events",
    partition_by=("source",),
    properties=_STAGED,
)

QUARANTINE = Table(
    "quarantine",
    f"""source STRING, format STRING, decoder_version STRING, room STRING COMMENT 'envelopes, changes, changelog',
  {_ADDRESS.strip()}, entry_index INT, row_index INT, db STRING, `table` STRING,
  reason STRING, landed_at TIMESTAMP, quarantined_at TIMESTAMP,
  resolved_at TIMESTAMP COMMENT 'when a later decoding took its place; NULL: it holds',
  schema STRING,
  `key` MAP<STRING, STRING> COMMENT 'primary key of the row before, as far as it can be read',
  `column` STRING COMMENT 'the column whose value could not be used, where it is one'""",
    "What could not be used, and why; the bytes are in landing under the same address",
    partition_by=("source",),
    properties={**_STAGED, "delta.appendOnly": "false"},  # `resolved_at` is noted later
    added=("schema", "key", "column"),
)

OFFSET_LEDGER = Table(
    "offset_ledger",
    """source STRING, batch BIGINT COMMENT 'batch of the stage; below zero: a back-fill', room STRING,
  topic STRING, `partition` INT, from_offset BIGINT, to_offset BIGINT COMMENT 'last, inclusive',
  outcome STRING COMMENT 'landed, applied, control, filtered, waiting, joined, duplicate, quarantined, lost',
  records BIGINT COMMENT 'offsets with this outcome; negative takes back what was counted under it before'""",
    "Accounted ranges of offsets: landed equals the sum of all other outcomes but lost",
    partition_by=("source",),
    properties=_STAGED,
)

LINEAGES = Table(
    "lineages",
    """source STRING, lineage STRING COMMENT 'server id; NULL: not told', epoch BIGINT, batch BIGINT,
  high_file BIGINT COMMENT 'binlog position reached after the batch', high_pos DECIMAL(20,0)""",
    "Whose binlogs were seen, in the order of their first appearance, and how far",
    partition_by=("source",),
    properties=_STAGED,
)

TABLE_RULES = Table(
    "table_rules",
    """source STRING, room STRING COMMENT 'changelog, snapshots', number BIGINT COMMENT 'of the change, from 0',
  stage STRING COMMENT 'begun: what the change asks for is being done; done: these are in force',
  include ARRAY<STRING>, exclude ARRAY<STRING>, routes ARRAY<STRUCT<pattern: STRING, target: STRING>>,
  version BIGINT COMMENT 'of changes: it was taken up to there under the rules before', at TIMESTAMP""",
    "By which of the configuration's rules the tables of a source were chosen, and since when",
    partition_by=("source",),
    properties=_STAGED,
)

DECODED_WITH = Table(
    "decoded_with",
    """source STRING, number BIGINT COMMENT 'of the change, from 0', format STRING, decoder_version STRING,
  options STRING COMMENT 'JSON of all options of the format; of a file the digest of its content',
  digest STRING COMMENT 'of format and options',
  offsets MAP<STRING, BIGINT> COMMENT 'topic/partition: first offset that they apply to; one that is not in it: all',
  at TIMESTAMP""",
    "Which options a source's messages were decoded with, and since which offsets",
    partition_by=("source",),
    properties=_STAGED,
)

SNAPSHOT_PATH = Table("snapshots/{source}/{db}/{table}", "", "Live rows of one source table")
TOMBSTONES_PATH = Table("tombstones/{source}/{db}/{table}", "", "Deleted keys with the order of their delete")

CHECKPOINT = Table("_checkpoints/{room}/{source}", "", "Structured Streaming checkpoint of one stage of one source")

TOPICS = Table(
    "topics",
    "source STRING, topic STRING, topic_id STRING COMMENT 'Kafka topic id', seen_at TIMESTAMP",
    "Topics under the ids with which they were landed",
    partition_by=("source",),
    properties=_STAGED,
)

TABLE_STATE = Table(
    "table_state",
    f"""source STRING, db STRING, `table` STRING, batch BIGINT,
  state STRING COMMENT 'live; stopped: not followed any more; dropped at the source; left_out by other rules; stale:
    this run or the next makes it anew from the changelog',
  reason STRING COMMENT 'why it is stopped, dropped or left out; of a live one what the feed does not tell',
  changes BIGINT COMMENT 'row changes of the batch',
 invalid_dates BIGINT COMMENT 'dates that do not exist, NULL in the snapshot',
 partial BIGINT COMMENT 'row images that tell a part of the row',
  high_order {_ORDER} COMMENT 'of the newest change; NULL of a table without a key',
  rebuild BIGINT COMMENT 'how often the table had been built anew from the changelog', at TIMESTAMP""",
    "What each batch did to each table it touched; the row with the highest rebuild and batch holds",
    partition_by=("source",),
    properties=_STAGED,
)

CUTS = Table(
    "cuts",
    f"""source STRING, cut BIGINT COMMENT 'number within the source, from 1',
  kind STRING COMMENT 'transaction: no transaction is in it by half; position: the feed cannot tell that',
  reason STRING COMMENT 'why it is of kind position',
  order_key {_ORDER} COMMENT 'of the newest row change in it', binlog_file STRING, binlog_pos DECIMAL(20,0),
  gtid STRING, source_time TIMESTAMP COMMENT 'commit time of that change at the source',
  offsets MAP<STRING, BIGINT> COMMENT 'topic/partition: last offset of a row change or of a mark of transactions in it',
  snapshots ARRAY<STRUCT<db: STRING, `table`: STRING, path: STRING, version: BIGINT>>
    COMMENT 'every live snapshot of the source: path under the lake, Delta version at this cut',
  work BIGINT COMMENT 'rows of table_state and schema_changes of the source: what had been done to its tables',
  at TIMESTAMP""",
    "Versions of all snapshots of a source that belong together",
    partition_by=("source",),
    properties=_STAGED,
)

ORDER_TYPE = _ORDER
ADDRESS_TYPE = "STRUCT<topic: STRING, `partition`: INT, `offset`: BIGINT, entry_index: INT, row_index: INT>"
