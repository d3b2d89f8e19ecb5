"""What becomes of every message, for the offset ledger: each record counts under exactly one outcome."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog import rules
from cdc_platform.config import Source
from cdc_platform.resources import lake


def outcome(source: Source) -> Column:
    """What becomes of one event; `applied` may still turn out a duplicate."""
    kind = F.col("kind")
    # An error may tell its table too (a row whose columns aren't known): that of a table nobody wants is no loss.
    of_a_table = (kind == "row") | ((kind == "error") & F.col("db").isNotNull() & F.col("table").isNotNull())
    return (
        F.when(of_a_table & ~rules.wanted(source.tables), "filtered")
        .when(kind == "error", "quarantined")
        .when(kind.isin("row", "ddl"), "applied")
        .otherwise("control")
    )


_RANK = ("quarantined", "applied", "filtered", "duplicate", "control")
"""A message with several outcomes counts under the first of these."""


def rows(events: DataFrame, split: DataFrame | None, source: Source, batch: int) -> DataFrame:
    """Ledger rows of events with their `outcome`. `split`: topic, partition, offset, parts of messages that came in
    several records.

    A message that is told anew was accounted for when it was quarantined (or filtered: a table nobody wants):
    negative records take that back.
    """
    ranks = F.array_position(F.array(*map(F.lit, _RANK)), F.col("outcome"))
    messages = events.groupBy("topic", "partition", "offset").agg(
        F.min(ranks).alias("rank"), F.bool_or("retold").alias("retold")
    )
    weight: Column = F.lit(1)
    if split is not None:
        parts = split.select("topic", "partition", "offset", "parts")
        messages = messages.join(F.broadcast(parts), ["topic", "partition", "offset"], "left")
        weight = F.coalesce("parts", F.lit(1))
    now = F.element_at(F.array(*map(F.lit, _RANK)), F.col("rank").cast("int"))
    before = F.when(now == "filtered", now).otherwise("quarantined")
    entry = F.array(F.struct(now.alias("outcome"), weight.alias("records")))
    back = F.array(F.struct(before.alias("outcome"), (-weight).alias("records")))
    entries = F.when(F.col("retold"), F.concat(entry, back)).otherwise(entry)
    return (
        messages.select("topic", "partition", "offset", F.explode(entries).alias("entry"))
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


def figures(spark: SparkSession, path: str, source: Source, batches: list[int]) -> dict[str, float]:
    """Records per outcome over the batches of this run, from the ledger."""
    counts = (
        lake.read(spark, path)
        .where(
            (F.col("source") == source.name)
            & (F.col("room") == "changelog")
            & F.col("batch").between(min(batches), max(batches))
        )
        .groupBy("outcome")
        .agg(F.sum("records").alias("n"))
        .collect()
    )
    found = {r["outcome"]: float(r["n"]) for r in counts}
    return {name: found.get(name, 0.0) for name in _RANK}
