"""A snapshot against the table of a live server.

The table is read in one consistent view, whose binlog position is told; the chain follows behind. So what differs is
looked at again until it is settled or the time is up: a key is settled when the snapshot has the row of that view, or a
row that the source was seen to have since. Where the source has another one by now, a newer state is under way, and the
key is not judged."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.reconcile import frames
from cdc_platform.reconcile.columns import Pairing
from cdc_platform.reconcile.frames import Differing, Sums
from cdc_platform.reconcile.result import Open, TableResult, by_key, show_rows
from cdc_platform.reconcile.server import Server, Wanted

CHECKED = 2000
"""Differing keys of a table that are looked up at the source again; more are only counted."""
DRILLED_ROWS = 200_000
"""Rows whose digests are fetched from the source at most, beyond the first bucket."""
_BUCKET_ROWS, _MOST_BUCKETS = 250, 65_536
_PAUSE_S = 2.0
_LOOKS = 3
"""At rows that change at the source, at least."""
_DIGESTS = pa.schema([("kd", pa.string()), ("h", pa.string()), ("keys", pa.list_(pa.string()))])


def bucket_count(rows: int) -> int:
    """A power of two that leaves a few hundred rows to a bucket: so many must be read for one that differs."""
    return min(max(16, 1 << (max(rows, 1) // _BUCKET_ROWS).bit_length()), _MOST_BUCKETS)


def differing(expected: Sums, actual: Sums) -> list[int]:
    """Buckets whose rows differ."""
    return sorted(b for b in expected.keys() | actual.keys() if expected.get(b) != actual.get(b))


def first_buckets(differing_buckets: Sequence[int], expected: Sums, actual: Sums) -> list[int]:
    """As many differing buckets as can be looked into."""
    chosen, rows = [], 0
    for bucket in differing_buckets:
        rows += max(expected.get(bucket, (0, 0, 0))[0], actual.get(bucket, (0, 0, 0))[0])
        if chosen and rows > DRILLED_ROWS:
            break
        chosen.append(bucket)
    return chosen


@dataclass(frozen=True, slots=True)
class Table:
    """A table and both its sides. snapshot: () → version and rows of the newest version."""

    server: Server
    db: str
    name: str
    pairing: Pairing
    snapshot: Callable[[], tuple[int, DataFrame]]


def compare(spark: SparkSession, table: Table, result: TableResult, wait_s: float, limit: int) -> None:
    """Fill `result` with what differs."""
    server, pairing = table.server, table.pairing
    result.buckets = bucket_count(server.row_estimate(table.db, table.name))
    result.version, rows = table.snapshot()
    actual = frames.sums(rows, pairing, result.buckets)
    with server.view(table.db, table.name, pairing) as view:
        result.position = view.position
        expected, result.null_dates = view.sums(result.buckets)
        wrong = differing(expected, actual)
        chosen = first_buckets(wrong, expected, actual)
        fetched = view.digests(result.buckets, chosen) if chosen else []
    result.digest = hashlib.sha256(repr(sorted(expected.items())).encode()).hexdigest()
    result.expected_rows, result.actual_rows = (sum(n for n, _, _ in s.values()) for s in (expected, actual))
    result.differing_buckets = len(wrong)
    if wrong:
        _Drill(spark, table, result, chosen, _frame(spark, fetched), expected).run(wrong[len(chosen) :], wait_s, limit)


def _frame(spark: SparkSession, fetched: Sequence[tuple[str, ...]]) -> DataFrame:
    rows = [{"kd": kd, "h": h, "keys": list(keys)} for kd, h, *keys in fetched]
    return spark.createDataFrame(pa.Table.from_pylist(rows, _DIGESTS))


@dataclass(frozen=True, slots=True)
class _Drill:
    """Differing buckets of one table, the digests of the source's rows in the chosen ones, its sums of all. seen: of
    each key that has changed there since, the states that it had."""

    spark: SparkSession
    table: Table
    result: TableResult
    chosen: list[int]
    expected: DataFrame
    sums: Sums
    seen: dict[str, set[str | None]] = field(default_factory=dict)

    def run(self, rest: list[int], wait_s: float, limit: int) -> None:
        """Look until everything is settled or the time is up, then read the rows. rest: differing buckets beside the
        chosen ones: of those no more can be said than that they differ."""
        end, looks = time.monotonic() + wait_s, 0
        while True:
            looks += 1
            self.result.version, rows = self.table.snapshot()
            counts, found = self._differences(rows)
            open_keys = self._still_differing(counts, found)
            left = end - time.monotonic()
            differ = bool(open_keys or rest or sum(counts.values()) > len(found))
            if not (differ or self.result.moved) or (left <= 0 and (differ or looks >= _LOOKS)):
                break
            time.sleep(min(_PAUSE_S, left) if left > 0 else _PAUSE_S)
            if rest:
                now = frames.sums(self.table.snapshot()[1], self.table.pairing, self.result.buckets)
                rest = [b for b in rest if self.sums.get(b) != now.get(b)]
        self.result.not_looked_into = len(rest)
        self.result.open = Open(self.table.pairing, open_keys, (self.table.db, self.table.name))
        self.result.differences = self._rows(rows, open_keys[:limit])

    def _differences(self, rows: DataFrame) -> tuple[dict[str, int], list[Differing]]:
        actual = frames.digests(rows, self.table.pairing, self.result.buckets, self.chosen)
        return frames.differences(self.expected, actual, CHECKED)

    def _still_differing(self, counts: dict[str, int], found: list[Differing]) -> list[Differing]:
        """The keys that are still as they were in the view; the result's counts without the others."""
        now = self._server_states(found)
        still = [d for d in found if now.get(d.digest) == d.expected]
        since = [d for d in found if now.get(d.digest) != d.expected]
        left = dict(counts)
        for one in since:
            left[one.kind] -= 1
            self.seen.setdefault(one.digest, set()).add(now.get(one.digest))
        self.result.moved = sum(d.actual not in self.seen[d.digest] for d in since)
        self.result.missing, self.result.extra, self.result.changed = (
            left.get(kind, 0) for kind in ("missing", "extra", "changed")
        )
        return still

    def _server_states(self, found: list[Differing]) -> dict[str, str]:
        if not found:
            return {}
        return self.table.server.states_now(
            self.table.db, self.table.name, self.table.pairing, _wanted(found, self.table.pairing)
        )

    def _rows(self, rows: DataFrame, shown: list[Differing]) -> list[Any]:
        if not shown:
            return []
        pairing = self.table.pairing
        expected = self.table.server.rows(self.table.db, self.table.name, pairing, _wanted(shown, pairing))
        actual = frames.rows(rows, pairing, [d.digest for d in shown])
        return show_rows(pairing, shown, by_key(expected), by_key(actual))


def _wanted(found: list[Differing], pairing: Pairing) -> Wanted:
    """How the source is asked for these keys. Without a key all are looked for by digest."""
    return {d.digest: (d.keys, d.expected is not None or not pairing.keyed) for d in found}
