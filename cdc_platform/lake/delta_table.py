"""Delta tables by delta-rs: which there are, their metadata, queries over the platform's own small ones, and commits to
those that sources share. No Spark here: a query of Spark's takes half a second of planning and jobs, whatever the table
holds, and a run has some twenty.

delta-rs's commits and the platform's own (commits.py) are put-if-absent: of several processes that commit at once none
overwrites another's.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import answers, commits, copies, handles, lease, small_files
from cdc_platform.lake.data_files import Output, Sink, Written, leaves
from cdc_platform.lake.handles import handle
from cdc_platform.lake.log_state import Head
from cdc_platform.lake.store import File, Store
from cdc_platform.tables import LOADED, STATS

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

T = TypeVar("T")

_TRIES = 10
"""Of a change that another process's commit came in between of."""
_MERGED_AT_ONCE, _SPILL_BYTES = 100_000, 256 << 20
"""Rows that one merge looks for, and the memory that it may take: 100,000 took 111 MB."""


_READS = {"datafusion.execution.parquet.metadata_size_hint": str(1 << 16)}
"""A small file's footer is read with one request, not with two."""


def exists(path: Store) -> bool:
    """Whether a Delta table with a commit is there."""
    return version_or_none(path) is not None


def retried(path: Store, change: Callable[["DeltaTable"], T]) -> T:
    """A change of the table as it is now, again where another process's commit came in between. The lease is looked at
    before each try, not at its commit, which delta-rs makes by itself at the end."""
    from deltalake.exceptions import CommitFailedError

    for _ in range(_TRIES - 1):
        lease.check()  # before each: the tries may take longer than the lease
        with suppress(CommitFailedError):
            return _with(path, change)
    lease.check()
    return _with(path, change)


def _with(path: Store, do: Callable[["DeltaTable"], T]) -> T:
    with handle(path) as opened:
        return do(opened.table)


def version(path: Store, *, look: bool = True) -> int:
    """Number of the newest commit; look: false, of those that this process knows. Raises deltalake's
    TableNotFoundError."""
    return handles.head(path, look=look).version


def version_or_none(path: Store, *, look: bool = True) -> int | None:
    """The same; None: there is no table."""
    from deltalake.exceptions import TableNotFoundError

    with suppress(TableNotFoundError):
        return version(path, look=look)
    return None


def protocol(path: Store) -> tuple[set[str], dict[str, str], int]:
    """The features that the protocol lists, the properties, and the bytes of all data files."""
    import pyarrow.compute as pc

    with handle(path) as opened:
        told, metadata = opened.table.protocol(), opened.table.metadata()
        added = answers.table(opened.table.get_add_actions())
    named = {*(told.reader_features or ()), *(told.writer_features or ())}
    size = pc.sum(added["size_bytes"], min_count=0).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    return named, metadata.configuration, size


def schema_json(path: Store) -> str:
    """Columns as Delta's log has them (its protocol, "Schema Serialization Format"), which is Spark's own JSON too."""
    return handles.head(path).metadata["schemaString"]


def comment(path: Store) -> str:
    """What the table says of itself."""
    return handles.head(path).metadata.get("description") or ""


def file_fields(path: Store, struct: str | None = None) -> dict[str, Any]:
    """Columns of the data files, in order, by their names for readers: as Arrow has them, with the names and numbers
    that the table maps its columns to (Delta's protocol, "Column Mapping"), and without their comments. struct: of
    this column, its fields."""
    return fields_of(schema_json(path), struct)


def fields_of(schema: str, struct: str | None = None) -> dict[str, Any]:
    """The same of columns as `schema_json` gives them."""
    columns = _columns(schema)
    return {f.name: _in_files(f) for f in (columns if struct is None else columns.field(struct).type)}


@lru_cache(maxsize=1024)
def _columns(schema: str) -> "pa.Schema":
    import pyarrow as pa
    from deltalake import Schema

    return pa.schema(Schema.from_json(schema).to_arrow())


def _in_files(field: Any) -> Any:
    import pyarrow as pa

    told = field.metadata or {}
    type_ = pa.struct([_in_files(f) for f in field.type]) if pa.types.is_struct(field.type) else field.type
    number = told.get(b"delta.columnMapping.id")
    name = told.get(b"delta.columnMapping.physicalName", field.name.encode()).decode()
    return pa.field(name, type_, field.nullable, {"PARQUET:field_id": number} if number else None)


def added(path: Store) -> "pa.Table":
    """What the log tells of the data files: `path`, `size_bytes`, `num_records`, `partition.…` and, of columns with
    statistics, `min.…`, `max.…`, `null_count.…`. Raises deltalake's TableNotFoundError."""
    return answers.table(_readable(path, copy=False)[0].get_add_actions(flatten=True))


def sizes(path: Store) -> list[int]:
    """Bytes of each data file."""
    return added(path)["size_bytes"].to_pylist()


def files(path: Store, **partition: str) -> list[str]:
    """Paths of the data files (of one partition), in the table, as its log has them."""
    found = added(path).to_pylist()
    return [unquote(f["path"]) for f in found if all(f[f"partition.{n}"] == v for n, v in partition.items())]


def files_at(path: Store, version: int | None) -> list[str]:
    """The same of a version of the table (None: the newest). Raises LakeChanged if it isn't kept any more."""
    from deltalake.exceptions import DeltaError

    if version is None:
        return files(path)
    try:
        found = answers.table(handles.opened(path, version).get_add_actions(flatten=True))
    except DeltaError:
        raise LakeChanged(path.uri(), f"its version {version} isn't kept any more") from None
    return [unquote(name) for name in found["path"].to_pylist()]


def heaviest_file(path: Store) -> tuple[File, int] | None:
    """The data file with the most bytes per row, and its rows; None: no file's statistics have its rows."""
    found = added(path).select(["path", "size_bytes", "num_records"]).to_pylist()
    counted = [(f["size_bytes"] / f["num_records"], f["path"], f["num_records"]) for f in found if f["num_records"]]
    _, file, rows = max(counted, default=(0, "", 0))
    return (File(path, unquote(file)), rows) if rows else None


def digests(of: Iterable[str]) -> str:
    """Hexadecimal digests as a list in SQL."""
    found = sorted(of)
    if bad := [d for d in found if not re.fullmatch("[0-9a-f]+", d)]:
        raise ValueError(f"no digest: {bad[0]!r}")
    return ", ".join(f"'{d}'" for d in found)


def moment(at: datetime) -> str:
    """A time as a literal, to the microsecond."""
    return f"TIMESTAMP '{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z'"


def topic(name: str) -> str:
    """A Kafka topic's name, which holds nothing that SQL would take for its own (Kafka's Topic.java, LEGAL_CHARS)."""
    if name != LOADED and not re.fullmatch("[a-zA-Z0-9._-]+", name):
        raise ValueError(f"no topic: {name!r}")
    return name


def ask(sql: str, **paths: Store) -> list[dict[str, Any]]:
    """Rows of a query over tables that are there; small answers only. sql: `{name}` for each table, names in double
    quotes (DataFusion's SQL); what it answers depends on the tables alone, and isn't asked again while they are the
    same. Structs are dicts. The caller puts nothing from the wire into it, and changes nothing within a value."""
    from deltalake import QueryBuilder

    builder, state, copied = QueryBuilder(_READS), [], []
    for name, path in paths.items():
        table, identity, copy = _readable(path)
        builder = builder.register(name, table)  # as it is now
        state.append(identity)
        copied.append(copy)
    asked, as_they_are = (sql, *paths.items()), tuple(state)
    if (known := answers.known(asked, as_they_are)) is not None:
        return known
    asked_now = builder.execute(sql.format(**{name: name for name in paths}))
    found = answers.rows(told := answers.table(asked_now.read_all()))
    answers.remember(asked, as_they_are, found, told.nbytes)
    return found


def _readable(path: Store, *, copy: bool = True) -> "tuple[DeltaTable, Any, copies.Copy | None]":
    """A table for a query, what tells its state from all others, and what is to be kept until the query is done. copy:
    whether to copy it, if that saves requests; else a copy that is there is used."""
    if path.remote and (copy or copies.there_is(path)) and (found := copies.of(path)) is not None:
        return found.table, found.identity, found
    with handle(path) as opened:
        return opened.table, opened.identity, None


_MOST_KEPT = 64
_rows_kept: dict[str, tuple[Any, Any]] = {}


def rows(path: Store) -> Any:
    """All rows of a small table, as a pyarrow.Table; kept in this process, and read again where it changed."""
    from deltalake import QueryBuilder

    table, identity, _copy = _readable(path)
    known = _rows_kept.pop(path.uri(), None)
    if known is None or known[0] != identity:
        known = identity, answers.table(QueryBuilder(_READS).register("t", table).execute("SELECT * FROM t").read_all())
    _rows_kept[path.uri()] = known
    if len(_rows_kept) > _MOST_KEPT:
        _rows_kept.pop(next(iter(_rows_kept)), None)
    return known[1]


def add_columns(path: Store, columns: "pa.Schema") -> None:
    """Add columns, those that the table has not."""
    from deltalake import Schema

    def add(table: "DeltaTable") -> None:
        there = {f.name for f in table.schema().fields}
        if new := [f for f in Schema.from_arrow(columns).fields if f.name not in there]:
            table.alter.add_columns(new)

    retried(path, add)  # the first runs of two sources do so at the same time


def append_rows(
    path: Store,
    rows: list[dict[str, Any]],
    *,
    of: str | None = None,
    once: tuple[str, int] | None = None,
    at: datetime | None = None,
) -> bool:
    """Append a few rows; columns they lack are NULL. of: unless the table has rows of that batch (a condition as `ask`
    takes it), those of another process's late commit too; once: application and number, under which the table takes
    rows once; at: their `at`, else now. Small files of their partition are put together where there are many. False:
    they weren't appended."""
    if not rows:
        return False
    there = None if of is None else lambda: bool(ask(f"SELECT 1 AS there FROM {{t}} WHERE {of} LIMIT 1", t=path))
    if (sink := commits.append(path, lambda head: _written(head, rows, at), once, unless=there)) is None:
        return False
    small_files.put_together(sink)
    return True


def _written(head: Head, rows: list[dict[str, Any]], at: datetime | None) -> tuple[Sink, list[Written]]:
    """A file of a few rows, all of one partition."""
    import pyarrow as pa

    names = head.metadata["partitionColumns"]
    [values] = {tuple(str(r[n]) for n in names) for r in rows}
    out = Output(sink_of(head, dict(zip(names, values, strict=True))))
    now = {"at": at or datetime.now(UTC)} if "at" in out.sink.schema.names else {}
    columns = [pa.array([_as({**r, **now}.get(f.name), f.type) for r in rows], f.type) for f in out.sink.schema]
    out.write(pa.RecordBatch.from_arrays(columns, schema=out.sink.schema))
    done = out.close()
    return out.sink, [done] if done else []


def sink(path: Store, **partition: str) -> Sink:
    """Where files of a table are written. partition: the values of its partition columns, which all rows have."""
    return sink_of(handles.head(path), partition)


def sink_of(head: Head, partition: Mapping[str, str]) -> Sink:
    """The same of a table as its log tells it."""
    import pyarrow as pa

    every = _columns(head.metadata["schemaString"])
    schema = pa.schema([f.remove_metadata() for f in every if f.name not in partition])
    indexed = head.metadata["configuration"].get(STATS)
    stats = tuple(indexed.split(",")) if indexed else leaves(schema)
    return Sink(head.path, schema, stats, (), tuple(partition.items()))


def compact(path: Store, keep_hours: int | None, **partition: str) -> None:
    """Put small files together (of one partition), and remove files that no version of the last `keep_hours` needs,
    those of failed tasks, too. None: remove none."""
    parts = [(name, "=", value) for name, value in partition.items()]
    retried(path, lambda table: table.optimize.compact(partition_filters=parts or None))
    if keep_hours is None:
        return
    with handle(path) as opened:
        opened.table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=True)


def delete(path: Store, where: str) -> None:
    """Delete rows (DataFusion's SQL). Without some there is no commit."""
    retried(path, lambda table: table.delete(where))


def merge(path: Store, rows: Any, on: str, updates: dict[str, str]) -> None:
    """Update the rows (`t`) that match one of a pyarrow.Table's (`s`), some at a time. on, updates: DataFusion's SQL.
    Once more changes nothing, if `on` says so."""

    def some(table: "DeltaTable", source: Any) -> None:
        work = table.merge(source, on, source_alias="s", target_alias="t", max_spill_size=_SPILL_BYTES)
        work.when_matched_update(updates=updates).execute()

    for start in range(0, rows.num_rows, _MERGED_AT_ONCE):
        retried(path, partial(some, source=rows.slice(start, _MERGED_AT_ONCE)))


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
