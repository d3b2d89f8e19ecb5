"""Batches of an append-only table; those of a checkpoint that a streaming query of an earlier version began, too."""

import json
import shutil
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import batches, checkpoints, delta_table
from cdc_platform.spark import delta_sql
from tests.lakes import file_at, store_at

pytestmark = pytest.mark.spark


class Growing:
    """A table, its checkpoint and what its batches held."""

    def __init__(self, spark, folder):
        self.spark, self.path, self.checkpoint = spark, store_at(folder / "table"), folder / "checkpoint"
        self.seen = []
        spark.sql(
            f"CREATE TABLE {delta_sql.delta(self.path)} (source STRING, n INT) USING delta PARTITIONED BY (source)"
        )

    def add(self, *rows, files=1):
        frame = self.spark.createDataFrame(rows, "source STRING, n INT").repartitionByRange(files, "n")
        frame.write.format("delta").mode("append").save(self.path.uri())

    def each(self, spark, files, number, **partition):
        rows = delta_sql.rows_of(spark, self.path, files, **partition)
        assert rows.columns == ["source", "n"]
        self.seen.append((number, sorted((r["source"], r["n"]) for r in rows.collect())))

    def catch_up(self, max_bytes="1", each=None, **partition):
        work = each or partial(self.each, **partition)
        return batches.for_each(self.spark, self.path, max_bytes, store_at(self.checkpoint), work, **partition)

    def stream(self, each):
        """All there is, by a streaming query on the same checkpoint, as earlier versions did on object stores."""
        reader = self.spark.readStream.format("delta").option("startingVersion", "0").option("maxBytesPerTrigger", "1")
        files = reader.load(self.path.uri()).select(F.input_file_name().alias("file"))

        def batch(frame, number):
            each(
                self.spark,
                [file_at(urlsplit(f).path) for f in sorted(unquote(r["file"]) for r in frame.distinct().collect())],
                number,
            )

        query = files.writeStream.option("checkpointLocation", str(self.checkpoint)).foreachBatch(batch)
        query.trigger(availableNow=True).start().awaitTermination()

    def taken(self):
        """What batches held since this was last asked."""
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def table(spark, tmp_path):
    return Growing(spark, tmp_path)


def test_a_batch_is_a_scan_of_its_files(spark, tmp_path):
    table = Growing(spark, tmp_path / "l[a]ke {b} 100% *ü")
    table.add(("a", 1), ("b%20 c", 2))
    table.add(("a", 3))
    table.add(("b%20 c", 4), ("b%20 c", 5))
    catch_up = lambda: table.catch_up(source="b%20 c")  # noqa: E731
    assert len(catch_up()) == 2
    assert [rows for _, rows in table.taken()] == [[("b%20 c", 2)], [("b%20 c", 4), ("b%20 c", 5)]]
    assert catch_up() == []
    table.add(("b%20 c", 6))
    catch_up()
    assert [rows for _, rows in table.taken() if rows] == [[("b%20 c", 6)]]


def test_bytes_bound_a_batch(table):
    for n in range(6):
        table.add(("a", n))
    sizes = delta_table.sizes(table.path) or []  # not all alike: what zstd makes of them differs by a byte or two
    assert max(sizes) + 1 < 2 * min(sizes)
    assert table.catch_up(str(max(sizes) + 1)) == [0, 1, 2]
    assert [[n for _, n in rows] for _, rows in table.taken()] == [[0, 1], [2, 3], [4, 5]]
    table.add(("a", 6))
    table.add(("a", 7))
    assert table.catch_up("1k") == [3]


@pytest.mark.parametrize(("first", "killed"), [("tasks", 0), ("tasks", 2), ("query", 2)])
def test_a_batch_that_was_killed_is_done_again(table, first, killed):
    """In the middle of a commit of four files; with the same file, whatever came since."""
    table.add(*(("a", n) for n in range(4)), files=4)
    table.add(("a", 4))

    def dies(spark, files, number):
        table.each(spark, files, number)
        if number == killed:
            raise RuntimeError("killed")

    with pytest.raises(Exception, match="killed"):
        table.catch_up(each=dies) if first == "tasks" else table.stream(dies)
    assert batches.unfinished(store_at(table.checkpoint))
    before = table.taken()
    table.add(("a", 5))
    assert table.catch_up() == list(range(killed, 6))
    assert not batches.unfinished(store_at(table.checkpoint))
    after = table.taken()
    assert after[0] == before[-1]
    assert sorted(n for _, rows in before[:-1] + after for _, n in rows) == [0, 1, 2, 3, 4, 5]
    assert table.catch_up() == []


def test_rewritten_files_are_no_new_rows(table):
    for n in range(3):
        table.add(("a", n))
    assert table.catch_up("1m") == [0]
    table.spark.sql(f"OPTIMIZE {delta_sql.delta(table.path)}").collect()
    assert DeltaTable(table.path.uri()).version() == 4, "files were put together"
    assert table.catch_up("1m") == []
    table.add(("a", 3))
    assert table.catch_up("1m") == [1]
    assert [rows for _, rows in table.taken()][1:] == [[("a", 3)]]


def test_many_commits_of_others_are_looked_at_once(table, monkeypatch):
    monkeypatch.setattr(batches, "_IDLE", 3)
    for n in range(4):
        table.add(("b", n))
        assert table.catch_up(source="a") == []
    [(_, none)] = table.taken()
    assert none == []
    table.add(("a", 9))
    assert len(table.catch_up(source="a")) == 1
    assert [rows for _, rows in table.taken()] == [[("a", 9)]]


def test_old_entries_of_the_checkpoint_go(table, monkeypatch):
    monkeypatch.setattr(checkpoints, "_KEPT", 2)
    for n in range(5):
        table.add(("a", n))
    table.catch_up()
    left = {log: sorted(f.name for f in (table.checkpoint / log).iterdir()) for log in ("offsets", "commits")}
    assert left == {"offsets": ["3", "4"], "commits": ["3", "4"]}
    table.add(("a", 5))
    assert table.catch_up() == [5]


def _deleted(table):
    table.spark.sql(f"DELETE FROM {delta_sql.delta(table.path)} WHERE n = 1")


def _overwritten(table):
    rows = table.spark.createDataFrame([("a", 7)], "source STRING, n INT")
    rows.write.format("delta").mode("overwrite").save(table.path.uri())


def _commit_gone(table):
    table.add(("a", 2))
    table.add(("a", 3))
    Path(table.path.uri(), "_delta_log", f"{2:020d}.json").unlink()


def _made_anew(table):
    shutil.rmtree(table.path.uri())
    again = Growing(table.spark, Path(table.path.uri()).parent)
    for n in range(3):
        again.add(("a", n))


def _id_kept_but_shorter(table):
    name = table.checkpoint / "offsets" / "0"
    *head, last = name.read_text().splitlines()
    name.write_text("\n".join([*head, json.dumps({**json.loads(last), "reservoirVersion": 9})]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_deleted, "commit 2 removes rows"),
        (_overwritten, "commit 2 removes rows"),
        (_commit_gone, "commit 2 is gone from its log"),
        (_made_anew, "made anew"),
        (_id_kept_but_shorter, "newest commit is 1, read was up to 8"),
    ],
)
def test_a_table_that_did_not_only_grow_is_told(table, change, problem):
    table.add(("a", 1))
    table.catch_up()
    change(table)
    with pytest.raises(LakeChanged, match=problem):
        table.catch_up()


def test_a_checkpoint_that_lacks_a_batch_is_told(table):
    for n in range(3):
        table.add(("a", n))
    table.catch_up()
    for n in (1, 2):
        (table.checkpoint / "commits" / f"{n}").unlink()
    with pytest.raises(LakeChanged, match="batch 0 is done, and batch 2 was begun"):
        table.catch_up()
