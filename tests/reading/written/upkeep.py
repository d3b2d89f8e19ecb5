"""By what is done to them besides: checkpoints, OPTIMIZE, what their owners set."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.reading.source_tables import Table
from tests.reading.written.case import PLAIN, case, rows


@case("a checkpoint of delta-rs with vectors in it, and commits after it")
def checkpointed(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    t.configure(checkpointInterval="2")
    t.delete("1")
    yield
    t.delete("2")
    yield
    t.delete("3")
    t.insert(*rows(2, 20))
    yield
    t.delete("20")
    yield


@case("the same, and the log before the checkpoint is gone")
def cleaned(t: Table) -> Iterator[None]:
    yield from checkpointed(t)
    log = Path(t.snapshot.uri(), "_delta_log")
    newest = max(int(p.name[:20]) for p in log.glob("*.checkpoint.parquet"))
    for commit in log.glob("*.json"):
        if int(commit.name[:20]) < newest:
            commit.unlink()


@case("Spark's checkpoint with vectors in it, and a commit after it")
def checkpoint_by_spark(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    t.delete("1")
    yield
    _checkpoint(t)
    t.delete("2")
    yield


@case("a checkpoint in parts, and commits after it")
def checkpoint_in_parts(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    t.insert(*rows(8, 20))
    t.delete("1")
    yield
    t.feed.spark.conf.set("spark.databricks.delta.checkpoint.partSize", "1")
    try:
        _checkpoint(t)
    finally:
        t.feed.spark.conf.unset("spark.databricks.delta.checkpoint.partSize")
    assert list(Path(t.snapshot.uri()).glob("_delta_log/*.checkpoint.*.parquet"))
    t.delete("2")
    yield


@case("checkpoints of version 2, which the table's owner asked for", by_spark=True)
def checkpoint_of_version_2(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    t.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    t.delete("1")
    yield
    _checkpoint(t)
    t.delete("2")
    yield


@case("a change data feed, which the table's owner asked for", by_spark=True)
def change_feed(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    t.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    t.delete("1")
    yield


@case("OPTIMIZE after vectors, and a vector after it")
def optimized(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    t.insert(*rows(8, 20))
    t.delete("1")
    yield
    t.sql("OPTIMIZE {}")
    t.delete("2", "21")
    yield


@case("vectors purged", vectors=False, marks=True)
def purged(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    t.delete("1")
    yield
    t.sql("REORG TABLE {} APPLY (PURGE)")


@case("an older version restored, and changes after it")
def restored(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    t.delete("1")
    yield
    marked = t.snapshot.uri(), max(t.snapshot.commits(0))
    t.delete("2")
    yield
    t.sql(f"RESTORE TABLE {{}} TO VERSION AS OF {marked[1]}")
    t.rows["2",] = {"id": "2", "a": "a2"}
    t.delete("3")
    yield


@case("vectors taken away: `readers: any` from then on", vectors=False)
def any_again(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    # As a run with `readers: fast` left it.
    t.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    t.sql("DELETE FROM {} WHERE id = 7")
    del t.rows["7",]
    t.delete("1")
    yield


@case("files written anew: `readers: any`", vectors=False)
def any_rewritten(t: Table) -> Iterator[None]:
    t.has(PLAIN)
    t.insert(*rows(8))
    yield
    t.delete("1")
    t.update("2", a="new")
    yield


def _checkpoint(t: Table) -> None:
    jvm: Any = t.feed.spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(t.feed.spark._jsparkSession, t.snapshot.uri())
    nothing = jvm.scala.Option.empty()
    log.checkpoint(log.update(False, nothing, nothing), nothing)
