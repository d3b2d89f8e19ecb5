"""changes → changelog, schema_history, control_events, quarantine, offset_ledger: one vocabulary for all formats.

Each batch is looked at once for its figures, then every output is written at most once.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog import backfill, duplicates, ledger, order, retold, watermarks
from cdc_platform.changelog.follow import Followed, arrivals, follow
from cdc_platform.changelog.outputs import Batch, writes
from cdc_platform.changelog.table_rules import Chosen, Rules
from cdc_platform.changelog.write import Direct
from cdc_platform.changes.files import statistics_of
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import batches, delta_table, stores
from cdc_platform.lake.store import File, Store
from cdc_platform.results import StageResult, Stopwatch
from cdc_platform.spark import delta_sql
from cdc_platform.tables import (
    CHANGELOG,
    CHANGES,
    CHECKPOINT,
    CONTROL_EVENTS,
    ENVELOPES,
    LINEAGES,
    LOG_EPOCHS,
    OFFSET_LEDGER,
    QUARANTINE,
    SCHEMA_HISTORY,
    WATERMARKS,
)

_OUTPUTS = {
    "changelog": CHANGELOG,
    "schema_history": SCHEMA_HISTORY,
    "control_events": CONTROL_EVENTS,
    "quarantine": QUARANTINE,
    "ledger": OFFSET_LEDGER,
    "epochs": LOG_EPOCHS,
    "watermarks": WATERMARKS,
}


_IS_ROW = "kind = 'row'"

Rows = Callable[[], DataFrame]
"""Makes a DataFrame once it is needed: its schema alone takes Spark a second in a new process."""


def run(spark: SparkSession, config: Config, source: Source) -> StageResult:
    """One catch-up of the changelog stage."""
    watch = Stopwatch()
    paths = {name: delta_sql.ensure(table, table.at(stores.lake(config))) for name, table in _OUTPUTS.items()}
    paths["lineages"] = LINEAGES.at(stores.lake(config))
    if FORMATS[source.format].part is not None:
        paths["envelopes"] = ENVELOPES.at(stores.messages(config), source=source.name)
    changes = CHANGES.at(stores.lake(config), format=source.format, source=source.name)
    done, taken = _under_rules(spark, config, source, paths, changes)
    metrics = ledger.figures(paths["ledger"], source, done) if done else {}
    if taken is not None:
        metrics = {**metrics, "backfilled": taken}
    rows = int(metrics.get("applied", 0)) + (taken or 0)
    return StageResult("changelog", source.name, rows, len(done), watch.seconds, metrics)


def _under_rules(
    spark: SparkSession, config: Config, source: Source, paths: dict[str, Store], changes: Store
) -> tuple[list[int], int | None]:
    """The stream under the rules in force, and what other rules ask for once they are. Returns the stream's batches,
    and how many rows were filled in (None: the rules are the same)."""

    def stream() -> list[int]:
        now = source.model_copy(update={"tables": chosen.done[-1].tables(source)})
        checkpoint = CHECKPOINT.at(stores.lake(config), room="changelog", source=source.name)
        much = source.max_bytes_per_batch
        return batches.for_each(spark, changes, much, checkpoint, files_writer(now, paths, changes))

    chosen = Chosen(spark, config, source, "changelog")
    if not chosen.done:
        chosen.note(Rules.of(source, 0), "done")
    done: list[int] = []
    taken = None
    while chosen.begun or not chosen.done[-1].same(Rules.of(source, 0)):
        if chosen.begun is None:
            done += stream()
            following = Rules.of(source, chosen.done[-1].number + 1, delta_table.version(changes))
            chosen.note(following, "begun")
        taken = (taken or 0) + backfill.fill(spark, source, paths, changes, chosen, arrivals(paths, source))
    return done + stream(), taken


def files_writer(source: Source, paths: dict[str, Store], changes: Store) -> batches.Each:
    """What is done with each batch of a source. Tasks write the changelog; where an event came twice or was decoded
    again Spark joins the batch with what is known of it."""

    def each(spark: SparkSession, files: list[File], batch_id: int) -> None:
        statistics = statistics_of(spark, files)
        if figures := order.figures_of(statistics):
            batch = cache(partial(delta_sql.rows_of, spark, changes, files))
            followed = follow(spark, source, paths, changes, files, statistics, batch_id)
            _write(spark, source, paths, changes, batch, batch_id, figures, Direct(files, statistics), followed)
            watermarks.note(paths["watermarks"], source, batch_id, statistics)

    return each


def _write(
    spark: SparkSession,
    source: Source,
    paths: dict[str, Store],
    changes: Store,
    batch: Rows,
    batch_id: int,
    figures: list[dict[str, Any]],
    direct: Direct,
    followed: Followed,
) -> None:
    arrivals = followed.arrivals
    repeats = None
    if arrivals.by_position:
        here = not order.apart(direct.notes) and duplicates.shared(spark, direct.files, direct.notes)
        stored = partial(_stored, spark, paths["changelog"], source)
        repeats = _repeats(batch, figures, followed, stored, here=here)

    def events() -> DataFrame:
        rows = batch().withColumn("order_key", order.order_key(arrivals)).withColumn("outcome", ledger.outcome(source))
        again = order.replayed(arrivals)
        if repeats is not None:
            rows = rows.join(repeats.withColumn("_again", F.lit(True)), list(order.ADDRESS), "left")
            again = F.col("_again").isNotNull()
        repeated = again & (F.col("kind") == "row")
        if _by_spark(figures):
            rows = retold.marked(spark, rows, source, changes, paths["changelog"], figures)
            repeated = repeated | F.col("_used")
        outcome = F.when(repeated & F.col("outcome").isin("applied", "control"), "duplicate").otherwise(
            F.col("outcome")
        )
        return rows.withColumn("outcome", outcome).drop("_again", "_used")

    whole = Batch(source, paths, batch_id, spark, events)
    if repeats is not None or _by_spark(figures):
        work = writes(whole, figures)
    else:
        work = [partial(direct.write, whole, figures, arrivals)]
    delta_sql.run_parallel(work)


def _by_spark(figures: list[dict[str, Any]]) -> bool:
    """Whether a batch is Spark's to write: messages that were decoded again take the place of what they were."""
    return any(f["retold"] for f in figures)


def _stored(spark: SparkSession, changelog: Store, source: Source) -> DataFrame:
    return delta_sql.read(spark, changelog).where(F.col("source") == source.name)


def _repeats(
    batch: Rows, figures: list[dict[str, Any]], followed: Followed, stored: Rows, *, here: bool
) -> DataFrame | None:
    """Addresses of repeated row changes of a source whose positions alone order. here: whether the batch may hold some
    within itself. The stored changelog is asked only when a batch goes back behind the highest position already seen,
    as a replay does."""
    found = order.repeated_here(batch().where(_IS_ROW)) if here else None
    for f in figures:
        high = followed.reached
        if f["low"] is None or high is None or (f["low"]["file_no"], f["low"]["binlog_pos"]) > high:
            continue
        top = {"file_no": high[0], "binlog_pos": high[1]}
        of_lineage = batch().where(_IS_ROW).where(F.col("lineage").eqNullSafe(F.lit(f["lineage"])))
        again = order.repeated_before(of_lineage, stored(), followed.arrivals, f["low"], top)
        found = again if found is None else found.union(again)
    return None if found is None else found.dropDuplicates()
