"""The numeric order of changes within a source, as columns of Spark, and figures of batches.

A source's log orders its changes (changelog/epochs.py); of formats whose positions alone order (Format.order) those do:
changes are the same there if place and content are.
"""

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_platform.changelog import rules
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.order_key import BEFORE_ALL, NUMBERED, PARTITIONS, ROWS, SECOND_HALF
from cdc_platform.changes.file_stats import ENTRIES, KINDS
from cdc_platform.tables import LOADED

_NO_FILE = -1

_CAME = ("offset", "entry_index", "row_index")
ADDRESS = ("topic", "partition", "offset", "entry_index", "row_index")


def order_key(arrivals: Arrivals) -> Column:
    """The `order_key` struct of EVENT rows. Within a place changes stand as they came, where positions alone order as
    the source counts them. Where they have no position, the latest source time in their partition relates partitions:
    of a message that was decoded again, as far as it is known."""
    told = F.col("file_no").isNotNull() & F.col("binlog_pos").isNotNull()
    entry, index = (F.coalesce(c, F.lit(0)).cast("bigint") for c in ("entry_index", "row_index"))
    within = entry * ROWS + F.least(index, F.lit(ROWS - 1))
    if arrivals.by_position:
        event, row = F.coalesce("event_no", entry), F.coalesce("row_no", index)
    else:
        event, row = _at_place(arrivals.rekeyed) if arrivals.numbered else F.col("offset"), within
    mine = F.col("topic") == LOADED  # what the server held at their place, before all that comes there
    event = F.when(mine, F.lit(BEFORE_ALL)).otherwise(event)
    row = F.when(mine, F.col("offset") * ROWS + within + 1).otherwise(row)
    came = F.col("offset") * PARTITIONS + partition_number()
    clock = _clock(arrivals)
    clock = F.when(clock > 0, clock).otherwise(F.col("offset"))
    return F.struct(
        _epoch(arrivals).alias("epoch"),
        F.when(told, F.col("file_no")).otherwise(F.lit(_NO_FILE)).cast("bigint").alias("file"),
        F.when(told, F.col("binlog_pos")).otherwise(clock).cast("decimal(20,0)").alias("pos"),
        F.when(told, event).otherwise(came).cast("bigint").alias("event"),
        F.when(told, row).otherwise(within).cast("bigint").alias("row"),
        F.col("offset").alias("landed"),
    )


def partition_number() -> Column:
    """What an `order_key` without position says of an event's partition."""
    return (F.crc32(F.col("topic").cast("binary")) + F.col("partition")).bitwiseAND(F.lit(PARTITIONS - 1))


def _at_place(rekeyed: Sequence[str]) -> Column:
    """As order_key's: the number in the transaction, else the offset with the halves of changes in order."""
    mine = rules.name().isin(*rekeyed) & (F.col("op") == "insert")
    second = F.coalesce(F.col("event_no") == 1, F.lit(False)) | F.coalesce(mine, F.lit(False))
    second = second.cast("bigint")
    came = Window.partitionBy("topic", "partition", "file_no", "binlog_pos").orderBy(*_CAME)
    follows = F.max(second).over(came.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return F.coalesce(F.col("txn_seq") + F.lit(NUMBERED), F.col("offset") + follows * F.lit(SECOND_HALF))


def _clock(arrivals: Arrivals) -> Column:
    """The latest source time in an event's partition by then, ms; 0: none was told."""
    before = F.lit(0).cast("bigint")
    for (topic, partition), known in arrivals.clocks.items():
        firsts = F.array(*(F.lit(first).cast("bigint") for first, _ in known))
        times = F.array(F.lit(0).cast("bigint"), *(F.lit(ms).cast("bigint") for _, ms in known))
        at = F.size(F.filter(firsts, lambda first: first <= _arrival()))
        here = (F.col("topic") == topic) & (F.col("partition") == partition)
        before = F.when(here, F.element_at(times, at + 1)).otherwise(before)
    came = Window.partitionBy("topic", "partition").orderBy(*_CAME)
    millis = F.floor(F.unix_micros("source_time") / 1000)
    latest = F.max(millis).over(came.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return F.greatest(F.coalesce(latest, F.lit(0)), before, F.lit(0))


def _arrival() -> Column:
    entry = F.least(F.coalesce("entry_index", F.lit(0)), F.lit(ENTRIES - 1))
    return F.col("offset") * ENTRIES + entry


def _epoch(arrivals: Arrivals) -> Column:
    before = F.lit(arrivals.before.get(None, 0)).cast("bigint")
    for lineage, number in arrivals.before.items():
        if lineage is not None:
            before = F.when(F.col("lineage") == lineage, F.lit(number).cast("bigint")).otherwise(before)
    found = before
    for (topic, partition), starts in arrivals.starts.items():
        firsts = F.array(*(F.lit(first) for first, _ in starts))
        epochs = F.array(*(F.lit(epoch).cast("bigint") for _, epoch in starts))
        at = F.size(F.filter(firsts, lambda first: first <= _arrival()))
        early = before if arrivals.before else epochs[0]
        here = (F.col("topic") == topic) & (F.col("partition") == partition)
        found = F.when(here, F.when(at > 0, F.element_at(epochs, F.greatest(at, F.lit(1)))).otherwise(early)).otherwise(
            found
        )
    return found


def replayed(arrivals: Arrivals) -> Column:
    """Whether an event is of a replay."""
    found = F.lit(False)
    for (topic, partition), replays in arrivals.replays.items():
        here = (F.col("topic") == topic) & (F.col("partition") == partition)
        firsts, lasts = (F.array(*(F.lit(at).cast("bigint") for at in ends)) for ends in zip(*replays, strict=True))
        begun = F.size(F.filter(firsts, lambda first: first <= _arrival()))
        ended = F.size(F.filter(lasts, lambda last: last < _arrival()))
        found = found | (here & (begun > ended))
    return found


def figures_of(notes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Statistics of one batch per lineage (one dict per server seen) from those of its files (changes/file_stats.py):
    counts per kind and of events decoded again, lowest and highest binlog position of row changes, offset range, schema
    versions stated."""
    groups = [g for note in notes for g in note["groups"]]
    return [_figures(lineage, [g for g in groups if g["lineage"] == lineage]) for lineage in _each(groups, "lineage")]


def _each(groups: list[dict[str, Any]], *names: str) -> list[Any]:
    found = dict.fromkeys(tuple(g[n] for n in names) for g in groups)
    return [f[0] for f in found] if len(names) == 1 else list(found)


def _figures(lineage: str | None, groups: list[dict[str, Any]]) -> dict[str, Any]:
    placed = [g for g in groups if g["file"] is not None]
    least, most = (
        [(g["file"], Decimal(g[pos])) for g in placed if g[pos] is not None] for pos in ("low_pos", "high_pos")
    )
    return {
        "lineage": lineage,
        **{k: sum(g["count"] for g in groups if g["kind"] in kinds) for k, kinds in KINDS.items()},
        "retold": sum(g.get("retold", 0) for g in groups),
        "events": sum(g["count"] for g in groups),
        "from_offset": min(g["from_offset"] for g in groups),
        "to_offset": max(g["to_offset"] for g in groups),
        "low": dict(zip(("file_no", "binlog_pos"), min(least), strict=True)) if least else None,
        "high": dict(zip(("file_no", "binlog_pos"), max(most), strict=True)) if most else None,
        "versions": [v for v in _each(groups, "version") if v is not None],
    }


def apart(notes: list[dict[str, Any]]) -> bool:
    """Whether files note that none of their row changes can be there twice: none tells its position, or all are one
    server's and ascend in each file, and no file's reach into another's."""
    told = [note["ascending"] for note in notes if note["ascending"]["count"]]
    if not all(t["fine"] for t in told) or len({t["lineage"] for t in told}) > 1:
        return False
    spans = sorted((t["first"], t["last"]) for t in told)
    return all(last < first for (_, last), (first, _) in pairwise(spans))


_CONTENT = ("op", "db", "schema", "table", "gtid", "lineage")


def _same_place() -> list[Column]:
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
    told = rows.where(_tells_itself_apart())
    hashed = told.withColumn("_place", F.xxhash64(*_same_place(), "op", "db", "schema", "table"))
    shared = hashed.groupBy("_place").agg(F.count(F.lit(1)).alias("n")).where("n > 1")
    if shared.isEmpty():
        return None
    suspects = hashed.join(shared, "_place", "left_semi").select(
        *ADDRESS,
        F.struct(*(c.alias(f"p{i}") for i, c in enumerate(_same_place()))).alias("place"),
        _content().alias("content"),
        F.struct("landed_at", *ADDRESS).alias("at"),
    )
    firsts = suspects.groupBy("place", "content").agg(F.min("at").alias("first"), F.collect_list("at").alias("all"))
    repeats = firsts.select(F.explode(F.array_except("all", F.array("first"))).alias("at"))
    return repeats.select(*(F.col(f"at.{c}").alias(c) for c in ADDRESS))


def repeated_before(
    rows: DataFrame, changelog: DataFrame, arrivals: Arrivals, low: dict[str, Any], high: dict[str, Any]
) -> DataFrame:
    """Addresses of rows that stand in the changelog already, under another address: under the same one it is the
    row itself, written before a crash. `low`, `high`: range of positions to look at."""
    bounds = [(f["file_no"], f["binlog_pos"]) for f in (low, high)]
    near = changelog.where(
        (
            F.struct("order_key.file", "order_key.pos")
            >= F.struct(F.lit(bounds[0][0]).cast("bigint"), F.lit(bounds[0][1]).cast("decimal(20,0)"))
        )
        & F.col("order_key.file").between(bounds[0][0], bounds[1][0])
    )
    maps = [F.array_sort(F.map_entries(m)).alias(f"_{m}") for m in ("key", "before", "after")]
    names = ("epoch", "file", "pos", "event", "row")
    there = F.struct(*ADDRESS).alias("_there")
    stored = near.select(
        there, *(F.col(f"order_key.{n}").alias(f"_{n}") for n in names), "op", "db", "schema", "table", "gtid", *maps
    )
    mine = (
        rows.where(_tells_itself_apart())
        .withColumn("_order", order_key(arrivals))
        .select(
            *ADDRESS,
            *(F.col(f"_order.{n}").alias(f"_{n}") for n in names),
            "op",
            "db",
            "schema",
            "table",
            "gtid",
            *maps,
        )
    )
    on = [
        mine[c].eqNullSafe(stored[c])
        for c in (*(f"_{n}" for n in names), "op", "db", "schema", "table", "gtid", "_key", "_before", "_after")
    ]
    on.append(F.struct(*(mine[c] for c in ADDRESS)) != stored["_there"])
    return mine.join(stored, on, "left_semi").select(*ADDRESS)


def _tells_itself_apart() -> Column:
    return F.col("file_no").isNotNull() & ~((F.col("op") == "read") & F.col("key").isNull())
