"""Whole messages → changes/<format>/<source>, exactly once: one pass, no shuffle."""

from pyspark.sql import SparkSession

from cdc_platform.chain import RoomResult
from cdc_platform.config import Config, Source
from cdc_platform.envelopes.run import messages_path
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.frame import decode
from cdc_platform.resources import lake
from cdc_platform.tables import CHANGES, CHECKPOINT


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
