"""The table SEQUENCES read: which of the records that a sender numbered never came.

A number that is missing between others proves a loss before Kafka. Numbers begin at 1 again when the sending task
starts again, so they are compared from one such beginning to the next; what was lost at the end of one isn't told. A
record that comes late, out of its order, closes its gap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import queries, stores
from cdc_platform.lake.comparisons import comparisons
from cdc_platform.tables import Name
from cdc_platform.units import count

_SHOWN = 3


class Dated(Protocol):
    """What may be wrong with a table, and when that was found."""

    @property
    def at(self) -> datetime: ...


T = TypeVar("T", bound=Dated)


WHICH_TABLES = "`cdc-platform reconcile` tells which tables lack rows"
"""What to do about a gap."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Numbers `first` to `last` of a sender that no record has. shard: '' where the partition alone is numbered.
    after, before: offsets of the first record with a higher number, and of the last with a lower one before that;
    others may have come late. at: when that was seen. removed: whether Kafka had removed records between the two before
    they were landed."""

    topic: str
    partition: int
    shard: str
    first: int
    last: int
    before: int
    after: int
    at: datetime
    removed: bool

    @property
    def records(self) -> int:
        """How many are missing."""
        return self.last - self.first + 1

    @property
    def text(self) -> str:
        """A clause: which ones, and where."""
        numbers = f"number {self.first}" if self.first == self.last else f"numbers {self.first} to {self.last}"
        lane = f", shard {self.shard}" if self.shard else ""
        one = self.records == 1
        they, them, their, were = ("it", "it", "its", "was") if one else ("they", "them", "their", "were")
        never = f"{they} never came to the topic"
        why = f"Kafka had removed {them} before {they} {were} landed" if self.removed else never
        where = f"{self.topic}/{self.partition}{lane}, between offsets {self.before} and {self.after}"
        return f"{count(self.records, 'record')} of {where} ({numbers} by {their} sender): {why}"


_GAPS = """
WITH lives AS (
    SELECT *, sum(CASE WHEN first IS NULL OR first = 1 THEN 1 ELSE 0 END) OVER (
        PARTITION BY topic, "partition", shard ORDER BY batch, from_offset) AS life
    FROM t WHERE source = {source}
), reached AS (
    SELECT *, max(last) OVER before AS reached, min(from_offset) OVER behind AS after
    FROM lives WHERE first IS NOT NULL
    WINDOW before AS (PARTITION BY topic, "partition", shard, life ORDER BY first, last
                      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
           behind AS (PARTITION BY topic, "partition", shard, life ORDER BY first, last
                      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
), gaps AS (
    SELECT * FROM reached WHERE first > reached + 1
)
SELECT g.topic, g."partition", g.shard, g.reached + 1 AS first, g.first - 1 AS last, g.after, g.at,
    coalesce(max(CASE WHEN s.first < g.first AND s.to_offset < g.after THEN s.to_offset END), g.after - 1) AS before
FROM gaps AS g JOIN reached AS s
    ON s.topic = g.topic AND s."partition" = g."partition" AND s.shard = g.shard AND s.life = g.life
GROUP BY g.topic, g."partition", g.shard, g.reached, g.first, g.after, g.at ORDER BY g.at, g.topic, 2, 3, 4
"""


def gaps(config: Config, source: Source) -> list[Gap]:
    """Records of a source that are known to be missing, as they were noticed. Neither Spark nor Kafka."""
    if FORMATS[source.format].part is None:  # no record of it says its number
        return []
    lake = stores.lake(config)
    rows = queries.query(_GAPS.format(source=queries.text(source.name)), t=tables.SEQUENCES.at(lake))
    if not rows:
        return []
    lost = _lost(config, source)
    return [Gap(**row, removed=_within(row, lost)) for row in rows]


def _lost(config: Config, source: Source) -> list[dict[str, Any]]:
    return (
        queries.query(
            'SELECT topic, "partition", from_offset, to_offset, records FROM t '
            f"WHERE source = {queries.text(source.name)} AND outcome = 'lost' ORDER BY batch, topic, \"partition\"",
            t=tables.OFFSET_LEDGER.at(stores.lake(config)),
        )
        or []
    )


def began_again(config: Config, source: Source) -> frozenset[tuple[str, int]]:
    """Partitions of which an earlier version of the platform went on at an earlier offset (landing/positions.py): the
    topic was made again, or has lost its end. So offsets tell no order."""
    lost = _lost(config, source)
    return frozenset((r["topic"], r["partition"]) for r in lost if -1 <= r["to_offset"] < r["from_offset"])


def _within(gap: Mapping[str, Any], lost: Iterable[dict[str, Any]]) -> bool:
    at = (gap["topic"], gap["partition"])
    return any((x["topic"], x["partition"]) == at and gap["before"] < x["from_offset"] <= gap["after"] for x in lost)


def unmended(found: Iterable[T], compared: Iterable[dict[str, Any]], whole: bool = True) -> list[T]:
    """Of gaps, or of what else may be wrong with a snapshot, those that count: no comparison with the source as it was
    after that found it equal. compared: the newest comparison of each of its source tables (lake/comparisons.py), as
    far as there is one. whole: there is of each."""
    told = list(compared)
    return [
        gap for gap in found if not (told and whole) or any(c["mended"] is None or c["mended"] <= gap.at for c in told)
    ]


def unmended_loss(lost: int, compared: Iterable[Mapping[str, Any]], whole: bool = True) -> int:
    """Of so many offsets that Kafka had removed before they were landed, those that count, as `unmended`: the others
    were lost (`lost` of a comparison) before all that goes into the snapshot was found equal."""
    told = list(compared)
    if not (told and whole and all(c["mended"] is not None for c in told)):
        return lost
    return max(lost - min(c["mended_lost"] or 0 for c in told), 0)


def uncompared(
    config: Config, source: Source, compared: Mapping[Name, Iterable[dict[str, Any]]]
) -> dict[Name, list[str]]:
    """Snapshot that routes merge → tables that go into it and that were never compared with the source. compared:
    comparisons.comparisons."""
    found: dict[Name, list[str]] = {}
    if not source.tables.routes:
        return found
    ended = queries.ended(config)
    for name in sorted(queries.stated_tables(config, source)):
        target, text = source.tables.routed(*name), ".".join(name)
        followed = source.tables.merged(*target) and source.tables.wanted(*name) and (source.name, name) not in ended
        if followed and all(c["table"] != text for c in compared.get(target, ())):
            found.setdefault(target, []).append(text)
    return found


def of_tables(config: Config, source: Source, names: Iterable[Name]) -> dict[Name, list[Gap]]:
    """Which of the source's snapshots may lack rows, and by which gaps."""
    if not (found := gaps(config, source)):
        return {}
    compared = comparisons(config, source)
    lacks = uncompared(config, source, compared)
    told = {name: unmended(found, compared.get(name, ()), name not in lacks) for name in names}
    return {name: of for name, of in told.items() if of}


@dataclass(frozen=True, slots=True)
class Lost:
    """What Kafka had removed before it was landed, as a clause. first: of each partition the first offset."""

    text: str
    first: Mapping[tuple[str, int], int]


def lost_of_tables(config: Config, source: Source, names: Iterable[Name]) -> dict[Name, Lost]:
    """Which of the source's snapshots may lack what Kafka had removed before it was landed, and what that was: no
    comparison with the source since then found them, all that goes into them, equal."""
    ranges = _lost(config, source)
    total = sum(int(r["records"]) for r in ranges)
    if not total:
        return {}
    compared = comparisons(config, source)
    lacks = uncompared(config, source, compared)
    counted = {name: unmended_loss(total, compared.get(name, ()), name not in lacks) for name in names}
    told = {n: _lost_of(_last(ranges, n)) for n in {*counted.values()} if n}
    return {name: told[n] for name, n in counted.items() if n}


def _last(ranges: list[dict[str, Any]], records: int) -> list[dict[str, Any]]:
    """The newest ranges with so many records: those that no comparison saw."""
    found: list[dict[str, Any]] = []
    while ranges and sum(int(r["records"]) for r in found) < records:
        *ranges, newest = ranges
        found.insert(0, newest)
    return found


def _lost_of(ranges: list[dict[str, Any]]) -> Lost:
    at = ", ".join(map(_range, ranges[:_SHOWN]))
    more = f" and {len(ranges) - _SHOWN} more ranges" if len(ranges) > _SHOWN else ""
    first: dict[tuple[str, int], int] = {}
    for r in ranges:
        where = r["topic"], r["partition"]
        first[where] = min(r["from_offset"], first.get(where, r["from_offset"]))
    return Lost(f"offsets of the source were lost before they were landed: {at}{more}", first)


def _range(row: Mapping[str, Any]) -> str:
    """Of a topic that is gone or was made again nobody knows how many there were: landing went on elsewhere."""
    first, last = row["from_offset"], row["to_offset"]
    known = last - first + 1 == row["records"]
    return f"{row['topic']}/{row['partition']} " + (f"{first} to {last}" if known else f"from {first} on")


def open_gaps(config: Config, source: Source) -> list[Gap]:
    """Those by which any snapshot of the source may lack rows; where there is none so far, all."""
    names = [tables.name_of(t) for t in queries.followed(config, source)]
    if not names:
        return gaps(config, source)
    concerned = {gap for of in of_tables(config, source, names).values() for gap in of}
    return sorted(concerned, key=lambda gap: gap.at)
