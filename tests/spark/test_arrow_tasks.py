"""Passes over files by Spark's workers, and the commits that name what they wrote."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from cdc_platform.errors import LakeNotShared, StorageError
from cdc_platform.lake import commits, data_files, stores
from cdc_platform.lake.data_files import Sink, Unit
from cdc_platform.spark import arrow_tasks, delta_sql
from tests.lakes import file_at, store_at
from tests.s3_server import SECRET

pytestmark = pytest.mark.spark

NUMBERS = pa.schema([("n", pa.int32())])


def doubled(batches, out):
    """Twice each number into `twice`; tells their sum."""
    total = 0
    for batch in batches:
        total += pc.sum(batch.column(0)).as_py()
        if "twice" in out:
            twice = pc.multiply(batch.column(0), pa.scalar(2, pa.int32()))
            out["twice"].write(pa.RecordBatch.from_arrays([twice], schema=NUMBERS))
    return total


def dies(batches, out):
    doubled(batches, out)
    raise ValueError("in the middle of it")


class Tables:
    """A table that is read, and one that is written."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.read, self.write = store_at(folder / "read"), store_at(folder / "write")
        for path in (self.read, self.write):
            spark.sql(
                f"CREATE TABLE {delta_sql.delta(path)} (source STRING, n INT) USING delta PARTITIONED BY (source)"
            )
        rows = spark.range(100).selectExpr("'a' AS source", "CAST(id AS INT) AS n").repartition(4)
        rows.write.format("delta").mode("append").save(self.read.uri())
        self.sink = Sink(self.write, NUMBERS, ("n",), (), (("source", "a"),))

    @property
    def files(self):
        return [file_at(p) for p in Path(self.read.uri()).rglob("*.parquet")]

    def over(self, work, sinks=None):
        found = {"twice": self.sink} if sinks is None else sinks
        return arrow_tasks.over(self.spark, self.files, NUMBERS, work, found, whole=True)

    def rows(self):
        return sorted(r["n"] for r in delta_sql.read(self.spark, self.write).where("source = 'a'").collect())


@pytest.fixture
def tables(spark, tmp_path):
    return Tables(spark, tmp_path)


@pytest.mark.parametrize("bytes_", [1, 1 << 30])
def test_every_file_is_read_once_in_few_tasks_or_many(tables, monkeypatch, bytes_):
    monkeypatch.setattr(arrow_tasks, "_LEAST", bytes_)
    monkeypatch.setattr(arrow_tasks, "_MOST", bytes_)
    done = tables.over(doubled)
    assert sum(done.told) == sum(range(100))
    assert len(done.told) == len(done.written["twice"]) == (4 if bytes_ == 1 else 1)
    commits.append_files(tables.sink, done.written["twice"], ("app", 0))
    assert tables.rows() == [2 * n for n in range(100)]


MB = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([], 2, []),
        ([0, 0], 2, [2]),
        ([1] * 9, 2, [9]),  # little is one task
        ([16] * 40, 2, [7, 6, 7, 7, 6, 7]),  # as large as tasks may be
        ([64] * 6, 2, [1] * 6),  # four tasks of one, two, one and two files would leave a core idle
        ([64] * 6, 3, [2] * 3),
        ([300, 10, 10, 10], 2, [1, 3]),
        ([100] * 3, 64, [1] * 3),
    ],
)
def test_tasks_keep_the_cores_busy(sizes, cores, tasks):
    all_units = [Unit(file_at(f"/f{i}"), 0, 1, size * MB) for i, size in enumerate(sizes)]
    found = arrow_tasks.shared_out(all_units, cores)
    assert [len(task) for task in found] == tasks
    assert [unit for task in found for unit in task] == all_units


def test_a_commit_is_made_once(tables):
    done = tables.over(doubled)
    assert not commits.done_before(tables.write, "app", 7)
    for _ in range(2):
        commits.append_files(tables.sink, done.written["twice"], ("app", 7))
    assert tables.rows() == [2 * n for n in range(100)]
    assert [commits.done_before(tables.write, "app", n) for n in (6, 7, 8)] == [True, True, False]
    assert not commits.done_before(tables.write, "other", 7)
    commits.append_files(tables.sink, tables.over(doubled).written["twice"], ("app", 8))
    assert len(tables.rows()) == 200


def test_spark_knows_the_commits_of_files_and_they_know_sparks(tables):
    frame = tables.spark.createDataFrame([("a", 5)], "source STRING, n INT")
    delta_sql.append_once(frame, tables.write, "app", 3)
    assert commits.done_before(tables.write, "app", 3)
    commits.append_files(tables.sink, tables.over(doubled).written["twice"], ("app", 3))
    assert tables.rows() == [5]
    commits.append_files(tables.sink, tables.over(doubled).written["twice"], ("app", 4))
    delta_sql.append_once(frame, tables.write, "app", 4)
    assert len(tables.rows()) == 101


def test_statistics_of_the_log_leave_files_out(tables):
    commits.append_files(tables.sink, tables.over(doubled).written["twice"], ("app", 0))
    found = delta_sql.read(tables.spark, tables.write).where("n > 1000")
    assert found.collect() == []
    adds = pa.table(DeltaTable(tables.write.uri()).get_add_actions(flatten=True)).to_pylist()
    assert (min(a["min.n"] for a in adds), max(a["max.n"] for a in adds)) == (0, 198)
    assert sum(a["num_records"] for a in adds) == 100


def test_work_that_fails_leaves_nothing(tables, monkeypatch):
    monkeypatch.setattr(data_files, "_ROW_GROUP_BYTES", 1)
    with pytest.raises(Exception, match="in the middle of it"):
        tables.over(dies)
    assert not list(Path(tables.write.uri()).rglob("*.parquet*"))
    assert tables.rows() == []


def test_without_outputs_it_only_tells(tables):
    done = tables.over(doubled, {})
    assert (sum(done.told), done.written) == (sum(range(100)), {})


def test_no_files_are_no_tasks(tables):
    done = arrow_tasks.over(tables.spark, [], NUMBERS, doubled, {"twice": tables.sink}, whole=True)
    assert (done.told, done.written) == ([], {"twice": []})
    commits.append_files(tables.sink, [], ("app", 1))
    assert commits.done_before(tables.write, "app", 1)
    assert tables.rows() == []


def test_an_executor_that_does_not_see_the_lake_is_told(tables, tmp_path):
    """As where its host lacks the folder that the driver has made."""
    elsewhere = Sink(store_at(tmp_path / "no" / "table"), NUMBERS, (), (), (("source", "a"),))
    with pytest.raises(LakeNotShared, match="no/table: driver and executors don't share the lake"):
        tables.over(doubled, {"twice": elsewhere})


@pytest.mark.s3
def test_a_store_that_refuses_what_tasks_write_is_told_in_a_line(tables, s3_storage):
    nowhere = Sink(stores.of("s3://no-such-bucket/t", s3_storage), NUMBERS, (), ())
    with pytest.raises(StorageError, match="there is no such bucket") as told:
        tables.over(doubled, {"twice": nowhere})
    assert "\n" not in str(told.value)
    assert SECRET not in str(told.value)
    assert not told.value.retriable


@pytest.mark.parametrize("retriable", [True, False])
def test_whether_a_retry_mends_what_a_task_fails_of_is_told(tables, retriable):
    def fails(_batches, _out):
        raise StorageError("s3://b/x", "told by the store", retriable=retriable)

    with pytest.raises(StorageError, match=r"^s3://b/x: told by the store$") as told:
        tables.over(fails)
    assert told.value.retriable is retriable


def test_a_frame_is_appended_once_and_with_no_column_that_the_table_lacks(tables):
    rows = tables.spark.range(3).selectExpr("'a' AS source", "CAST(id AS INT) AS n")
    for _ in range(2):
        arrow_tasks.append(rows, tables.write, ("app", 1), source="a")
    assert tables.rows() == [0, 1, 2]
    arrow_tasks.append(rows.select("source"), tables.write, source="a")
    assert [r["n"] for r in delta_sql.read(tables.spark, tables.write).collect()].count(None) == 3
    with pytest.raises(ValueError, match=r"has no columns \['m'\]"):
        arrow_tasks.append(rows.withColumnRenamed("n", "m"), tables.write, source="a")
