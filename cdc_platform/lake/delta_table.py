"""The platform's own small tables: which there are, at which version, and questions about their rows.

A question to Spark takes half a second of planning and jobs, whatever the table holds, and a run has some twenty. Where
the lake is a folder that this process sees too, delta-rs answers in milliseconds; everywhere else Spark does, from the
same SQL. What isn't there for delta-rs is asked of Spark: this process may run where only Spark's side sees the lake.
"""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cdc_platform.lake.writer_lock import turn_alone, turn_of_files, turn_to_make


def is_table(path: str) -> bool:
    """Whether a Delta table with a commit is there, as far as this process sees; False says nothing."""
    from deltalake import DeltaTable

    return path.startswith("/") and Path(path, "_delta_log").is_dir() and DeltaTable.is_deltatable(path)


def version(path: str) -> int | None:
    """Number of the newest commit of a table that `is_table`; None: it isn't for this process to see."""
    from deltalake import DeltaTable

    return DeltaTable(path).version() if is_table(path) else None


def properties(path: str) -> dict[str, str] | None:
    """Properties of a table that `is_table`; None: it isn't for this process to see."""
    from deltalake import DeltaTable

    return DeltaTable(path).metadata().configuration if is_table(path) else None


def protocol(path: str) -> tuple[set[str], dict[str, str], int] | None:
    """Of a table that `is_table` the features that its protocol names one by one, its properties, and the bytes of its
    data files; None: it isn't for this process to see."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    if not is_table(path):
        return None
    table = DeltaTable(path)
    told, metadata = table.protocol(), table.metadata()
    named = {*(told.reader_features or ()), *(told.writer_features or ())}
    size = pc.sum(pa.table(table.get_add_actions())["size_bytes"], min_count=0).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    return named, metadata.configuration, size


def schema(path: str) -> StructType | None:
    """Columns of a table that `is_table`, as Spark has them (Delta's log tells them in Spark's own JSON: its protocol,
    "Schema Serialization Format"); None: it isn't for this process to see."""
    from deltalake import DeltaTable

    return StructType.fromJson(json.loads(DeltaTable(path).schema().to_json())) if is_table(path) else None


def described(path: str) -> tuple[StructType, str] | None:
    """Columns, as `schema` has them, and comment of a table that `is_table`; None: it isn't for this process to see."""
    from deltalake import DeltaTable

    if not is_table(path):
        return None
    table = DeltaTable(path)
    return StructType.fromJson(json.loads(table.schema().to_json())), table.metadata().description or ""


def file_fields(path: str) -> dict[str, Any] | None:
    """Columns of the data files of a table that `is_table`, in order, by their names for readers: as Arrow has them,
    with the names and numbers that it maps its columns to (Delta's protocol, "Column Mapping"), and their comments left
    out; None: it isn't for this process to see."""
    import pyarrow as pa
    from deltalake import DeltaTable

    if not is_table(path):
        return None
    return {f.name: _in_files(f) for f in pa.schema(DeltaTable(path).schema().to_arrow())}


def _in_files(field: Any) -> Any:
    import pyarrow as pa

    told = field.metadata or {}
    type_ = pa.struct([_in_files(f) for f in field.type]) if pa.types.is_struct(field.type) else field.type
    number = told.get(b"delta.columnMapping.id")
    name = told.get(b"delta.columnMapping.physicalName", field.name.encode()).decode()
    return pa.field(name, type_, field.nullable, {"PARQUET:field_id": number} if number else None)


def sizes(path: str) -> list[int] | None:
    """Bytes of each data file of a table that `is_table`; None: it isn't for this process to see."""
    import pyarrow as pa
    from deltalake import DeltaTable

    if not is_table(path):
        return None
    return pa.table(DeltaTable(path).get_add_actions())["size_bytes"].to_pylist()


def heaviest_file(path: str) -> tuple[str, int] | None:
    """Of a table that `is_table` the data file with the most bytes per row, and its rows; None: it isn't for this
    process to see, or has no file that tells its rows."""
    import pyarrow as pa
    from deltalake import DeltaTable

    if not is_table(path):
        return None
    added = pa.table(DeltaTable(path).get_add_actions()).select(["path", "size_bytes", "num_records"]).to_pylist()
    told = [(f["size_bytes"] / f["num_records"], f["path"], f["num_records"]) for f in added if f["num_records"]]
    _, file, rows = max(told, default=(0, "", 0))
    return (f"{path}/{file}", rows) if rows else None


def digests(of: Iterable[str]) -> str:
    """Hexadecimal digests as a list in SQL."""
    found = sorted(of)
    if bad := [d for d in found if not re.fullmatch("[0-9a-f]+", d)]:
        raise ValueError(f"no digest: {bad[0]!r}")
    return ", ".join(f"'{d}'" for d in found)


def topic(name: str) -> str:
    """A Kafka topic's name, which holds nothing that SQL would take for its own (Kafka's Topic.java, LEGAL_CHARS)."""
    if not re.fullmatch("[a-zA-Z0-9._-]+", name):
        raise ValueError(f"no topic: {name!r}")
    return name


def ask(spark: SparkSession, sql: str, **paths: str) -> list[dict[str, Any]]:
    """Rows of a query over tables that are there; small answers only. sql: `{name}` for each table, names in double
    quotes, what Spark's SQL and DataFusion's have in common. Structs are dicts. The caller puts nothing from the wire
    into it."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    if not all(map(is_table, paths.values())):
        return by_spark(spark, sql, **paths)
    builder = QueryBuilder()
    for name, path in paths.items():
        builder = builder.register(name, DeltaTable(path))
    return pa.table(builder.execute(sql.format(**{name: name for name in paths})).read_all()).to_pylist()


def table(spark: SparkSession, path: str) -> Any:
    """All rows of a table that is there, as an Arrow table."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    if not is_table(path):
        return spark.read.format("delta").load(path).toArrow()
    return pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all())


def create(path: str, schema: str, properties: dict[str, str], comment: str, partition_by: tuple[str, ...]) -> None:
    """Make a table in a lake that this process sees, if it isn't there. schema: as Delta's log has it, JSON."""
    from deltalake import DeltaTable, Schema

    with turn_to_make(path), turn_of_files(path):
        if is_table(path):  # another one has made it in the meantime: delta-rs would do so once more
            return
        DeltaTable.create(
            path,
            Schema.from_json(schema),
            mode="ignore",
            partition_by=list(partition_by),
            description=comment,
            configuration=dict(properties),
        )


def add_columns(path: str, fields: str) -> bool:
    """Add columns to a table that `is_table`, those that it has left out. fields: a struct as Delta's log has it, JSON.
    False: it isn't for this process to see, and nothing was done."""
    from deltalake import DeltaTable, Schema

    if not is_table(path):
        return False
    with turn_alone(path):
        table = DeltaTable(path)
        there = {f.name for f in table.schema().fields}
        new = [f for f in Schema.from_json(fields).fields if f.name not in there]
        if new:
            table.alter.add_columns(new)
    return True


def append(path: str, rows: list[dict[str, Any]], once: tuple[str, int] | None = None) -> bool:
    """Append a few rows to a table that `is_table`; columns they lack are NULL, `at` is now. once: application and
    number, under which a table takes rows once. False: it isn't for this process to see, and nothing was done."""
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    if not is_table(path):
        return False
    with turn_of_files(path):
        table = DeltaTable(path)
        schema = pa.schema(table.schema().to_arrow())
        now = {"at": datetime.now(UTC)} if "at" in schema.names else {}
        if once is not None and (known := table.transaction_version(once[0])) is not None and known >= once[1]:
            return True
        named = CommitProperties(app_transactions=[Transaction(*once)] if once else None)
        columns = [pa.array([_as({**r, **now}.get(f.name), f.type) for r in rows], f.type) for f in schema]
        found = pa.Table.from_arrays(columns, schema=schema)
        write_deltalake(table, found, mode="append", commit_properties=named)
    return True


def _as(value: Any, type_: Any) -> Any:
    """A value as pyarrow takes it for a type: rows and tuples for structs, dicts for maps."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(type_):
        given = value if isinstance(value, dict) else dict(zip(type_.names, value, strict=True))
        return {f.name: _as(given[f.name], f.type) for f in type_}
    if pa.types.is_map(type_):
        return [(k, _as(v, type_.item_type)) for k, v in dict(value).items()]
    if pa.types.is_list(type_):
        return [_as(v, type_.value_type) for v in value]
    return value


def by_spark(spark: SparkSession, sql: str, **paths: str) -> list[dict[str, Any]]:
    """The same by Spark."""
    frames: dict[str, Any] = {name: spark.read.format("delta").load(path) for name, path in paths.items()}
    return [row.asDict(recursive=True) for row in spark.sql(sql.replace('"', "`"), **frames).collect()]
