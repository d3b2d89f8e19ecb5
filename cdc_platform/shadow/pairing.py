"""Which tables and columns of two feeds are compared with which, and in words what isn't. No Spark here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cdc_platform.config import Config
from cdc_platform.config.shadow import Shadow
from cdc_platform.lake import stores
from cdc_platform.reading import catalog
from cdc_platform.reading.catalog import State
from cdc_platform.tables import BOOKKEEPING, Name

_APART = ("dropped", "left_out")
"""States of tables that nobody keeps up to date."""


@dataclass(frozen=True, slots=True)
class Paired:
    """A table of `of`, as it is called there, and as it is called in `by` (None: it isn't there). reason: why the two
    can't be compared."""

    name: Name
    by: Name | None
    reason: str | None = None


def tables(config: Config, pair: Shadow) -> list[Paired]:
    """All tables of both feeds that the pair is about. Names that only differ by case are one table where neither feed
    has two of them: servers with lower_case_table_names tell them as they were typed, or stored."""
    lake = stores.lake(config)
    of, by = ({n.name: s for n, s in catalog.states(lake, name).items()} for name in (pair.of, pair.by))
    matched = match(of, by)
    rest = [n for n in by if n not in matched.values()]
    found = [Paired(n, there, _reason(pair, of[n], by.get(there) if there else None)) for n, there in matched.items()]
    found += [Paired(n, n, _reason(pair, None, by[n])) for n in rest]
    states = {n: (of.get(n), by.get(matched.get(n) or n)) for n in (*matched, *rest)}
    return [
        p
        for p in sorted(found, key=lambda p: p.name)
        if pair.wanted(".".join(p.name)) and any(s and s.state not in _APART for s in states[p.name])
    ]


def match(of: Iterable[Name], by: Iterable[Name]) -> dict[Name, Name | None]:
    """Each name of `of` → the same in `by`."""
    exact, own = set(by), list(of)
    folded: dict[tuple[str, ...], list[Name]] = {}
    for name in (*(n for n in own if n not in exact), *(n for n in exact if n not in own)):
        folded.setdefault(_folded(name), []).append(name)
    found: dict[Name, Name | None] = {}
    for name in own:
        others = [n for n in folded.get(_folded(name), ()) if n in exact]
        alone = len(others) == 1 and len(folded[_folded(name)]) == 2
        found[name] = name if name in exact else others[0] if alone else None
    return found


def _folded(name: Name) -> tuple[str, ...]:
    return tuple(part.lower() for part in name)


def _reason(pair: Shadow, of: State | None, by: State | None) -> str | None:
    for source, state in ((pair.of, of), (pair.by, by)):
        if state is None:
            return f"{source} has no such table"
        if state.state != "live":
            return f"in {source} it is {state.state}: {state.reason or 'no reason noted'}"
    return None


@dataclass(frozen=True, slots=True)
class Columns:
    """keys: none: equal rows are counted. compared: the keys among them. not_compared: column → why. reason: why none
    are compared."""

    keys: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    not_compared: dict[str, str] = field(default_factory=dict)
    reason: str | None = None


def columns(
    pair: Shadow,
    of: Mapping[str, str],
    by: Mapping[str, str],
    keys: tuple[list[str] | None, list[str] | None],
) -> Columns:
    """of, by: columns of the snapshots, with Spark's types. keys: of either side; None: not known."""
    for source, told in zip((pair.of, pair.by), keys, strict=True):
        if told is None:
            return Columns(reason=f"the key isn't known in {source}")
    key = keys[0] or []
    if set(key) != set(keys[1] or []):
        shown = [f"{s}: {', '.join(k or []) or 'none'}" for s, k in zip((pair.of, pair.by), keys, strict=True)]
        return Columns(reason=f"the feeds state different keys ({'; '.join(shown)})")
    compared, left = [], {}
    for name in dict.fromkeys([*of, *by]):
        if name.startswith(BOOKKEEPING) and name not in key:
            continue
        if name not in of or name not in by:
            left[name] = f"only {pair.of if name in of else pair.by} has it"
        elif of[name] != by[name]:
            left[name] = f"it is {of[name]} in {pair.of}, {by[name]} in {pair.by}"
        else:
            compared.append(name)
    if unlike := [k for k in key if k in left]:
        return Columns(not_compared=left, reason=f"its key column {unlike[0]} can't be compared: {left[unlike[0]]}")
    if left and not key:
        return Columns(not_compared=left, reason="it has no key, and not all of its columns can be compared")
    return Columns(key, compared, left, None if compared else "the feeds have no column in common")
