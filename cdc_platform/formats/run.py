"""Whole messages → changes/<format>/<source>, exactly once: one pass, no shuffle.

A format whose rows mean nothing without the source's DDL (`Format.context`) gets that first: a pass of its own
over the new messages puts their DDL aside, and all of it, which is little, goes to the driver.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.chain import RoomResult
from cdc_platform.config import Config, Source
from cdc_platform.envelopes.run import messages_path
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import DDL, MESSAGE, Context
from cdc_platform.formats.frame import decode
from cdc_platform.formats.heal import heal
from cdc_platform.resources import lake
from cdc_platform.tables import CHANGES, CHECKPOINT, CONTEXTS, DDL_SEEN


def run(spark: SparkSession, config: Config, source: Source) -> RoomResult:
    """One catch-up of the formats room. Raises what the format's `context` raises."""
    watch = lake.Stopwatch()
    path = lake.ensure(spark, CHANGES, CHANGES.at(config.lake, format=source.format, source=source.name))
    needs = FORMATS[source.format].context
    context = _context(spark, config, source, needs) if needs else None

    def decoded(messages: DataFrame) -> DataFrame:
        return decode(messages, source.format, source.options, context)

    progress = lake.into_table(
        decoded(_messages(spark, config, source)),
        path,
        CHECKPOINT.at(config.lake, room="changes", source=source.name),
        f"changes {source.name}",
    )
    if needs:
        paths = {
            "changes": path,
            "messages": messages_path(config, source),
            "contexts": lake.ensure(spark, CONTEXTS, CONTEXTS.at(config.lake, source=source.name)),
        }
        heal(spark, source, needs.waiting, context, paths, decoded)
    messages_in = lake.input_rows(progress)
    return RoomResult(
        "changes", source.name, messages_in, len(lake.batches(progress)), watch.seconds, {"messages": messages_in}
    )


def _messages(spark: SparkSession, config: Config, source: Source) -> DataFrame:
    return lake.stream(spark, messages_path(config, source), source.max_bytes_per_batch).select(*MESSAGE.names)


def _context(spark: SparkSession, config: Config, source: Source, needs: Context) -> Any:
    """Puts the DDL of new messages beside that seen before, and builds the context from all of it."""
    path = lake.ensure(spark, DDL_SEEN, DDL_SEEN.at(config.lake, source=source.name))
    may_hold = _messages(spark, config, source).where(F.contains("value", F.lit(needs.marker)))
    lake.into_table(
        decode(may_hold, source.format, source.options).where("kind = 'ddl'").select(*DDL),
        path,
        CHECKPOINT.at(config.lake, room="ddl", source=source.name),
        f"ddl {source.name}",
    )
    options = FORMATS[source.format].options.model_validate(source.options)
    return needs.build(options, ddl_of(lake.read(spark, path).select(*DDL).toArrow()))


def ddl_of(ddl: pa.Table) -> list[dict[str, Any]]:
    """Rows of DDL as `Context.build` gets them."""
    times = ddl["source_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return ddl.set_column(DDL.index("source_time"), "source_time", times).to_pylist()
