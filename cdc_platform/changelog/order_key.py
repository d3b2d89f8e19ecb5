"""Columns of the changelog as Arrow has them: small things that several of its readers need."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.epochs import Arrivals
from cdc_platform.changes.file_stats import arrival, later
from cdc_platform.tables import CHANGELOG, POSITION

TXN = tuple(c.name for c in POSITION)
"""Columns of events that tell their place at the source, beside `order_key`."""

ORDER = CHANGELOG.arrow().field("order_key").type
"""An `order_key`."""


ROWS = 1 << 20
"""Rows of an event that `order_key.row` has room for."""


def order_key(events: pa.RecordBatch, arrivals: Arrivals) -> pa.StructArray:
    """As order.order_key."""
    column = events.column
    told = pc.and_(pc.is_valid(column("file_no")), pc.is_valid(column("binlog_pos")))
    stands_in = column("offset").cast(pa.decimal128(19, 0)).cast(pa.decimal128(20, 0))
    entry, row = (pc.fill_null(column(c), 0).cast(pa.int64()) for c in ("entry_index", "row_index"))
    if arrivals.by_position:
        event = pc.coalesce(column("event_no"), entry)
        row = pc.coalesce(column("row_no"), row)
    else:
        event = column("offset")
        row = pc.add(pc.multiply(entry, ROWS), pc.min_element_wise(row, ROWS - 1))
    fields = (
        pa.array(_epochs(events, arrivals)),
        pc.if_else(told, column("file_no"), pa.scalar(-1, pa.int64())),
        pc.if_else(told, column("binlog_pos"), stands_in),
        event,
        row,
        column("offset"),
    )
    return pa.StructArray.from_arrays(fields, fields=list(ORDER))


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


def map_value(maps: pa.MapArray, name: str) -> pa.StringArray:
    """Of each map the value under a key; NULL where it has none."""
    offsets = maps.offsets.to_numpy()
    keys, items = maps.keys, maps.items
    mine = np.nonzero(pc.equal(keys, name).to_numpy(zero_copy_only=False))[0]
    row = np.searchsorted(offsets, mine, side="right") - 1
    inside = (row >= 0) & (row < len(maps))
    found = np.full(len(maps), -1, np.int64)
    found[row[inside]] = mine[inside]
    if maps.null_count:
        found[maps.is_null().to_numpy(zero_copy_only=False)] = -1
    return items.take(pa.array(found, mask=found < 0))


def placed(events: pa.RecordBatch, arrivals: Arrivals) -> pa.RecordBatch:
    """Events with their `order_key`."""
    return events.append_column("order_key", order_key(events, arrivals))


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


def mixed(numbers: np.ndarray) -> np.ndarray:
    """64-bit numbers that differ in few bits → such that differ in all; in place (Steele and others' SplitMix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(31)
    return numbers
