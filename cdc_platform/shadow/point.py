"""The point at which two feeds are compared: what each has by it, both must have. No Spark here.

Two feeds are never equally far, so a row is compared only if nothing of it is known, on either side, from behind the
point. Of each side the point is a place in its own order of changes:

- where both feeds tell GTIDs and come by one partition each: behind the last change of a transaction that both have,
  after which both have another one in common. So both have all of it, and all before it.
- else by time: all that was committed before T, the earlier of the times up to which the two are complete, is in both
  (changelog/watermarks.py). An event tells when its statement ran, which may be earlier than its commit. So the
  place is before the first change of `settle_s` before T or later: what stands before it was committed before T, unless
  its transaction took longer than that.

What may be from behind the point and leaves no row with a place of its own (DDL, TRUNCATE, a load) makes the whole
table wait.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.config.shadow import Shadow
from cdc_platform.lake import batches, delta_table, queries, stores, watermarks
from cdc_platform.lake.queries import text
from cdc_platform.lake.watermarks import Complete
from cdc_platform.landing.ended import ended
from cdc_platform.tables import (
    CHANGELOG,
    CHECKPOINT,
    LOADED,
    ORDER,
    SCHEMA_CHANGES,
    SCHEMA_HISTORY,
    WATERMARKS,
    Name,
    as_name,
    name_of,
)

Place = tuple[int, ...]
"""The numbers of an `order_key`."""
_FIELDS = ORDER.names
GTID = r"regexp_replace(lower(gtid), '^([^:,]+):[0-9]+-([0-9]+)$', '\1:\2')"
"""SQL of an event's own: canal's messages tell the set of all executed, of which the last is theirs."""
_RECENT = timedelta(minutes=10)
"""The common transaction is looked for among those of so long before the newest change of the feed that is behind."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A point in one feed's order. place: the last one that counts, or (last false) the first one that doesn't; None:
    all count."""

    place: Place | None
    last: bool = False

    def beyond(self, column: str) -> str:
        """Whether an order in a column is from behind the point, in the SQL of Spark and of DataFusion."""
        if self.place is None:
            return "false"
        found = "false" if self.last else "true"
        for name, number in reversed(list(zip(_FIELDS, self.place, strict=True))):
            field = f"{column}['{name}']"
            found = f"({field} > {number} OR ({field} = {number} AND {found}))"
        return found


@dataclass(frozen=True, slots=True)
class Feed:
    """One of the two. complete: None: nothing was published of it. moved: snapshots with changes from behind the point;
    unsettled: those with DDL, TRUNCATE or loaded rows from there."""

    source: Source
    complete: Complete | None
    bound: Bound
    moved: frozenset[Name]
    unsettled: frozenset[Name]


@dataclass(frozen=True, slots=True)
class Point:
    """gtid: the last transaction that counts, where it is one; else source_time: changes from then on don't count."""

    of: Feed
    by: Feed
    gtid: str | None = None
    source_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Common:
    """What a point is made from, before versions of snapshots are chosen: they hold all of it. reason: why there is
    none."""

    complete: tuple[Complete | None, Complete | None]
    gtid: str | None = None
    bounds: tuple[Bound, Bound] | None = None
    source_time: datetime | None = None
    reason: str | None = None


def common(config: Config, pair: Shadow) -> Common:
    """What both feeds have. To be asked before the versions that are compared are looked up."""
    sources = config.source(pair.of), config.source(pair.by)
    of, by = complete = _complete(config, pair)
    if found := _transaction(config, sources):
        gtid, bounds = found
        return Common(complete, gtid, bounds)
    for source, told in zip(sources, complete, strict=True):
        if told is None or told.source_time is None:
            why = (told and told.reason) or "nothing of it is in snapshots yet"
            return Common(complete, reason=f"up to when {source.name} is complete isn't told: {why}")
    assert of and by and of.source_time and by.source_time
    until = min(of.source_time, by.source_time) - timedelta(seconds=pair.settle_s)
    return Common(complete, source_time=until)


def before(config: Config, pair: Shadow, since: datetime) -> Common:
    """All that was changed before a time."""
    return Common(_complete(config, pair), source_time=since)


def up_to(config: Config, pair: Shadow, gtid: str, where: tuple[str, int], offset: int) -> Common:
    """All that `of` has, and what came by a partition of `by` before an offset. gtid: the last of both."""
    by = config.source(pair.by)
    mine = f'topic = {text(where[0])} AND "partition" = {where[1]:d} AND "offset"'
    if there := _positions(config, by, "max", f"{mine} < {offset:d}"):
        bound = Bound(max(there), last=True)
    else:
        bound = Bound(min(_positions(config, by, "min", f"{mine} >= {offset:d}"), default=None))
    return Common(_complete(config, pair), gtid, (Bound(None), bound))


def _complete(config: Config, pair: Shadow) -> tuple[Complete | None, Complete | None]:
    path = WATERMARKS.at(stores.lake(config))
    return watermarks.complete(path, pair.of), watermarks.complete(path, pair.by)


def point(config: Config, pair: Shadow, found: Common) -> Point:
    """The point, and what of either feed is from behind it. To be asked when the versions are chosen: all changes in
    them are in the changelog then."""
    feeds = []
    for i, name in enumerate((pair.of, pair.by)):
        source = config.source(name)
        if found.bounds is not None:
            bound = found.bounds[i]
        else:
            assert found.source_time is not None, "there is a point"
            bound = Bound(_first(config, source, found.source_time))
        feeds.append(Feed(source, found.complete[i], bound, *_behind(config, source, bound)))
    return Point(feeds[0], feeds[1], found.gtid, found.source_time)


def partitions(config: Config, source: Source) -> list[tuple[str, int]]:
    """Topics and partitions by which the feed comes."""
    known = watermarks.partitions(WATERMARKS.at(stores.lake(config)), source.name)
    return sorted(known.keys() - ended(config, source))


def _transaction(config: Config, sources: tuple[Source, Source]) -> tuple[str, tuple[Bound, Bound]] | None:
    """The newest transaction of which both feeds have all in their snapshots, and its end in each. A row that
    was loaded, or taken out by a repair, tells how far its view was, not how far the feed is."""
    lake = stores.lake(config)
    path = CHANGELOG.at(lake)
    for source in sources:
        if not delta_table.exists(path) or len(partitions(config, source)) != 1:
            return None
    newest = [queries.newest_change(config, s) for s in sources]
    if None in newest:
        return None
    since = delta_table.moment(min(t for t in newest if t is not None) - _RECENT)
    fields = ", ".join(f"order_key['{n}'] AS {n}" for n in _FIELDS)
    falling = ", ".join(f"{n} DESC" for n in _FIELDS)
    last = [
        f"(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY gtid ORDER BY {falling}) AS n FROM "
        f"(SELECT {GTID} AS gtid, {fields} FROM t WHERE source = {text(s.name)} AND gtid <> '' "
        f"AND source_time >= {since} AND op <> 'read' AND topic <> {text(LOADED)})) WHERE n = 1)"
        for s in sources
    ]
    told = ", ".join(f'"{side}".{n} AS {side}_{n}' for side in ("of", "by") for n in _FIELDS)
    order = ", ".join(f"of_{n} DESC" for n in _FIELDS)
    rows = queries.query(
        f'SELECT "of".gtid AS gtid, {told} FROM {last[0]} "of" JOIN {last[1]} "by" ON "of".gtid = "by".gtid '
        f"ORDER BY {order} LIMIT 2",
        t=path,
    )
    if not rows or len(rows) < 2 or any(_unfinished(config, s) for s in sources):
        return None
    row = rows[1]  # a later one has come by both
    of, by = (Bound(tuple(int(row[f"{side}_{n}"]) for n in _FIELDS), last=True) for side in ("of", "by"))
    return row["gtid"], (of, by)


def _unfinished(config: Config, source: Source) -> bool:
    """Whether the changelog has changes that the snapshots haven't."""
    lake = stores.lake(config)
    at = CHECKPOINT.at(lake, room="snapshots", source=source.name)
    return batches.behind(CHANGELOG.at(lake), at, source=source.name)


def _first(config: Config, source: Source, since: datetime) -> Place | None:
    """Place of the first change or statement of that time or later. One without a time may be late, unless there is an
    early one behind it."""
    late = _positions(config, source, "min", f"source_time >= {delta_table.moment(since)}")
    if untold := _positions(config, source, "max", "source_time IS NULL"):
        early = _positions(config, source, "max", f"source_time < {delta_table.moment(since)}")
        after = f" AND {Bound(max(early), last=True).beyond('order_key')}" if early else ""
        if not early or max(untold) > max(early):
            late += _positions(config, source, "min", f"source_time IS NULL{after}")
    return min(late, default=None)


def _positions(config: Config, source: Source, which: str, where: str) -> list[Place]:
    """The lowest or the highest place of some changes, and of some statements."""
    lake, of, found = stores.lake(config), f"source = {text(source.name)}", []
    for path, kind in ((CHANGELOG.at(lake), ""), (SCHEMA_HISTORY.at(lake), " AND kind = 'ddl'")):
        rows = queries.query(f"SELECT {which}(order_key) AS place FROM t WHERE {of}{kind} AND {where}", t=path)
        found += [tuple(int(v) for v in r["place"].values()) for r in rows or [] if r["place"] is not None]
    return found


def _behind(config: Config, source: Source, bound: Bound) -> tuple[frozenset[Name], frozenset[Name]]:
    """Snapshots with changes from behind the point, and those with DDL, TRUNCATE or loaded rows from there."""
    if bound.place is None:
        return frozenset(), frozenset()
    lake, of = stores.lake(config), f"source = {text(source.name)}"
    late = f"{of} AND order_key['epoch'] >= {bound.place[0]} AND {bound.beyond('order_key')}"  # the first is skipped by
    rows = queries.query(
        "SELECT db, schema, \"table\", bool_or(op IN ('read', 'truncate')) AS all_of_it FROM t "
        f"WHERE {late} GROUP BY 1, 2, 3",
        t=CHANGELOG.at(lake),
    )
    names = [(source.tables.routed(*name_of(r)), r["all_of_it"]) for r in rows or []]
    ddl = queries.query(
        f"SELECT DISTINCT db_before, table_before, db_after, table_after FROM t WHERE {late}",
        t=SCHEMA_CHANGES.at(lake),
    )
    shaped = {
        source.tables.routed(*as_name(r[f"db_{side}"], r[f"table_{side}"]))
        for r in ddl or []
        for side in ("before", "after")
        if r[f"db_{side}"] is not None and r[f"table_{side}"] is not None
    }
    return frozenset(n for n, _ in names), frozenset({n for n, whole in names if whole} | shaped)


def point_columns(found: Common) -> dict[str, Any]:
    """A point as columns of the tables of comparisons."""
    return {"gtid": found.gtid, "source_time": found.source_time}
