"""Cuts: Delta versions of all snapshots of a source that belong together, published after a catch-up.

A cut of kind `transaction` stands between two transactions of the source: it is published only where everything in the
changelog belongs to transactions that are there in whole; else this run publishes none and a later one will. Where the
feed can't tell that, the cut is of kind `position`, with the reason. Versions are read after all merges of the run, and
nothing but the run that holds the source's lock writes these tables. What a killed run left out the next one publishes.
"""

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import batches, delta_table, folders, order_places, sequences, stores
from cdc_platform.lake.store import Store
from cdc_platform.landing.ended import ended
from cdc_platform.snapshots import state
from cdc_platform.snapshots.cuts.boundary import MARKS, TRANSACTIONS, How, Since, Verdict, behind
from cdc_platform.snapshots.target import LOST, Target
from cdc_platform.spark import delta_sql
from cdc_platform.tables import (
    CHANGELOG,
    CHECKPOINT,
    CONTROL_EVENTS,
    CUT_LACKS,
    CUTS,
    ERASURES,
    LOADED,
    OFFSET_LEDGER,
    QUARANTINE,
    SCHEMA_CHANGES,
    SCHEMA_HISTORY,
    Name,
)

log = logging.getLogger(__name__)

_NEWEST = f"{order_places.newest()} LIMIT 1"
_PLACE = ("epoch", "file", "pos")
_POSITION = ("order_key", "binlog_file", "binlog_pos", "gtid", "source_time")


class _Last(NamedTuple):
    """The source's newest cut, and the offsets of its newest cut of kind transaction. ddl: as `ddl_offsets` in CUTS."""

    cut: int
    work: int
    offsets: Mapping[str, int]
    ddl: Mapping[str, int]
    position: Any
    whole: Mapping[str, int] | None


def has_moved(config: Config, source: Source) -> bool:
    """Whether no cut was published since a source's tables came into another folder."""
    lake = stores.lake(config)
    before, path = folders.cuts_before(lake, source.name), CUTS.at(lake)
    return before > 0 and delta_table.exists(path) and _is_of_before(_last(path, source), before)


def _is_of_before(last: "_Last", before: int) -> bool:
    return last.cut <= before > 0


def publish(
    spark: SparkSession, config: Config, source: Source, tables: state.Tables, looked_at: Collection[Name] = ()
) -> dict[str, float]:
    """Publish a cut if the source's tables have changed since the last one. To be called when its snapshots have taken
    up all that the changelog holds. tables: their present state; looked_at: those of them whose snapshots were looked
    at just now. Returns metrics: `cut`, its number, 0 if none was published; `cut_held_back`, 1 if one will be when the
    changelog no longer ends in the middle of a transaction."""
    path = delta_sql.ensure(CUTS, CUTS.at(stores.lake(config)))
    read: list[Any] = [partial(_last, path, source), partial(_work, config, source, tables)]
    last, work = delta_sql.run_parallel(read)
    before = folders.cuts_before(stores.lake(config), source.name)
    if work == last.work and not _is_of_before(last, before):
        return {"cut": 0, "cut_held_back": 0}
    found: list[Any] = delta_sql.run_parallel(
        [
            partial(_offsets, config, source, last),
            partial(_newest, config, source, last),
            partial(_missing, config, source),
            partial(_versions, config, source, tables, looked_at),
        ]
    )
    (offsets, ddl), newest, missing, every = found
    versions = [(name, path, version) for name, path, version in every if version is not None]
    if lost := [name for name, _, version in every if version is None]:
        _stop(config, source, lost, tables)
        work += len(lost)
    verdict = _verdict(spark, config, source, missing, last, offsets)
    if verdict.kind is None:
        log.info("no cut of %s: %s", source.name, verdict.reason)
        return {"cut": 0, "cut_held_back": 1}
    number = max(last.cut, before) + 1
    row = {
        "source": source.name,
        "cut": number,
        **verdict._asdict(),
        **dict(zip(_POSITION, newest, strict=True)),
        "offsets": offsets,
        "ddl_offsets": ddl,
        "snapshots": [(name[0], name[-1], path, version) for name, path, version in versions],
        "schemas": {path: name[1] for name, path, _ in versions if len(name) == 3},
        "work": work,
        "folder": folders.folder(stores.lake(config), source.name),
    }
    delta_table.append_rows(path, [row])
    return {"cut": number, "cut_held_back": 0}


def _mine(spark: SparkSession, path: Store, source: Source) -> DataFrame:
    return delta_sql.read(spark, path).where(F.col("source") == source.name)


def _last(path: Store, source: Source) -> _Last:
    newest = f"SELECT max(cut) FROM {{cuts}} WHERE source = '{source.name}'"
    rows = delta_table.ask(
        f"SELECT cut, kind, work, offsets, ddl_offsets, {', '.join(_POSITION)} FROM {{cuts}} "
        f"WHERE source = '{source.name}' "
        f"AND (cut = ({newest}) OR cut = ({newest} AND kind = 'transaction')) ORDER BY cut",
        cuts=path,
    )
    if not rows:
        return _Last(0, 0, {}, {}, None, None)
    last, whole = rows[-1], [dict(r["offsets"]) for r in rows if r["kind"] == "transaction"]
    position = None if last["order_key"] is None else tuple(last[p] for p in _POSITION)
    offsets, ddl = dict(last["offsets"]), dict(last["ddl_offsets"] or {})
    return _Last(last["cut"], last["work"], offsets, ddl, position, whole[-1] if whole else None)


def _work(config: Config, source: Source, tables: state.Tables) -> int:
    """How much was ever done to the source's tables: every write to them is followed by a row in TABLE_STATE or
    SCHEMA_CHANGES."""
    decisions = f"SELECT count(*) AS n FROM {{changes}} WHERE source = '{source.name}'"
    found = delta_table.ask(decisions, changes=SCHEMA_CHANGES.at(stores.lake(config)))
    return found[0]["n"] + sum(t["entries"] for t in tables.values())


def _offsets(config: Config, source: Source, last: _Last) -> tuple[dict[str, int], dict[str, int]]:
    """How far the changelog is, per partition that rows or marks of transactions came by; and the DDL of all others."""
    new = _behind(source, {**last.ddl, **last.offsets})
    place = 'SELECT topic, "partition", "offset"'
    found = delta_table.ask(
        'SELECT topic, "partition", max("offset") AS "offset", bool_and(statement) AS statements FROM ('
        f"{place}, false AS statement FROM {{changelog}} WHERE {new} UNION ALL "
        f"{place}, false FROM {{marks}} WHERE {new} AND kind IN {MARKS} UNION ALL "
        f"{place}, true FROM {{history}} WHERE {new} AND kind = 'ddl') AS e GROUP BY topic, \"partition\"",
        changelog=CHANGELOG.at(stores.lake(config)),
        marks=CONTROL_EVENTS.at(stores.lake(config)),
        history=SCHEMA_HISTORY.at(stores.lake(config)),
    )
    ends = {f"{r['topic']}/{r['partition']}": r for r in found}
    own = {at: r["offset"] for at, r in ends.items() if not r["statements"] or at in last.offsets}
    ddl = {at: r["offset"] for at, r in ends.items() if at not in own}
    offsets = {**last.offsets, **own}
    return offsets, {at: offset for at, offset in {**last.ddl, **ddl}.items() if at not in offsets}


def _behind(source: Source, offsets: Mapping[str, int]) -> str:
    """boundary.behind, of a source's events, as SQL."""
    return f"source = '{source.name}'" + "".join(
        f' AND NOT (topic = \'{delta_table.topic(topic)}\' AND "partition" = {int(partition)} AND "offset" <= {offset})'
        for (topic, partition), offset in ((at.rsplit("/", 1), n) for at, n in offsets.items())
    )


def _newest(config: Config, source: Source, last: _Last) -> tuple:
    """Position of the newest row change; the last cut's if none is newer."""
    which = "true" if last.position is None else order_places.behind(last.position[0], _PLACE, at=True)
    found = delta_table.ask(
        f"SELECT {', '.join(_POSITION)} FROM {{changelog}} WHERE source = '{source.name}' AND ({which}) {_NEWEST}",
        changelog=CHANGELOG.at(stores.lake(config)),
    )
    if not found:
        return last.position or (None,) * len(_POSITION)
    return tuple(found[0][p] for p in _POSITION)


def _since(spark: SparkSession, config: Config, source: Source, last: _Last) -> Since:
    rows = _mine(spark, CHANGELOG.at(stores.lake(config)), source)
    marks = _mine(spark, CONTROL_EVENTS.at(stores.lake(config)), source).where(F.col("kind").isin(*MARKS))
    new = behind(last.whole or {})
    return Since(rows.where(new), marks.where(new), marks.where(~new), _erased(config, source))


def _erased(config: Config, source: Source) -> frozenset[str]:
    """Transactions of which rows were erased at a subject's request."""
    path = ERASURES.at(stores.lake(config))
    if not delta_table.exists(path):
        return frozenset()
    rows = delta_table.ask(f"SELECT transactions FROM {{t}} WHERE source = '{source.name}'", t=path)
    return frozenset(txn for row in rows for txn in row["transactions"] or ())


def _all_ended(config: Config, source: Source, last: _Last) -> bool:
    """Whether all rows since the last cut lie in one lineage's binlog, before one of its begins or commits. Where it is
    so boundary.brackets need not look at each."""
    paths = {"changelog": CHANGELOG.at(stores.lake(config)), "marks": CONTROL_EVENTS.at(stores.lake(config))}
    new = _behind(source, last.whole or {})
    rows = f"FROM {{changelog}} WHERE {new}"
    ends = "min(order_key['epoch']) AS low, max(order_key['epoch']) AS high, min(order_key['file']) AS file"
    [found] = delta_table.ask(f"SELECT {ends} {rows}", changelog=paths["changelog"])
    if found["low"] is None or found["low"] != found["high"] or found["file"] < 0:
        return False
    marks = f"FROM {{marks}} WHERE {new} AND kind IN {MARKS} AND order_key['epoch'] = {found['low']}"
    row = delta_table.ask(f"SELECT order_key {rows} {_NEWEST}", changelog=paths["changelog"])
    mark = delta_table.ask(f"SELECT order_key {marks} {_NEWEST}", marks=paths["marks"])
    return bool(mark) and _order_fields(row[0]) <= _order_fields(mark[0])


def _order_fields(of: Mapping[str, Any]) -> list[int]:
    return [int(of["order_key"][f]) for f in order_places.FIELDS]


def _verdict(
    spark: SparkSession,
    config: Config,
    source: Source,
    missing: Mapping[str, int],
    last: _Last,
    offsets: Mapping[str, int],
) -> Verdict:
    """What kind of cut the end of the changelog is."""
    told = FORMATS[source.format].transactions
    lacks = _left_out(missing)
    if told is None:
        untold = f"{source.format} doesn't tell transactions"
        return Verdict("position", f"{untold}; {lacks.reason}" if lacks and lacks.kind else untold)
    if lacks:
        return lacks
    if batches.unfinished(CHECKPOINT.at(stores.lake(config), room="changelog", source=source.name)):
        return Verdict(None, "the last batch of the changelog was interrupted; the next run does it again")
    how = TRANSACTIONS[told]
    over = {f"{topic}/{partition}" for topic, partition in ended(config, source)}
    feed = [at for at in offsets if at.rsplit("/", 1)[0] != LOADED and at not in over]
    if found := _unmarked(config, source, how, last, len(feed)):
        return found
    if not how.scattered and _all_ended(config, source, last):
        return Verdict("transaction")
    return how.verdict(_since(spark, config, source, last), source)


def _left_out(missing: Mapping[str, int]) -> Verdict | None:
    """What `_missing` comes to; None: nothing is."""
    if missing["quarantined"]:
        return Verdict("position", f"{missing['quarantined']} {CUT_LACKS[0]}")
    if missing["lost"]:
        return Verdict("position", f"{missing['lost']} {CUT_LACKS[1]}")
    if missing["never came"]:
        return Verdict("position", f"{missing['never came']} {CUT_LACKS[2]}")
    if missing["waiting"]:
        return Verdict(None, f"{missing['waiting']} records wait for the rest of their message")
    return None


def _unmarked(config: Config, source: Source, how: How, last: _Last, partitions: int) -> Verdict | None:
    """Where no transaction's end is told, or none that says what came before it."""
    marks = f"SELECT kind FROM {{marks}} WHERE source = '{source.name}' AND {how.marks} LIMIT 1"
    if last.whole is None and not delta_table.ask(marks, marks=CONTROL_EVENTS.at(stores.lake(config))):
        return Verdict("position", how.none)
    if partitions > 1 and not how.scattered:
        return Verdict("position", f"its transactions are spread over {partitions} partitions")
    return None


def _missing(config: Config, source: Source) -> dict[str, int]:
    """What of the source isn't in the changelog: events in quarantine, offsets lost, records that wait, and those that
    never came, until comparisons with the source find its tables equal."""
    rows = delta_table.ask(
        "SELECT 'quarantined' AS what, count(*) AS n FROM {quarantine} "
        f"WHERE source = '{source.name}' AND resolved_at IS NULL "
        "UNION ALL SELECT outcome AS what, sum(records) AS n FROM {ledger} "
        f"WHERE source = '{source.name}' AND outcome IN ('lost', 'waiting') GROUP BY outcome",
        quarantine=QUARANTINE.at(stores.lake(config)),
        ledger=OFFSET_LEDGER.at(stores.lake(config)),
    )
    told = {"never came": sum(gap.records for gap in sequences.open_gaps(config, source))}
    return dict.fromkeys(("quarantined", "lost", "waiting"), 0) | told | {r["what"]: r["n"] for r in rows}


def _stop(config: Config, source: Source, lost: list[Name], tables: state.Tables) -> None:
    """Live tables that aren't there are stopped, each by itself, in `tables`, too: the others are to have their cut."""
    outcomes = [state.Outcome(name, "stopped", LOST, 0, 0) for name in lost]
    batch_id = max(tables[name]["batch"] for name in lost)
    state.keep(stores.lake(config), source, outcomes, tables, batch_id, anew=True)
    for name in lost:
        log.error("%s: %s", ".".join(name), LOST)
        tables[name] |= {"state": "stopped", "reason": LOST}


def _versions(
    config: Config, source: Source, tables: state.Tables, looked_at: Collection[Name]
) -> list[tuple[Name, str, int | None]]:
    """Every live snapshot: name, path under the lake, version; None: it isn't there."""
    live = sorted(n for n, t in tables.items() if t["state"] == "live")
    paths = [Target.of(config, source.name, *name).snapshot for name in live]
    looks = [n not in looked_at for n in live]
    asked = [partial(delta_table.version_or_none, p, look=look) for p, look in zip(paths, looks, strict=True)]
    versions = delta_sql.ask_parallel(stores.lake(config), asked)
    under = f"{stores.lake(config).uri()}/"
    return [(n, p.uri().removeprefix(under), v) for n, p, v in zip(live, paths, versions, strict=True)]
