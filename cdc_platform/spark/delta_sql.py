"""Delta tables of the lake: made on first use, written idempotently, streamed from one into the next."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cached_property
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampNTZType

from cdc_platform.lake import delta_table, metadata_commits
from cdc_platform.lake.new_tables import ensure as ensure  # noqa: PLC0414 - Spark's rooms make tables by it
from cdc_platform.lake.store import File, Store
from cdc_platform.tables.columns import literal, quoted

T = TypeVar("T")

AT_ONCE = 4
"""Writes and tables worked on at once by one batch: planning and commits of one overlap the work of others."""
REQUESTS_AT_ONCE = 16
"""The same where all of the work is to wait for a store that is asked over the network."""


def delta(path: Store) -> str:
    """A table's name in SQL."""
    return f"delta.{quoted(path.spark_uri())}"


def create(
    spark: SparkSession,
    path: Store,
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


def replace(spark: SparkSession, path: Store, columns: str) -> None:
    """An empty table with these columns in place of the one that is there; its properties stay."""
    # Not CREATE OR REPLACE: with column mapping Delta refuses other columns there.
    _allow(spark, path, columns)
    empty = spark.createDataFrame([], columns)
    empty.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path.spark_uri())


def overwrite(rows: DataFrame, path: Store, columns: str | None = None) -> None:
    """Rows, with these columns if not their own, in place of what a table has, in one commit; its properties stay."""
    _allow(rows.sparkSession, path, columns or rows.schema.simpleString())
    schema = rows.sparkSession.createDataFrame([], columns).schema if columns else rows.schema
    named = rows.select(*(F.col(quoted(f.name)).cast(f.dataType).alias(f.name, metadata=f.metadata) for f in schema))
    named.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path.spark_uri())


def configure(spark: SparkSession, path: Store, changes: Mapping[str, str | None]) -> None:
    """Set properties of a table that ask nothing of who writes it; None: take one away."""
    if metadata_commits.configure(path, changes):
        return
    told = [f"{literal(n)} = {literal(v)}" for n, v in changes.items() if v is not None]
    gone = [literal(n) for n, v in changes.items() if v is None]
    for what, parts in (("SET TBLPROPERTIES", told), ("UNSET TBLPROPERTIES IF EXISTS", gone)):
        if parts:
            spark.sql(f"ALTER TABLE {delta(path)} {what} ({', '.join(parts)})")


def _allow(spark: SparkSession, path: Store, columns: str) -> None:
    """Lets a table have columns of TIMESTAMP_NTZ: Delta does so by itself only when it makes a table with one."""
    new = "timestamp_ntz" in columns.lower()
    if new and TimestampNTZType() not in _types(read(spark, path).schema):
        spark.sql(f"ALTER TABLE {delta(path)} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")


def _types(of: StructType) -> Iterator[DataType]:
    """Types of all columns, those within structs, too."""
    for f in of.fields:
        yield from _types(f.dataType) if isinstance(f.dataType, StructType) else (f.dataType,)


def read(spark: SparkSession, path: Store) -> DataFrame:
    """The table's present rows."""
    return spark.read.format("delta").load(path.spark_uri())


def append(df: DataFrame, path: Store) -> None:
    """Append `df` to a table that this run alone writes."""
    df.write.format("delta").mode("append").save(path.spark_uri())


def append_once(df: DataFrame, path: Store, app: str, version: int) -> None:
    """The same, at most once per (`app`, `version`): a repeated batch writes nothing."""
    once = df.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", version)
    once.save(path.spark_uri())


def schema(path: Store) -> StructType:
    """Columns of a table, by its log."""
    return StructType.fromJson(json.loads(delta_table.schema_json(path)))


def rows_of(spark: SparkSession, path: Store, files: list[File], **partition: str) -> DataFrame:
    """The rows of some data files of a table (of one of its partitions) without deletion vectors and column mapping:
    they hold them as they are, but for the values of partition columns (Delta's protocol, "Reader Requirements")."""
    every = schema(path)
    if not files:
        return spark.createDataFrame([], every)
    stored = StructType([f for f in every.fields if f.name not in partition])
    rows = spark.read.schema(stored).parquet(*(_plain(f.store.spark_uri(f.path)) for f in files))
    return rows.select(*(F.lit(partition[n]).alias(n) if n in partition else F.col(n) for n in every.names))


class Rows:
    """A DataFrame that is made when it is first asked for: to make one of files, Spark asks the store for each."""

    def __init__(self, spark: SparkSession, make: Callable[[], DataFrame]):
        self.spark = spark
        self._make = make

    @classmethod
    def of(cls, df: DataFrame) -> "Rows":
        """One that is made already."""
        return cls(df.sparkSession, lambda: df)

    @cached_property
    def df(self) -> DataFrame:
        """Itself."""
        return self._make()


def _plain(path: str) -> str:
    """A path to what reads paths, which takes some characters for patterns."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def run_parallel(work: list[Callable[[], T]], at_once: int = AT_ONCE) -> list[T]:
    """Run independent pieces of a batch at the same time; results in order; the first error is raised when all
    have ended."""
    if len(work) <= 1:
        return [w() for w in work]
    with ThreadPoolExecutor(at_once) as pool:
        return [f.result() for f in [pool.submit(copy_context().run, w) for w in work]]


def ask_parallel(lake: Store, work: list[Callable[[], T]]) -> list[T]:
    """The same of looks at files and tables of a lake."""
    return run_parallel(work, REQUESTS_AT_ONCE if lake.remote else AT_ONCE)
