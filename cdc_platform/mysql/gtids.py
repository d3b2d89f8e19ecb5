"""Sets of GTIDs, as MySQL and MariaDB write them: what several of them have in common.

MySQL: `uuid:1-5:8, uuid:1-3`, also with tags (`uuid:tag:1-4`). MariaDB: `0-1-100,1-2-7`, of each domain the last
transaction: all before it in its domain are in the set, whichever server wrote them. Of two servers' transactions the
numbers say which is the later one only under `gtid_strict_mode`, which no event tells: then the domain is left out.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}", re.IGNORECASE)

Ranges = list[tuple[int, int]]


def common(sets: Sequence[str]) -> str | None:
    """The GTIDs that are in all of these sets (`""`: none is); None: they can't be compared."""
    texts = ["".join(text.split()) for text in sets]
    if len(set(texts)) == 1:
        return texts[0]
    positions = [p for p in map(_positions, texts) if p is not None]
    if len(positions) == len(texts):
        return _common_positions(positions)
    found, *others = parsed = [p for p in map(_mysql, texts) if p is not None] or [{}]
    if len(parsed) < len(texts):
        return None
    for other in others:
        both = {name: _overlap(ranges, other[name]) for name, ranges in found.items() if name in other}
        found = {name: ranges for name, ranges in both.items() if ranges}
    return ",".join(f"{name}:{':'.join(map(_shown, ranges))}" for name, ranges in sorted(found.items()))


class _Last(NamedTuple):
    """A domain's last transaction."""

    number: int
    server: int
    text: str


def _positions(text: str) -> dict[int, list[_Last]] | None:
    """Domain → its last transactions (of several servers as many); None: it isn't MariaDB's."""
    found: dict[int, list[_Last]] = {}
    for part in text.split(","):
        if (m := _MARIADB.fullmatch(part)) is None:
            return None
        found.setdefault(int(m[1]), []).append(_Last(int(m[3]), int(m[2]), part))
    return found


def _common_positions(positions: Sequence[dict[int, list[_Last]]]) -> str:
    shared = sorted(set.intersection(*map(set, positions)))
    each = [[last for p in positions for last in p[domain]] for domain in shared]
    return ",".join(min(of).text for of in each if len({last.server for last in of}) == 1)


def _mysql(text: str) -> dict[str, Ranges] | None:
    """UUID, or UUID and tag → ranges of numbers, in order and apart; None: it isn't MySQL's."""
    found: dict[str, Ranges] = {}
    for part in text.split(","):
        uuid, *rest = part.split(":")
        if not _UUID.fullmatch(uuid) or not rest:
            return None
        name = uuid.lower()
        for one in rest:
            if m := _RANGE.fullmatch(one):
                found.setdefault(name, []).append((int(m[1]), int(m[2] or m[1])))
            elif _TAG.fullmatch(one):
                name = f"{uuid.lower()}:{one.lower()}"
            else:
                return None
    return {name: _united(ranges) for name, ranges in found.items()}


def _united(ranges: Ranges) -> Ranges:
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _overlap(one: Ranges, other: Ranges) -> Ranges:
    both = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return [(first, last) for first, last in both if first <= last]


def _shown(ends: tuple[int, int]) -> str:
    first, last = ends
    return str(first) if first == last else f"{first}-{last}"
