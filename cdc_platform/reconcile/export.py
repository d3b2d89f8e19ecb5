"""A snapshot against an export: a CSV or Parquet file or a folder of them, read in the snapshot's types.

CSV: UTF-8, a header line, RFC 4180 quotes; `\\N` is NULL and an empty field the empty text. Values are the platform's
canonical text (docs/reading.md): TIMESTAMP in UTC, binary as base64, BIT(1) as 0 or 1.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.reconcile import frames
from cdc_platform.reconcile.columns import Pairing, SourceColumn, pair
from cdc_platform.reconcile.errors import ExportUnreadable
from cdc_platform.reconcile.live import bucket_count, differing
from cdc_platform.reconcile.result import TableResult, by_key, show_rows
from cdc_platform.spark.delta_sql import quoted

_EMPTY = "\ue000empty\ue000"
"""Spark reads an empty field without quotes as NULL, and so what it is told stands for NULL: nothing that occurs."""
_CSV = {
    "header": "true",
    "encoding": "UTF-8",
    "nullValue": _EMPTY,
    "emptyValue": "",
    "quote": '"',
    "escape": '"',
    "multiLine": "true",
    "mode": "FAILFAST",
    "enforceSchema": "false",
}
_MYSQL = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "bigint"),
    "boolean": "boolean",
    "float": "double",
    "double": "double",
    "string": "longtext",
    "binary": "longblob",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "datetime",
}
"""Spark type of a snapshot's column → a MySQL type whose texts suit it."""


def read(spark: SparkSession, path: str) -> DataFrame:
    """The export as it stands. Raises ExportUnreadable."""
    suffix = PurePosixPath(path).suffix.lower()
    try:
        if suffix in (".csv", ".gz"):
            return _csv(spark, path, {})
        if suffix == ".parquet":
            return spark.read.parquet(path)
        try:
            return spark.read.option("pathGlobFilter", "*.parquet").parquet(path)
        except PySparkException:
            return _csv(spark, path, {"pathGlobFilter": "*.csv*"})
    except PySparkException as error:
        raise ExportUnreadable(path, _first_line(error)) from None


def _csv(spark: SparkSession, path: str, options: dict[str, str]) -> DataFrame:
    rows = spark.read.options(**_CSV, **options).csv(path)
    values = []
    for name in rows.columns:
        value = F.coalesce(quoted(name), F.lit(""))
        values.append(F.when(value != "\\N", value).alias(name))
    return rows.select(*values)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:500]


def columns_of(export: DataFrame, snapshot: Mapping[str, str], keys: list[str]) -> list[SourceColumn]:
    """The export's columns, with the MySQL type that the snapshot's column suggests."""
    wanted = {k.lower() for k in keys}
    kept = {name.lower(): spark for name, spark in snapshot.items()}
    return [
        SourceColumn(f.name, _mysql_type(kept.get(f.name.lower(), "string")), f.name.lower() in wanted)
        for f in export.schema.fields
    ]


def _mysql_type(spark: str) -> str:
    return spark if spark.startswith("decimal") else _MYSQL.get(spark, spark)


def _typed(given: Column, spark: str, is_text: bool) -> Column:
    """A value of the export in the snapshot's type; NULL where it doesn't fit."""
    if is_text and spark == "binary":
        return F.try_to_binary(given, F.lit("base64"))
    if is_text and spark in ("date", "timestamp", "timestamp_ntz"):
        given = F.when(~given.startswith("0000"), given)  # Spark would read the year 0; a snapshot doesn't hold it
    return given.try_cast(spark)


def typed(export: DataFrame, pairing: Pairing) -> tuple[DataFrame, Column, Column]:
    """The export under the snapshot's names and types; of its own rows: whether a value doesn't fit, and how many
    dates don't exist (both NULL in the first)."""
    types = dict(export.dtypes)
    values, misfit, invalid = [], F.lit(False), F.lit(0)
    for p in pairing.pairs:
        given = F.col(quoted(p.name))
        value = _typed(given, p.spark, types[p.name] == "string")
        values.append(value.alias(p.snapshot))
        lost = given.isNotNull() & value.isNull()
        if p.text.invalid:
            invalid = invalid + lost.cast("int")
        else:
            misfit = misfit | lost
    return export.select(*values), misfit, invalid


def compare(export: DataFrame, snapshot: DataFrame, keys: list[str], result: TableResult, limit: int) -> None:
    """Fill `result` with what differs. keys: key columns; none: rows are counted, not told apart."""
    types = dict(snapshot.dtypes)
    pairing = pair(columns_of(export, types, keys), types)
    result.problems += pairing.problems
    result.not_compared |= pairing.not_compared
    missing = [k for k in keys if k.lower() not in {p.name.lower() for p in pairing.keys}]
    if not pairing.pairs or missing:
        result.problems += [f"key column {k!r} is not in the export" for k in missing]
        return
    rows, misfit, invalid = typed(export, pairing)
    misfits = export.agg(F.count_if(misfit).alias("n"), F.sum(invalid).alias("z")).collect()[0]
    result.null_dates = int(misfits["z"] or 0)
    if misfits["n"]:
        result.problems.append(f"{misfits['n']} rows of the export hold values that don't fit the snapshot's types")
    own = Pairing(tuple(replace(p, name=p.snapshot) for p in pairing.pairs), (), {})  # both carry its names now
    result.buckets = bucket_count(snapshot.count())
    expected, actual = (frames.sums(f, own, result.buckets) for f in (rows, snapshot))
    result.expected_rows, result.actual_rows = (sum(n for n, _, _ in s.values()) for s in (expected, actual))
    wrong = differing(expected, actual)
    result.differing_buckets = len(wrong)
    if not wrong:
        return
    sides = [frames.digests(f, own, result.buckets, wrong) for f in (rows, snapshot)]
    counts, found = frames.differences(sides[0], sides[1], limit)
    result.missing, result.extra, result.changed = (counts.get(k, 0) for k in ("missing", "extra", "changed"))
    wanted = [d.digest for d in found]
    shown = [by_key(frames.rows(f, own, wanted)) for f in (rows, snapshot)]
    result.differences = show_rows(own, found, shown[0], shown[1])
