"""landing/<source> → envelopes/<source>: split messages put together, also across batches and runs.

Formats that never split have no envelopes table: their decoder reads landing itself. For those that do, records
that are whole already pass in one sweep; parts are sorted out by `reassemble` and joined. Unfinished messages are
carried from batch to batch in a table that holds the state after each batch, so a repeated batch starts from the
same state and writes the same rows.
"""

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config, Source
from cdc_platform.envelopes import sequences, split, whole
from cdc_platform.envelopes.sequences import Stretch
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.lake import batches, commits, delta_table, stores
from cdc_platform.lake.data_files import Sink
from cdc_platform.lake.store import File, Store
from cdc_platform.results import StageResult, Stopwatch
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.spark.arrow_tasks import spark_schema
from cdc_platform.tables import CHECKPOINT, ENVELOPES, LANDING, OFFSET_LEDGER, QUARANTINE, SEQUENCES, WAITING


def run(spark: SparkSession, config: Config, source: Source) -> StageResult:
    """One catch-up of the envelopes stage."""
    watch = Stopwatch()
    if FORMATS[source.format].part is None:
        return StageResult("envelopes", source.name, 0, 0, watch.seconds, {})
    paths = {
        "envelopes": delta_sql.ensure(ENVELOPES, ENVELOPES.at(stores.lake(config), source=source.name)),
        "waiting": delta_sql.ensure(WAITING, WAITING.at(stores.lake(config), source=source.name)),
        "quarantine": delta_sql.ensure(QUARANTINE, QUARANTINE.at(stores.lake(config))),
        "ledger": delta_sql.ensure(OFFSET_LEDGER, OFFSET_LEDGER.at(stores.lake(config))),
        "sequences": delta_sql.ensure(SEQUENCES, SEQUENCES.at(stores.lake(config))),
    }
    landing, much = LANDING.at(stores.lake(config), source=source.name), source.max_bytes_per_batch
    checkpoint = CHECKPOINT.at(stores.lake(config), room="envelopes", source=source.name)
    done = batches.for_each(spark, landing, much, checkpoint, files_writer(source, paths))
    figures = _counts(paths["ledger"], source, done)
    return StageResult("envelopes", source.name, 0, len(done), watch.seconds, figures)


def _counts(ledger: Store, source: Source, done: list[int]) -> dict[str, float]:
    """Parts still waiting after this run, and parts that this run found torn or repeated."""
    now = f"batch >= {min(done, default=1 << 62)}"
    rows = delta_table.ask(
        f'SELECT outcome, sum(records) AS "all", sum(CASE WHEN {now} THEN records END) AS now FROM {{ledger}} '
        f"WHERE source = '{source.name}' AND room = 'envelopes' GROUP BY outcome",
        ledger=ledger,
    )
    found = {r["outcome"]: r for r in rows}
    figure = lambda outcome, column: int((found[outcome][column] if outcome in found else 0) or 0)  # noqa: E731
    return {
        "waiting": figure("waiting", "all"),
        "torn": figure("quarantined", "now"),
        "duplicates": figure("duplicate", "now"),
    }


def files_writer(source: Source, paths: dict[str, Store]) -> batches.Each:
    """What is done with each batch of a source: tasks write the messages that are whole, Spark joins the others."""
    words = ("topic", "partition", "last_offset", "parts", "shard", "timestamp", "landed_at")
    sink = Sink(paths["envelopes"], whole.ENVELOPE, ENVELOPES.stats, words)
    app = f"envelopes {source.name}"

    def each(spark: SparkSession, files: list[File], batch_id: int) -> None:
        sinks = {} if commits.done_before(sink.table, app, batch_id) else {"envelopes": sink}
        done = arrow_tasks.over(spark, files, MESSAGE, whole.Whole(source.format), sinks, whole=False)
        if sinks:
            commits.append_files(sink, done.written["envelopes"], (app, batch_id))
        figures = {name: sum(told[name] for told in done.told) for name in ("split", "bad")}
        _note(source, paths["sequences"], batch_id, [Stretch(*s) for told in done.told for s in told["stretches"]])
        thin = arrow_tasks.frame(
            spark, files, MESSAGE, partial(whole.header_only, source.format), spark_schema(whole.THIN)
        )
        _rest(thin, figures, source, paths, batch_id)

    return each


def _note(source: Source, path: Store, batch_id: int, numbered: list[Stretch]) -> None:
    """Keeps the stretches of a batch, once."""
    said = {"source": source.name, "batch": batch_id}
    rows = [{**said, **s._asdict()} for s in sequences.joined(numbered)]
    delta_table.append_rows(path, rows, once=(f"sequences {source.name}", batch_id))


def _rest(thin: DataFrame, figures: dict[str, int], source: Source, paths: dict[str, Store], batch_id: int) -> None:
    """What of a batch's records isn't a message by itself, where there are any."""
    spark = thin.sparkSession
    last = f"SELECT count(*) AS n FROM {{waiting}} WHERE batch = {batch_id - 1}"
    if figures["split"] or figures["bad"] or delta_table.ask(last, waiting=paths["waiting"])[0]["n"]:
        before = delta_sql.read(spark, paths["waiting"]).where(F.col("batch") == batch_id - 1)
        split.split_and_rejected(thin, before, source, paths, batch_id, bad_ones=figures["bad"] > 0)
