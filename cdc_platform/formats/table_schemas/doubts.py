"""Whether rows that were decoded by a column list would be decoded otherwise by what is known of their table now."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cdc_platform.errors import UnknownType
from cdc_platform.formats.names import Names
from cdc_platform.formats.table_schemas.lookup import TableSchemas
from cdc_platform.formats.table_schemas.places import Place
from cdc_platform.formats.table_schemas.states import States
from cdc_platform.mysql.types import MySqlType, parse_type


class Stretch(NamedTuple):
    """Where rows are right: from behind a place on (None: from the first row on), and before all of some places."""

    behind: Place | None
    before: tuple[Place, ...]


class Doubt(NamedTuple):
    """`digest`: of what is known of a list's columns. `right`: where rows of it are what they would be now."""

    digest: str
    right: tuple[Stretch, ...]


class Doubts:
    """Of the column lists of a source, given what its decoder is told (`States`)."""

    def __init__(self, states: States | None):
        self._schemas = TableSchemas(states)
        self._given: dict[str, dict[str, str]] = (states or {}).get("columns") or {}

    def of(self, db: str, table: str, columns: Iterable[Mapping[str, Any]]) -> Doubt | None:
        """What speaks against rows of a list ([{"name", "type", …}, …]); None: nothing."""
        listed = {c["name"]: c["type"] for c in columns}
        given = Names(self._given.get(f"{db}.{table}", {}))
        known = [
            (s.at, s.creates, {n: given.get(n) or (s.columns and s.columns.type_of(n)) for n in listed}, s.columns)
            for s in self._schemas.states(db, table)
        ] or [(None, True, {n: given.get(n) for n in listed}, None)]
        wrong = [any(t and not alike(t, listed[n]) for n, t in types.items()) for _, _, types, _ in known]
        if not any(wrong):
            return None
        seen: list[Any] = []
        for at, _, types, _ in known:
            if not seen or seen[-1][1] != types:
                seen.append([at, types])
        digest = hashlib.blake2b(json.dumps([listed, seen]).encode(), digest_size=16).hexdigest()
        names = {n.lower() for n in listed}
        covered = any(c and not w and names <= c.folded for (_, _, _, c), w in zip(known, wrong, strict=True))
        if not covered:
            return Doubt(digest, ())
        places = [(at, w, c is not None and names <= c.folded) for (at, _, _, c), w in zip(known, wrong, strict=True)]
        first_at, first_creates = known[0][:2]
        begins_right = not (wrong[0] and (first_at is None or first_creates))
        return Doubt(digest, _stretches(places, begins_right=begins_right))


def _stretches(states: list[tuple[Place | None, bool, bool]], *, begins_right: bool) -> tuple[Stretch, ...]:
    """Where rows are right, by the states that follow each other: since where, whether it is wrong of a list, whether
    it tells all columns of it. begins_right: whether rows before the first are."""
    found: list[Stretch] = []
    behind, is_right = None, begins_right
    for i, (at, wrong, whole) in enumerate(states):
        if at is not None and wrong and is_right:
            found.append(Stretch(behind, tuple(p for p, w, _ in states[i:] if w and p is not None)))
            is_right = False
        elif at is not None and whole and not wrong and not is_right:
            behind, is_right = at, True
    return (*found, Stretch(behind, ())) if is_right else tuple(found)


def alike(a: str, b: str) -> bool:
    """Whether values of two types have the same canonical texts and the same type in snapshots."""
    try:
        one, other = parse_type(a), parse_type(b)
    except UnknownType:
        return a == b
    return one == other or (one.family == other.family and one.spark == other.spark and _same_texts(one, other))


def _same_texts(a: MySqlType, b: MySqlType) -> bool:
    if a.family in ("time", "datetime", "timestamp", "decimal", "bit"):
        return a.args == b.args
    if a.family in ("enum", "set"):
        return a.labels == b.labels
    return a.family != "binary" or "binary" not in (a.name, b.name)
