"""Changes of one table in several partitions, where no position relates these: the latest source time in each does,
down to its grain. What is closer than that is no order: the table says so."""

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import reduce
from shlex import quote
from typing import NamedTuple
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.changelog.epochs import NEVER
from cdc_platform.changelog.order_key import PARTITIONS, TIMES_FROM
from cdc_platform.changelog.schema import Order
from cdc_platform.config import Config, Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake import delta_table, looks, stores
from cdc_platform.lake.store import File
from cdc_platform.snapshots.apply.same_time import Unplaced
from cdc_platform.snapshots.apply.tombstones import graves
from cdc_platform.snapshots.batch_tables import of_table
from cdc_platform.snapshots.reduce.fold import key_image, key_names, typed_keys
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import quoted
from cdc_platform.tables import CHANGELOG, LOADED, LOG_EPOCHS

_AGAIN = "have the source send the table once more, or compare it with `cdc-platform reconcile`"


def check(
    config: Config,
    source: Source,
    target: Target,
    rows: DataFrame,
    columns: list[TableColumn],
    low: Order,
    high: Order | None,
    *,
    untied: bool,
    anew: bool,
) -> None:
    """Raises TableStopped where a TRUNCATE came by another partition than rows of its table, or changes of a key by
    several at one source time. low: of these changes; high: of those that are in the table. untied: no two of these
    changes are so, and none is a TRUNCATE. anew: the operator has the table made from the changelog, by source
    times."""
    between = _between(low, high)
    emptied = not anew and delta_table.exists(target.tombstones)
    if untied and between is None and not emptied:
        return
    untold = rows.where("order_key.file < 0").withColumn("_from", _partition(F.col("order_key")))
    truncated = untold.where("op = 'truncate'")
    why = None
    if not untied and not truncated.isEmpty():
        why = _truncated(config, source, target, untold, truncated, anew=anew)
    elif emptied:
        why = _truncated_before(untold, target, columns) or _truncated_beside(rows, target, columns)
    if why is None and any(c.key for c in columns):
        why = next(_ties(untold, target, columns, untied=untied, between=between), None)
    if why is not None:
        raise TableStopped(source.name, target.name, why)


def unplaced(target: Target, low: Order, high: Order | None) -> Unplaced | None:
    """What a task has to look at of plain changes (apply/same_time.py), of which none has an earlier source time than
    what is there: it comes to what `check` says. low, high: as there. None: Spark has to look."""
    between, look = _between(low, high), looks.look(target.tombstones)
    time = between and between[0]
    if (between is not None and between != (time, time)) or (look is not None and look.live is None):
        return None
    stones = []
    for add in look.live.adds if look is not None and look.live is not None else ():
        highest = json.loads(add["stats"]).get("maxValues", {})
        pos = highest.get("_cdc_order", {}).get("pos")
        if pos is not None and pos < low[2]:
            continue
        if highest.get("scope") not in ("row", "expired"):
            return None  # a TRUNCATE
        stones.append(File(target.tombstones, unquote(add["path"])))
    return Unplaced(time, tuple(stones))


def _between(low: Order, high: Order | None) -> tuple[int, int] | None:
    """Of what `order_key.pos` a change and a row may be that have the same source time. None: of none."""
    untold = low[1] < 0 and low[2] < TIMES_FROM  # its offset stands in, which nothing compares with another partition's
    if high is None or low[:2] > high[:2] or (low[:3] > high[:3] and not untold):
        return None
    if low[:2] != high[:2] or low[2] < TIMES_FROM:
        return 0, NEVER
    return low[2], high[2]


class Came(NamedTuple):
    """How row changes of a source came: by several partitions; some with a position and some without."""

    several: bool
    mixed: bool

    def unsettled(self, file: int) -> bool:
        """Whether changes of which the first has this number of a binlog file (negative: it has no position) are to be
        looked at."""
        return self.several and (file < 0 or self.mixed)


ONE = Came(several=False, mixed=False)
"""By one partition."""


def came(config: Config, source: Source) -> Came:
    """By what is noted of the source's log."""
    [found] = delta_table.ask(
        "SELECT count(DISTINCT named_struct('topic', topic, 'partition', \"partition\")) AS n, min(low_file) AS low, "
        f"max(high_file) AS high FROM {{epochs}} WHERE source = '{source.name}' AND topic <> '{LOADED}'",
        epochs=LOG_EPOCHS.at(stores.lake(config)),
    )
    return Came(found["n"] > 1, found["n"] > 1 and found["low"] < 0 <= found["high"])


def _where(rows: DataFrame) -> Column:
    return F.struct(rows["topic"], rows["partition"])


def _partition(order: Column) -> Column:
    """The number of a change's partition."""
    return F.pmod(order["event"], F.lit(PARTITIONS))


def _time(order: Column) -> Column:
    """The source time that a change was placed by; 0: none was told."""
    return F.when(order["pos"] >= TIMES_FROM, order["pos"]).otherwise(0)


def _truncated(
    config: Config, source: Source, target: Target, untold: DataFrame, truncated: DataFrame, *, anew: bool
) -> str | None:
    """Why a TRUNCATE has no place among the rows, if it has none."""
    every = delta_sql.read(untold.sparkSession, CHANGELOG.at(stores.lake(config))).where(F.col("source") == source.name)
    mine = every.where(of_table(*target.name) & (F.col("op") != "truncate"))
    others = mine.select("order_key").unionByName(untold.where("op <> 'truncate'").select("order_key"))
    others = others.where("order_key.file < 0").withColumn("_its", _partition(F.col("order_key")))
    apart = F.col("_from") != F.col("_its")
    if anew:
        apart = apart & (_time(F.col("at")) == _time(F.col("order_key")))
    stones = truncated.select("_from", F.col("order_key").alias("at")).distinct()
    if others.join(F.broadcast(stones), apart).isEmpty():
        return _beside_places(mine, truncated)
    said = "TRUNCATE came by another partition than rows of the table"
    if anew:
        return f"{said} at the same source time: {_AGAIN}"
    return (
        f"{said}, and nothing says which were before it: `cdc-platform run --table "
        f"{quote('.'.join(target.name))} --rebuild` goes by source times; or {_AGAIN}"
    )


def _beside_places(rows: DataFrame, truncated: DataFrame) -> str | None:
    """Why a TRUNCATE without a position has no place among rows of another partition that have one, whatever epoch
    those are of: it may have begun the one that it is of in its own partition alone."""
    placed, here = (r.select("topic", "partition").distinct() for r in (rows.where("order_key.file >= 0"), truncated))
    if placed.join(F.broadcast(here), _where(placed) != _where(here)).isEmpty():
        return None
    return _BESIDE


_BESIDE = f"a TRUNCATE without a position came by another partition than rows that have one: {_AGAIN}"


def _partition_id() -> Column:
    """What an `order_key` without a position says of an event's partition (order_key.py)."""
    return (F.crc32(F.col("topic").cast("binary")) + F.col("partition")).bitwiseAND(F.lit(PARTITIONS - 1))


def _truncated_beside(rows: DataFrame, target: Target, columns: list[TableColumn]) -> str | None:
    """The same of rows that come after it, be their place behind its or not."""
    placed = rows.where("order_key.file >= 0 AND op <> 'truncate'").select(_partition_id().alias("_from")).distinct()
    stones = graves(rows.sparkSession, target, columns).where("scope = 'table' AND _cdc_order.file < 0")
    stones = stones.select(_partition(F.col("_cdc_order")).alias("_its")).distinct()
    return None if placed.join(F.broadcast(stones), F.col("_from") != F.col("_its")).isEmpty() else _BESIDE


def _ties(
    untold: DataFrame,
    target: Target,
    columns: list[TableColumn],
    *,
    untied: bool,
    between: tuple[int, int] | None,
) -> Iterator[str]:
    """Why keys whose changes came by several partitions have no order, if some have none: among these changes (untied:
    there are none), to the rows that are there, and to those that were deleted. between: lowest and highest
    `order_key.pos` that such changes may have; None: all of these are newer than what is there."""
    names = key_names(columns)
    changes = untold.where("op <> 'truncate'").withColumn("_kmap", key_image(columns, told=False))
    mine = changes.select(*typed_keys(columns), _time(F.col("order_key")).alias("_pos"), "_from")
    within = mine.groupBy(*names, "_pos").agg(F.count_distinct("_from").alias("n")).where("n > 1")
    if not untied and not within.isEmpty():
        yield _said("several partitions")
    if between is None:
        return
    mine = mine.where(F.col("_pos") <= between[1])
    for there in _known(untold, target, columns):
        stored = there.where(F.col("_cdc_order.pos").between(*map(Decimal, between))).where("_cdc_order.file < 0")
        stored = stored.withColumn("_its", _partition(F.col("_cdc_order")))
        same = [F.col("_pos") == _time(F.col("_cdc_order")), F.col("_from") != F.col("_its")]
        if not mine.join(stored, names).where(reduce(Column.__and__, same)).isEmpty():
            yield _said("another partition than before")


def _truncated_before(untold: DataFrame, target: Target, columns: list[TableColumn]) -> str | None:
    """Why these changes have no place beside an earlier TRUNCATE, if they have none: they came by another partition,
    and aren't newer."""
    stones = graves(untold.sparkSession, target, columns).where("scope = 'table' AND _cdc_order.file < 0")
    stones = stones.select(F.col("_cdc_order").alias("at")).distinct()
    apart = (_partition(F.col("at")) != F.col("_from")) & (_time(F.col("order_key")) <= _time(F.col("at")))
    if untold.join(F.broadcast(stones), apart).isEmpty():
        return None
    return f"rows came by another partition than an earlier TRUNCATE, and nothing says which was first: {_AGAIN}"


def _known(untold: DataFrame, target: Target, columns: list[TableColumn]) -> Iterator[DataFrame]:
    names, keys = key_names(columns), [c for c in columns if c.key]
    if delta_table.exists(target.snapshot):
        rows = delta_sql.read(untold.sparkSession, target.snapshot)
        typed = [c.comparable(F.col(quoted(c.name))).alias(n) for n, c in zip(names, keys, strict=True)]
        yield rows.select(*typed, "_cdc_order")
    yield graves(untold.sparkSession, target, columns).where("scope = 'row'").select(*names, "_cdc_order")


def _said(where: str) -> str:
    return f"changes of one key came by {where} at one source time, and nothing says which is newer: {_AGAIN}"
