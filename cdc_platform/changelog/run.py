"""changes → changelog, schema_history, control_events, quarantine, offset_ledger: one vocabulary for all formats.

What a batch holds is told by its files' footers, what is sent again by its order (follow.py) or by Spark's joins
(repeated.py); tasks write each output at most once.
"""

from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog import backfill, duplicates, erased_events, order, repeated, watermarks
from cdc_platform.changelog.follow import Followed, follow
from cdc_platform.changelog.outcomes import RANK
from cdc_platform.changelog.packed import Packed
from cdc_platform.changelog.table_rules import Rules, RulesInEffect
from cdc_platform.changelog.write import Batch, write
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
    ERASURES,
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


def run(spark: SparkSession, config: Config, source: Source) -> StageResult:
    """One catch-up of the changelog stage."""
    watch = Stopwatch()
    paths = {name: delta_sql.ensure(table, table.at(stores.lake(config))) for name, table in _OUTPUTS.items()}
    paths["lineages"] = LINEAGES.at(stores.lake(config))
    paths["erasures"] = ERASURES.at(stores.messages(config))
    if FORMATS[source.format].part is not None:
        paths["envelopes"] = ENVELOPES.at(stores.messages(config), source=source.name)
    changes = CHANGES.at(stores.lake(config), format=source.format, source=source.name)
    done, taken = _under_rules(spark, config, source, paths, changes)
    metrics = _outcomes(paths["ledger"], source, done) if done else {}
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

    chosen = RulesInEffect(spark, config, source, "changelog")
    if not chosen.done:
        chosen.note(Rules.of(source, 0), "done")
    done: list[int] = []
    taken = None
    while chosen.begun or not chosen.done[-1].same(Rules.of(source, 0)):
        if chosen.begun is None:
            done += stream()
            number = backfill.number(source, paths, chosen)
            chosen.note(Rules.of(source, number, delta_table.version(changes)), "begun")
        taken = (taken or 0) + backfill.fill(spark, source, paths, changes, chosen)
    return done + stream(), taken


def files_writer(source: Source, paths: dict[str, Store], changes: Store) -> batches.Each:
    """What is done with each batch of a source."""

    def each(spark: SparkSession, files: list[File], batch_id: int) -> None:
        notes = statistics_of(spark, files)
        if figures := order.merged_statistics(notes):
            batch = Batch(source, paths, batch_id, spark, files, notes, figures)
            followed = follow(spark, source, paths, changes, files, notes, batch_id)
            again = repeated.decoded_again(spark, files, changes, paths, source, figures)
            write(batch, followed.arrivals, _repeats(batch, changes, followed), again)
            watermarks.note(paths["watermarks"], source, batch_id, notes)

    return each


def _repeats(batch: Batch, changes: Store, followed: Followed) -> Packed | None:
    """Row changes of a batch that were told before: where arrival orders, those alone that were erased since, of which
    no other row may say where they stood."""
    spark, files = batch.spark, batch.files
    gone = partial(erased_events.sent_again, spark, batch.paths["erasures"], batch.source, changes, files)
    if not followed.arrivals.by_position:
        return repeated.erased(batch.figures, gone)
    return repeated.in_batch(
        lambda: delta_sql.rows_of(spark, changes, files).where("kind = 'row'"),
        partial(repeated.placed_rows, spark, files, followed.arrivals),
        lambda: delta_sql.read(spark, batch.paths["changelog"]).where(F.col("source") == batch.source.name),
        batch.figures,
        followed.reached,
        gone,
        here=not order.apart(batch.notes) and duplicates.shared(spark, files, batch.notes),
    )


def _outcomes(path: Store, source: Source, batches: list[int]) -> dict[str, float]:
    """Records per outcome over the batches of this run, from the ledger."""
    counts = delta_table.ask(
        f"SELECT outcome, sum(records) AS n FROM {{ledger}} WHERE source = '{source.name}' AND room = 'changelog' "
        f"AND batch BETWEEN {min(batches)} AND {max(batches)} GROUP BY outcome",
        ledger=path,
    )
    found = {r["outcome"]: float(r["n"]) for r in counts}
    return {name: found.get(name, 0.0) for name in RANK}
