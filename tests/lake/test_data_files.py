"""Files that workers write: what is read back, what Delta's log tells of them, and how much is held at once."""

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.errors import StorageError
from cdc_platform.lake import data_files
from cdc_platform.lake.data_files import Output, Sink, footer, note_of, read, units
from cdc_platform.lake.store import File, Store
from tests.disk import mounted
from tests.lakes import file_at, store_at
from tests.properties import examples

ROWS = pa.schema(
    [
        ("n", pa.int64()),
        ("word", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("pos", pa.decimal128(20, 0)),
        ("image", pa.map_(pa.string(), pa.string())),
        ("order", pa.struct([("a", pa.int64()), ("b", pa.int64())])),
    ]
)
STATS = ("n", "word", "at", "pos", "order.a")


def sink(folder, **rest):
    table = folder if isinstance(folder, Store) else store_at(folder)
    return Sink(table, ROWS, STATS, ("word", "image.key_value.key"), **rest)


def written(folder, rows, note=None, **rest):
    """The sink's file, its entry and its rows as they were."""
    out = Output(sink(folder, **rest), note)
    for batch in rows:
        out.write(batch)
    done = out.close()
    assert done is not None
    return File(out.sink.table, done.path), done


def some(n, word="w", size=0):
    started = datetime(2026, 11, 20, tzinfo=UTC)
    return pa.RecordBatch.from_pylist(
        [
            {
                "n": i,
                "word": None if i % 3 else word,
                "at": started + timedelta(microseconds=i),
                "pos": Decimal(2**64 - 1 - i),
                "image": None if i % 5 == 4 else [("k", "v" * size), ("nil", None)],
                "order": {"a": i, "b": -i},
            }
            for i in range(n)
        ],
        ROWS,
    )


def test_what_is_read_is_what_was_written(store, monkeypatch):
    monkeypatch.setattr(data_files, "_ROW_GROUP_BYTES", 1 << 12)
    store.put("t/made", b"")
    rows = some(1000)
    file, done = written(store.at("t"), [rows.slice(i, 100) for i in range(0, 1000, 100)], {"any": ["thing"]})
    assert store.size(f"t/{file.path}") == done.size
    [unit] = units([file], whole=True)
    assert pa.Table.from_batches(read(unit, ROWS)) == pa.Table.from_batches([rows])
    assert len(units([file], whole=False)) == footer(file).num_row_groups > 1
    assert note_of(file) == {"any": ["thing"]}
    other, _ = written(store.at("t"), [rows])
    assert note_of(other) is None


def test_the_log_tells_lowest_and_highest_values(tmp_path):
    _, done = written(tmp_path, [some(10)])
    assert done.rows == 10
    assert json.loads(done.stats) == {
        "numRecords": 10,
        "minValues": {
            "n": 0,
            "word": "w",
            "at": "2026-11-20T00:00:00.000000Z",
            "pos": 2**64 - 10,
            "order": {"a": 0},
        },
        "maxValues": {
            "n": 9,
            "word": "w",
            "at": "2026-11-20T00:00:00.000009Z",
            "pos": 2**64 - 1,
            "order": {"a": 9},
        },
        "nullCount": {"n": 0, "word": 6, "at": 0, "pos": 0, "order": {"a": 0}},
    }


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (["a" * 32], "a" * 32, "a" * 32),
        (["a" * 33], "a" * 32, "a" * 32 + "\U0010ffff"),
        (["é🙂" * 20], "é🙂" * 16, "é🙂" * 16 + "\U0010ffff"),
        (["a" * 32 + "\U0010ffff" * 2 + "z"], "a" * 32, "a" * 32 + "\U0010ffff" * 3),
        (["\U0010ffff" * 33], "\U0010ffff" * 32, "\U0010ffff" * 33),
        ([datetime(9, 8, 7, 6, 5, 4, 3, UTC)], "0009-08-07T06:05:04.000003Z", "0009-08-07T06:05:04.000003Z"),
        ([datetime(9, 8, 7, 6, 5, 4, 3)], "0009-08-07T06:05:04.000", "0009-08-07T06:05:04.001"),
        ([date(1, 1, 1), date(1582, 10, 14)], "0001-01-01", "1582-10-14"),
        ([0.0, -0.0], -0.0, 0.0),
        ([Decimal("0E-30"), Decimal("1E-30")], 0.0, 1e-30),
    ],
)
def test_lowest_and_highest_values_of_odd_kinds_are_below_and_above_all(tmp_path, values, low, high):
    rows = pa.record_batch({"n": pa.array(values)})
    out = Output(Sink(store_at(tmp_path), rows.schema, ("n",), ()))
    (tmp_path / "_delta_log").mkdir()
    out.write(rows)
    done = json.loads(out.close().stats)
    assert (repr(done["minValues"]["n"]), repr(done["maxValues"]["n"])) == (repr(low), repr(high))
    if isinstance(values[0], str):
        assert low <= min(values) <= max(values) <= high


def test_a_column_of_nothing_has_no_lowest_value(tmp_path):
    rows = some(3)
    nothing = rows.set_column(1, "word", pa.nulls(3, pa.string()))
    stats = json.loads(written(tmp_path, [nothing])[1].stats)
    assert "word" not in stats["minValues"]
    assert stats["nullCount"]["word"] == 3


def test_rows_that_are_large_are_read_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(data_files, "_BATCH_BYTES", 1 << 12)
    file, _ = written(tmp_path, [some(100, size=10), some(2, size=20_000), some(100, size=10)])
    batches = list(read(units([file], whole=True)[0], ROWS))
    assert all(b.num_rows == 1 or b.nbytes <= 2 << 12 for b in batches)
    assert sum(b.num_rows for b in batches) == 202


def test_a_file_can_be_read_by_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(data_files, "_ROW_GROUP_BYTES", 1)
    rows = some(30)
    file, _ = written(tmp_path, [rows.slice(i, 10) for i in (0, 10, 20)])
    assert footer(file).num_row_groups == 3
    parts = units([file], whole=False)
    assert [(u.first, u.end) for u in parts] == [(0, 1), (1, 2), (2, 3)]
    assert pa.Table.from_batches(b for u in parts for b in read(u, ROWS)) == pa.Table.from_batches([rows])
    assert json.loads(written(tmp_path, [rows.slice(0, 10), rows.slice(20)])[1].stats)["maxValues"]["n"] == 29


def test_columns_that_a_file_lacks_are_null_and_others_stay_unread(tmp_path):
    file, _ = written(tmp_path, [some(3)])
    wanted = pa.schema([ROWS.field("n"), ("more", pa.string())])
    [batch] = read(units([file], whole=True)[0], wanted)
    assert batch.to_pydict() == {"n": [0, 1, 2], "more": [None] * 3}


def test_times_of_files_that_spark_wrote_are_read_to_the_microsecond(tmp_path):
    """INT96, which holds nanoseconds that don't reach beyond 2262 where pyarrow takes them for those."""
    times = pa.array([datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1)], pa.timestamp("us"))
    table = pa.table({"at": times})
    pq.write_table(table, tmp_path / "f.parquet", use_deprecated_int96_timestamps=True)
    [batch] = read(units([file_at(tmp_path / "f.parquet")], whole=True)[0], pa.schema([ROWS.field("at")]))
    assert batch.column(0).cast(pa.timestamp("us")).to_pylist() == times.to_pylist()


def test_no_rows_make_no_file_and_what_isnt_wanted_is_removed(tmp_path, monkeypatch):
    assert Output(sink(tmp_path)).close() is None
    monkeypatch.setattr(data_files, "_ROW_GROUP_BYTES", 1)
    out = Output(sink(tmp_path, partition=(("source", "shop"),)))
    out.write(some(3))
    assert list(tmp_path.rglob("*.parquet.*"))
    out.discard()
    assert not list(tmp_path.rglob("*.parquet*"))


@pytest.mark.parametrize("left", [0, 1, 8, 60])
def test_a_full_disk_is_told_by_the_name_of_the_file_and_nothing_is_left(tmp_path, monkeypatch, left):
    """At a file's first bytes, and within its rows."""
    monkeypatch.setattr(data_files, "_ROW_GROUP_BYTES", 1)
    rows = pa.record_batch([[random.randbytes(9000).hex()]], names=["word"])
    with mounted(tmp_path / "disk", "256k") as disk:
        out = Output(Sink(store_at(disk.path), rows.schema, (), ()))
        disk.leave(left << 10)
        with pytest.raises(StorageError, match=rf"^{disk.path}/part-.*\.parquet: No space left on device$") as caught:
            try:
                for _ in range(9):
                    out.write(rows)
                out.close()
            finally:
                out.discard()
        assert caught.value.retriable
        disk.empty()
        assert not list(disk.path.iterdir())


def test_files_of_a_partition_lie_in_its_folder(tmp_path):
    _, done = written(tmp_path, [some(1)], partition=(("source", "shop"),))
    assert done.path.startswith("source=shop/part-")


@pytest.mark.parametrize("whole", [True, False])
def test_an_empty_file_gives_no_rows(tmp_path, whole):
    pq.write_table(ROWS.empty_table(), tmp_path / "f.parquet")
    found = units([file_at(tmp_path / "f.parquet")], whole=whole)
    assert [b for u in found for b in read(u, ROWS)] == []


@examples(50)
@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=4), min_size=1))
def test_statistics_hold_for_any_numbers(tmp_path_factory, groups):
    folder = tmp_path_factory.mktemp("f")
    schema = pa.schema([("n", pa.int64())])
    out = Output(Sink(store_at(folder), schema, ("n",), ()))
    for group in groups:
        out.write(pa.RecordBatch.from_pydict({"n": group}, schema))
        out.flush()
    every = [n for g in groups for n in g]
    done = out.close()
    if done is None:
        assert every == []
        return
    told = [n for n in every if n is not None]
    stats = json.loads(done.stats)
    assert stats["nullCount"]["n"] == len(every) - len(told)
    ends = (min(told), max(told)) if told else (None, None)
    assert (stats["minValues"].get("n"), stats["maxValues"].get("n")) == ends
