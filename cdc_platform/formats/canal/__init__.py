"""canal's protobuf (`canal.mq.flatMessage=false`), TiCDC's `canal`, and bare Entry values (Volcengine DTS).

A Kafka value is a Packet with a batch of entries of any tables and transactions; an entry is one binlog event. Each
is read for itself: a broken one costs its neighbours nothing.
"""

import pyarrow as pa

from cdc_platform.formats.canal.entries import read
from cdc_platform.formats.canal.events import assemble
from cdc_platform.formats.canal.known import Known
from cdc_platform.formats.canal.rows import row_changes
from cdc_platform.formats.canal_common.options import TIMESTAMP_WITHOUT_ZONE, CanalOptions
from cdc_platform.formats.contract import EVENT, Beat, Context, Format, GtidSets, Liveness
from cdc_platform.formats.protobuf.arrow import joined, pieces
from cdc_platform.formats.table_schemas.lookup import TableSchemas
from cdc_platform.formats.table_schemas.states import States, build


def decode(batch: pa.RecordBatch, options: CanalOptions, states: States | None = None) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes. `states`: the tables'
    columns over time, as `table_schemas.states.build` gives them."""
    seen: set[str] = set()  # schema versions told already
    schemas = TableSchemas(states)
    return joined([_decode_piece(piece, options, schemas, seen) for piece in pieces(batch)], EVENT)


def _decode_piece(
    batch: pa.RecordBatch, options: CanalOptions, schemas: TableSchemas, seen: set[str]
) -> pa.RecordBatch:
    entries = read(batch.column("value"))
    return assemble(batch, entries, row_changes(entries, options, Known(schemas, batch)), seen)


FORMAT = Format(
    name="canal",
    version="2",
    summary="canal's protobuf (flatMessage=false), also as TiCDC and Volcengine DTS write it",
    options=CanalOptions,
    decode=decode,
    # a heartbeat is stamped by canal itself
    log_times=frozenset({"row", "ddl", "begin", "commit", "rollback", "checkpoint"}),
    rows_have_places=True,  # TiCDC's have none
    gtid_sets=GtidSets("gtid_set", with_next=frozenset({"begin", "checkpoint"})),
    log_positions=True,
    beats=(Beat("heartbeat"),),  # checkpoints are GTID entries: one per transaction
    liveness=Liveness("canal's messages promise no heartbeats"),
    part=None,
    context=Context(build=build),
    limits=(TIMESTAMP_WITHOUT_ZONE,),
    transactions="brackets",
)
