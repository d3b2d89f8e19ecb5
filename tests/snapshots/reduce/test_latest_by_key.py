"""The last change of each key, found by workers: ranks, hashes, windows, parts."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.changelog import hashing
from cdc_platform.changelog.full_images import full_image_table
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.reduce import latest_by_key

TABLE = full_image_table(("d", "t"), [("a", parse_type("int")), ("b", parse_type("text"))], ("a", "b"))

_NUMBERS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**20)


@settings(deadline=None)
@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.tuples(*[_NUMBERS] * n), min_size=1)), st.booleans())
def test_ranks_compare_as_rows_do_and_of_equal_rows_the_later_is_above(rows, ascending):
    rows = sorted(rows) if ascending else rows
    rank, row = latest_by_key.ranks(len(rows), (np.array(c, np.int64) for c in zip(*rows, strict=True)))
    assert np.argsort(rank).tolist() == sorted(range(len(rows)), key=lambda i: (rows[i], i))
    assert row(rank).tolist() == list(range(len(rows)))


_TEXTS = st.lists(st.text(max_size=20) | st.sampled_from(["", "0", "00", "a" * 40, "b" * 40]), max_size=20)


@settings(deadline=None)
@given(_TEXTS, st.integers(0, 3))
def test_hashes_are_of_the_texts_alone(texts, start):
    whole = pa.array(texts, pa.string())
    found = hashing.hashes([whole.slice(start)])
    assert found.tolist() == [hashing.hashes([pa.array([t])])[0] for t in texts[start:]]
    bytes_ = [t.encode() for t in texts[start:]]
    ends = {(b[-hashing._HASHED :], len(b)) for b in bytes_}
    assert len(set(found.tolist())) == len(ends)
    pairs = hashing.hashes([whole, whole])
    assert len(set(pairs.tolist())) == len({(t.encode()[-hashing._HASHED :], len(t.encode())) for t in texts})


def test_hashes_of_two_columns_tell_them_apart():
    a, b = pa.array(["1", "2"]), pa.array(["2", "1"])
    one, two = hashing.hashes([a, b]).tolist()
    assert one != two
    assert hashing.hashes([b, a]).tolist() == [two, one]


def _changes(rows):
    """(key a, key b, position) → as `heads` hands them on, one file."""
    a, b, pos = (list(c) for c in zip(*rows, strict=True))
    n = len(rows)
    columns = {"t0": pa.array(a), "t1": pa.array(b)}
    columns |= {f"o{i}": pa.array(pos if i == 2 else [0] * n, pa.int64()) for i in range(6)}
    columns |= {c: pa.array([0] * n, pa.int32()) for c in ("partition", "entry_index", "row_index")}
    columns |= {"deleted": pa.array([False] * n), "file": pa.array([x % 3 for x in pos], pa.int32())}
    columns |= {"at": pa.array(pos, pa.int64())}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


_KEYS = st.tuples(st.sampled_from("123"), st.sampled_from(["", "x", "é"]))


@settings(deadline=None)
@given(
    st.lists(_KEYS, min_size=1, max_size=60).flatmap(lambda k: st.tuples(st.just(k), st.permutations(range(len(k))))),
    st.integers(1, 5),
    st.integers(1, 30),
    st.booleans(),
    st.sampled_from([1, 200, 1 << 20]),
)
def test_of_each_key_the_last_change_is_found_whatever_the_windows(given_, number, window, by_bytes, stream):
    keys, positions = given_
    rows = [(a, b, p) for (a, b), p in zip(keys, positions, strict=True)]
    was = latest_by_key._HELD, latest_by_key._HELD_BYTES, latest_by_key._STREAM_BYTES
    latest_by_key._HELD, latest_by_key._HELD_BYTES = (1 << 17, window * 100) if by_bytes else (window, 32 << 20)
    latest_by_key._STREAM_BYTES = stream
    try:
        few = [_changes(rows[i : i + 7]) for i in range(0, len(rows), 7)]
        parts = [
            p
            for some in latest_by_key._windows(few, TABLE, once=False)
            for p in latest_by_key._parted(some, TABLE, number)
        ]
        found = []
        for part in range(number):
            mine = [p for p in parts if p.column("part")[0].as_py() == part]
            for batch in latest_by_key.last(TABLE, iter(mine)):
                for file, at in zip(batch.column("file").to_pylist(), batch.column("at").to_pylist(), strict=True):
                    found += [(file, x) for x in np.frombuffer(at, np.int64).tolist()]
    finally:
        latest_by_key._HELD, latest_by_key._HELD_BYTES, latest_by_key._STREAM_BYTES = was
    newest = {}
    for a, b, p in rows:
        newest[a, b] = max(p, newest.get((a, b), -1))
    assert sorted(found) == sorted((p % 3, p) for p in newest.values())


def test_few_changes_are_one_part_and_many_as_many_as_a_worker_can_hold():
    assert latest_by_key.parts(20_000, 2) == 1
    assert latest_by_key.parts(1_000_000, 2) == 4
    assert latest_by_key.parts(1_000_000, 16) == 16
    assert latest_by_key.parts(10_000_000, 2) == 39
