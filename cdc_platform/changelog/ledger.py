"""What becomes of every message, for the offset ledger: each record counts under exactly one outcome."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.changelog import rules
from cdc_platform.changelog.outcomes import RANK
from cdc_platform.changelog.unify import ROLLED_BACK
from cdc_platform.changes.file_stats import KINDS
from cdc_platform.config import Source
from cdc_platform.formats.contract import BAD_COLUMN
from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store


def of_a_table() -> Column:
    """Whether an event is one of a table, which the rules may leave out."""
    kind = F.col("kind")
    # An error may tell its table too (a row whose columns aren't known): that of a table nobody wants is no loss.
    return (kind == "row") | ((kind == "error") & F.col("db").isNotNull() & F.col("table").isNotNull())


UNUSABLE = KINDS["errors"]
"""Kinds of events that quarantine tells of."""


def reason() -> Column:
    """Why an event of an unusable kind is in quarantine."""
    return F.when(F.col("kind") == "rollback", ROLLED_BACK).otherwise(F.col("reason"))


def bad_column() -> Column:
    """The column whose value could not be used, where an error event names one."""
    named = F.try_element_at("info", F.lit(BAD_COLUMN))
    return F.when(F.col("kind") == "error", named)


def outcome(source: Source) -> Column:
    """What becomes of one event; `applied` may still turn out a duplicate."""
    kind = F.col("kind")
    return (
        F.when(of_a_table() & ~rules.wanted(source.tables) & ~rules.emptied(source.tables), "filtered")
        .when(kind.isin(*UNUSABLE), "quarantined")
        .when(kind.isin("row", "ddl"), "applied")
        .when(kind == "erased", "erased")
        .otherwise("control")
    )


_MESSAGE = ("topic", "partition", "offset")


def rows(events: DataFrame, split: DataFrame | None, source: Source, batch: int) -> DataFrame:
    """Ledger rows of events with their `outcome`. `split`: topic, partition, offset, parts of messages that came in
    several records.

    A message that is told anew was accounted for when it was quarantined (or filtered: a table nobody wants):
    negative records take that back.
    """
    messages = _weighed(
        events.groupBy(*_MESSAGE).agg(F.min(_rank("outcome")).alias("rank"), F.bool_or("retold").alias("retold")), split
    )
    now = _named("rank")
    before = F.when(now == "filtered", now).otherwise("quarantined")
    entry, back = _entry(now, F.col("weight")), _entry(before, -F.col("weight"))
    entries = F.when(F.col("retold"), F.array(entry, back)).otherwise(F.array(entry))
    return _summed(messages, entries, source, batch)


def moved(events: DataFrame, split: DataFrame | None, source: Source, batch: int) -> DataFrame:
    """Ledger rows of messages whose outcome has changed: `outcome_before` of their events → `outcome`."""
    ranks = [F.min(_rank(c)).alias(n) for c, n in (("outcome_before", "was"), ("outcome", "rank"))]
    messages = _weighed(events.groupBy(*_MESSAGE).agg(*ranks).where("was <> rank"), split)
    entries = F.array(_entry(_named("rank"), F.col("weight")), _entry(_named("was"), -F.col("weight")))
    return _summed(messages, entries, source, batch)


def _rank(outcome: str) -> Column:
    return F.array_position(F.array(*map(F.lit, RANK)), F.col(outcome))


def _named(rank: str) -> Column:
    return F.element_at(F.array(*map(F.lit, RANK)), F.col(rank).cast("int"))


def _weighed(messages: DataFrame, split: DataFrame | None) -> DataFrame:
    """With `weight`: the Kafka records of each."""
    if split is None:
        return messages.withColumn("weight", F.lit(1))
    parts = split.select(*_MESSAGE, F.col("parts").alias("weight"))
    return messages.join(F.broadcast(parts), list(_MESSAGE), "left").withColumn(
        "weight", F.coalesce("weight", F.lit(1))
    )


def _entry(outcome: Column, records: Column) -> Column:
    return F.struct(outcome.alias("outcome"), records.alias("records"))


def _summed(messages: DataFrame, entries: Column, source: Source, batch: int) -> DataFrame:
    return (
        messages.select(*_MESSAGE, F.explode(entries).alias("entry"))
        .groupBy("topic", "partition", "entry.outcome", (F.col("entry.records") < 0).alias("_back"))
        .agg(
            F.min("offset").alias("from_offset"),
            F.max("offset").alias("to_offset"),
            F.sum("entry.records").cast("bigint").alias("records"),
        )
        .select(
            F.lit(source.name).alias("source"),
            F.lit(batch).cast("bigint").alias("batch"),
            F.lit("changelog").alias("room"),
            "topic",
            "partition",
            "from_offset",
            "to_offset",
            "outcome",
            "records",
        )
    )


def figures(path: Store, source: Source, batches: list[int]) -> dict[str, float]:
    """Records per outcome over the batches of this run, from the ledger."""
    counts = delta_table.ask(
        f"SELECT outcome, sum(records) AS n FROM {{ledger}} WHERE source = '{source.name}' AND room = 'changelog' "
        f"AND batch BETWEEN {min(batches)} AND {max(batches)} GROUP BY outcome",
        ledger=path,
    )
    found = {r["outcome"]: float(r["n"]) for r in counts}
    return {name: found.get(name, 0.0) for name in RANK}
