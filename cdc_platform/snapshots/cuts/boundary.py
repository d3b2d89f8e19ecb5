"""Whether a source's changelog ends between two transactions, as far as its format tells where they end. Frames only.

The simple rule: every transaction that has a row in the changelog is there in whole. A binlog holds one transaction
after the other, so begin and commit that stand among the rows end all rows before them; where rows are spread over
topics and partitions (Debezium), the commit's own count of rows is what tells.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.config import Source, Tables
from cdc_platform.spark import arrow_tasks
from cdc_platform.tables import LOADED

Offsets = Mapping[str, int]
"""topic/partition → last offset."""

MARKS = ("begin", "commit", "rollback")
_COUNTS = "array<struct<data_collection: string, event_count: bigint>>"


class Verdict(NamedTuple):
    """`kind` None: no cut here. `reason`: why it isn't a transaction's."""

    kind: Literal["transaction", "position"] | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Since:
    """Row changes of a source and its marks of transactions (begin, commit, rollback) since its last cut of kind
    transaction. `earlier`: marks from before it. `erased`: transactions of which rows were erased at a subject's
    request: their ends count these."""

    rows: DataFrame
    marks: DataFrame
    earlier: DataFrame
    erased: frozenset[str] = frozenset()


def behind(offsets: Offsets) -> Column:
    """Whether an event came after these offsets; in a partition that isn't named, every one did."""
    found = F.lit(True)
    for at, offset in offsets.items():
        topic, partition = at.rsplit("/", 1)
        here = (F.col("topic") == topic) & (F.col("partition") == int(partition))
        found = found & ~(here & (F.col("offset") <= offset))
    return found


def partition_name() -> Column:
    """topic/partition of an event."""
    return F.concat_ws("/", "topic", "partition")


def brackets(now: Since, _source: Source) -> Verdict:
    """Begin and commit among the rows: every row has one behind it, in the order of its own binlog, or its
    transaction's commit is there all the same (sent again by another server). Kafka's order alone doesn't tell which
    transaction a row belongs to once a feed goes back: there each transaction's own commit must be in."""
    last = now.marks.groupBy(F.col("order_key.epoch").alias("_epoch")).agg(F.max("order_key").alias("_mark"))
    rows = now.rows.select("txn_id", "topic", "order_key").withColumn("_epoch", F.col("order_key.epoch"))
    unordered = (F.col("order_key.file") < 0) & F.col("txn_id").isNotNull()
    behind = F.col("_mark").isNull() | (F.col("order_key") > F.col("_mark")) | unordered
    ended = now.marks.where("kind != 'begin' AND txn_id IS NOT NULL").select("txn_id").distinct()
    halves = rows.join(F.broadcast(last), "_epoch", "left").where(behind).join(ended, "txn_id", "left_anti")
    if found := halves.select("txn_id", "topic").orderBy(F.col("topic") == LOADED).limit(1).collect():
        if found[0]["topic"] == LOADED:
            return Verdict("position", "its newest rows were loaded from the server, ahead of the feed")
        return Verdict(None, f"transaction {found[0]['txn_id'] or '(not named)'} isn't there in whole")
    return Verdict("transaction")


def counts(now: Since, source: Source) -> Verdict:
    """Commits that count their rows: every transaction has its commit, and as many rows as that says. One that a
    connector tells again after a restart was there in whole at an earlier cut."""
    ends = now.marks.where("kind = 'commit' AND txn_id IS NOT NULL")
    if ends.select(partition_name()).distinct().count() > 1:
        return Verdict("position", "the ends of its transactions are spread over several partitions")
    rules_ = source.tables
    if (rules_.include != ["*"] or rules_.exclude) and not now.rows.where("schema <> ''").isEmpty():
        return Verdict("position", "the ends of its transactions name tables without their database")
    counted = F.col("txn_seq").isNotNull()
    newest = now.rows.agg(
        *(F.max(F.when(which, F.col("order_key"))).alias(n) for n, which in (("told", counted), ("untold", ~counted)))
    ).collect()[0]
    if newest["untold"] is not None and (newest["told"] is None or tuple(newest["untold"]) > tuple(newest["told"])):
        return Verdict("position", "its newest rows belong to no transaction that is told (an initial load, or DDL)")
    there = now.rows.where(counted).groupBy("txn_id").agg(F.count(F.lit(1)).alias("rows"))
    short = there.join(_declared_rows(ends, source), "txn_id", "full").where("told IS NULL OR coalesce(rows, 0) < told")
    short = short.where(~F.col("txn_id").isin(*now.erased)) if now.erased else short
    if short.isEmpty():
        return Verdict("transaction")
    if found := short.join(now.earlier.where("kind = 'commit'"), "txn_id", "left_anti").limit(1).collect():
        row, told = found[0], "an unknown number of" if found[0]["told"] is None else found[0]["told"]
        return Verdict(None, f"transaction {row['txn_id']} has {row['rows'] or 0} of {told} rows")
    return Verdict("transaction")


_FOLLOWED = pa.schema([("txn_id", pa.string()), ("n", pa.int64())])


def _declared_rows(ends: DataFrame, source: Source) -> DataFrame:
    """txn_id, told: how many rows its transaction has in tables that are followed; null where it isn't told."""
    of_tables = F.from_json(F.try_element_at("info", F.lit("data_collections")), _COUNTS)
    total = F.try_element_at("info", F.lit("event_count")).try_cast("bigint")
    once = ends.dropDuplicates(["txn_id"])
    each = once.select("txn_id", total.alias("total"), F.explode_outer(of_tables).alias("t"))
    named = each.select("txn_id", "total", "t.data_collection", "t.event_count")
    followed = named.mapInArrow(partial(_followed, source.tables), arrow_tasks.spark_schema(_FOLLOWED))
    return followed.groupBy("txn_id").agg(F.sum("n").alias("told"))


def _followed(tables: Tables, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """txn_id, total, data_collection, event_count → how many of these rows are followed: of all where none is named."""
    for batch in batches:
        names = batch.column("data_collection").dictionary_encode()
        wanted = pa.array([tables.wanted_name(n) for n in names.dictionary.to_pylist()], pa.bool_()).take(names.indices)
        n = pc.if_else(wanted, batch.column("event_count"), 0)
        n = pc.if_else(pc.is_null(names.indices), batch.column("total"), n)
        yield pa.RecordBatch.from_arrays([batch.column("txn_id"), n], schema=_FOLLOWED)


class How(NamedTuple):
    """How a format tells where transactions end. verdict: on what has come since the last cut of kind transaction.
    marks: control events, as SQL, of which one must have come before; none: what to say if none has. scattered: whether
    events of several partitions can tell it, too."""

    verdict: Callable[[Since, Source], Verdict]
    marks: str
    none: str
    scattered: bool


TRANSACTIONS = {
    "brackets": How(brackets, f"kind IN {MARKS}", "no begin and commit has come", False),
    "counts": How(
        counts,
        "kind = 'commit' AND txn_id IS NOT NULL",
        "no transaction's end has come (provide.transaction.metadata)",
        True,
    ),
}
"""By `Format.transactions`."""
