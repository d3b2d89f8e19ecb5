"""`replay`: what was landed, decoded again beside the lake in use, and how the tables differ; put in place if that is
asked for."""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdc_platform import chain
from cdc_platform.changes import in_force
from cdc_platform.config import Config, Source
from cdc_platform.config.load import with_options
from cdc_platform.config.replay import Start
from cdc_platform.errors import ConfigError, LakeChanged, TableStopped
from cdc_platform.formats import FORMATS
from cdc_platform.lake import delta_table, erasing, exchange, folders, held_rows, queries, stores
from cdc_platform.lake.store import Store
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.reading import catalog, described
from cdc_platform.reading.catalog import State, TableName
from cdc_platform.replay import kept, kinds, present, side
from cdc_platform.replay import swap as swapping
from cdc_platform.replay.present import Present
from cdc_platform.replay.reasons import Reasons, decoders, options_in_use
from cdc_platform.results import Stopwatch
from cdc_platform.spark import delta_sql, row_diff
from cdc_platform.spark.session import leased
from cdc_platform.suggest import closest
from cdc_platform.tables import BOOKKEEPING, QUARANTINE, name_in
from cdc_platform.units import count

log = logging.getLogger("cdc_platform.run")
_SIDES = row_diff.Sides("in_use", "replay", *kinds.KINDS)
_APART = ("left_out", "dropped")
"""States of tables whose snapshot isn't kept up to date: where both sides say so nothing is compared."""


def replay(
    spark: SparkSession,
    config: Config,
    source: Source,
    *,
    tables: Sequence[str] = (),
    since: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    samples: int = 10,
    swap: bool = False,
) -> dict[str, Any]:
    """Decodes all that was landed of a source and decoded again, by the decoder of now and the source's options (some
    of them others: `options`), beside the lake in use, and compares its tables (db.table; none: all). An interrupted
    replay goes on. since: where to begin (kept.starts): what was decoded before stays as it is. samples: differing rows
    shown of a table. swap: then put what it made in place of what is in use, of the whole source, with the options of
    the configuration.

    Returns source, path, equal, decoders (`in_use`: decoder_version, changes; `replay`: the version), options (by name
    where they differ: `in_use`, `replay`), held (`in_use`, `replay`: rows in quarantine), tables (`_Sides.compared`),
    swapped and seconds. Raises ConfigError, NotReadable, RunInProgress, and what the stages raise."""
    watch = Stopwatch()
    asked(config, source, tables, since, options, swap=swap)  # what can't be meant is said at once
    with side.held(config, source) as lease, leased(spark, lease):
        # An erasure may have come while this waited: nothing is decoded as it was before.
        replayed, now, chosen, begin = asked(config, source, tables, since, options, swap=swap)
        beside = side.opened(config, replayed, now, begin)
        kept.keep(spark, config, replayed, now, beside)
        _decode(spark, beside, replayed, chosen)
        found = _differences(spark, config, beside, replayed, now, chosen, samples)
        held = _both(_held(config, source), _held(beside, replayed) + _held_before(config, source))
        before = decoders(config, source)
        if swap:
            _swap_in(spark, config, source, replayed)
    return {
        "source": source.name,
        "path": beside.lake,
        "equal": all(t["equal"] for t in found) and (bool(tables) or held["in_use"] == held["replay"]),
        "decoders": {"in_use": before, "replay": FORMATS[source.format].version},
        "options": _options(config, replayed),
        "held": held,
        "tables": found,
        "swapped": swap,
        "seconds": watch.seconds,
    }


def asked(
    config: Config,
    source: Source,
    tables: Sequence[str],
    since: Sequence[str],
    options: Mapping[str, Any] | None,
    *,
    swap: bool,
) -> tuple[Source, Present, list[TableName], tuple[Start, ...]]:
    """What a replay is to make: the source with its options, the lake in use, tables, where to begin. Without Spark.
    Raises ConfigError, also while an erasure isn't finished, NotReadable, RunInProgress."""
    if source.name in erasing.underway(stores.lake(config)):
        problem = "an erasure of it was begun and isn't finished: what it takes out would be decoded once more"
        raise ConfigError(source.name, problem, ["`cdc-platform erase` with its key once more, and then this"])
    given = {"--table": tables, "--from": since, "--options": options}
    if swap and any(given.values()):
        without = [f"without {name}" for name, of in given.items() if of]
        raise ConfigError("--swap", "puts all of a source in place, as cdc.yaml has it", without)
    own = source.tables.model_copy(update={"history": [], "typed_changes": []})  # nobody reads the side lake's
    replayed = with_options(source, options or {}, "--options").model_copy(update={"tables": own})
    now = present.look(config, source)
    return replayed, now, _selected(config, source, now, tables), kept.starts(config, source, since)


def _selected(config: Config, source: Source, now: Present, given: Sequence[str]) -> list[TableName]:
    """Tables by their names: of those that are known, or that quarantine names. Raises ConfigError."""
    there = {n.text: n for n in now.tables}
    held = (r for r in held_rows.by_table(config) if r["source"] == source.name)
    there |= {".".join(name): TableName.of(source.name, name) for r in held if (name := name_in(r)) is not None}
    for name in given:
        if name not in there:
            raise ConfigError("--table", f"{source.name} has no table {name!r}", closest(name, sorted(there)))
    return [there[name] for name in dict.fromkeys(given)]


def _decode(spark: SparkSession, beside: Config, replayed: Source, chosen: list[TableName]) -> None:
    """The stages behind landing, in the side lake. Some tables alone are made as a rebuild makes them."""
    for name, stage in (("changes", chain.decode), ("changelog", chain.unify)):
        log.info("replay of %s: %s", replayed.name, name)
        stage(spark, beside, replayed)
    log.info("replay of %s: snapshots", replayed.name)
    if not chosen:
        chain.snapshot(spark, beside, replayed, cut=False)
    for name in chosen:
        with suppress(TableStopped):  # its state tells it
            chain.rebuild(spark, beside, replayed, *name.name)


def _swap_in(spark: SparkSession, config: Config, source: Source, replayed: Source) -> None:
    """While nobody else writes the source: first what came since then is decoded, too."""
    with source_lock(config, source) as lease, leased(spark, lease):
        beside = side.opened(config, replayed, present.look(config, source))
        _decode(spark, beside, replayed, [])
        log.info("replay of %s: put in place", source.name)
        swapping.decide(spark, config, source, beside)
        if not exchange.finish(lake := stores.lake(config), source.name):
            lease.check()  # else it may be done, by who has the source now
            raise LakeChanged(lake.uri(), f"something else wrote {source.name}'s tables, which stay as they were")
        chain.snapshot(spark, config, source)
    side.discard(config, source)


def _differences(
    spark: SparkSession,
    config: Config,
    beside: Config,
    replayed: Source,
    now: Present,
    chosen: list[TableName],
    samples: int,
) -> list[dict[str, Any]]:
    """Of each table, those with differences first."""
    names = chosen or sorted({*now.tables, *described.known(beside, replayed.name)})
    sides = _Sides(spark, Reasons(spark, config, beside, replayed), now, samples)
    log.info("replay of %s: comparing %s", replayed.name, count(len(names), "table"))
    found = delta_sql.run_parallel([partial(sides.compared, name) for name in names])
    return sorted(found, key=lambda t: t["equal"])


@dataclass(frozen=True)
class _Sides:
    """The lake in use and the side lake of a replayed source, table by table."""

    spark: SparkSession
    reasons: Reasons
    now: Present
    samples: int

    def compared(self, name: TableName) -> dict[str, Any]:
        """table, equal, state and reason (`in_use`, `replay`), rows of either, only_in_use, only_in_replay, differing,
        keys (none: equal rows are counted), columns (column, rows), types (of columns that have other ones, or that one
        side lacks: column, in_use, replay), reasons (Reasons.of), samples (row_diff.samples)."""
        states = self.now.states.get(name), self._states.get(name)
        state = _both(*(s.state if s else None for s in states))
        told: dict[str, Any] = {"table": name.text, "state": state, "reason": _both(*(s and s.reason for s in states))}
        same = state["in_use"] == state["replay"]
        if same and state["in_use"] in _APART:
            return {**told, "equal": True, **_NOTHING}
        u, r = self._in_use(name), self._replay(name)
        if u is None or r is None:
            rows = _both(*(0 if x is None else x.count() for x in (u, r)))
            only = {kinds.ONLY_IN_USE: rows["in_use"], kinds.ONLY_IN_REPLAY: rows["replay"]}
            return {**told, "equal": same and u is r, **_NOTHING, "rows": rows, **only}
        found = self._differences(u, r, self._keys(name))
        rows = _both(u.count(), r.count())
        equal = same and not any(found[k] for k in (*kinds.KINDS, "types"))
        return {**told, "equal": equal, **found, "rows": rows}

    def _differences(self, u: DataFrame, r: DataFrame, keys: list[str]) -> dict[str, Any]:
        wrong = row_diff.of(u, r, keys, _SIDES)
        wrong = replace(wrong, rows=wrong.rows.persist())
        try:
            counts = row_diff.counts(wrong)
            found = {**_NOTHING, **counts, "keys": wrong.keys, "types": _types(u, r)}
            if any(counts.values()):
                columns, why = row_diff.columns(wrong), self.reasons.of(wrong)
                found |= {"columns": columns, "reasons": why, "samples": row_diff.samples(wrong, self.samples)}
            return found
        finally:
            wrong.rows.unpersist()

    def _in_use(self, name: TableName) -> DataFrame | None:
        version = self.now.tables.get(name)
        if version is None:
            return None
        path = _path(self.reasons.config, name).spark_uri()
        return self.spark.read.format("delta").option("versionAsOf", version).load(path)

    def _replay(self, name: TableName) -> DataFrame | None:
        path = _path(self.reasons.side, name)
        return delta_sql.read(self.spark, path) if delta_table.exists(path) else None

    def _keys(self, name: TableName) -> list[str]:
        """Those of both sides; none where they differ."""
        u, r = (of.get(name) for of in self._key_columns)
        return u if u and u == r else []

    @cached_property
    def _key_columns(self) -> list[dict[TableName, list[str] | None]]:
        of = self.reasons.replayed.name
        return [described.keys(config, of) for config in (self.reasons.config, self.reasons.side)]

    @cached_property
    def _states(self) -> dict[TableName, State]:
        return catalog.states(stores.lake(self.reasons.side), self.reasons.replayed.name)


_NOTHING: dict[str, Any] = {
    **{"rows": {"in_use": None, "replay": None}, **dict.fromkeys(kinds.KINDS, 0)},
    **{"keys": [], "columns": [], "types": [], "reasons": [], "samples": []},
}
"""Of a table of which nothing is compared."""


def _both(in_use: Any, replay: Any) -> dict[str, Any]:
    return {"in_use": in_use, "replay": replay}


def _path(config: Config, name: TableName) -> Store:
    return folders.snapshot(stores.lake(config), name.source, name.name)


def _types(u: DataFrame, r: DataFrame) -> list[dict[str, Any]]:
    was, now = dict(u.dtypes), dict(r.dtypes)
    names = (n for n in dict.fromkeys([*was, *now]) if not n.startswith(BOOKKEEPING))
    return [{"column": n, **_both(was.get(n), now.get(n))} for n in names if was.get(n) != now.get(n)]


def _held(config: Config, source: Source) -> int:
    return held_rows.by_source(config).get(source.name, 0)


def _held_before(config: Config, source: Source) -> int:
    """Rows that the stage before the decoder holds, which a replay doesn't do again."""
    found = queries.query(
        f"SELECT count(*) AS n FROM t WHERE source = {queries.text(source.name)} AND room = 'envelopes' "
        "AND resolved_at IS NULL",
        t=QUARANTINE.at(stores.lake(config)),
    )
    return int(found[0]["n"]) if found else 0


def _options(config: Config, replayed: Source) -> dict[str, Any]:
    """Options that aren't those that messages were last decoded with."""
    noted = options_in_use(config, replayed)
    before, now = json.loads(noted[-1]["options"]) if noted else {}, in_force.values(replayed)
    return {n: _both(before.get(n), now.get(n)) for n in sorted({*before, *now}) if before.get(n) != now.get(n)}
