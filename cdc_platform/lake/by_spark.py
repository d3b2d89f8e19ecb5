"""Delta tables of the lake: made on first use, written idempotently, streamed from one into the next."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampNTZType
from pyspark.sql.utils import is_remote

from cdc_platform.lake import delta_table
from cdc_platform.lake.writer_lock import commit_turn
from cdc_platform.tables import Table

T = TypeVar("T")

AT_ONCE = 4
"""Writes and tables worked on at once by one batch: planning and commits of one overlap the work of others."""


def quoted(name: str) -> str:
    """A name as a Spark SQL identifier; names from the wire come into SQL text only through here."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def delta(path: str) -> str:
    """A path as a table name in SQL."""
    return f"delta.{quoted(path)}"


_SEEN: set[str] = set()
"""Lakes of which this process has seen a table: a new one it can make by itself, in a tenth of Spark's time (of which
a process's first one takes 1.8 s)."""


def ensure(spark: SparkSession, table: Table, path: str) -> str:
    """Make the table at `path` if it isn't there, and add the columns that an earlier version's table lacks. Returns
    the path."""
    lake = path.rsplit("/", table.path.count("/") + 1)[0]
    seen = lake in _SEEN or (path.startswith("/") and _all_here(spark))
    if seen and not Path(path).exists():
        schema = StructType.fromDDL(table.columns).json()
        delta_table.create(path, schema, table.properties, table.comment, table.partition_by)
    elif not exists(spark, path):
        try:
            with commit_turn(spark, path):
                create(spark, path, table.columns, table.properties, table.comment, table.partition_by)
        except Exception:
            # The first runs of two sources make the shared tables at the same time: one of them is told of a conflict.
            if not exists(spark, path):
                raise
    if table.added:
        _add_columns(spark, table, path)
    if delta_table.is_table(path):
        _SEEN.add(lake)
    return path


def _add_columns(spark: SparkSession, table: Table, path: str) -> None:
    """Those of `table.added` that the table at `path` lacks."""

    def lacking() -> list[str]:
        there = delta_table.schema(path) or read(spark, path).schema
        return [c for c in table.added if c not in there.names]

    missing = lacking()
    if not missing:
        return
    declared = cast(StructType, StructType.fromDDL(table.columns))
    fields = StructType([f for f in declared if f.name in missing])
    if delta_table.add_columns(path, fields.json()):
        return
    columns = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" + _commented(f) for f in fields)
    try:
        with commit_turn(spark, path):
            spark.sql(f"ALTER TABLE {delta(path)} ADD COLUMNS ({columns})")
    except Exception:
        # The first runs of two sources do so at the same time: one of them is told of a conflict.
        if lacking():
            raise


def _commented(field: StructField) -> str:
    comment = field.metadata.get("comment")
    return f" COMMENT {literal(comment)}" if comment else ""


def _all_here(spark: SparkSession) -> bool:
    """Whether all of Spark runs on this machine, started by this process: they see the same folders."""
    return not is_remote() and (spark.conf.get("spark.master", "") or "").startswith(("local[", "local-cluster["))


def create(
    spark: SparkSession,
    path: str,
    columns: str,
    properties: dict[str, str],
    comment: str,
    partition_by: tuple[str, ...] = (),
) -> None:
    """CREATE TABLE at a path, if it isn't there."""
    partition = f" PARTITIONED BY ({', '.join(map(quoted, partition_by))})" if partition_by else ""
    tblproperties = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in properties.items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {delta(path)} ({columns}) USING delta{partition} COMMENT {literal(comment)}"
        + (f" TBLPROPERTIES ({tblproperties})" if tblproperties else "")
    )


def replace(spark: SparkSession, path: str, columns: str) -> None:
    """An empty table with these columns in place of the one that is there; its properties stay."""
    # Not CREATE OR REPLACE: with column mapping Delta refuses other columns there.
    _allow(spark, path, columns)
    empty = spark.createDataFrame([], columns)
    empty.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)


def add_column(spark: SparkSession, path: str, name: str, spark_type: str, after: str | None) -> None:
    """A new column behind another one; None: before all."""
    _allow(spark, path, spark_type)
    place = f"AFTER {quoted(after)}" if after is not None else "FIRST"
    spark.sql(f"ALTER TABLE {delta(path)} ADD COLUMNS ({quoted(name)} {spark_type} {place})")


def _allow(spark: SparkSession, path: str, columns: str) -> None:
    """Lets a table have columns of TIMESTAMP_NTZ: Delta does so by itself only when it makes a table with one."""
    new = "timestamp_ntz" in columns.lower()
    if new and not any(f.dataType == TimestampNTZType() for f in read(spark, path).schema.fields):
        spark.sql(f"ALTER TABLE {delta(path)} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")


def exists(spark: SparkSession, path: str, *, beside: str | None = None) -> bool:
    """Whether a Delta table with at least one commit is there. beside: a table of the same lake that surely is: who
    sees that one need not ask Spark, which takes 40 ms to say that nothing is there."""
    from pyspark.errors import AnalysisException

    if delta_table.is_table(path):
        return True
    if beside is not None and path.startswith("/") and delta_table.is_table(beside) and not Path(path).exists():
        return False
    try:
        spark.read.format("delta").load(path).schema  # noqa: B018 - Connect is lazy; the schema makes it look
    except AnalysisException as error:
        if error.getCondition() in (
            "DELTA_TABLE_NOT_FOUND",
            "DELTA_PATH_DOES_NOT_EXIST",
            "PATH_NOT_FOUND",
            "DELTA_SCHEMA_NOT_SET",
            "DELTA_MISSING_DELTA_TABLE",
            "DELTA_READ_TABLE_WITHOUT_COLUMNS",
        ):
            return False
        raise
    return True


def read(spark: SparkSession, path: str) -> DataFrame:
    """The table's present rows."""
    return spark.read.format("delta").load(path)


def version(spark: SparkSession, path: str) -> int:
    """Number of the table's newest commit."""
    if (seen := delta_table.version(path)) is not None:
        return seen
    return spark.sql(f"DESCRIBE HISTORY {delta(path)} LIMIT 1").collect()[0]["version"]


def append(df: DataFrame, path: str) -> None:
    """Append `df`."""
    with commit_turn(df.sparkSession, path):
        df.write.format("delta").mode("append").save(path)


def append_once(df: DataFrame, path: str, app: str, version: int) -> None:
    """Append `df`, at most once per (`app`, `version`): a repeated batch writes nothing."""
    once = df.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", version)
    with commit_turn(df.sparkSession, path):
        once.save(path)


def append_batch(df: DataFrame, path: str, of: str) -> None:
    """Append the rows of one batch to a table whose rows name their batch, unless it has some of it (`of`, SQL as
    `delta_table.ask` takes it): as `append_once`, for which Delta computes the whole state of the table each time. Only
    for who is alone in writing rows `of`."""
    if not delta_table.ask(df.sparkSession, f"SELECT 1 AS there FROM {{t}} WHERE {of} LIMIT 1", t=path):
        append(df, path)


def append_rows(
    spark: SparkSession,
    path: str,
    rows: list[dict[str, Any]],
    *,
    of: str | None = None,
    once: tuple[str, int] | None = None,
) -> None:
    """Append a few rows; columns they lack are NULL, `at` is now. of: unless the table has rows of that batch, as
    `append_batch`; once: as `append_once`. Where this process sees the table delta-rs does it, in a tenth of Spark's
    time."""
    if not rows or (
        of is not None and delta_table.ask(spark, f"SELECT 1 AS there FROM {{t}} WHERE {of} LIMIT 1", t=path)
    ):
        return
    if delta_table.append(path, rows, once):
        return
    schema = read(spark, path).schema
    frame = spark.createDataFrame([tuple(r.get(n) for n in schema.names) for r in rows], schema)
    frame = frame.withColumn("at", F.current_timestamp()) if "at" in schema.names else frame
    if once is None:
        append(frame, path)
    else:
        append_once(frame, path, *once)


def stream(spark: SparkSession, path: str, max_bytes: str) -> DataFrame:
    """The table as a stream of commits from the first on, in bounded batches.

    From the first commit and not from a snapshot: commits keep the order in which records were landed.
    """
    return (
        spark.readStream.format("delta")
        .option("startingVersion", "0")
        .option("maxBytesPerTrigger", max_bytes)
        .option("ignoreDeletes", "false")
        .load(path)
    )


def into_table(df: DataFrame, path: str, checkpoint: str, name: str) -> list[dict[str, Any]]:
    """Append all there is now to a Delta table, exactly once; returns the progress of every batch."""
    writer = (
        df.writeStream.queryName(name).format("delta").outputMode("append").option("checkpointLocation", checkpoint)
    )
    return finish(writer.trigger(availableNow=True).start(path))


def finish(query: Any) -> list[dict[str, Any]]:
    """Wait for an AvailableNow query; stops it when the caller is interrupted (a terminated Dagster run)."""
    try:
        query.awaitTermination()
    except BaseException:
        query.stop()
        raise
    # The rows by property: over Connect the progress' own dict leaves the sum of its sources out.
    return [{**json.loads(p.json), "numInputRows": p.numInputRows} for p in query.recentProgress]


def together(work: list[Callable[[], T]]) -> list[T]:
    """Run independent pieces of a batch at the same time; results in order; the first error is raised when all
    have ended."""
    if len(work) <= 1:
        return [w() for w in work]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [f.result() for f in [pool.submit(w) for w in work]]


def input_rows(progress: list[dict[str, Any]]) -> int:
    """Rows that came in over all batches of an `into_table`."""
    return sum(int(p["numInputRows"]) for p in progress)


def batches(progress: list[dict[str, Any]]) -> list[int]:
    """Ids of the batches that held data. (`foreachBatch` counts its rows once per use: no measure of them.)"""
    return [int(p["batchId"]) for p in progress if int(p["numInputRows"]) > 0]


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._start, 3)
