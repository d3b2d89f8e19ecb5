"""`shadow compare`: the tables of two feeds, each with the other's, at a point that both have reached."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config
from cdc_platform.config.shadow import Shadow
from cdc_platform.errors import ConfigError
from cdc_platform.lake import delta_table, erasing, folders, lease, stores
from cdc_platform.lake.store import Store
from cdc_platform.reading import described
from cdc_platform.reading.catalog import TableName
from cdc_platform.results import Stopwatch
from cdc_platform.shadow import differences, kept, pairing, point
from cdc_platform.shadow.differences import SIDES, OpenDifferences
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.shadow.kinds import BEHIND, COUNTS, DIFFERENT, EQUAL, NOT_COMPARED
from cdc_platform.shadow.pairing import Paired
from cdc_platform.shadow.point import Common, Feed, Point
from cdc_platform.spark import delta_sql, row_diff
from cdc_platform.suggest import closest
from cdc_platform.tables import (
    SHADOW_COMPARISONS,
    SHADOW_DIFFERENCES,
    Name,
    name_columns,
)

FOLDER = "_shadows"
_WAIT_S = 60.0
Told = Callable[[str], None]
_POINT = ("gtid", "source_time")
_Versions = dict[Name, tuple[int | None, int | None]]


def held(config: Config, pair: Shadow) -> AbstractContextManager[lease.Lease]:
    """Within it this process alone compares the pair. Raises RunInProgress."""
    slug = config.source(pair.of).slug
    return lease.held(stores.lake(config).at(FOLDER), f"shadow of {pair.of}", slug, _WAIT_S)


def check_whole(config: Config, pair: Shadow) -> None:
    """Raises ShadowRefused where an erasure of either source isn't finished: what it takes out might be noted anew."""
    underway = erasing.underway(stores.lake(config))
    for name in (pair.of, pair.by):
        if name in underway:
            problem = f"an erasure of source {name} was begun and isn't finished"
            raise ShadowRefused(pair.of, pair.by, problem, ["its command once more"])


def compare(
    spark: SparkSession,
    config: Config,
    pair: Shadow,
    *,
    tables: Sequence[str] = (),
    anew: bool = False,
    at: Common | None = None,
    told: Told = lambda _: None,
) -> dict[str, Any]:
    """Compares the tables of a pair (db.table as `of` spells it; none: all) whose snapshots or whose point have moved
    since they were last compared; anew: all of them. at: the point; None: as point.py finds
    it. Keeps what it found in SHADOW_DIFFERENCES and SHADOW_COMPARISONS.

    Returns kept.summary with compared (how many tables were, now), seconds, and rows: the newest row of
    SHADOW_COMPARISONS of every table. Raises ConfigError (no such table), RunInProgress, ShadowRefused."""
    watch = Stopwatch()
    with held(config, pair):
        check_whole(config, pair)
        delta_sql.ensure(SHADOW_DIFFERENCES, SHADOW_DIFFERENCES.at(stores.lake(config)))
        common, before = at or point.common(config, pair), kept.last(config, pair)
        paired = pairing.tables(config, pair)
        work = _Work.of(spark, config, pair, common, _selected(paired, tables))
        jobs = [partial(work.row, one, None if anew else before.get(one.name), told) for one in work.paired]
        done = [row for row in delta_sql.run_parallel(jobs) if row is not None]
        path = delta_sql.ensure(SHADOW_COMPARISONS, SHADOW_COMPARISONS.at(stores.lake(config)))
        delta_table.append_rows(path, done)
    found = kept.last(config, pair)
    return {
        **kept.summary(pair, found),
        **{"compared": len(done), "seconds": watch.seconds, "rows": list(found.values())},
    }


def versions(config: Config, pair: Shadow, paired: Sequence[Paired]) -> _Versions:
    """Table of `of` → versions of its snapshot and of that in `by`; None: there is none."""
    asked = [(_path(config, pair.of, p.name), _path(config, pair.by, p.by) if p.by else None) for p in paired]
    looks: list[Callable[[], int | None]] = [
        partial(delta_table.version_or_none, p) for both in asked for p in both if p
    ]
    found = iter(delta_sql.ask_parallel(stores.lake(config), looks))
    return {p.name: (next(found), next(found) if p.by else None) for p in paired}


def _selected(paired: list[Paired], given: Sequence[str]) -> list[Paired]:
    there = {".".join(p.name): p for p in paired}
    for name in given:
        if name not in there:
            raise ConfigError(
                "--table", f"the pair has no table {name!r}", closest(name, sorted(there)) or ["none yet"]
            )
    return [there[name] for name in dict.fromkeys(given)] or paired


@dataclass(frozen=True, slots=True)
class _Work:
    """One comparison of a pair. keys: of either feed, by its own names: key columns, as far as they are known."""

    spark: SparkSession
    config: Config
    pair: Shadow
    common: Common
    point: Point | None
    number: int
    paired: list[Paired]
    versions: _Versions
    keys: tuple[dict[TableName, list[str] | None], dict[TableName, list[str] | None]]

    @classmethod
    def of(cls, spark: SparkSession, config: Config, pair: Shadow, common: Common, paired: list[Paired]) -> "_Work":
        found = versions(config, pair, paired)
        keys = described.keys(config, pair.of), described.keys(config, pair.by)
        there = None if common.reason else point.point(config, pair, common)
        return cls(spark, config, pair, common, there, kept.next_number(config, pair), paired, found, keys)

    def row(self, one: Paired, before: dict[str, Any] | None, told: Told) -> dict[str, Any] | None:
        """A row of SHADOW_COMPARISONS; None: nothing has moved since the last one."""
        versions = self.versions[one.name]
        base = {
            **{"source": self.pair.of, "by": self.pair.by, "number": self.number, **name_columns(one.name)},
            **{"table_by": ".".join(one.by) if one.by else None, **point.point_columns(self.common)},
            **{"version_of": versions[0], "version_by": versions[1]},
            **{
                f"complete_{side}": c and c.source_time
                for side, c in zip(("of", "by"), self.common.complete, strict=True)
            },
        }
        counts = {c: before[c] if before else 0 for c in COUNTS.values()}  # open ones stay until they are judged
        reason = one.reason or self.common.reason
        if reason or self.point is None:
            row = {**base, **counts, "state": NOT_COMPARED, "reason": reason}
            return None if before and _same(before, row, but=_POINT) else row
        if behind := self._behind(one):
            row = {**base, **counts, "state": self._open(counts) or BEHIND, "reason": behind}
            return None if before and _same(before, row) else row
        if before and before["state"] != NOT_COMPARED:
            judged = before["state"] != BEHIND and not before["unsettled"] and not before["reason"]
            if _same(before, base, but=_POINT if judged else ()):
                return None
        told(".".join(one.name))
        row = {**base, **counts, **self._compared(one, versions)}
        return None if row["state"] == NOT_COMPARED and before and _same(before, row, but=_POINT) else row

    def _open(self, counts: dict[str, Any]) -> str | None:
        return DIFFERENT if any(counts.values()) else None

    def _behind(self, one: Paired) -> str | None:
        """Why nothing of a table can be judged yet."""
        assert self.point is not None
        for feed, name in ((self.point.of, one.name), (self.point.by, one.by)):
            assert name is not None
            if feed.complete and name in feed.complete.behind:
                return f"{feed.source.name} has it complete up to an earlier time: {feed.complete.behind[name].reason}"
            if name in feed.unsettled:
                return f"a statement, TRUNCATE or load of it in {feed.source.name} is newer than what both have"
        return None

    def _compared(self, one: Paired, versions: tuple[int | None, int | None]) -> dict[str, Any]:
        assert self.point is not None and one.by is not None
        names = ((self.pair.of, one.name, versions[0]), (self.pair.by, one.by, versions[1]))
        if missing := [source for source, _, version in names if version is None]:
            return {"state": NOT_COMPARED, "reason": f"{missing[0]} has no snapshot of it"}
        u, r = (self._frame(_path(self.config, source, name), version) for source, name, version in names)
        of, by = (keys.get(TableName.of(s, name)) for keys, (s, name, _) in zip(self.keys, names, strict=True))
        columns = pairing.columns(self.pair, dict(u.dtypes), dict(r.dtypes), (of, by))
        told = {"not_compared": list(columns.not_compared.items())}
        if columns.reason:
            return {**told, "state": NOT_COMPARED, "reason": columns.reason}
        feeds = ((self.point.of, one.name), (self.point.by, one.by))
        moved = [feed.source.name for feed, name in feeds if name in feed.moved]
        if moved and not columns.keys:
            return {
                **told,
                "state": BEHIND,
                "reason": f"it has no key, and {moved[0]} has newer changes of it than both",
            }
        own = [f"`{c.replace('`', '``')}`" for c in [*columns.compared, "_cdc_order"]]
        wrong = row_diff.of(u.select(*own), r.select(*own), columns.keys, SIDES)
        wrong = replace(wrong, rows=wrong.rows.persist())
        try:
            found = self._noted(one, wrong, feeds if moved else None, (u, r))
        finally:
            wrong.rows.unpersist()
        return {**told, **self._outcome(found), "rows_of": u.count(), "rows_by": r.count()}

    def _noted(
        self,
        one: Paired,
        wrong: row_diff.Wrong,
        feeds: tuple[tuple[Feed, Name], tuple[Feed, Name]] | None,
        frames: tuple[DataFrame, DataFrame],
    ) -> OpenDifferences:
        """What differs, kept. feeds: None: neither has anything of the table from behind the point."""
        if wrong.rows.isEmpty() and not kept.any_open(self.config, self.pair, one.name):
            return OpenDifferences(dict.fromkeys(SIDES.kinds, 0), 0)
        rows = (
            wrong.rows.withColumn("settled", F.lit(True)) if feeds is None else self._with_settled(wrong, feeds, frames)
        )
        now = differences.of_rows(replace(wrong, rows=rows))
        return differences.note(self.spark, self.config, self.pair, one.name, self.number, self.common, now)

    def _outcome(self, found: OpenDifferences) -> dict[str, Any]:
        counts = {column: found.counts[kind] for kind, column in COUNTS.items()}
        state = self._open(counts) or (BEHIND if found.unsettled else EQUAL)
        return {**counts, "unsettled": found.unsettled, "state": state}

    def _frame(self, path: Store, version: int | None) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", version).load(path.spark_uri())

    def _with_settled(
        self,
        wrong: row_diff.Wrong,
        feeds: tuple[tuple[Feed, Name], tuple[Feed, Name]],
        frames: tuple[DataFrame, DataFrame],
    ) -> DataFrame:
        """The rows that differ, and whether nothing of either side is known of their keys from behind the point."""
        rows, late = wrong.rows, F.lit(False)
        for side, (feed, name), frame in zip("ur", feeds, frames, strict=True):
            late = late | F.coalesce(F.expr(feed.bound.beyond(f"{side}_order")), F.lit(False))
            path = folders.tombstones(stores.lake(self.config), feed.source.name, name)
            if not delta_table.exists(path):
                continue
            stones = delta_sql.read(self.spark, path).where(F.expr(feed.bound.beyond("_cdc_order")))
            all_of_it = not stones.where("scope <> 'row'").isEmpty()  # deletes of that time are forgotten, or of all
            late = late | F.lit(all_of_it)
            keys = [
                (k, row_diff.text(f"_k{i}", frame.schema[k].dataType.simpleString()))
                for i, k in enumerate(c for c in frame.columns if c in wrong.keys)
            ]
            rows = _joined(rows, stones.where("scope = 'row'"), wrong, keys, side)
            late = late | F.col(f"{side}_deleted").isNotNull()
        return rows.withColumn("settled", ~late)


def _joined(
    rows: DataFrame, stones: DataFrame, wrong: row_diff.Wrong, keys: list[tuple[str, Column]], side: str
) -> DataFrame:
    """Rows with `<side>_deleted` where a tombstone has their key. keys: key columns, and their texts in tombstones."""
    texts = [text.alias(f"{side}_k{i}") for i, (_, text) in enumerate(keys)]
    gone = stones.select(*texts, F.lit(True).alias(f"{side}_deleted")).distinct()
    same: Column = F.lit(True)
    for i, (name, _) in enumerate(keys):
        at = wrong.columns.index(name)
        same = same & F.coalesce(f"u{at}", f"r{at}").eqNullSafe(F.col(f"{side}_k{i}"))
    return rows.join(gone, same, "left")


def _same(before: dict[str, Any], now: dict[str, Any], but: tuple[str, ...] = ()) -> bool:
    """Whether a comparison would be of the same versions, at the same point, with the same to say."""
    left = ("number", "complete_of", "complete_by", *but)
    return all(before.get(k) == v for k, v in now.items() if k not in left)


def _path(config: Config, source: str, name: Name) -> Store:
    return folders.snapshot(stores.lake(config), source, name)
