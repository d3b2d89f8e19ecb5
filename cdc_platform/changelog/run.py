"""changes → changelog, schema_history, control_events, quarantine, offset_ledger: one vocabulary for all formats.

Each batch is looked at once for its figures, then every output is written at most once.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog import backfill, duplicates, ledger, order
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
    OFFSET_LEDGER,
    QUARANTINE,
    SCHEMA_HISTORY,
)

_OUTPUTS = {
    "changelog": CHANGELOG,
    "schema_history": SCHEMA_HISTORY,
    "control_events": CONTROL_EVENTS,
    "quarantine": QUARANTINE,
    "ledger": OFFSET_LEDGER,
    "lineages": LINEAGES,
}


_IS_ROW = "kind = 'row'"

Rows = Callable[[], DataFrame]
"""Makes a DataFrame once it is needed: its schema alone takes Spark a second in a new process."""


def run(spark: SparkSession, config: Config, source: Source) -> StageResult:
    """One catch-up of the changelog stage."""
    watch = Stopwatch()
    paths = {name: delta_sql.ensure(table, table.at(stores.lake(config))) for name, table in _OUTPUTS.items()}
    if FORMATS[source.format].part is not None:
        paths["envelopes"] = ENVELOPES.at(stores.lake(config), source=source.name)
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
        epochs, _ = _lineages(paths["lineages"], source, None)
        taken = (taken or 0) + backfill.fill(spark, source, paths, changes, chosen, epochs)
    return done + stream(), taken


def files_writer(source: Source, paths: dict[str, Store], changes: Store) -> batches.Each:
    """What is done with each batch of a source. Tasks write the changelog; where an event came twice or was decoded
    again Spark joins the batch with what is known of it."""

    def each(spark: SparkSession, files: list[File], batch_id: int) -> None:
        statistics = statistics_of(spark, files)
        if figures := order.figures_of(statistics):
            batch = cache(partial(delta_sql.rows_of, spark, changes, files))
            _write(spark, source, paths, batch, batch_id, figures, Direct(files, statistics))

    return each


def _write(
    spark: SparkSession,
    source: Source,
    paths: dict[str, Store],
    batch: Rows,
    batch_id: int,
    figures: list[dict[str, Any]],
    direct: Direct,
) -> None:
    known, reached = _lineages(paths["lineages"], source, batch_id)
    epochs = order.epochs_of(known, figures)
    here = not order.apart(direct.notes) and duplicates.shared(spark, direct.files, direct.notes)
    repeats = _repeats(batch, figures, epochs, reached, lambda: _stored(spark, paths["changelog"], source), here=here)

    def events() -> DataFrame:
        rows = batch().withColumn("order_key", order.order_key(epochs)).withColumn("outcome", ledger.outcome(source))
        if repeats is None:
            return rows
        again = repeats.withColumn("_again", F.lit(True))
        outcome = F.when(F.col("_again") & (F.col("outcome") == "applied"), "duplicate").otherwise(F.col("outcome"))
        return rows.join(again, list(order.ADDRESS), "left").withColumn("outcome", outcome).drop("_again")

    whole = Batch(source, paths, batch_id, spark, events)
    if repeats is not None or any(f["retold"] for f in figures):
        work = writes(whole, figures)
    else:
        work = [partial(direct.write, whole, figures, epochs)]
    work.append(partial(_note_lineages, source, paths["lineages"], figures, epochs, batch_id))
    delta_sql.run_parallel(work)


def _stored(spark: SparkSession, changelog: Store, source: Source) -> DataFrame:
    return delta_sql.read(spark, changelog).where(F.col("source") == source.name)


def _repeats(
    batch: Rows,
    figures: list[dict[str, Any]],
    epochs: dict[str | None, int],
    reached: dict[int, tuple[int, Any]],
    stored: Rows,
    *,
    here: bool,
) -> DataFrame | None:
    """Addresses of repeated row changes. here: whether the batch may hold some within itself. The stored changelog is
    asked only when a batch goes back behind the highest position already seen, as a replay does."""
    found = order.repeated_here(batch().where(_IS_ROW)) if here else None
    for f in figures:
        high = reached.get(epochs[f["lineage"]])
        if f["low"] is None or high is None or (f["low"]["file_no"], f["low"]["binlog_pos"]) > high:
            continue
        top = {"file_no": high[0], "binlog_pos": high[1]}
        of_lineage = batch().where(_IS_ROW).where(F.col("lineage").eqNullSafe(F.lit(f["lineage"])))
        again = order.repeated_before(of_lineage, stored(), epochs, f["low"], top)
        found = again if found is None else found.union(again)
    return None if found is None else found.dropDuplicates()


def _lineages(
    path: Store, source: Source, batch_id: int | None
) -> tuple[dict[str | None, int], dict[int, tuple[int, Any]]]:
    """Epochs known before this batch (None: by now), and the highest position reached in each."""
    before = "" if batch_id is None else f" AND batch < {batch_id}"
    rows = delta_table.ask(
        "SELECT lineage, epoch, max(CASE WHEN high_file IS NOT NULL "
        "THEN named_struct('high_file', high_file, 'high_pos', high_pos) END) AS high "
        f"FROM {{lineages}} WHERE source = '{source.name}'{before} GROUP BY lineage, epoch",
        lineages=path,
    )
    reached: dict[int, tuple[int, Any]] = {}
    for r in rows:
        if r["high"] is not None:
            at = (r["high"]["high_file"], r["high"]["high_pos"])
            reached[r["epoch"]] = max(at, reached.get(r["epoch"], at))
    return {r["lineage"]: r["epoch"] for r in rows}, reached


def _note_lineages(
    source: Source,
    path: Store,
    figures: list[dict[str, Any]],
    epochs: dict[str | None, int],
    batch_id: int,
) -> None:
    rows = [
        {
            "source": source.name,
            "lineage": f["lineage"],
            "epoch": epochs[f["lineage"]],
            "batch": batch_id,
            "high_file": f["high"] and f["high"]["file_no"],
            "high_pos": f["high"] and f["high"]["binlog_pos"],
        }
        for f in figures
    ]
    delta_table.append_rows(path, rows, of=f"source = '{source.name}' AND batch = {batch_id}")
