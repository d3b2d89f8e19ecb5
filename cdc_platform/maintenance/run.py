"""Old bookkeeping folded, small files put together, files of old versions removed, old tombstones expired.

The stages read landing, envelopes, changes and changelog as streams of commits, and from the first one on where
something is made anew: their files and their logs stay as they were written.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import delta_table, erasing, exchange, stores, takeover
from cdc_platform.lake.store import Store
from cdc_platform.maintenance import folds
from cdc_platform.results import StageResult, Stopwatch
from cdc_platform.snapshots import state, state_fold
from cdc_platform.snapshots.apply import tombstones
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.tables import Name, name_of

_SHARED = [t for t in tables.ALL if t.partition_by == ("source",) and t is not tables.CHANGELOG]
"""Compacted and vacuumed, one partition per source; the changelog stays as it was written."""


_FILES, _LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_OURS = re.compile("interval [0-9]+ hours")
_WEEK, _LOG_HOURS = 168, 720
"""How long Delta keeps what it knows of removed files, and its log, where nothing says otherwise."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A table to compact and vacuum. shared: several sources' runs commit to it, so that Spark doesn't; source: only
    this partition of it. horizon: order up to which its tombstones go."""

    name: str
    path: Store
    shared: bool = False
    source: str | None = None
    target: Target | None = None
    horizon: Any = None


def run(spark: SparkSession, config: Config, source: Source) -> StageResult:
    """Looks after the snapshots and tombstones of a source and its part of the tables beside them. `tables`: per path
    under the lake files_before and files, mb_before and mb (10^6 bytes), expired (tombstones), seconds; of tables that
    sources share files and MB are those of all sources."""
    watch = Stopwatch()
    folded = (state_fold.fold(spark, config, source) if _has_states(config) else 0) + folds.fold(spark, config, source)
    kept = [*_snapshots(spark, config, source), *_beside(config, source)]
    there = delta_sql.ask_parallel(stores.lake(config), [partial(_swept, k) for k in kept])
    work = [partial(_look_after, spark, config, k) for k, is_there in zip(kept, there, strict=True) if is_there]
    found = dict(delta_sql.run_parallel(work))
    metrics: dict[str, float] = {
        **{n: sum(int(f[n]) for f in found.values()) for n in ("files_before", "files", "expired")},
        **{n: round(sum(float(f[n]) for f in found.values()), 3) for n in ("mb_before", "mb")},
        "tables": len(found),
        "rows_folded": folded,
    }
    return StageResult("maintenance", source.name, 0, 0, watch.seconds, metrics, found)


def _has_states(config: Config) -> bool:
    return delta_table.exists(tables.TABLE_STATE.at(stores.lake(config)))


def _snapshots(spark: SparkSession, config: Config, source: Source) -> list[Kept]:
    path = tables.TABLE_STATE.at(stores.lake(config))
    if not _has_states(config):
        return []
    delta_sql.ensure(tables.TABLE_STATE, path)
    horizons = _horizons(spark, path, config, source)
    out = []
    for name in sorted(state.now(path, source)):
        target = Target.of(config, source.name, *name)
        out.append(Kept(_under(config, target.snapshot), target.snapshot))
        out.append(
            Kept(_under(config, target.tombstones), target.tombstones, target=target, horizon=horizons.get(name))
        )
        for location in (tables.HISTORY_PATH, tables.TYPED_CHANGES_PATH):
            beside = location.of(stores.lake(config), source.name, name)
            out.append(Kept(_under(config, beside), beside))
    return out


def _horizons(spark: SparkSession, path: Store, config: Config, source: Source) -> dict[Name, Any]:
    """Per table the newest change that had been brought into it so long ago."""
    before = datetime.now(UTC) - timedelta(days=config.maintenance.tombstone_days)
    old = delta_sql.read(spark, path).where((F.col("source") == source.name) & (F.col("at") < F.lit(before)))
    found = old.groupBy("db", "schema", "table").agg(F.max("high_order").alias("high")).where("high IS NOT NULL")
    return {name_of(r.asDict()): r["high"] for r in found.collect()}


def _beside(config: Config, source: Source) -> list[Kept]:
    own = [Kept(t.path, t.at(stores.lake(config)), True, source.name) for t in _SHARED]
    if FORMATS[source.format].part is not None:
        path = tables.WAITING.at(stores.lake(config), source=source.name)
        own.append(Kept(_under(config, path), path, True))
    return own


def _swept(table: Kept) -> bool:
    """Removes what killed runs left of it. False: there is no table."""
    if not table.shared:
        takeover.sweep(table.path)
    return delta_table.exists(table.path)


def _under(config: Config, path: Store) -> str:
    return path.uri().removeprefix(f"{stores.lake(config).uri()}/")


def _look_after(spark: SparkSession, config: Config, table: Kept) -> tuple[str, dict[str, float | str]]:
    watch = Stopwatch()
    expired = 0
    if table.target is not None and table.horizon is not None:
        expired = tombstones.expire(spark, table.target, table.horizon)
    before = _size(table)
    hours = int(config.maintenance.keep_hours)
    if table.shared:
        # Files of an exchange or an erasure that is decided, and that nobody has gone on with, stand in no log yet.
        decided = [*exchange.noted(stores.lake(config)), *erasing.underway(stores.lake(config))]
        kept = None if decided else hours
        delta_table.compact(table.path, kept, **({"source": table.source} if table.source else {}))
    else:
        _keep_versions(spark, table.path, hours)
        if before[0] > 1:
            spark.sql(f"OPTIMIZE {delta_sql.delta(table.path)}").collect()
        spark.sql(f"VACUUM {delta_sql.delta(table.path)} RETAIN {hours} HOURS").collect()
    after = _size(table)
    return table.name, {
        "files_before": before[0],
        "files": after[0],
        "mb_before": before[1],
        "mb": after[1],
        "expired": expired,
        "seconds": watch.seconds,
    }


def _keep_versions(spark: SparkSession, path: Store, hours: int) -> None:
    """Has Delta keep what VACUUM spares: else its checkpoints forget after a week which files were removed, so that
    VACUUM goes by the files' own age, and its log ends after 30 days."""
    _, before, _ = delta_table.protocol(path)
    if hours > _WEEK:
        wanted = {_FILES: f"interval {hours} hours", _LOG: f"interval {max(hours, _LOG_HOURS)} hours"}
    else:  # one that said more before; those of others stay
        wanted = {name: None for name in (_FILES, _LOG) if _OURS.fullmatch(before.get(name, ""))}
    if any(before.get(name) != value for name, value in wanted.items()):
        delta_sql.configure(spark, path, wanted)


def _size(table: Kept) -> tuple[int, float]:
    """Data files and MB of the table's present version."""
    sizes = delta_table.sizes(table.path)
    return len(sizes), round(sum(sizes) / 1e6, 3)
