"""Messages in quarantine → events: those whose meaning wasn't known when they were decoded, once the source's DDL tells
it, and any when somebody asks for it, by the decoder and the options of today.

A message is told anew as a whole, and under its own address, so that its changes take their place in the source's order
however late they come.
"""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_platform.changes import files
from cdc_platform.changes.file_stats import KINDS, ROLLED_BACK
from cdc_platform.changes.known import Known
from cdc_platform.config import Source
from cdc_platform.formats.contract import EVENT
from cdc_platform.lake import commits, delta_table
from cdc_platform.lake.store import Store
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHANGES, MESSAGE_AT

_ROW = ["entry_index", "row_index", "reason"]
HELD = pa.schema([*CHANGES.arrow(*MESSAGE_AT), ("held", pa.list_(pa.struct(CHANGES.arrow(*_ROW))))])
"""A message in quarantine, and what of it is there, each with its reason."""


def retry_waiting(
    spark: SparkSession,
    source: Source,
    waiting: str,
    context: Known,
    paths: dict[str, Store],
    decode: Callable[[DataFrame], DataFrame],
) -> bool:
    """Decodes waiting messages anew, where `context` isn't the one that was last tried. Returns whether any waited.

    `waiting`: how their reasons begin; `paths`: `changes`, `messages` and `contexts` of the source. Exactly once:
    `changes` itself says what was told anew, and all of it comes with one commit.
    """
    tried = delta_table.ask("SELECT number, digest, inputs FROM {t} ORDER BY number DESC LIMIT 1", t=paths["contexts"])
    if tried and (tried[0]["digest"], tried[0]["inputs"]) == (context.digest, context.inputs):
        return False
    found = False
    if not tried or tried[0]["digest"] != context.digest:
        errors = delta_table.ask("SELECT 1 AS there FROM {t} WHERE kind = 'error' LIMIT 1", t=paths["changes"])
        found = bool(errors) and _decode_waiting(spark, waiting, paths, decode)
    app = f"context {source.name}"
    number = commits.unused(app, tried[0]["number"] + 1 if tried else 0, paths["contexts"])
    note = {"number": number, "digest": context.digest, "inputs": context.inputs, "context": context.text}
    delta_table.append_rows(paths["contexts"], [note], once=(app, number))
    return found


def _decode_waiting(
    spark: SparkSession, waiting: str, paths: dict[str, Store], decode: Callable[[DataFrame], DataFrame]
) -> bool:
    messages = _messages(spark, _waiting(delta_sql.read(spark, paths["changes"]), waiting), paths["messages"])
    if messages is None:
        return False
    files.append(_as_they_came(_released(decode(messages), waiting)), paths["changes"])
    return True


def again(
    spark: SparkSession, held: DataFrame, paths: dict[str, Store], decode: Callable[[DataFrame], DataFrame]
) -> None:
    """Decodes held messages again, with one commit: those of which something isn't held any more for its reason. held:
    rows of HELD. To be called when the changelog has taken up all of `changes`: what was told anew isn't held then."""
    messages = _messages(spark, held, paths["messages"])
    if messages is None:
        return
    events = decode(messages)
    reason = F.when(F.col("kind") == "rollback", ROLLED_BACK).otherwise(F.col("reason")).alias("reason")
    row = F.struct("entry_index", "row_index", reason)
    now = F.collect_set(F.when(F.col("kind").isin(*KINDS["errors"]), row)).alias("_now")
    left = events.groupBy(*MESSAGE_AT).agg(now).join(held, [*MESSAGE_AT])
    better = left.where(F.size(F.array_except("held", "_now")) > 0).select(*MESSAGE_AT)
    told = events.join(better, [*MESSAGE_AT], "left_semi").select(*EVENT.names, F.lit(True).alias("retold"))
    files.append(_as_they_came(told), paths["changes"])


def _as_they_came(events: DataFrame) -> DataFrame:
    """Events in the order of their messages, as decoders write them; column lists before the rows that they are of."""
    stated_first = F.when(F.col("kind") == "schema", 0).otherwise(1)
    return events.sortWithinPartitions(*MESSAGE_AT, "entry_index", stated_first, "row_index")


def _messages(spark: SparkSession, wanted: DataFrame, path: Store) -> DataFrame | None:
    """The messages at these addresses; None: there are none. Not those at an address that another one has, too, as in a
    topic that was made again: nothing tells in the tables behind which of them an event is of."""
    ranges = wanted.groupBy("topic", "partition").agg(F.min("offset").alias("low"), F.max("offset").alias("high"))
    found = ranges.collect()  # a row per Kafka partition
    if not found:
        return None
    near = F.lit(False)
    for r in found:
        at = (F.col("topic") == r["topic"]) & (F.col("partition") == r["partition"])
        near = near | (at & F.col("offset").between(r["low"], r["high"]))
    found = delta_sql.read(spark, path).where(near).join(wanted, [*MESSAGE_AT], "left_semi")
    others = F.size(F.collect_set(F.xxhash64("value"))) > 1
    twice = found.groupBy(*MESSAGE_AT).agg(others.alias("_others")).where("_others")
    return found.join(twice, [*MESSAGE_AT], "left_anti")


def _waiting(changes: DataFrame, waiting: str) -> DataFrame:
    """Addresses of messages that wait and haven't been told anew."""
    errors = changes.where((F.col("kind") == "error") & F.col("reason").startswith(waiting))
    return (
        errors.select(*MESSAGE_AT)
        .distinct()
        .join(changes.where("retold").select(*MESSAGE_AT), [*MESSAGE_AT], "left_anti")
    )


def _released(events: DataFrame, waiting: str) -> DataFrame:
    """Events of messages that don't wait any more; be it that something else is wrong with them."""
    still = (F.col("kind") == "error") & F.col("reason").startswith(waiting)
    waits = F.max(F.coalesce(still, F.lit(False))).over(Window.partitionBy(*MESSAGE_AT))
    return events.withColumn("_waits", waits).where("NOT _waits").select(*EVENT.names, F.lit(True).alias("retold"))
