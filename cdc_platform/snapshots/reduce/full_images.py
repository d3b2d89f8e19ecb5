"""Batches of nothing but whole row images (and TRUNCATEs, which only together.py takes): their last change per key,
without an image ever becoming a map of Spark's.

Of which tables all changes are so the changelog's files note (changelog/full_images.py), or workers find it. Then
workers (latest_by_key.py, images.py) find the changes that win, and give Spark their texts, which it casts as always.
Everything else goes the way of fold.py, which gives the same: tests/snapshots/reduce/test_full_images.py holds
both against each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog import ties
from cdc_platform.changelog.full_images import FullImageTable, full_image_table
from cdc_platform.lake.data_files import units
from cdc_platform.lake.store import File
from cdc_platform.snapshots.reduce import images, latest_by_key
from cdc_platform.snapshots.reduce.fold import Profile, key_names
from cdc_platform.snapshots.schema.columns import BOOKKEEPING, ORDER_FIELDS, TableColumn
from cdc_platform.spark import arrow_tasks
from cdc_platform.spark.cores import cores_of
from cdc_platform.tables import Name, name_of

_FEW = 50_000
"""Changes that aren't divided: each partition becomes a file of the snapshot."""


@dataclass(frozen=True, slots=True)
class FullImages:
    """A table whose changes in a batch are plain: its files, and what they come to. untied: it is noted that no two
    changes of a key came by two partitions at one source time, where no position orders them."""

    table: FullImageTable
    files: list[File]
    figures: Profile
    untied: bool

    def places(self, spark: SparkSession) -> DataFrame:
        """Where the last change of each key stands, a file's in one partition, and few in as few as may be: `file`,
        `at`, as heads.last gives them."""
        number = {file: i for i, file in enumerate(self.files)}
        cores = cores_of(spark)
        # What a task holds is bounded, and the more it has of the changes, the more of them it leaves out.
        shares = arrow_tasks.shared_out(units(self.files, whole=True), cores, bounded=False)
        tasks = [[latest_by_key.Numbered(number[u.file], u) for u in share] for share in shares]
        parts = latest_by_key.parts(self.figures.changes, cores)
        ids = spark.range(0, len(tasks), 1, len(tasks))
        found = ids.mapInArrow(partial(latest_by_key.latest_changes, tasks, self.table, parts), latest_by_key.PARTS)
        of_parts = found.repartitionById(parts, F.col("part"))
        places = of_parts.mapInArrow(partial(latest_by_key.last, self.table), latest_by_key.PLACES)
        return places.repartitionById(min(len(self.files), -(-self.figures.changes // _FEW)), F.col("file"))


def survey(
    spark: SparkSession, files: Mapping[File, list[Any] | None], tables: Mapping[Name, list[TableColumn]]
) -> dict[Name, FullImages]:
    """Those of some tables whose changes in these changelog files are plain. files: with what each notes of the tables
    that it has changes of (changelog/file_stats.py)."""
    asked = {n: t for n, columns in tables.items() if files and (t := _table(n, columns)) is not None}
    noted = {n: _noted(t, files) for n, t in asked.items()}
    found = {n: p for n, p in noted.items() if isinstance(p, FullImages)}
    asked = {n: t for n, t in asked.items() if noted[n] is None}
    if not asked:
        return found
    done = arrow_tasks.over(spark, list(files), images.SURVEYED, images.Survey(tuple(asked.values())), {}, whole=True)
    for i, (name, table) in enumerate(asked.items()):
        told = [figures[i] for figures in done.told]
        if None not in told and any(f["changes"] for f in told):
            mine = [file for file, note in files.items() if note is None or any(_of(table, g) for g in note)]
            some = [f for f in told if f["changes"]]
            found[name] = FullImages(table, mine, _profile(some), ties.untied(some))
    return found


def _noted(table: FullImageTable, files: Mapping[File, list[Any] | None]) -> FullImages | bool | None:
    """What the files' notes say of a table: plain, False: not; None: they don't tell."""
    if None in files.values():
        return None
    groups = [(file, g["plain"]) for file, note in files.items() for g in note or () if _of(table, g)]
    same = table.as_noted()
    rows = [p for _, p in groups if not (p and _only_truncates(p))]
    if any(p is None or (p and not same.keys() <= p.keys()) for p in rows):
        return None
    if not all(p and {n: p[n] for n in same} == same for p in rows):
        return False
    some = [p for _, p in groups]
    return FullImages(table, list(dict.fromkeys(file for file, _ in groups)), _profile(some), ties.untied(some))


def _only_truncates(told: dict[str, Any]) -> bool:
    """Whether figures of changes are of TRUNCATEs alone, which concern no column. Earlier versions took none for
    plain."""
    return told["changes"] == told.get("truncates", 0)


def _of(table: FullImageTable, group: dict[str, Any]) -> bool:
    return group["db"] is not None and name_of(group) == table.name


def _table(name: Name, columns: list[TableColumn]) -> FullImageTable | None:
    if any(c.collation for c in columns):
        return None
    return full_image_table(name, [(c.name, c.type) for c in columns], tuple(c.name for c in columns if c.key))


def _profile(told: list[dict[str, Any]]) -> Profile:
    orders = [o for f in told for o in f["orders"]]
    ranges = [f["keys_range"] for f in told if not _only_truncates(f)]
    emptied = [at for f in told if (at := f.get("truncated"))]
    keys = [k for r in ranges for k in r] if all(ranges) else []
    return Profile(
        changes=sum(f["changes"] for f in told),
        partial=0,
        key_changes=0,
        deletes=sum(f["deletes"] for f in told),
        no_key=0,
        lost_moves=0,
        invalid_dates=0,
        low_order=_order(min(orders)),
        high_order=_order(max(orders)),
        truncated_at=_order(max(emptied)) if emptied else None,
        low_key=min(keys, default=None),
        high_key=max(keys, default=None),
        told_keys=True,
    )


def _order(numbers: list[int]) -> Row:
    told = dict(zip(ORDER_FIELDS, numbers, strict=True))
    return Row(**{**told, "pos": Decimal(told["pos"])})


def fold(spark: SparkSession, plain: FullImages, columns: list[TableColumn]) -> DataFrame:
    """One row per key, as fold.fold gives them."""
    names, keys = key_names(columns), [c for c in columns if c.key]
    given = ", ".join([*(f"t{i} STRING" for i, _ in enumerate(keys)), images.TEXTS])
    given += "".join(f", x{i} STRING" for i, _ in enumerate(columns))
    rows = plain.places(spark).mapInArrow(partial(images.texts, plain.files, plain.table), given)
    return rows.select(
        *(c.value(F.col(f"t{i}")).alias(n) for i, (n, c) in enumerate(zip(names, keys, strict=True))),
        F.col("deleted").alias("_deleted"),
        F.lit(True).alias("_whole"),
        *BOOKKEEPING,
        *(c.value(F.col(f"x{i}")).alias(f"_v{i}") for i, c in enumerate(columns)),
    )
