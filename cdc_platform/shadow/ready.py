"""Whether one feed can take the other's place: what both ways of it ask (cutover.py, handover.py)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform import chain
from cdc_platform.config import Config, Source
from cdc_platform.config.shadow import Shadow
from cdc_platform.lake import batches, delta_table, held_rows, queries, stores
from cdc_platform.lake.lease import Lease
from cdc_platform.shadow import kept, pairing, run
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.shadow.kinds import BEHIND, EQUAL
from cdc_platform.shadow.point import Common
from cdc_platform.spark.session import leased
from cdc_platform.tables import CHANGELOG, CHANGES, CHECKPOINT, Name, name_of
from cdc_platform.units import count, when

RUN = "`cdc-platform run`, then this once more"
_MEND = "`cdc-platform reconcile --repair` of them, and this once more when both feeds have come on"
_COMPARE = "`cdc-platform shadow compare` tells more"


@dataclass(frozen=True)
class Way:
    """How one feed takes the other's place. told: is given what is being done, for people."""

    config: Config
    pair: Shadow
    told: Callable[[str], None]

    @property
    def of(self) -> Source:
        """The source whose tables are in use."""
        return self.config.source(self.pair.of)

    @property
    def by(self) -> Source:
        """The source that is to take its place, by its feed or by its tables."""
        return self.config.source(self.pair.by)

    def refused(self, problem: str, *choices: str) -> ShadowRefused:
        """The error that says so of the pair."""
        return _refused(self.pair, problem, *choices)


def bring(
    spark: SparkSession,
    config: Config,
    pair: Shadow,
    leases: Iterable[tuple[Source, Lease]],
    told: Callable[[str], None],
) -> dict[Name, dict[str, Any]]:
    """Brings both sources up to date and compares all of their tables. Returns the newest row of SHADOW_COMPARISONS of
    each. Raises ShadowRefused, and what the stages raise."""
    for source, lease in leases:
        told(f"bringing {source.name} up to date")
        with leased(spark, lease):
            for stage in chain.STAGES.values():
                stage(spark, config, source)
    check_lake(config, pair)
    told("comparing all tables")
    rows = {name_of(r): r for r in run.compare(spark, config, pair, anew=True)["rows"]}
    check_tables(pair, rows)
    return rows


def check_pair(pair: Shadow) -> None:
    """Raises ShadowRefused where the pair isn't about all tables."""
    if pair.tables != ["*"]:
        raise _refused(pair, "not all tables are compared", "`shadow` without `tables`")


def check_lake(config: Config, pair: Shadow) -> None:
    """Raises ShadowRefused where something has come and isn't settled."""
    lake = stores.lake(config)
    for source in map(config.source, (pair.of, pair.by)):
        rooms = ("changes", "changelog", "snapshots")
        tables = CHANGES.at(lake, format=source.format, source=source.name), CHANGELOG.at(lake)
        if not all(map(delta_table.exists, tables)):
            raise _refused(pair, f"nothing of {source.name} has been decoded yet", RUN)
        marks = [CHECKPOINT.at(lake, room=room, source=source.name) for room in rooms]
        stages = ((tables[0], marks[1], {}), (tables[1], marks[2], {"source": source.name}))
        if any(map(batches.unfinished, marks)) or any(batches.behind(p, at, **only) for p, at, only in stages):
            raise _refused(pair, f"a run of {source.name} was ended before its end", RUN)
        rows = queries.ledger(config, [source])
        if any(r["waiting"] or r["unaccounted"] for r in rows):
            raise _refused(pair, f"records of {source.name} wait for others, or aren't accounted for", RUN)
        if n := held_rows.by_source(config).get(source.name):
            choice = f"`cdc-platform quarantine list --source {source.name}`"
            raise _refused(pair, f"quarantine holds {count(n, 'row')} of {source.name}", choice)


def check_tables(pair: Shadow, rows: dict[Name, dict[str, Any]]) -> None:
    """Raises ShadowRefused where a comparison found anything else than equal rows, and rows that changed since."""
    _check_any(pair, rows)
    for wrong in _wrong(rows):
        raise _refused(pair, wrong, _COMPARE)


def unsettled(rows: dict[Name, dict[str, Any]]) -> list[Name]:
    """Tables of which a comparison couldn't judge some rows that aren't the same."""
    return sorted(name for name, row in rows.items() if row["unsettled"])


def check_unsettled(
    spark: SparkSession, config: Config, pair: Shadow, tables: list[Name], at: Common
) -> dict[Name, dict[str, Any]]:
    """Compares these tables once more. at: a point by which `by` has all that `of` has, so that both should have the
    same rows. Returns their newest rows of SHADOW_COMPARISONS; what is unsettled by then is newer in `by`. Raises
    ShadowRefused where anything differs."""
    found = run.compare(spark, config, pair, tables=[".".join(name) for name in tables], anew=True, at=at)["rows"]
    again = {name: row for row in found if (name := name_of(row)) in tables}
    if wrong := list(_wrong(again)):
        until = f", up to {at.gtid}" if at.gtid else ""
        problem = f"{kept.shortened(wrong)}, and {pair.by} has all that {pair.of} has{until}"
        raise _refused(pair, problem, f"`cdc-platform shadow status {pair.of}` tells which", _MEND)
    return again


def _check_any(pair: Shadow, rows: dict[Name, dict[str, Any]]) -> None:
    if not rows:
        raise _refused(pair, "the feeds weren't compared yet", "`cdc-platform shadow compare`")


@dataclass(frozen=True, slots=True)
class Last:
    """The last comparison, as a plan goes by it.

    at: when it was; changed: tables of which a snapshot has changed since, and those that came since; found: what it
    found wrong of these; rows: its rows of the others, of which nothing is wrong.
    """

    at: datetime | None
    changed: list[str]
    found: list[str]
    rows: dict[Name, dict[str, Any]]

    def data(self) -> dict[str, Any]:
        """As a plan tells it."""
        return {"compared_at": self.at, "changed_since": self.changed, "found_then": self.found}


def last(config: Config, pair: Shadow) -> Last:
    """Raises ShadowRefused where that comparison found anything else than equal rows, of tables that haven't changed
    since."""
    every = kept.last(config, pair)
    versions = run.versions(config, pair, pairing.tables(config, pair))
    changed = {n for n, r in every.items() if versions.get(n) != (r["version_of"], r["version_by"])}
    at, rows = kept.summary(pair, every)["at"], {n: r for n, r in every.items() if n not in changed}
    _check_any(pair, every)
    for wrong in _wrong(rows):
        since = f" by the comparison of {when(at)}, and its snapshots haven't changed since" if at else ""
        raise _refused(pair, f"{wrong}{since}", _COMPARE)
    found = _wrong({n: every[n] for n in changed})
    new = [f"{'.'.join(n)} (never compared)" for n in sorted(versions.keys() - every.keys())]
    return Last(at, [*(".".join(n) for n in sorted(changed)), *new], list(found), rows)


def _wrong(rows: dict[Name, dict[str, Any]]) -> Iterator[str]:
    """What a comparison found of tables, but equal rows and rows that changed since; of each table one thing."""
    for name, row in sorted(rows.items()):
        text, open_ = ".".join(name), sum(row[c] for c in ("only_of", "only_by", "differing"))
        if open_:
            yield f"{count(open_, 'row')} of {text} {'differs' if open_ == 1 else 'differ'}"
        elif row["state"] not in (EQUAL, BEHIND) or row["reason"]:
            yield f"{text} isn't compared in full: {row['reason']}"
        elif left := dict(row["not_compared"] or ()):
            yield f"column {min(left)} of {text} can't be compared: {left[min(left)]}"


def _refused(pair: Shadow, problem: str, *choices: str) -> ShadowRefused:
    return ShadowRefused(pair.of, pair.by, problem, choices)
