"""Whole messages → changes/<format>/<source>, exactly once: one pass, no shuffle."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cdc_platform.chain import RoomResult
from cdc_platform.config import Config, Source
from cdc_platform.envelopes.run import messages_path
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.frame import decode
from cdc_platform.resources import lake
from cdc_platform.tables import CHANGES, CHECKPOINT

_DDL = ["topic", "partition", "offset", "source_time", "gtid", "event_no", "db", "ddl"]


def ddl_of(events: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The DDL among EVENT rows, as formats' `context` wants it: plain values, `source_time` in µs."""
    found = pa.Table.from_batches([events]) if isinstance(events, pa.RecordBatch) else events
    found = found.filter(pc.equal(found["kind"], "ddl")).select(_DDL)
    times = found["source_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return found.set_column(_DDL.index("source_time"), "source_time", times).to_pylist()


def run(spark: SparkSession, config: Config, source: Source) -> RoomResult:
    """One catch-up of the formats room."""
    watch = lake.Stopwatch()
    path = lake.ensure(spark, CHANGES, CHANGES.at(config.lake, format=source.format, source=source.name))
    messages = lake.stream(spark, messages_path(config, source), source.max_bytes_per_batch)
    progress = lake.into_table(
        decode(messages.select(*MESSAGE.names), source.format, source.options),
        path,
        CHECKPOINT.at(config.lake, room="changes", source=source.name),
        f"changes {source.name}",
    )
    messages_in = lake.input_rows(progress)
    return RoomResult(
        "changes", source.name, messages_in, len(lake.batches(progress)), watch.seconds, {"messages": messages_in}
    )
