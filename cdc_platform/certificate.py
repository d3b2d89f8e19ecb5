"""Certificates: what the platform can answer for each snapshot, and what is wrong with it. Without Spark.

A certificate is broken while anything is known by which the table may lack rows or hold wrong ones. It is proven when
nothing is, and the newest comparison with the source itself found it equal. In between it is consistent: nothing is
wrong, and not all of it has been proven.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import beside as kept
from cdc_platform.lake import delta_table, held_rows, new_tables, queries, renames, sequences, stores, watermarks
from cdc_platform.lake.beside import Beside
from cdc_platform.lake.comparisons import comparisons
from cdc_platform.lake.sequences import Gap
from cdc_platform.lake.watermarks import Complete
from cdc_platform.lake.writer_lock import is_held
from cdc_platform.landing import erased
from cdc_platform.landing.erased import Erased
from cdc_platform.reading import described
from cdc_platform.reading.catalog import TableName
from cdc_platform.shadow import kept as shadow
from cdc_platform.shadow.kept import Open
from cdc_platform.tables import CERTIFICATES, SCHEMA_HISTORY, Name, name_columns, name_of
from cdc_platform.units import count, when

PROVEN, CONSISTENT, BROKEN = "proven", "consistent", "broken"
WAITING = "waiting"
"""State of a table that no batch has met."""
_AGAIN = timedelta(days=1)
"""An unchanged certificate is kept again when the table is complete up to so much more, or no further, when there was
another cut so long after it was kept."""
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Certificate:
    """Of one snapshot. reasons: what is wrong; of a consistent one what lacks to a proof. facts: what it was made from:
    landed, accounted, lost (offsets of the source), missing (records that its sender numbered and that never came),
    held (rows that name the table), held_unnamed (messages of the source that name none), erasures (erased.of_source),
    state, complete_up_to_proven (None: there is no time), position, gtids (up to which it is complete), cut, compared
    (the newest comparison of each of its source tables), gaps (which records are missing that no comparison has made
    good), decoder versions, schema_version; where it is kept or shown by `certify` not_told (what the feed can't tell,
    by column; `*`: of whole rows). beside: what is kept beside it, of which the verdict says nothing."""

    source: str
    name: Name
    verdict: str
    reasons: tuple[str, ...]
    complete_up_to: datetime | None
    facts: dict[str, Any]
    beside: tuple[Beside, ...] = ()

    @property
    def text(self) -> str:
        """The verdict and its reasons as a clause."""
        return f"{self.verdict}: {'; '.join(self.reasons)}" if self.reasons else self.verdict

    @property
    def compared(self) -> dict[str, Any] | None:
        """The newest comparison of one of its source tables."""
        return max(self.facts["compared"], key=lambda c: c["at"], default=None)

    @property
    def row(self) -> dict[str, Any]:
        """What CERTIFICATES has of it beside its number."""
        compared, cut = self.compared, self.facts["cut"]
        return {
            **{"source": self.source, **name_columns(self.name), "verdict": self.verdict, "reasons": [*self.reasons]},
            **{"complete_up_to": self.complete_up_to, "facts": json.dumps(self.facts, default=str, sort_keys=True)},
            **{"compared_at": compared and compared["at"], "cut": cut and cut["cut"]},
        }


def of_source(config: Config, source: Source) -> dict[Name, Certificate]:
    """Certificates of all snapshots of a source that it has and follows, and of those that it would have if quarantine
    didn't hold their rows, as things are now."""
    states = {name_of(t): t for t in queries.followed(config, source)}
    states |= {name: {"state": WAITING} for name in _held_back(config, source)}
    shared = _Shared.of(config, source, states)
    return {name: shared.certificate(name, state) for name, state in states.items()}


def _held_back(config: Config, source: Source) -> set[Name]:
    """Snapshots that aren't there, of tables that rows in quarantine name: also where nothing else has named them, but
    not those that a statement dropped or renamed."""
    rows = (tables.name_in(row) for row in held_rows.by_table(config) if row["source"] == source.name)
    held = {name for name in rows if name is not None}
    if not held:
        return set()
    there = {name_of(t) for t in queries.table_states(config) if t["source"] == source.name}
    known = {name for s, name in queries.known_tables(config) if s == source}
    unnamed = held - there - known
    ended = queries.ended(config) if unnamed else set()
    return {name for name in held - there if name and (name in known or (source.name, name) not in ended)}


def issue(config: Config, found: Iterable[Certificate]) -> None:
    """Keeps certificates of one source in CERTIFICATES, those that say something new. Where others do so all the time,
    the next call keeps them."""
    found = list(found)
    if not found:
        return
    path, source = new_tables.ensure(CERTIFICATES, CERTIFICATES.at(stores.lake(config))), found[0].source
    columns = 'number, verdict, reasons, complete_up_to, compared_at, cut, at, db, schema, "table"'
    for _ in range(_TRIES):
        kept = queries.newest_of_tables(path, columns, "number", source=source)
        news = with_untold(config, (c for c in found if _is_news(c, kept.get(c.name))))
        number = max((r["number"] for r in kept.values()), default=-1) + 1
        of = f"source = {queries.text(source)} AND number = {number}"  # nobody else has it: they need no lease
        if not news or delta_table.append_rows(path, [{**c.row, "number": number} for c in news], of=of):
            return


def with_untold(config: Config, found: Iterable[Certificate]) -> list[Certificate]:
    """The same with the fact `not_told`."""
    found = list(found)
    names = {c.name: TableName.of(c.source, c.name) for c in found if "not_told" not in c.facts}
    untold = described.limits(config, names.values())
    return [replace(c, facts={**c.facts, "not_told": untold[names[c.name]]}) if c.name in names else c for c in found]


def _is_news(now: Certificate, kept: dict[str, Any] | None) -> bool:
    """Whether a certificate is to be kept. kept: the row of the newest one so far. As many are as there are verdicts
    and comparisons, and one a day."""
    if kept is None or (now.verdict, list(now.reasons)) != (kept["verdict"], list(kept["reasons"] or ())):
        return True
    up_to, before, cut = now.complete_up_to, kept["complete_up_to"], now.facts["cut"]
    further = up_to is not None and (before is None or up_to - before >= _AGAIN)
    if further or (now.compared and now.compared["at"] != kept["compared_at"]):
        return True
    return bool(cut) and cut["cut"] != kept["cut"] and datetime.now(UTC) - kept["at"] >= _AGAIN


def _unaccounted(config: Config, source: Source) -> list[str]:
    """What landed and wasn't accounted for, once no run is under way: one that has ended since the ledger was read may
    have accounted for it."""
    if is_held(config, source):
        return []
    return [queries.unaccounted(row) for row in queries.ledger(config, [source]) if row["unaccounted"]]


@dataclass(frozen=True, slots=True)
class _Held:
    """Rows of quarantine that were found at a time. name: the table that they name, if they do."""

    name: Name | None
    rows: int
    at: datetime


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all tables of a source have in common, and what is known of each."""

    source: Source
    facts: dict[str, Any]
    wrong: list[str]
    complete: Complete | None
    held: dict[Name, list[_Held]]
    unnamed: list[_Held]
    renamed: dict[Name, list[_Held]]
    compared: dict[Name, list[dict[str, Any]]]
    uncompared: dict[Name, list[str]]
    gaps: list[Gap]
    shadows: dict[Name, list[Open]]
    schemas: dict[Name, str]
    beside: dict[Name, list[Beside]]
    erased: dict[Name, tuple[list[Erased], list[str]]]

    @classmethod
    def of(cls, config: Config, source: Source, names: Collection[Name]) -> "_Shared":
        """names: of the tables that have a certificate."""
        lake = stores.lake(config)
        ledger = queries.ledger(config, [source])
        every = [_Held(tables.name_in(row), row["rows"], row["at"]) for row in held_rows.since(config, source)]
        held, renamed = _by_table(config, source, names, every)
        gaps, gone = sequences.gaps(config, source), erased.of_source(config, source)
        complete = watermarks.complete(tables.WATERMARKS.at(lake), source.name)
        facts = {
            **{k: sum(int(r[k]) for r in ledger) for k in ("landed", "accounted", "lost")},
            "missing": sum(gap.records for gap in gaps),
            "held_unnamed": sum(h.rows for h in every if h.name is None),
            "cut": queries.newest_cuts(config).get(source.name),
            "decoder_versions": _decoders(config, source),
            "erasures": [{k: v for k, v in one.items() if k != "name"} for one in gone],
        }
        compared = {
            name: [{k: row[k] for k in _TOLD} for row in of] for name, of in comparisons(config, source).items()
        }
        newest = queries.newest_columns(config, source.name)
        schemas = {source.tables.routed(*name_of(r)): r["schema_version"] for r in newest}
        wrong = _unaccounted(config, source) if any(row["unaccounted"] for row in ledger) else []
        return cls(
            source,
            facts,
            wrong,
            complete,
            held,
            [h for h in every if h.name is None],
            renamed,
            compared,
            sequences.uncompared(config, source, compared),
            gaps,
            shadow.open_differences(config, source),
            schemas,
            kept.of_source(config, source),
            _erased(config, source, names, gone),
        )

    def certificate(self, name: Name, state: dict[str, Any]) -> Certificate:
        """Of one table. state: its row as queries.table_states gives it."""
        compared, up_to = self.compared.get(name, []), self.complete.of(name) if self.complete else None
        held = sum(h.rows for h in self.held.get(name, ()))
        never = self.uncompared.get(name) or ([] if compared else ["it"])
        wrong = [*self._of_state(state), *self.wrong]
        wrong += _of_others(sequences.unmended([*self.unnamed, *self.renamed.get(name, ())], compared, not never))
        if held:
            wrong.append(f"quarantine holds {count(held, 'row')} of it")
        wrong += [difference(c) for c in compared if not c["equal"]]
        if unmended := sequences.unmended_loss(self.facts["lost"], compared, not never):
            wrong.append(f"{count(unmended, 'offset')} of the source were lost before they were landed")
        gaps = [gap.text for gap in sequences.unmended(self.gaps, compared, not never)]
        wrong += gaps
        wrong += [one.text for one in sequences.unmended(self.shadows.get(name, ()), compared, not never)]
        lacks = [_never_compared(never)] if never else []
        lacks += [clause for c in compared for clause in c["falls_short"]]
        of_erased, to_erase = self.erased.get(name, ((), ()))
        lacks += to_erase
        if compared:
            lacks += [one.text for one in sequences.unmended(of_erased, compared)]
        if up_to is None:
            lacks.append("up to when it is complete isn't told")
        facts = {
            **self.facts,
            **{"state": state["state"], "held": held, "compared": compared, "gaps": gaps},
            "complete_up_to_proven": self.complete and self.complete.proven_time_of(name),
            "position": self.complete and self.complete.position_of(name),
            "gtids": self.complete and self.complete.gtids(name),
            "schema_version": self.schemas.get(name),
        }
        verdict = BROKEN if wrong else CONSISTENT if lacks else PROVEN
        beside = tuple(self.beside.get(name, ()))
        return Certificate(self.source.name, name, verdict, tuple(wrong or lacks), up_to, facts, beside)

    @staticmethod
    def _of_state(state: dict[str, Any]) -> list[str]:
        return (
            []
            if state["state"] in ("live", WAITING)
            else [f"it is {state['state']}: {state['reason'] or 'no reason noted'}"]
        )


def _by_table(
    config: Config, source: Source, names: Collection[Name], held: Iterable[_Held]
) -> tuple[dict[Name, list[_Held]], dict[Name, list[_Held]]]:
    """Table with a certificate → rows that name it; and → rows under a name that it had before, or may have had."""
    named = [(h.name, h) for h in held if h.name is not None]
    told = renames.renames(config, source) if named else {}
    own: dict[Name, list[_Held]] = {}
    earlier: dict[Name, list[_Held]] = {}
    for then, h in named:
        for name in renames.snapshots_of(source, then, told, names):
            found = own if name == source.tables.routed(*then) else earlier
            found.setdefault(name, []).append(h)
    return own, earlier


def _of_others(held: Iterable[_Held]) -> list[str]:
    """What is said of rows of quarantine that name no table, or an earlier name."""
    rows = Counter[Name | None]()
    for h in held:
        rows[h.name] += h.rows
    return [
        f"quarantine holds {count(n, 'message')} of the source that {'names' if n == 1 else 'name'} no table"
        if name is None
        else f"quarantine holds {count(n, 'row')} of it under the name {'.'.join(name)}"
        for name, n in rows.items()
    ]


def _erased(
    config: Config, source: Source, names: Collection[Name], gone: Iterable[dict[str, Any]]
) -> dict[Name, tuple[list[Erased], list[str]]]:
    """Table with a certificate → why it isn't proven after erasures (erased.unproven)."""
    gone = list(gone)
    told = renames.renames(config, source) if gone else {}
    found: dict[Name, list[dict[str, Any]]] = {}
    for one in gone:
        for name in renames.snapshots_of(source, one["name"], told, names):
            found.setdefault(name, []).append(one)
    return {name: erased.unproven(of) for name, of in found.items()}


_TOLD = (
    *("table", "against", "equal", "version", "binlog_file", "binlog_pos", "gtid", "rows", "digest", "differing"),
    *("at", "as_of", "lost", "problems", "mended", "mended_lost", "falls_short"),
)


def _never_compared(names: list[str]) -> str:
    of = f"{names[0]} and {len(names) - 1} more that go into it weren't" if len(names) > 1 else f"{names[0]} wasn't"
    return f"{of} compared with the source so far (`cdc-platform reconcile`)"


def difference(compared: dict[str, Any]) -> str:
    """What is said of a comparison (a row of `comparisons`) that found a table different."""
    rows = [count(compared["differing"], "row")] if compared["differing"] else []
    found = ", ".join([*(compared["problems"] or ()), *rows]) or "see reconcile"
    return f"{compared['table']} differs from the source: {found} at {when(compared['at'])}"


def _decoders(config: Config, source: Source) -> list[str]:
    """Versions of decoders that read what is known of the source's tables, the present one among them."""
    rows = queries.query(
        f"SELECT DISTINCT decoder_version AS version FROM t WHERE source = {queries.text(source.name)}",
        t=SCHEMA_HISTORY.at(stores.lake(config)),
    )
    return sorted({FORMATS[source.format].version, *(r["version"] for r in rows or [] if r["version"])})
