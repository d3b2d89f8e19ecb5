"""Addresses of what a batch holds once more: row changes that were told before, where positions alone order a source
(Format.order), and what was used of messages that are decoded again. Changes are the same if place and content are.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial, reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.epochs import Place
from cdc_platform.changelog.order import ADDRESS
from cdc_platform.changelog.order_key import ORDER, placed, those
from cdc_platform.changelog.packed import Packed
from cdc_platform.changes.file_stats import KINDS
from cdc_platform.config import Source
from cdc_platform.formats.contract import EVENT
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import MESSAGE_AT

PLACED = EVENT.append(pa.field("order_key", ORDER))
"""EVENT with its `order_key`."""
_USED = ("row", "ddl", *KINDS["control"])
_IMAGES = ("key", "before", "after")
Gone = Callable[[tuple[Place, Place]], DataFrame | None]
"""The lowest and the highest place of rows → ADDRESS of those among them that were erased."""
_CONTENT = ("op", "db", "schema", "table", "gtid", "lineage")


def in_batch(
    rows: Callable[[], DataFrame],
    placed_rows: Callable[[], DataFrame],
    stored: Callable[[], DataFrame],
    figures: Iterable[dict[str, Any]],
    reached: Place | None,
    gone: Gone,
    *,
    here: bool,
) -> Packed | None:
    """Row changes of a batch that were told before. rows: of the batch; placed_rows: with their `order_key`; stored: of
    the changelog, which is asked only when a batch goes back behind the highest position already seen (`reached`), as a
    replay does; gone: of the batch's what was erased since it was told. here: whether the
    batch may hold some within itself. None: there are none."""
    found = [repeated_here(rows())] if here else []
    placed = [f for f in figures if f["low"] is not None]
    if placed:
        found.append(gone(_between(placed)))
    for f in placed:
        low = _position(f["low"])
        if reached is None or low > reached:
            continue
        of_lineage = placed_rows().where(F.col("lineage").eqNullSafe(F.lit(f["lineage"])))
        found.append(repeated_before(of_lineage, stored(), low, reached))
    return packed(found)


def erased(figures: Iterable[dict[str, Any]], gone: Gone) -> Packed | None:
    """Of the same those alone that were erased since."""
    placed = [f for f in figures if f["low"] is not None]
    return packed([gone(_between(placed))]) if placed else None


def _between(placed: Sequence[dict[str, Any]]) -> tuple[Place, Place]:
    return min(_position(f["low"]) for f in placed), max(_position(f["high"]) for f in placed)


def _position(told: Mapping[str, Any]) -> Place:
    return told["file_no"], told["binlog_pos"]


def in_rows(rows: DataFrame, stored: DataFrame, gone: DataFrame | None) -> Packed | None:
    """The same as `in_batch` of rows with their `order_key` that were left out so far."""
    place = F.when(F.col("binlog_pos").isNotNull(), F.struct("file_no", "binlog_pos"))
    spans = (
        rows.where("file_no IS NOT NULL").groupBy("lineage").agg(F.min(place).alias("low"), F.max(place).alias("high"))
    )
    found = [repeated_here(rows), gone]
    for f in spans.where("low IS NOT NULL").collect():  # a row per server
        of_lineage = rows.where(F.col("lineage").eqNullSafe(F.lit(f["lineage"])))
        found.append(repeated_before(of_lineage, stored, tuple(f["low"]), tuple(f["high"])))
    return packed(found)


def packed(found: Iterable[DataFrame | None]) -> Packed | None:
    """Addresses, each once; None: there are none."""
    some = [f for f in found if f is not None]
    return Packed.of(reduce(DataFrame.union, some).dropDuplicates()) if some else None


def placed_rows(spark: SparkSession, files: list[File], arrivals: Arrivals) -> DataFrame:
    """Row changes of files, with their `order_key`."""
    return arrow_tasks.frame(spark, files, EVENT, partial(_placed, arrivals), arrow_tasks.spark_schema(PLACED))


def _placed(arrivals: Arrivals, events: pa.RecordBatch) -> pa.RecordBatch:
    return placed(those(events, pc.equal(events.column("kind"), "row")), arrivals)


class Again(NamedTuple):
    """Messages that a batch's files tell anew, as a whole and under their own addresses, and whether quarantine has
    them (`held`); what had been used of them before."""

    messages: Packed
    used: Packed


def decoded_again(
    spark: SparkSession,
    files: list[File],
    changes: Store,
    paths: Mapping[str, Store],
    source: Source,
    figures: list[dict[str, Any]],
) -> Again | None:
    """What a first telling gave is in `changes`, what a later one gave in place of an error in the changelog. figures:
    of the batch (order.merged_statistics). None: it has no such messages."""
    spans = [(f["from_offset"], f["to_offset"]) for f in figures if f["retold"]]
    if not spans:
        return None
    near = F.col("offset").between(min(low for low, _ in spans), max(high for _, high in spans))
    messages = delta_sql.rows_of(spark, changes, files).where("retold").select(*MESSAGE_AT).distinct()

    def mine(table: str) -> DataFrame:
        return delta_sql.read(spark, paths[table]).where(near & (F.col("source") == source.name))

    held = mine("quarantine").where("room = 'changes'").select(*MESSAGE_AT).distinct().withColumn("held", F.lit(True))
    first = delta_sql.read(spark, changes).where(
        near & F.col("kind").isin(*_USED) & ~F.coalesce("retold", F.lit(False))
    )
    used = first.select(*ADDRESS, "kind").union(mine("changelog").select(*ADDRESS, F.lit("row").alias("kind")))
    return Again(
        Packed.of(messages.join(held, [*MESSAGE_AT], "left").withColumn("held", F.coalesce("held", F.lit(False)))),
        Packed.of(used.join(messages, [*MESSAGE_AT], "left_semi").dropDuplicates()),
    )


def _same_position() -> list[Column]:
    return [
        F.col("lineage"),
        F.col("file_no"),
        F.col("binlog_pos"),
        F.coalesce("event_no", F.lit(0)),
        F.coalesce("row_no", F.lit(0)),
    ]


def _content() -> Column:
    """Everything a repeated change has in common, comparable: maps are not, their sorted entries are."""
    maps = [F.array_sort(F.map_entries(m)).alias(m) for m in ("key", "before", "after")]
    return F.struct(*(F.col(c) for c in _CONTENT), *maps)


def repeated_here(rows: DataFrame) -> DataFrame | None:
    """Addresses of rows that repeat an earlier row of the same batch; None when there are none.

    Cheap first: only rows that share a hash of their position are compared in full. Rows of an initial load that
    have no key are never repeats: they all share one position, and a table without a key may hold equal rows.
    """
    told = rows.where(_has_unique_position())
    hashed = told.withColumn("_place", F.xxhash64(*_same_position(), "op", "db", "schema", "table"))
    shared = hashed.groupBy("_place").agg(F.count(F.lit(1)).alias("n")).where("n > 1")
    if shared.isEmpty():
        return None
    suspects = hashed.join(shared, "_place", "left_semi").select(
        *ADDRESS,
        F.struct(*(c.alias(f"p{i}") for i, c in enumerate(_same_position()))).alias("place"),
        _content().alias("content"),
        F.struct("landed_at", *ADDRESS).alias("at"),
    )
    firsts = suspects.groupBy("place", "content").agg(F.min("at").alias("first"), F.collect_list("at").alias("all"))
    repeats = firsts.select(F.explode(F.array_except("all", F.array("first"))).alias("at"))
    return repeats.select(*(F.col(f"at.{c}").alias(c) for c in ADDRESS))


def repeated_before(rows: DataFrame, stored: DataFrame, low: Place, high: Place) -> DataFrame:
    """Addresses of rows that stand in the changelog already, under another address: under the same one it is the
    row itself, written before a crash. rows: with their `order_key`. stored: of the changelog. low, high: range of
    positions to look at."""
    (low_file, low_pos), (high_file, _) = low, high
    place = F.struct(F.lit(low_file).cast("bigint"), F.lit(Decimal(low_pos)).cast("decimal(20,0)"))
    near = F.struct("order_key.file", "order_key.pos") >= place
    near = near & F.col("order_key.file").between(low_file, high_file)
    mine, there = _identity(rows.where(_has_unique_position())), _identity(stored.where(near))
    on = [mine[c].eqNullSafe(there[c]) for c in mine.columns if c not in ADDRESS]
    on.append(F.struct(*(mine[c] for c in ADDRESS)) != F.struct(*(there[c] for c in ADDRESS)))
    return mine.join(there, on, "left_semi").select(*(mine[c] for c in ADDRESS))


def _identity(rows: DataFrame) -> DataFrame:
    """Address, place and content."""
    places = (F.col(f"order_key.{n}").alias(f"_{n}") for n in ORDER.names if n != "landed")
    maps = (F.array_sort(F.map_entries(m)).alias(f"_{m}") for m in _IMAGES)
    return rows.select(*ADDRESS, *places, *(n for n in _CONTENT if n != "lineage"), *maps)


def _has_unique_position() -> Column:
    return F.col("file_no").isNotNull() & ~((F.col("op") == "read") & F.col("key").isNull())
