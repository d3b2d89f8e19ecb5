"""changes → changelog once more, when the configuration follows tables that it left out: their rows have been decoded
all along, and counted as filtered.

First the stream is brought up to date under the rules before, so that whatever `changes` holds was decided by them.
Then what only the new rules want is appended, once: every write is tied to the number of the change of rules, which is
noted as done last. A row that is in the changelog already (its table was followed for a while) isn't taken again.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog import ledger, order, rules
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.outputs import Batch, changelog_rows, quarantine_rows
from cdc_platform.changelog.table_rules import Chosen, Rules
from cdc_platform.config import Source
from cdc_platform.lake.store import Store
from cdc_platform.spark import arrow_tasks, delta_sql

_MESSAGE = ("topic", "partition", "offset")
_AT = [*_MESSAGE, "_entry", "_row", "_retold"]
"""The address of an event; a message told anew has its first telling's."""


def _addressed(events: DataFrame) -> DataFrame:
    """With the columns that `_AT` lacks, never NULL."""
    return events.withColumns(
        {
            "_entry": F.coalesce("entry_index", F.lit(-1)),
            "_row": F.coalesce("row_index", F.lit(-1)),
            "_retold": F.coalesce("retold", F.lit(False)),
        }
    )


def _found(spark: SparkSession, changes: Store, source: Source, before: Sequence[Rules], now: Rules) -> DataFrame:
    """Events of all messages that the new rules touch, as `changes` has them, with `was` and `wanted`: whether rules
    before took them up, whether the new ones want them. `before`: all rules so far, the last ones in force."""
    events = _at_version(spark, changes, now.version)
    # A message that was told anew counts by that: its first telling was taken back.
    again = events.where("retold").select(*_MESSAGE).distinct().withColumn("_again", F.lit(True))
    current = events.join(again, list(_MESSAGE), "left").where("_again IS NULL OR retold").drop("_again")
    wanted = ledger.of_a_table() & rules.wanted(now.tables(source))
    new = current.where(wanted & ~rules.wanted(before[-1].tables(source)))
    taken = _taken(spark, changes, source, before, now)
    touched = _addressed(new).join(taken, _AT, "left_anti").select(*_MESSAGE).distinct()
    mine = current.join(touched, list(_MESSAGE), "left_semi")
    placed = _addressed(mine).join(taken.withColumn("was", F.lit(True)), _AT, "left")
    flags = {"was": F.coalesce("was", F.lit(False)), "wanted": wanted}
    return placed.withColumns(flags).drop("_entry", "_row", "_retold")


def _at_version(spark: SparkSession, path: Store, version: int | None) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", version).load(path.spark_uri())


def _taken(spark: SparkSession, changes: Store, source: Source, before: Sequence[Rules], now: Rules) -> DataFrame:
    """Addresses of events that the rules before wanted while they were in force."""
    ends = [*(r.version for r in before[1:]), now.version]

    def wanted(version: int | None, r: Rules) -> DataFrame:
        there = _at_version(spark, changes, version).where(ledger.of_a_table() & rules.wanted(r.tables(source)))
        return _addressed(there).select(*_AT)

    each = [wanted(end, r) for r, end in zip(before, ends, strict=True)]
    return reduce(DataFrame.union, each).distinct()


def _decided(events: DataFrame, stored: DataFrame, arrivals: Arrivals) -> DataFrame:
    """`_found` events with `order_key`, `outcome_before` and `outcome`. What a killed run wrote counts as new."""
    address: list[str] = list(order.ADDRESS)
    there = stored.select(*address).distinct().withColumn("_there", F.lit(True))
    placed = events.withColumn("order_key", order.order_key(arrivals)).join(there, address, "left")
    repeated = order.replayed(arrivals)
    if arrivals.by_position:
        new = placed.where("kind = 'row' AND wanted AND NOT was AND _there IS NULL")
        again = _repeats(new, stored, arrivals)
        repeated = F.lit(False)
        if again is not None:
            placed = placed.join(again.withColumn("_again", F.lit(True)), address, "left")
            repeated = F.col("_again").isNotNull()
    kind, written = F.col("kind"), F.col("_there").isNotNull()
    others = F.when(kind.isin(*ledger.UNUSABLE), "quarantined").when(kind == "ddl", "applied")
    others = others.when(kind == "erased", "erased").otherwise("control")
    known = F.when(kind == "error", "quarantined").when(written, "applied").otherwise("duplicate")
    new = F.when(kind == "error", "quarantined").when(repeated, "duplicate").otherwise("applied")
    before = F.when(~ledger.of_a_table(), others).when(F.col("was"), known).otherwise("filtered")
    after = F.when(F.col("wanted") & ~F.col("was"), new).otherwise(F.col("outcome_before"))
    return placed.withColumn("outcome_before", before).withColumn("outcome", after)


def _repeats(rows: DataFrame, stored: DataFrame, arrivals: Arrivals) -> DataFrame | None:
    """Addresses of rows that repeat one another or one of the changelog."""
    found = order.repeated_here(rows)
    place = F.when(F.col("binlog_pos").isNotNull(), F.struct("file_no", "binlog_pos"))
    spans = (
        rows.where("file_no IS NOT NULL").groupBy("lineage").agg(F.min(place).alias("low"), F.max(place).alias("high"))
    )
    for f in (r.asDict(recursive=True) for r in spans.where("low IS NOT NULL").collect()):  # a row per server
        of_lineage = rows.where(F.col("lineage").eqNullSafe(F.lit(f["lineage"])))
        again = order.repeated_before(of_lineage, stored, arrivals, f["low"], f["high"])
        found = again if found is None else found.union(again)
    return None if found is None else found.dropDuplicates()


def fill(
    spark: SparkSession,
    source: Source,
    paths: dict[str, Store],
    changes: Store,
    chosen: Chosen,
    arrivals: Arrivals,
) -> int:
    """Does what the change of rules that is begun asks for, and notes that it is done. `arrivals`: the source's order.
    Returns how many rows came into the changelog."""
    now = chosen.begun
    if now is None:
        return 0
    stored = delta_sql.read(spark, paths["changelog"]).where(F.col("source") == source.name)
    events = _decided(_found(spark, changes, source, chosen.done, now), stored, arrivals)
    split = None
    if "envelopes" in paths:  # a message of several records accounts for all of them
        split = delta_sql.read(spark, paths["envelopes"]).where("parts > 1").join(events, list(_MESSAGE), "left_semi")
    new = events.where("wanted AND NOT was")
    counts = new.agg(*(F.count_if(F.col("outcome") == o).alias(o) for o in ("applied", "quarantined"))).collect()[0]
    batch = Batch(source, paths, now.number, spark, lambda: new, "backfill")
    # In this order: what is in the changelog already is known when the ledger's rows are made once more.
    if counts["applied"]:
        batch.append(changelog_rows, "changelog")
    if counts["quarantined"]:
        batch.append(quarantine_rows, "quarantine")
    moved = ledger.moved(events, split, source, -now.number)
    arrow_tasks.append(moved, paths["ledger"], (f"backfill {source.name}", now.number), source=source.name)
    chosen.note(now, "done")
    return int(counts["applied"])
