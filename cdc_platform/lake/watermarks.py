"""The table WATERMARKS read: how far each partition of a source is, and up to when its snapshots are complete.

Each batch writes the state of all partitions, each publication that of the whole source, so the newest rows tell all,
and the statistics in the Delta log tell which they are: years of rows are not read.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store
from cdc_platform.tables import Name, name_columns, name_in, name_of

Where = tuple[str, int]
"""Topic and partition."""
PARTITION, SOURCE = "partition", "source"
"""Values of `scope`."""
_JOINS = "a run that isn't done is taking in what has come of it"


@dataclass(frozen=True, slots=True)
class Behind:
    """A snapshot that is complete up to an earlier time than its source, and why. source_time None: to no time.
    proven: as of the source. ends: as of the source, of partitions where it is another offset."""

    source_time: datetime | None
    reason: str
    proven: bool = False
    ends: Mapping[Where, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Complete:
    """Up to when the snapshots of a source are complete: all that it had committed before `source_time`, by its own
    clock, is in them.

    number: of the publication. proven: whether every partition tells it. reason: what holds it back, or which
    partitions are taken for complete. behind: tables with an earlier time. binlog_file, binlog_pos: all that stands
    before it in the log is in them, too; gtid: so is what has a GTID of this set; position_reason: why one of both
    isn't told. at: when it was published. ends: partition → first offset that it doesn't rest on: it is true without
    what came from there on; None: an earlier version of the platform didn't tell.
    """

    number: int
    source_time: datetime | None
    proven: bool
    reason: str | None
    behind: Mapping[Name, Behind] = field(default_factory=dict)
    binlog_file: str | None = None
    binlog_pos: int | None = None
    gtid: str | None = None
    at: datetime | None = None
    position_reason: str | None = None
    ends: Mapping[Where, int] | None = None

    def ends_of(self, name: Name | None) -> dict[Where, int] | None:
        """As `ends`, of one snapshot (None: of the source)."""
        if self.ends is None:
            return None
        own = self._own(name)
        return {**self.ends, **(own.ends if own else {})}

    def stands(self, name: Name | None, held: Mapping[Where, int]) -> bool:
        """Whether it is true of a snapshot (None: of the source) that lacks messages, in each partition from an offset
        on. Of a partition that it doesn't name nothing had come."""
        if (ends := self.ends_of(name)) is None:
            return not held
        return all(ends.get(where, 0) <= offset for where, offset in held.items())

    def of(self, name: Name | None) -> datetime | None:
        """Up to when one snapshot (None: the source) is complete."""
        return (self._own(name) or self).source_time

    def proven_of(self, name: Name | None) -> bool:
        """As `proven`, of one snapshot (None: of the source)."""
        return (self._own(name) or self).proven

    def proven_time_of(self, name: Name | None) -> bool | None:
        """Whether the time of one snapshot (None: of the source) is proven; None: there is no time."""
        return None if self.of(name) is None else self.proven_of(name)

    def _own(self, name: Name | None) -> Behind | None:
        return None if name is None else self.behind.get(name)

    @property
    def position(self) -> str | None:
        """`file:position`."""
        return None if self.binlog_file is None or self.binlog_pos is None else f"{self.binlog_file}:{self.binlog_pos}"

    def position_of(self, name: Name) -> str | None:
        """The position up to which one snapshot is complete; None: it isn't told, or the snapshot is behind."""
        return None if name in self.behind else self.position

    def gtids(self, name: Name) -> str | None:
        """The GTIDs up to which one snapshot is complete; None: the feed tells none, or the snapshot is behind."""
        return None if name in self.behind else self.gtid


def lag_seconds(up_to: datetime | None) -> float | None:
    """Seconds since the time up to which something is complete, by this machine's clock."""
    return None if up_to is None else round(max(0.0, time.time() - up_to.timestamp()), 3)


def partitions(
    path: Store, source: str, *, before: int | None = None, until: datetime | None = None
) -> dict[Where, dict[str, Any]]:
    """(topic, partition) → newest row (offset, source_time), of batches below `before` or written up to `until`."""
    rows = _newest(path, source, PARTITION, before, until)
    return {(r["topic"], r["partition"]): r for r in rows}


def complete(path: Store, source: str) -> Complete | None:
    """A source's newest publication; None: there is none."""
    rows = _newest(path, source, SOURCE)
    return published(rows[0]) if rows else None


def join(path: Store, source: str, names: Iterable[Name]) -> None:
    """Publishes that snapshots are complete up to no time of which the newest publication doesn't say that they are
    behind. For those that come into being: they don't have all that came of them before it."""
    rows = _newest(path, source, SOURCE)
    if not rows:
        return
    row = rows[0]
    behind = list(row["behind"] or ())
    known = {name_of(b) for b in behind}
    if new := [n for n in names if n not in known]:
        behind += [{**name_columns(n), "source_time": None, "reason": _JOINS} for n in new]
        delta_table.append_rows(path, [{**row, "batch": row["batch"] + 1, "behind": behind}])


def published(row: Mapping[str, Any]) -> Complete:
    """A row of scope `source`."""
    ends: dict[Name | None, dict[Where, int]] = {}
    for e in row.get("end_offsets") or ():
        ends.setdefault(name_in(e), {})[e["topic"], e["partition"]] = e["offset"]
    assumed = None if row.get("assumed") is None else {name_of(b) for b in row["assumed"]}
    behind = {}
    for b in row["behind"] or ():
        name, at = name_of(b), b["source_time"]
        proven = at is None or (assumed is not None and name not in assumed)
        behind[name] = Behind(at, b["reason"], proven, ends.get(name, {}))
    pos = row["binlog_pos"]
    place = (row["binlog_file"], None if pos is None else int(pos), row["gtid"])
    told = row["batch"], row["source_time"], bool(row["proven"]), row["reason"], behind
    rests = None if row.get("end_offsets") is None else ends.get(None, {})
    return Complete(*told, *place, row["at"], row.get("position_reason"), rests)


def of_source(source: str, scope: str) -> str:
    """In SQL the rows of a source and a scope."""
    return f"source = '{source}' AND scope = '{scope}'"


def _newest(
    path: Store, source: str, scope: str, before: int | None = None, until: datetime | None = None
) -> list[dict[str, Any]]:
    """Rows of a scope with the highest batch (below `before`, written up to `until`)."""
    of = of_source(source, scope)
    of += "" if before is None else f" AND batch < {before}"
    of += "" if until is None else f" AND at <= {delta_table.moment(until)}"
    files = _files(path, source, scope)
    highest = [f.high for f in files if (before is None or f.low < before) and (until is None or f.first <= until)]
    if not highest:
        return []
    top = max(highest) if before is None else min(max(highest), before - 1)
    if rows := delta_table.ask(f"SELECT * FROM {{t}} WHERE {of} AND batch = {top}", t=path):
        return rows
    # Files that upkeep put together have several batches and both scopes.
    newest = f"(SELECT max(batch) FROM {{t}} WHERE {of})"
    return delta_table.ask(f"SELECT * FROM {{t}} WHERE {of} AND batch = {newest}", t=path)


class _File(NamedTuple):
    """Lowest and highest batch of a file, and when its first row was written."""

    low: int
    high: int
    first: datetime


def _files(path: Store, source: str, scope: str) -> list[_File]:
    """Those that may hold rows of a scope, by the statistics in the log."""
    from deltalake.exceptions import TableNotFoundError

    try:
        files = delta_table.added(path)
    except TableNotFoundError:
        return []
    if not files.num_rows:
        return []
    names = ("partition.source", "min.scope", "max.scope", "min.batch", "max.batch", "min.at")
    rows = zip(*(files[n].to_pylist() for n in names), strict=True)
    return [
        _File(low, high, at.replace(tzinfo=at.tzinfo or UTC))
        for of, first, last, low, high, at in rows
        if of == source and first <= scope <= last
    ]
