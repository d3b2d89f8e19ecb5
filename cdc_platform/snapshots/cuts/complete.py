"""Up to when the snapshots of a source are complete, by its own clock.

To be published when they have taken up all that the changelog holds. The earliest of its partitions' watermarks counts
(changelog/watermarks.py). What has come and isn't in the snapshots holds it back: of a message in quarantine that names
its table that table alone, of any other the source.

It doesn't go back. Each publication tells the offsets that its times rest on: they stay true whatever of a higher
offset is held later. Clocks aren't asked. But where a replay holds what was decoded before, the time is that before it
again, and none where nothing tells one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.lake import delta_table, stores, watermarks
from cdc_platform.lake.watermarks import SOURCE, Behind, Complete, Where
from cdc_platform.snapshots import state
from cdc_platform.snapshots.cuts import holds, marks, positions
from cdc_platform.snapshots.cuts.claims import Claim, Claims
from cdc_platform.snapshots.cuts.marks import NEVER
from cdc_platform.spark import delta_sql
from cdc_platform.tables import TABLE_STATE, WATERMARKS, Name, name_columns

_MOST_ENDS = 10_000
"""Offsets of tables in a row."""
_UNSETTLED = ("stopped", "stale", "left_out")


def publish(config: Config, source: Source, tables: state.Tables) -> None:
    """Publishes up to when a source is complete, where that has changed. tables: their present state."""
    path = delta_sql.ensure(WATERMARKS, WATERMARKS.at(stores.lake(config)))
    last = watermarks.complete(path, source.name)
    live, gone = ([n for n, t in tables.items() if t["state"] == of] for of in ("live", "dropped"))
    missing = holds.missing(config, source, live, gone)
    claims = Claims(path, source, (now := marks.read(config, source, path)), last)
    found = claims.of_source(missing.all)
    behind = {n: claims.of_table(n, missing.all, of, found) for n, of in missing.tables.items()}
    unsettled = {n: t for n, t in tables.items() if t["state"] in _UNSETTLED}
    unknown = _untold(config, source, unsettled, last)
    for name, told in unsettled.items():
        why = f"{told['state']}: {told['reason'] or ''}"
        behind[name] = Behind(None, why, True) if name in unknown else claims.still(name, why, found)
    behind = _short(dict(sorted(behind.items())), unsettled, found)
    known, said = claims.before(missing.all), (*found[:2], found.reason or None, behind)
    stands = last and last.ends is not None and known is last and not claims.joined(found.ends)
    if last and stands and said == (last.source_time, last.proven, last.reason, dict(last.behind)):
        return
    unordered = {w for w in now.again if found.ends.get(w, NEVER) < NEVER}
    reached = {w: 0 if w in unordered else min(end, found.ends[w]) for w, end in now.taken.items()}
    number = last.number + 1 if last else 0
    row = {"source": source.name, "scope": SOURCE, "batch": number, **_columns(found, behind)}
    delta_table.append_rows(path, [{**row, **positions.reached(config, source, reached, known)}])


def _untold(config: Config, source: Source, unsettled: state.Tables, last: Complete | None) -> set[Name]:
    """Of tables that aren't kept up to date those of which the newest publication told nothing: they weren't up to date
    then, either. An earlier version of the platform told nothing of those that the rules leave out."""
    new = {n: t["state"] for n, t in unsettled.items() if last and n not in last.behind}
    if not new:
        return set()
    live = state.were_live(TABLE_STATE.at(stores.lake(config)), source)
    earlier = last is not None and last.ends is None
    return {n for n, of in new.items() if (earlier if of == "left_out" else n not in live)}


def _short(behind: dict[Name, Behind], unsettled: state.Tables, source: Claim) -> dict[Name, Behind]:
    """Where there are very many offsets, those of tables that aren't kept up to date are the source's, which are no
    lower."""
    if sum(len(b.ends) for b in behind.values()) <= _MOST_ENDS:
        return behind
    more = {n: {w: e for w, e in behind[n].ends.items() if e > source.ends.get(w, 0)} for n in unsettled}
    return {n: replace(b, ends=more.get(n, b.ends)) for n, b in behind.items()}


def _columns(found: Claim, behind: Mapping[Name, Behind]) -> dict[str, Any]:
    """As in WATERMARKS."""
    of_tables = [e for n, b in behind.items() for e in _ends_of(n, b.ends)]
    return {
        **{"source_time": found.source_time, "proven": found.proven, "reason": found.reason or None},
        "behind": [{**name_columns(n), "source_time": b.source_time, "reason": b.reason} for n, b in behind.items()],
        "end_offsets": [*_ends_of(None, found.ends), *of_tables],
        "assumed": [name_columns(n) for n, b in behind.items() if not b.proven],
    }


def _ends_of(name: Name | None, ends: Mapping[Where, int]) -> list[dict[str, Any]]:
    of = {"db": None, "schema": None, "table": None} if name is None else name_columns(name)
    return [{**of, "topic": t, "partition": p, "offset": offset} for (t, p), offset in sorted(ends.items())]
