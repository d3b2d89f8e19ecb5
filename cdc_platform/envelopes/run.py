"""landing/<source> → envelopes/<source>: split messages put together, also across batches and runs.

Formats that never split have no envelopes table: their decoder reads landing itself. For those that do, records
that are whole already pass in one sweep; parts are sorted out by `reassemble` and joined. Unfinished messages are
carried from batch to batch in a table that holds the state after each batch, so a repeated batch starts from the
same state and writes the same rows.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config, Source
from cdc_platform.envelopes import split, whole
from cdc_platform.formats import FORMATS
from cdc_platform.formats.batches import as_message_batch
from cdc_platform.formats.contract import MESSAGE, PART
from cdc_platform.lake import batches, by_spark, commits, delta_table
from cdc_platform.lake.data_files import Sink
from cdc_platform.results import StageResult
from cdc_platform.spark import arrow_tasks
from cdc_platform.spark.arrow_tasks import spark_schema
from cdc_platform.tables import CHECKPOINT, ENVELOPES, LANDING, OFFSET_LEDGER, QUARANTINE, STATS, WAITING

_LANDED = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "landed_at")


def run(spark: SparkSession, config: Config, source: Source) -> StageResult:
    """One catch-up of the envelopes room."""
    watch = by_spark.Stopwatch()
    if FORMATS[source.format].part is None:
        return StageResult("envelopes", source.name, 0, 0, watch.seconds, {})
    paths = {
        "envelopes": by_spark.ensure(spark, ENVELOPES, ENVELOPES.at(config.lake, source=source.name)),
        "waiting": by_spark.ensure(spark, WAITING, WAITING.at(config.lake, source=source.name)),
        "quarantine": by_spark.ensure(spark, QUARANTINE, QUARANTINE.at(config.lake)),
        "ledger": by_spark.ensure(spark, OFFSET_LEDGER, OFFSET_LEDGER.at(config.lake)),
    }
    landing, much = LANDING.at(config.lake, source=source.name), source.max_bytes_per_batch
    checkpoint = CHECKPOINT.at(config.lake, room="envelopes", source=source.name)
    if delta_table.is_table(landing) and delta_table.is_table(paths["envelopes"]):
        done = batches.for_each_files(spark, landing, much, checkpoint, files_writer(source, paths))
    else:
        each = batch_writer(source, paths)
        done = batches.for_each(spark, landing, much, checkpoint, f"envelopes {source.name}", each)
    figures = _figures(spark, paths["ledger"], source, done)
    return StageResult("envelopes", source.name, 0, len(done), watch.seconds, figures)


def _figures(spark: SparkSession, ledger: str, source: Source, done: list[int]) -> dict[str, float]:
    """Parts still waiting after this run, and parts that this run found torn or repeated."""
    now = f"batch >= {min(done, default=1 << 62)}"
    rows = delta_table.ask(
        spark,
        f'SELECT outcome, sum(records) AS "all", sum(CASE WHEN {now} THEN records END) AS now FROM {{ledger}} '
        f"WHERE source = '{source.name}' AND room = 'envelopes' GROUP BY outcome",
        ledger=ledger,
    )
    found = {r["outcome"]: r for r in rows}
    figure = lambda outcome, column: float((found[outcome][column] if outcome in found else 0) or 0)  # noqa: E731
    return {
        "waiting": figure("waiting", "all"),
        "torn": figure("quarantined", "now"),
        "duplicates": figure("duplicate", "now"),
    }


def batch_writer(source: Source, paths: dict[str, str]) -> Callable[[DataFrame, int], None]:
    """What is done with each batch of a source."""

    def each(batch: DataFrame, batch_id: int) -> None:
        parsed = parse_parts(batch.select(*_LANDED), source.format)
        figures = _pass_whole_ones(parsed, paths["envelopes"], f"envelopes {source.name}", batch_id)
        thin = parsed.withColumns({c: F.when(F.col("total") > 1, F.col(c)) for c in whole.LARGE})
        _rest(thin, figures, source, paths, batch_id)

    return each


def files_writer(source: Source, paths: dict[str, str]) -> batches.EachFiles:
    """The same, where the batch's files are at hand: workers write the whole ones themselves."""
    words = ("topic", "partition", "last_offset", "parts", "shard", "timestamp", "landed_at")
    sink = Sink(paths["envelopes"], whole.ENVELOPE, tuple(ENVELOPES.properties[STATS].split(",")), words)
    app = f"envelopes {source.name}"

    def each(spark: SparkSession, files: list[str], batch_id: int) -> None:
        sinks = {} if commits.done_before(sink.table, app, batch_id) else {"envelopes": sink}
        done = arrow_tasks.over(spark, files, MESSAGE, whole.Whole(source.format), sinks, whole=False)
        if sinks:
            commits.append_files(sink, done.written["envelopes"], app, batch_id)
        figures = {name: sum(told[name] for told in done.told) for name in ("split", "bad")}
        thin = arrow_tasks.frame(spark, files, MESSAGE, partial(whole.thin, source.format), spark_schema(whole.THIN))
        _rest(thin, figures, source, paths, batch_id)

    return each


def _rest(thin: DataFrame, figures: dict[str, int], source: Source, paths: dict[str, str], batch_id: int) -> None:
    """What of a batch's records isn't a message by itself, where there are any."""
    spark = thin.sparkSession
    last = f"SELECT count(*) AS n FROM {{waiting}} WHERE batch = {batch_id - 1}"
    if figures["split"] or figures["bad"] or delta_table.ask(spark, last, waiting=paths["waiting"])[0]["n"]:
        before = by_spark.read(spark, paths["waiting"]).where(F.col("batch") == batch_id - 1)
        split.odd_ones(thin, before, source, paths, batch_id, bad_ones=figures["bad"] > 0)


def _pass_whole_ones(parsed: DataFrame, path: str, app: str, batch_id: int) -> dict[str, int]:
    """Write messages of one record; gives the number of `split` and of `bad` records, counted on the way.

    Delta leaves out a write that was done before a crash, and an observation nobody runs never ends: then, and only
    then, the records are counted by a pass of their own.
    """
    figures = (F.count_if(F.col("total") > 1).alias("split"), F.count_if(F.col("error").isNotNull()).alias("bad"))
    seen = Observation()
    alone = parsed.observe(seen, *figures).where(F.col("error").isNull() & (F.col("total") == 1))
    version = by_spark.version(parsed.sparkSession, path)
    by_spark.append_once(_whole_rows(alone), path, app, batch_id)
    if by_spark.version(parsed.sparkSession, path) > version:
        return seen.get
    return parsed.agg(*figures).collect()[0].asDict()


def parse_parts(batch: DataFrame, format_name: str) -> DataFrame:
    """LANDING rows → the same with PART's columns instead of `value`."""
    keep = [f for f in spark_schema(MESSAGE).fields if f.name != "value"]
    schema = spark_schema(PART)
    for f in keep:
        schema = schema.add(f)
    return batch.mapInArrow(partial(_parse, format_name), schema)


def _parse(format_name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    keep = [n for n in MESSAGE.names if n != "value"]
    for raw in batches:
        batch = as_message_batch(raw)
        parsed = whole.parts_of(batch, format_name)
        columns = [*parsed.columns, *(batch.column(n) for n in keep)]
        yield pa.RecordBatch.from_arrays(columns, names=[*PART.names, *keep])


def _whole_rows(parts: DataFrame) -> DataFrame:
    return parts.select(
        "topic",
        "partition",
        "offset",
        F.col("offset").alias("last_offset"),
        F.lit(1).alias("parts"),
        "shard",
        "seq",
        "timestamp",
        "key",
        F.col("data").alias("value"),
        "headers",
        "landed_at",
    )
