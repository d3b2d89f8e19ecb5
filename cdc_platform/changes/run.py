"""Whole messages → changes/<format>/<source>, exactly once: one pass, no shuffle.

What decodes also writes: events are Arrow batches already, and are never converted to JVM rows.

A format whose rows mean nothing without the source's DDL (`Format.context`) gets that first: a pass of its own
over the new messages puts their DDL aside, and all of it, which is little, goes to the driver.
"""

from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.changes import in_force
from cdc_platform.changes.decode import MESSAGE_READ, STATEMENT, Decoding, Statements, decode
from cdc_platform.changes.files import events_sink
from cdc_platform.changes.known import Known, known
from cdc_platform.changes.retry import heal
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import DDL, Context
from cdc_platform.lake import batches, checkpoints, commits, delta_table, stores
from cdc_platform.lake.data_files import Sink
from cdc_platform.lake.store import File, Store
from cdc_platform.results import StageResult, Stopwatch
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import CHANGES, CHECKPOINT, CONTEXTS, DDL_SEEN, ENVELOPES, LANDING


def run(spark: SparkSession, config: Config, source: Source) -> StageResult:
    """One catch-up of the formats stage. Raises what the format's `context` raises."""
    watch = Stopwatch()
    in_force.note(config, source)
    path = delta_sql.ensure(CHANGES, CHANGES.at(stores.lake(config), format=source.format, source=source.name))
    needs = FORMATS[source.format].context
    contexts = CONTEXTS.at(stores.lake(config), source=source.name)
    context = _context(spark, config, source, needs, delta_sql.ensure(CONTEXTS, contexts)) if needs else None

    def decoded(messages: DataFrame) -> DataFrame:
        return decode(messages, source.format, source.options, context and context.text)

    checkpoint = CHECKPOINT.at(stores.lake(config), room="changes", source=source.name)
    messages = messages_path(config, source)
    work = Decoding.of(source.format, source.options, context and context.text)
    messages_in, ran = _by_tasks(spark, source, messages, checkpoint, work, events_sink(path))
    if needs and context:
        paths = {"changes": path, "messages": messages, "contexts": contexts}
        heal(spark, source, needs.waiting, context, paths, decoded)
    return StageResult("changes", source.name, messages_in, ran, watch.seconds, {"messages": messages_in})


def _by_tasks(
    spark: SparkSession, source: Source, messages: Store, checkpoint: Store, work: Decoding | Statements, sink: Sink
) -> tuple[int, int]:
    """Messages decoded by workers that write files of a table themselves; numbers of messages and batches."""
    counts: list[int] = []

    def each(spark: SparkSession, files: list[File], batch: int) -> None:
        app = checkpoints.query_id(checkpoint)  # as Spark's own sink names its writes
        if commits.done_before(sink.table, app, batch):
            return
        done = arrow_tasks.over(spark, files, MESSAGE_READ, work, {"events": sink}, whole=False)
        commits.append_files(sink, done.written["events"], (app, batch))
        counts.append(sum(done.told))

    ran = batches.for_each(spark, messages, source.max_bytes_per_batch, checkpoint, each)
    return sum(counts), len(ran)


def _context(spark: SparkSession, config: Config, source: Source, needs: Context, contexts: Store) -> Known:
    """Puts the DDL of new messages beside that seen before, and builds the context from all of it."""
    path = delta_sql.ensure(DDL_SEEN, DDL_SEEN.at(stores.lake(config), source=source.name))
    checkpoint = CHECKPOINT.at(stores.lake(config), room="ddl", source=source.name)
    messages = messages_path(config, source)
    work = Statements(Decoding.of(source.format, source.options), needs.marker)
    _by_tasks(spark, source, messages, checkpoint, work, Sink(path, STATEMENT, (), ()))
    options = FORMATS[source.format].options.model_validate(source.options)
    ddl = ddl_of(delta_table.rows(path).select(DDL))
    return known(source, ddl, contexts, partial(needs.build, options, ddl))


def ddl_of(ddl: pa.Table) -> list[dict[str, Any]]:
    """Rows of DDL as `Context.build` gets them, each event once, in the order of their addresses."""
    times = ddl["source_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    rows = ddl.set_column(DDL.index("source_time"), "source_time", times).to_pylist()
    once = {(r["topic"], r["partition"], r["offset"], r["entry_index"] or 0): r for r in rows}
    return [once[address] for address in sorted(once)]


def messages_path(config: Config, source: Source) -> Store:
    """Table that holds the source's whole messages: envelopes, or landing where nothing is ever split."""
    table = LANDING if FORMATS[source.format].part is None else ENVELOPES
    return table.at(stores.lake(config), source=source.name)
