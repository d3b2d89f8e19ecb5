"""Whole messages → changes/<format>/<source>, exactly once: one pass, no shuffle.

Where this process sees the lake as a folder, what decodes also writes: events are Arrow batches already, and become
rows of Spark's nowhere. Elsewhere Spark writes them.

A format whose rows mean nothing without the source's DDL (`Format.context`) gets that first: a pass of its own
over the new messages puts their DDL aside, and all of it, which is little, goes to the driver.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changes import in_force
from cdc_platform.changes.decode import MESSAGE_READ, STATEMENT, Decoding, Statements, decode
from cdc_platform.changes.retry import heal
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import DDL, EVENT, MESSAGE, Context
from cdc_platform.lake import batches, by_spark, checkpoints, commits, delta_table
from cdc_platform.lake.data_files import Sink
from cdc_platform.results import StageResult
from cdc_platform.spark import arrow_tasks
from cdc_platform.tables import CHANGES, CHECKPOINT, CONTEXTS, DDL_SEEN, ENVELOPES, LANDING, STATS

WORDS = (
    *("topic", "partition", "kind", "reason", "db", "schema", "table", "op", "schema_version", "columns", "lineage"),
    *("binlog_file", "gtid", "txn_id", "source_time", "landed_at", "file_no", "entry_index", "row_index", "row_no"),
    *(f"{image}.key_value.key" for image in ("key", "before", "after", "info")),
)
"""Leaf columns of events whose values repeat."""


def run(spark: SparkSession, config: Config, source: Source) -> StageResult:
    """One catch-up of the formats room. Raises what the format's `context` raises."""
    watch = by_spark.Stopwatch()
    in_force.note(spark, config, source)
    path = by_spark.ensure(spark, CHANGES, CHANGES.at(config.lake, format=source.format, source=source.name))
    needs = FORMATS[source.format].context
    context = _context(spark, config, source, needs) if needs else None

    def decoded(messages: DataFrame) -> DataFrame:
        return decode(messages, source.format, source.options, context)

    checkpoint = CHECKPOINT.at(config.lake, room="changes", source=source.name)
    messages = messages_path(config, source)
    if delta_table.is_table(path) and delta_table.is_table(messages):
        work = Decoding.of(source.format, source.options, context)
        messages_in, ran = _by_workers(spark, source, messages, checkpoint, work, events_sink(path))
    else:
        rows = decoded(_messages(spark, config, source))
        progress = by_spark.into_table(rows, path, checkpoint, f"changes {source.name}")
        messages_in, ran = by_spark.input_rows(progress), len(by_spark.batches(progress))
    if needs:
        paths = {
            "changes": path,
            "messages": messages,
            "contexts": by_spark.ensure(spark, CONTEXTS, CONTEXTS.at(config.lake, source=source.name)),
        }
        heal(spark, source, needs.waiting, context, paths, decoded)
    return StageResult("changes", source.name, messages_in, ran, watch.seconds, {"messages": messages_in})


def events_sink(changes: str) -> Sink:
    """Where files of events go."""
    return Sink(changes, EVENT, tuple(CHANGES.properties[STATS].split(",")), WORDS)


def _by_workers(
    spark: SparkSession, source: Source, messages: str, checkpoint: str, work: Decoding | Statements, sink: Sink
) -> tuple[int, int]:
    """Messages decoded by workers that write files of a table themselves; numbers of messages and batches."""
    counts: list[int] = []

    def each(spark: SparkSession, files: list[str], batch: int) -> None:
        app = checkpoints.query_id(checkpoint)  # as Spark's own sink names its writes
        if commits.done_before(sink.table, app, batch):
            return
        done = arrow_tasks.over(spark, files, MESSAGE_READ, work, {"events": sink}, whole=False)
        commits.append_files(sink, done.written["events"], app, batch)
        counts.append(sum(done.told))

    ran = batches.for_each_files(spark, messages, source.max_bytes_per_batch, checkpoint, each)
    return sum(counts), len(ran)


def _messages(spark: SparkSession, config: Config, source: Source) -> DataFrame:
    return by_spark.stream(spark, messages_path(config, source), source.max_bytes_per_batch).select(*MESSAGE.names)


def _context(spark: SparkSession, config: Config, source: Source, needs: Context) -> Any:
    """Puts the DDL of new messages beside that seen before, and builds the context from all of it."""
    path = by_spark.ensure(spark, DDL_SEEN, DDL_SEEN.at(config.lake, source=source.name))
    checkpoint = CHECKPOINT.at(config.lake, room="ddl", source=source.name)
    messages = messages_path(config, source)
    if delta_table.is_table(path) and delta_table.is_table(messages):
        work = Statements(Decoding.of(source.format, source.options), needs.marker)
        _by_workers(spark, source, messages, checkpoint, work, Sink(path, STATEMENT, (), ()))
    else:
        may_hold = _messages(spark, config, source).where(F.contains("value", F.lit(needs.marker)))
        found = decode(may_hold, source.format, source.options).where("kind = 'ddl'").select(*DDL)
        by_spark.into_table(found, path, checkpoint, f"ddl {source.name}")
    options = FORMATS[source.format].options.model_validate(source.options)
    return needs.build(options, ddl_of(delta_table.table(spark, path).select(DDL)))


def ddl_of(ddl: pa.Table) -> list[dict[str, Any]]:
    """Rows of DDL as `Context.build` gets them."""
    times = ddl["source_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return ddl.set_column(DDL.index("source_time"), "source_time", times).to_pylist()


def messages_path(config: Config, source: Source) -> str:
    """Table that holds the source's whole messages: envelopes, or landing where nothing is ever split."""
    table = LANDING if FORMATS[source.format].part is None else ENVELOPES
    return table.at(config.lake, source=source.name)
