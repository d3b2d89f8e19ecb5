"""GTIDs and sets of them, as MySQL and MariaDB write them: what is in them, and what several have in common.

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


def numbers(text: str) -> dict[str, Ranges] | None:
    """UUID (with its tag, if any) or MariaDB's domain → ranges of numbers, of a set or of one GTID; None: it is
    neither."""
    text = "".join(text.split())
    if (positions := _positions(text)) is not None:
        return {str(domain): [(1, max(of).number)] for domain, of in positions.items()}
    return _mysql(text)


def single(text: str) -> tuple[str, int] | None:
    """UUID (with its tag) or domain, and number, of what can be one GTID; None: it is a set of several, or none."""
    if found := _MARIADB.fullmatch(text):
        return found[1], int(found[3])
    told = _mysql(text) or {}
    ends = [(name, *r) for name, ranges in told.items() for r in ranges]
    return (ends[0][0], ends[0][2]) if len(ends) == 1 and ends[0][1] == ends[0][2] else None


def without(one: dict[str, Ranges], other: dict[str, Ranges]) -> dict[str, Ranges]:
    """What one set has and the other hasn't."""
    found = {name: _but(ranges, other.get(name, [])) for name, ranges in one.items()}
    return {name: ranges for name, ranges in found.items() if ranges}


def newest_pattern(name: str) -> str:
    """Regular expression with one group: in a text in small letters the last number under a name of `numbers`."""
    if "-" not in name:
        return f"(?:^|[^0-9-]){name}-[0-9]+-([0-9]+)"
    uuid, _, tag = name.partition(":")
    tagged = f"(?:[^,]*:)?{tag}:" if tag else ""
    return f"{uuid}:{tagged}(?:[0-9]+(?:-[0-9]+)?:)*(?:[0-9]+-)?([0-9]+)"


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
    return shown(found)


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


def _but(ranges: Ranges, taken: Ranges) -> Ranges:
    """taken: in order and apart."""
    left = []
    for first, last in ranges:
        edges = [first - 1, *(edge for low, high in taken if low <= last and high >= first for edge in (low, high))]
        gaps = zip(edges[::2], [*edges[1::2], last + 1], strict=True)
        left += [(after + 1, before - 1) for after, before in gaps if after + 1 < before]
    return left


def shown(of: dict[str, Ranges]) -> str:
    """A set as MySQL writes it."""
    return ",".join(f"{name}:{':'.join(map(_shown, ranges))}" for name, ranges in sorted(of.items()))


def _shown(ends: tuple[int, int]) -> str:
    first, last = ends
    return str(first) if first == last else f"{first}-{last}"
