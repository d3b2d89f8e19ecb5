"""Whole messages → changes/<format>/<source>, exactly once: one pass, no shuffle.

What decodes also writes: events are Arrow batches already, and are never converted to JVM rows.

A format whose rows mean nothing without the source's DDL (`Format.context`) gets that first: a pass of its own over
the new messages, but for files that note that they hold none, puts their DDL aside, and all of it, which is little,
goes to the driver.
"""

from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.changes import in_force
from cdc_platform.changes.decode import MESSAGE_READ, STATEMENT, Decoding, Later, Statements, decode
from cdc_platform.changes.files import events_sink
from cdc_platform.changes.known import Known, known
from cdc_platform.changes.retry import HELD, again, retry_waiting
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS, senders
from cdc_platform.formats.contract import DDL, Context
from cdc_platform.lake import batches, checkpoints, commits, delta_table, stores
from cdc_platform.lake.data_files import Sink, note_of
from cdc_platform.lake.store import File, Store
from cdc_platform.landing import counting
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
    seen = _statements(config, source, path) if needs else None
    context = _context(spark, config, source, needs, delta_sql.ensure(CONTEXTS, contexts)) if needs else None
    checkpoint = CHECKPOINT.at(stores.lake(config), room="changes", source=source.name)
    messages = messages_path(config, source)
    told = (context.text, context.digest) if context else (None, None)
    work = Decoding.of(source.format, source.options, *told)
    work = Later(work, config.replay.since) if config.replay and config.replay.since else work
    sinks = {"events": events_sink(path)}
    if seen and needs and needs.marker is None:
        sinks["ddl"] = seen
    messages_in, ran = _by_tasks(spark, config, source, messages, checkpoint, work, sinks)
    if needs and context:
        if ran and needs.marker is None:  # the new messages' own DDL
            context = _known(config, source, needs, contexts)
        known_now = context.text

        def decoded(messages: DataFrame) -> DataFrame:
            return decode(messages, source.format, source.options, known_now)

        paths = {"changes": path, "messages": messages, "contexts": contexts}
        retry_waiting(spark, source, needs.waiting, context, paths, decoded)
    return StageResult("changes", source.name, messages_in, ran, watch.seconds, {"messages": messages_in})


def decode_again(spark: SparkSession, config: Config, source: Source, held: list[dict[str, Any]]) -> None:
    """Decodes messages that quarantine holds (topic, partition, offset, held) once more, by the decoder, the options
    and the DDL of now (see retry.again)."""
    needs = FORMATS[source.format].context
    text = _known(config, source, needs, CONTEXTS.at(stores.lake(config), source=source.name)).text if needs else None
    changes = CHANGES.at(stores.lake(config), format=source.format, source=source.name)
    paths = {"changes": changes, "messages": messages_path(config, source)}
    chosen = spark.createDataFrame(pa.Table.from_pylist(held, HELD))
    again(spark, chosen, paths, lambda messages: decode(messages, source.format, source.options, text))


def _by_tasks(
    spark: SparkSession,
    config: Config,
    source: Source,
    messages: Store,
    checkpoint: Store,
    work: Decoding | Later | Statements,
    sinks: dict[str, Sink],
) -> tuple[int, int]:
    """Messages decoded by workers that write files of tables themselves; numbers of messages and batches. The table of
    `events` comes last: it says that a batch is done."""
    ahead = work if isinstance(work, Statements) else None
    counts: list[int] = []

    def each(spark: SparkSession, files: list[File], batch: int) -> None:
        app = checkpoints.query_id(checkpoint)  # as Spark's own sink names its writes
        if commits.done_before(sinks["events"].table, app, batch):
            return
        # What says that there is nothing to put aside needs no pass, and no commit.
        asked = [f for f in files if ahead is None or counting.has_news(note_of(f), ahead.asked, ahead.known)]
        done = arrow_tasks.over(spark, asked, MESSAGE_READ, work, sinks, whole=False)
        for name in sorted(sinks):
            if (name == "events" and ahead is None) or done.written[name]:
                commits.append_files(sinks[name], done.written[name], (app, batch))
        counts.append(sum(done.told))

    until = batches.End(*config.replay.until) if config.replay else None
    ran = batches.for_each(spark, messages, source.max_bytes_per_batch, checkpoint, each, until)
    return sum(counts), len(ran)


def _statements(config: Config, source: Source, changes: Store) -> Sink:
    """Where DDL is put aside for the decoder. Of a format that had no use for it before, what was decoded then."""
    path = DDL_SEEN.at(stores.lake(config), source=source.name)
    is_new = not delta_table.exists(path)
    delta_sql.ensure(DDL_SEEN, path)
    if is_new and delta_table.version(changes):
        names = ", ".join(f'"{n}"' for n in DDL)
        before = delta_table.ask(f"SELECT {names} FROM {{t}} WHERE kind = 'ddl'", t=changes)
        delta_table.append_rows(path, before, once=("before", 0))
    return Sink(path, STATEMENT, (), ())


def _context(spark: SparkSession, config: Config, source: Source, needs: Context, contexts: Store) -> Known:
    """Puts the DDL of new messages beside that seen before, and builds the context from all of it."""
    if needs.room is not None:
        checkpoint = CHECKPOINT.at(stores.lake(config), room=needs.room, source=source.name)
        seen = Sink(DDL_SEEN.at(stores.lake(config), source=source.name), STATEMENT, (), ())
        known = frozenset(senders.of(_seen(seen.table), needs.senders)) if needs.senders else frozenset()
        work = Statements(Decoding.of(source.format, source.options), counting.Asked.of(needs), known)
        _by_tasks(spark, config, source, messages_path(config, source), checkpoint, work, {"events": seen})
    return _known(config, source, needs, contexts)


def _known(config: Config, source: Source, needs: Context, contexts: Store) -> Known:
    options = FORMATS[source.format].options.model_validate(source.options)
    ddl = _seen(DDL_SEEN.at(stores.lake(config), source=source.name))
    return known(source, ddl, contexts, partial(needs.build, options, ddl))


def _seen(path: Store) -> list[dict[str, Any]]:
    return ddl_of(delta_table.rows(path).select(DDL))


def ddl_of(ddl: pa.Table) -> list[dict[str, Any]]:
    """Rows of DDL as `Context.build` gets them, each event once, in the order of their addresses."""
    times = ddl["source_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    rows = ddl.set_column(DDL.index("source_time"), "source_time", times).to_pylist()
    once = {(r["topic"], r["partition"], r["offset"], r["entry_index"] or 0): r for r in rows}
    return [once[address] for address in sorted(once)]


def messages_path(config: Config, source: Source) -> Store:
    """Table that holds the source's whole messages: envelopes, or landing where nothing is ever split."""
    table = LANDING if FORMATS[source.format].part is None else ENVELOPES
    return table.at(stores.messages(config), source=source.name)
