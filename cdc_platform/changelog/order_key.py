"""Columns of the changelog as Arrow has them: small things that several of its readers need."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import zlib
from bisect import bisect_right
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.arrivals import Arrivals, Clocks
from cdc_platform.changelog.epochs import Where
from cdc_platform.changes.file_stats import arrival, later, millis
from cdc_platform.tables import CHANGELOG, LOADED

ORDER = CHANGELOG.arrow().field("order_key").type
"""An `order_key`."""


ROWS = 1 << 20
"""Rows of an event that `order_key.row` has room for."""
PARTITIONS = 1 << 16
"""Numbers of partitions that `order_key.event` has room for, where there is no position."""
SECOND_HALF = 1 << 45
"""Added to the offset in `order_key.event` of what comes after the first half of a change at its place: the halves may
come by different partitions, whose offsets say nothing."""
RECORD = 4 * ROWS
"""Numbers of `order_key.row` that a record of loaded rows has for itself: its columns, keys and rows."""
BEFORE_ALL = -1
"""`order_key.event` of loaded rows: they are what the server held at their place, before all that comes there."""
NUMBERED = 1 << 60
"""Added to an event's number in its transaction in `order_key.event`, so that it is no offset."""
TIMES_FROM = 10**12
"""A source time in ms is above it (2001), a Kafka offset, which stands in where no time is told, below."""


class Clock:
    """What has come of each partition, event by event, in the order of a file: the latest source time, and the place in
    the log of which a second half was the last to come (`halves`)."""

    def __init__(self, clocks: Clocks):
        self._clocks = clocks
        self._at: dict[Where, tuple[int, int]] = {}
        self.halves: dict[Where, tuple[int, Any]] = {}

    def times(self, events: pa.RecordBatch) -> np.ndarray:
        """Of each event the latest source time in its partition by then, ms; 0: none was told."""
        came = arrival(events).to_numpy()
        told = pc.fill_null(millis(events.column("source_time")), 0).to_numpy()
        found = np.zeros(len(came), np.int64)
        for where, here in partitions(events):
            mine = came[here]
            known = self._clocks.get(where, ())
            i = bisect_right(known, (int(mine[0]), 1 << 62)) - 1
            since, before = known[i] if i >= 0 else (-1, 0)
            last, latest = self._at.get(where, (-1, 0))
            start = max(before, latest) if since <= last <= mine[0] else before
            found[here] = np.maximum.accumulate(np.maximum(told[here], start))
            self._at[where] = int(mine[-1]), int(found[here][-1])
        return found


def order_key(events: pa.RecordBatch, arrivals: Arrivals, clock: Clock | None = None) -> pa.StructArray:
    """The `order_key` of EVENT rows. Within a place changes stand as they came, where positions alone order as the
    source counts them. Where they have no position, the latest source time in their partition relates partitions: of a
    message that was decoded again, as far as it is known. clock: of the events before in the same file, if there are
    some."""
    clock = clock or Clock(arrivals.clocks)
    column = events.column
    told = pc.and_(pc.is_valid(column("file_no")), pc.is_valid(column("binlog_pos")))
    entry, row = (pc.fill_null(column(c), 0).cast(pa.int64()) for c in ("entry_index", "row_index"))
    within = pc.add(pc.multiply(entry, ROWS), pc.min_element_wise(row, ROWS - 1))
    if arrivals.by_position:
        event, row = pc.coalesce(column("event_no"), entry), pc.coalesce(column("row_no"), row)
    else:
        event, row = (
            _within_position(events, arrivals.rekeyed, clock) if arrivals.numbered else column("offset"),
            within,
        )
    file, pos = column("file_no"), column("binlog_pos")
    times = clock.times(events)
    if told.false_count:
        came = pc.add(pc.multiply(column("offset"), PARTITIONS), _partition_ids(events))
        file = pc.if_else(told, file, pa.scalar(-1, pa.int64()))
        times = np.where(times > 0, times, column("offset").to_numpy())
        pos = pc.if_else(told, pos, pa.array(times).cast(pa.decimal128(19, 0)).cast(pa.decimal128(20, 0)))
        event, row = pc.if_else(told, event, came), pc.if_else(told, row, within)
    if pc.any(mine := pc.equal(column("topic"), LOADED)).as_py():
        event = pc.if_else(mine, pa.scalar(BEFORE_ALL, pa.int64()), event)
        row = pc.if_else(mine, pc.add(pc.multiply(column("offset"), RECORD), pc.add(within, 1)), row)
    fields = (pa.array(_epochs(events, arrivals)), file, pos, event, row, column("offset"))
    return pa.StructArray.from_arrays(fields, fields=list(ORDER))


def _within_position(events: pa.RecordBatch, rekeyed: tuple[str, ...], clock: Clock) -> pa.Array:
    """`order_key.event` of events that share a place: their number in the transaction, else their offset, where the
    second half of a change, and what follows it in its partition, is newer than first halves in other partitions."""
    number, event = events.column("txn_seq"), events.column("offset")
    second = pc.fill_null(pc.equal(events.column("event_no"), 1), False)
    if rekeyed:
        mine = pc.is_in(_dotted(events), pa.array(rekeyed, pa.string()))
        second = pc.or_(second, pc.and_(mine, pc.fill_null(pc.equal(events.column("op"), "insert"), False)))
    if pc.any(second).as_py() or clock.halves:
        event = pc.add(event, pc.multiply(pa.array(_follows(events, second, clock)).cast(pa.int64()), SECOND_HALF))
    return event if number.null_count == len(number) else pc.coalesce(pc.add(number, NUMBERED), event)


def _dotted(events: pa.RecordBatch) -> pa.StringArray:
    db, schema, table = (events.column(c) for c in ("db", "schema", "table"))
    within = pc.fill_null(pc.not_equal(schema, ""), False)
    names = pc.binary_join_element_wise(db, table, "."), pc.binary_join_element_wise(db, schema, table, ".")
    return pc.if_else(within, names[1], names[0])


def _follows(events: pa.RecordBatch, second: pa.Array, clock: Clock) -> np.ndarray:
    """Which events are second halves, or follow one at its place in its partition."""
    found = second.to_numpy(zero_copy_only=False).copy()
    file, pos = (pc.fill_null(events.column(c), -1) for c in ("file_no", "binlog_pos"))
    for where, here in partitions(events):
        mine = np.flatnonzero(here)
        same = [pc.equal(x.take(pa.array(mine[1:])), x.take(pa.array(mine[:-1]))) for x in (file, pos)]
        new = np.append(True, ~pc.and_(*same).to_numpy(zero_copy_only=False))
        place = np.cumsum(new)
        begun = np.where(found[mine], place, 0)
        first, last = ((file[i].as_py(), pos[i].as_py()) for i in mine[[0, -1]].tolist())
        if clock.halves.pop(where, None) == first:
            begun[0] = place[0]
        found[mine] = np.maximum.accumulate(begun) == place  # the place of the last second half
        if found[mine[-1]]:
            clock.halves[where] = last
    return found


def _partition_ids(events: pa.RecordBatch) -> pa.Array:
    """A number of each event's partition: different in a topic, and most likely among topics."""
    topic = events.column("topic").dictionary_encode()
    of = pa.array([zlib.crc32(name.encode()) for name in topic.dictionary.to_pylist()], pa.int64())
    ids = pc.add(of.take(topic.indices), events.column("partition").cast(pa.int64()))
    return pc.bit_wise_and(ids, PARTITIONS - 1)


def _epochs(events: pa.RecordBatch, arrivals: Arrivals) -> np.ndarray:
    """The epoch of each event."""
    came = arrival(events).to_numpy()
    found = np.empty(len(came), np.int64)
    for where, here in partitions(events):
        starts = arrivals.starts.get(where, ())
        firsts, epochs = (np.array(x, np.int64) for x in zip(*starts, strict=True)) if starts else (None, None)
        mine = came[here]
        if firsts is None or epochs is None:
            found[here] = _before(events, here, arrivals)
            continue
        at = np.searchsorted(firsts, mine, side="right") - 1
        found[here] = epochs[np.maximum(at, 0)]
        if arrivals.before and (at < 0).any():
            found[here] = np.where(at < 0, _before(events, here, arrivals), found[here])
    return found


def _before(events: pa.RecordBatch, here: np.ndarray, arrivals: Arrivals) -> np.ndarray:
    """Epochs of events that came before what is known of their partition, by their servers."""
    if not arrivals.before:
        return np.zeros(int(here.sum()), np.int64)
    known = [x for x in arrivals.before if x is not None]
    of = np.array([*(arrivals.before[x] for x in known), arrivals.before.get(None, 0)], np.int64)
    place = pc.fill_null(pc.index_in(events.column("lineage"), pa.array(known, pa.string())), len(known))
    return of[place.to_numpy()[here]]


def replayed(events: pa.RecordBatch, arrivals: Arrivals) -> pa.BooleanArray:
    """Which events are of a replay."""
    found = np.zeros(events.num_rows, bool)
    if arrivals.replays:
        came = arrival(events).to_numpy()
        for where, here in partitions(events):
            for first, last in arrivals.replays.get(where, ()):
                found |= here & (came >= first) & (came <= last)
    return pa.array(found)


def partitions(events: pa.RecordBatch) -> list[tuple[tuple[str, int], np.ndarray]]:
    """The partitions of events, and which of these are theirs."""
    topic = events.column("topic").dictionary_encode()
    of = topic.indices.to_numpy().astype(np.int64) * (1 << 32) + events.column("partition").to_numpy()
    names = topic.dictionary.to_pylist()
    return [((names[at >> 32], at & 0xFFFFFFFF), of == at) for at in np.unique(of).tolist()]


def those(events: pa.RecordBatch, which: pa.BooleanArray) -> pa.RecordBatch:
    """Some of the events; where they stand together, as mostly, without a copy."""
    count = which.true_count
    if not count:
        return events.slice(0, 0)
    first = pc.index(which, value=True).as_py()
    together = which.slice(first, count).true_count == count
    return events.slice(first, count) if together else events.filter(which)


def placed(events: pa.RecordBatch, arrivals: Arrivals, clock: Clock | None = None) -> pa.RecordBatch:
    """Events with their `order_key`."""
    return events.append_column("order_key", order_key(events, arrivals, clock))


def lowest(orders: pa.StructArray) -> list[int]:
    """The first in order of some."""
    rows = pa.RecordBatch.from_arrays(orders.flatten(), ORDER.names)
    for name in ORDER.names:
        rows = those(rows, pc.equal(rows.column(name), pc.min(rows.column(name))))
    return [int(column[0].as_py()) for column in rows.columns]


def numbers(order_key: pa.StructArray) -> np.ndarray:
    """One row of numbers per order. Raises ArrowInvalid where one is no 64-bit integer."""
    return np.column_stack([column.cast(pa.int64()).to_numpy() for column in order_key.flatten()])


def ends(order: np.ndarray) -> tuple[list[int], list[int]]:
    """The lowest and the highest of some orders."""
    found = order[[0, -1]] if later(order).all() else order[np.lexsort(order.T[::-1])[[0, -1]]]
    low, high = found.tolist()
    return low, high
