"""What a file of decoded events holds, in figures: noted in its footer by who writes it, so that the changelog needn't
look through its events for them. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changes.maps import map_value
from cdc_platform.formats.contract import UNORDERED

KINDS = {
    "rows": ("row",),
    "schemas": ("schema",),
    "ddl": ("ddl",),
    "errors": ("error", "rollback"),
    "control": ("begin", "commit", "rollback", "heartbeat", "checkpoint"),
}
"""Figure → kinds of events that it counts."""

ROLLED_BACK = (
    "the source took a transaction back; rows of it that came before this event stay applied: "
    "`cdc-platform reconcile` compares the tables"
)
"""Why it is in quarantine. A prepared XA transaction's rows come when it is prepared, and nothing in the event that
takes it back (MySQL's XA ROLLBACK) says which they were."""

ENTRIES = 1 << 20
"""Events told apart within a message: arrival in a partition is offset * ENTRIES + event."""

_PLACE = ("file_no", "binlog_pos", "event_no", "row_no")
_BY = ("lineage", "topic", "partition", "kind", "file", "version")
_COUNTS = ("count", "retold", "loaded")
_LOWEST = ("from_offset", "low_pos")
_HIGHEST = ("to_offset", "high_pos", "until", "committed")
_ENDS: list[Any] = [*((c, "min") for c in _LOWEST), *((c, "max") for c in _HIGHEST)]


class Summary:
    """Figures of EVENT batches, added in their order."""

    def __init__(self) -> None:
        self._groups: list[pa.Table] = []
        self._apart = Ascending()
        self._runs = Runs()

    def add(self, events: pa.RecordBatch) -> None:
        """One more batch."""
        if not events.num_rows:
            return
        column, kind = events.column, events.column("kind")
        row = pc.equal(kind, "row")
        pos = pc.if_else(row, column("binlog_pos"), None)
        loaded = pc.fill_null(pc.equal(column("op"), "read"), False)
        table = pa.table(
            {
                "lineage": column("lineage"),
                "topic": column("topic"),
                "partition": column("partition"),
                "kind": kind,
                "file": pc.if_else(row, column("file_no"), None),
                "version": pc.if_else(pc.equal(kind, "schema"), column("schema_version"), None),
                "from_offset": column("offset"),
                "to_offset": column("offset"),
                "until": millis(column("source_time")),
                "committed": millis(pc.if_else(pc.or_(loaded, _unordered(events)), None, column("source_time"))),
                "low_pos": pos,
                "high_pos": pos,
                "retold": _redecoded(events),
                "loaded": loaded.cast(pa.int64()),
            }
        )
        counts: list[Any] = [([], "count_all"), ("retold", "sum"), ("loaded", "sum")]
        grouped = table.group_by(list(_BY), use_threads=False).aggregate([*counts, *_ENDS])
        self._groups.append(grouped.rename_columns([_plain(c) for c in grouped.column_names]))
        self._runs.add(events)
        told = pc.and_(row, has_unique_position(events))
        if told.true_count:
            self._apart.add(events.select(Ascending.COLUMNS).filter(told))

    def to_json(self) -> dict[str, Any]:
        """groups: per server, topic, partition, kind, binlog file of rows and version of columns stated the events, how
        many of them were decoded again and how many are rows of a load, offsets, lowest and highest binlog position of
        rows, latest source time (ms), and the same but for rows of a load, which tell when they were read;
        ascending: see `Ascending.told`; runs: see `Runs.told`."""
        if not self._groups:
            return {"groups": [], "ascending": self._apart.to_json(), "runs": []}
        every = pa.concat_tables(self._groups)
        whole = every.group_by(list(_BY), use_threads=False).aggregate([*((c, "sum") for c in _COUNTS), *_ENDS])
        whole = whole.rename_columns([_plain(c) for c in whole.column_names])
        for pos in ("low_pos", "high_pos"):
            place = whole.schema.get_field_index(pos)
            texts = [None if v is None else str(int(v)) for v in whole.column(pos).to_pylist()]  # beyond what JSON has
            whole = whole.set_column(place, pos, pa.array(texts, pa.string()))
        return {"groups": whole.to_pylist(), "ascending": self._apart.to_json(), "runs": self._runs.to_json()}


def _unordered(events: pa.RecordBatch) -> pa.BooleanArray:
    """Which rows' writer doesn't keep the log's order (contract.UNORDERED)."""
    info = events.column("info") if "info" in events.schema.names else pa.nulls(events.num_rows)
    if info.null_count == len(info):
        return pa.repeat(pa.scalar(False), events.num_rows)
    return pc.is_valid(map_value(info, UNORDERED))


def _redecoded(events: pa.RecordBatch) -> pa.Array:
    """1 for events that were decoded again, else 0."""
    if "retold" not in events.schema.names:
        return pa.repeat(pa.scalar(0, pa.int64()), events.num_rows)
    return pc.fill_null(events.column("retold"), False).cast(pa.int64())


def _plain(column: str) -> str:
    for of in ("_min", "_max", "_sum"):
        column = column.removesuffix(of)
    return "count" if column == "count_all" else column


def arrival(events: pa.RecordBatch) -> pa.Int64Array:
    """Where each event came in its partition, as a number that ascends: offset * ENTRIES + event."""
    entry = pc.min_element_wise(pc.fill_null(events.column("entry_index"), 0).cast(pa.int64()), ENTRIES - 1)
    return pc.add(pc.multiply(events.column("offset"), ENTRIES), entry)


def millis(times: pa.Array) -> pa.Int64Array:
    """Times (µs) as milliseconds since 1970."""
    return pc.divide(times.cast(pa.int64()), 1000)


class Runs:
    """Of each partition the runs of row changes and DDL whose positions don't descend, in the order of arrival."""

    COLUMNS = (
        *("topic", "partition", "offset", "entry_index", "kind", "op", "source_time", "lineage"),
        *("file_no", "binlog_pos", "retold"),
    )
    """What events must have; `retold` may be missing."""
    _NEEDED = COLUMNS[:-1]

    def __init__(self) -> None:
        self._of: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self._ordered = True

    def add(self, events: pa.RecordBatch, after: Mapping[tuple[str, int], int] | None = None) -> None:
        """More events. Those that were decoded again came before, and DDL that tells no position has no place. after:
        arrivals, by partition, up to which events aren't counted."""
        kind, placed = events.column("kind"), pc.is_valid(events.column("binlog_pos"))
        placed = pc.and_(placed, pc.is_valid(events.column("file_no")))
        mine = pc.or_(pc.equal(kind, "row"), pc.and_(pc.equal(kind, "ddl"), placed))
        if "retold" in events.schema.names:
            mine = pc.and_(mine, pc.invert(pc.fill_null(events.column("retold"), False)))
        if not mine.true_count:
            return
        some = events if mine.false_count == 0 else events.select(self._NEEDED).filter(mine)
        placed = pc.and_(pc.is_valid(some.column("file_no")), pc.is_valid(some.column("binlog_pos")))
        came = arrival(some).to_numpy()
        file = pc.fill_null(pc.if_else(placed, some.column("file_no"), None), NO_POSITION[0]).to_numpy()
        pos = _positions(pc.if_else(placed, some.column("binlog_pos"), None))
        since = pc.fill_null(millis(some.column("source_time")), _NEVER).to_numpy()
        alone = pc.or_(
            pc.equal(some.column("kind"), "ddl"), pc.fill_null(pc.equal(some.column("op"), "truncate"), False)
        )
        alone = alone.to_numpy(zero_copy_only=False)
        topic, server = some.column("topic").dictionary_encode(), some.column("lineage").dictionary_encode()
        of = topic.indices.to_numpy().astype(np.int64) * (1 << 32) + some.column("partition").to_numpy()
        lineage = pc.fill_null(server.indices, -1).to_numpy()
        names = [*server.dictionary.to_pylist(), None]
        for at in np.unique(of).tolist():
            where = topic.dictionary[at >> 32].as_py(), at & 0xFFFFFFFF
            here = of == at
            if after and where in after:
                here &= came > after[where]
            self._add(where, _Events(came[here], file[here], pos[here], since[here], alone[here], lineage[here]), names)

    def _add(self, where: tuple[str, int], events: "_Events", names: list[str | None]) -> None:
        came, file, pos, since, alone, lineage = events
        if not len(came):
            return
        runs = self._of.setdefault(where, [])
        self._ordered &= bool((came[1:] >= came[:-1]).all()) and not (runs and runs[-1]["last"] > came[0])
        descends = (file[1:] < file[:-1]) | ((file[1:] == file[:-1]) & (pos[1:] < pos[:-1]))
        _, first = np.unique(lineage, return_index=True)
        single = np.nonzero(alone)[0]
        rotated = np.nonzero(file[1:] > file[:-1])[0][:_MOST_CUTS] + 1
        earlier = _earlier(since, np.append(0, np.nonzero(descends)[0] + 1), runs[-1]["since"] if runs else _NEVER)
        cuts = [np.nonzero(descends)[0] + 1, first, single, single[single + 1 < len(came)] + 1, rotated, earlier]
        cuts = np.concatenate(cuts)
        starts = [s for s in np.unique(cuts).tolist() if not s or came[s] != came[s - 1]]  # a message's event is one
        for start, end in pairwise([*starts, len(came)]):
            low, high = ((int(file[i]), int(pos[i])) for i in (start, end - 1))
            servers = {names[i] for i in np.unique(lineage[start:end]).tolist()} - {None}
            time, by_itself = int(since[start:end].min()), bool(alone[start:end].any())
            told = since[start:end][since[start:end] < _NEVER]
            until = int(told.max()) if len(told) else -1
            before = runs[-1] if runs else None
            goes_on = before is not None and not before["alone"] and not by_itself and (*before["high"],) <= low
            if before and goes_on and len(runs) < _MOST_CUTS:
                goes_on = low[0] == before["high"][0] and int(since[start]) >= before["since"]
            if before and (before["last"] == came[start] or (goes_on and servers <= {*before["lineages"]})):
                before |= {"last": int(came[end - 1]), "high": [*high], "since": min(time, before["since"])}
                before["until"] = max(until, before["until"])
                before |= {"alone": before["alone"] or by_itself, "lineages": sorted({*before["lineages"], *servers})}
            else:
                places = {"first": int(came[start]), "last": int(came[end - 1]), "low": [*low], "high": [*high]}
                more = {"lineages": sorted(servers), "since": time, "until": until, "alone": by_itself}
                runs.append({"topic": where[0], "partition": where[1], **places, **more})

    def to_json(self) -> list[dict[str, Any]] | None:
        """Per run: topic, partition, arrival of its first and last event, its lowest and highest place (file number and
        position; NO_POSITION: none), the servers that it names, its earliest and latest source time
        (ms). A run ends where another server appears, too, where the binlog file changes, and where an event is of an
        earlier time than all before it; a statement and a TRUNCATE are runs of their own. None: events didn't stand in
        the order of their arrival."""
        return [run for runs in self._of.values() for run in runs] if self._ordered else None


_NEVER = 1 << 62
_MOST_CUTS = 64
"""Of a record batch and partition. Where time runs backwards, runs aren't to be as many as events."""


def _earlier(since: np.ndarray, starts: np.ndarray, before: int) -> np.ndarray:
    """Which events are of an earlier time than all before them since the last of `starts`; before: of what came before
    the first, the earliest."""
    found = []
    for start, end in pairwise([*starts.tolist(), len(since)]):
        times = since[start:end] if start else np.append(before, since[:end])
        least = np.minimum.accumulate(times)
        found.append(np.nonzero(times[1:] < least[:-1])[0] + start + bool(start))
    return np.concatenate(found)[:_MOST_CUTS]


class _Events(NamedTuple):
    """Of events: arrival, binlog file and position, source time (ms), whether each is a run of its own, and a number of
    the server that it names."""

    came: np.ndarray
    file: np.ndarray
    pos: np.ndarray
    since: np.ndarray
    alone: np.ndarray
    lineage: np.ndarray


NO_POSITION = (-1, 0)
"""File number and position of a row change that tells none."""


def _positions(column: pa.Array) -> np.ndarray:
    """Positions, up to 2^64 - 1, as numbers that compare as they do; 0 where there is none."""
    filled = pc.fill_null(column, Decimal(0))
    try:
        return filled.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return np.array(filled.to_pylist(), object)


def has_unique_position(events: pa.RecordBatch) -> pa.BooleanArray:
    """As order's rule for row changes: whose position says whether two are the same."""
    initial = pc.and_(pc.fill_null(pc.equal(events.column("op"), "read"), False), pc.is_null(events.column("key")))
    return pc.and_(pc.is_valid(events.column("file_no")), pc.invert(initial))


class Ascending:
    """Whether the positions of row changes only ever ascend, so that none can be there twice. Two of another kind may
    share one: a key change is a delete and an insert."""

    COLUMNS = ("lineage", *_PLACE, "op")
    """What rows must have."""

    def __init__(self) -> None:
        self._count = 0
        self._fine = True
        self._first: list[int] | None = None
        self._before: tuple[np.ndarray, list[str]] | None = None  # the last two: places and operations
        self._known = 0
        self._lineages: set[str | None] = set()

    def add(self, rows: pa.RecordBatch) -> None:
        """More of them, in order."""
        self._count += rows.num_rows
        if not rows.num_rows or not self._fine:
            return
        self._lineages.update(pc.unique(rows.column("lineage")).to_pylist())
        try:
            place = np.column_stack([_numbers(rows.column(c)) for c in _PLACE])
        except (pa.ArrowInvalid, ValueError):  # no position told, or none that a 64-bit integer holds
            self._fine = False
            return
        op, ops = rows.column("op"), [] if self._before is None else self._before[1]
        if self._before is None:
            self._first = place[0].tolist()
        else:
            place = np.vstack([self._before[0], place])
        fine = later(place)
        same = (place[1:] == place[:-1]).all(axis=1)
        if same.any():
            each = np.array([*ops, *op.to_pylist()], object)
            fine |= same & (each[1:] != each[:-1]) & ~np.append(False, same[:-1])
        self._before = place[-2:], [*ops, *op[-2:].to_pylist()][-2:]
        self._fine = len(self._lineages) == 1 and bool(fine[self._known :].all())
        self._known = min(len(place) - 1, 1)

    def to_json(self) -> dict[str, Any]:
        """count: row changes that tell a position; fine: theirs ascend, and are one server's; lineage, first and last:
        whose, and from where to where."""
        lineage = next(iter(self._lineages)) if len(self._lineages) == 1 else None
        last = None if self._before is None else self._before[0][-1].tolist()
        return {"count": self._count, "fine": self._fine, "lineage": lineage, "first": self._first, "last": last}


def _numbers(column: pa.Array) -> np.ndarray:
    if column.type == pa.decimal128(20, 0):
        if column.null_count:
            raise ValueError("a position is missing")
        return column.cast(pa.int64()).to_numpy()
    return pc.fill_null(column, 0).to_numpy()


def later(place: np.ndarray) -> np.ndarray:
    """Whether each row's numbers, compared one after the other, are above those of the row before it."""
    out = np.zeros(len(place) - 1, bool)
    for column in place.T[::-1]:
        out = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & out)
    return out
