"""How far the source's log is known to have come into the changelog, by the source's clock.

A log has its transactions in the order of their commits, and no event of it is stamped later than its own commit. So
an event that says 12:00:05 tells that all that was committed before 12:00:05 stands before it, whatever time the
statements of a later transaction may say. A partition's watermark is the latest such time that came by it: it never
goes back, and what a capture sends again doesn't move it. A failover to a server whose clock is behind leaves it where
it is until that clock has caught up.

Only kinds of events count that the source's log has stamped (`Format.log_times`): a capture's own heartbeat says that
the capture lives, not how far it has read. Rows of a load tell when they were read. Changes that a number alone orders
may come in any order, so they tell nothing; nor do those of writers that don't keep the log's order (TiCDC, Flink), or
that stamp events themselves (dtle).
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from cdc_platform.changelog.epochs import Where, loaded
from cdc_platform.config import Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import Format
from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import PARTITION, partitions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def partition_times(source: Source, statistics: list[dict[str, Any]]) -> dict[Where, int]:
    """Partition → latest time (ms since 1970) that events of a batch tell of the log. statistics: of its files
    (changes/file_stats.py)."""
    form = FORMATS[source.format]
    found: dict[Where, int] = {}
    for g in (g for note in statistics for g in note["groups"]):
        unordered = (form.order == "position" and g["file"] is not None) or _is_unordered(form, g)
        if (at := g.get("committed")) is not None and g["kind"] in form.log_times and not unordered:
            where = g["topic"], g["partition"]
            found[where] = max(at, found.get(where, at))
    return found


def _is_unordered(form: Format, group: dict[str, Any]) -> bool:
    """Whether events were written in another order than the log's, or stamped by another clock."""
    if form.rows_have_places and group["kind"] == "row" and group["file"] is None:
        return True
    return (group["lineage"] or "").startswith(form.capture_clocks)


def note(path: Store, source: Source, batch: int, statistics: list[dict[str, Any]]) -> None:
    """Keeps the watermarks of all partitions after a batch, once. To be called when all else of it is written."""
    before = partitions(path, source.name, before=batch)
    known = {w: (r["offset"], r["source_time"], r.get("change_batch")) for w, r in before.items()}
    now = datetime.now(UTC)  # a clock that is ahead must not promise what is still to come
    times = {w: min(_EPOCH + timedelta(milliseconds=ms), now) for w, ms in partition_times(source, statistics).items()}
    changed = _changed(source, statistics)
    for where, end in _ends(statistics).items():
        last, mark, change = known.get(where, (-1, None, None))
        mark = max((t for t in (mark, times.get(where)) if t is not None), default=None)
        known[where] = max(last, end), mark, batch if where in changed else change
    rows = [
        {
            **{"source": source.name, "scope": PARTITION, "batch": batch},
            **{"topic": topic, "partition": partition, "offset": offset, "source_time": mark, "change_batch": change},
        }
        for (topic, partition), (offset, mark, change) in sorted(known.items())
    ]
    delta_table.append_rows(path, rows, once=(f"watermarks {source.name}", batch))


def _changed(source: Source, statistics: list[dict[str, Any]]) -> set[Where]:
    """Partitions by which changes came, events that can't be used, or what tells the log's time. Rows of a load don't
    count: a partition that is loaded may have no changes."""
    kinds = {"row", "error"} | FORMATS[source.format].log_times
    groups = [g for noted in statistics for g in noted["groups"] if g["kind"] in kinds]
    return {(g["topic"], g["partition"]) for g in groups if g["count"] > g.get("loaded", 0)}


def _ends(statistics: list[dict[str, Any]]) -> dict[Where, int]:
    """Partition → last offset of a batch."""
    ends: dict[Where, int] = {}
    for g in (g for noted in statistics for g in noted["groups"]):
        where = g["topic"], g["partition"]
        if not loaded(where):  # no part of what comes
            ends[where] = max(g["to_offset"], ends.get(where, -1))
    return ends
