"""Rows of one version of a Delta table, in the frame that the reader works with.

delta-rs' DataFusion reads them: it knows column mapping and deletion vectors, where `to_pyarrow_table`, polars and
pandas refuse such tables. The bookkeeping columns `_cdc_…` are left out unless asked for.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from cdc_platform.errors import NotReadable, SetupError
from cdc_platform.lake import handles
from cdc_platform.reading.catalog import Snapshot
from cdc_platform.tables import BOOKKEEPING

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

    SparkSession = Any  # classic or Spark Connect: two classes that share no base in pyspark 4

Kind = Literal["arrow", "pandas", "polars", "duckdb"]


class Frames:
    """Reads of tables. `table`: what `_find` understands. Common arguments:

    version: Delta version, None for the newest; columns: names in the order wanted, None for all; where: a condition in
    DataFusion's SQL, written by the caller (nothing from outside belongs into it); bookkeeping: with the columns
    `_cdc_…`. All raise NotReadable: no such table, version or column.
    """

    def _find(self, table: Any, version: int | None) -> Snapshot:
        """Where a table lies, and at which version."""
        raise NotImplementedError

    def find(self, table: Any, version: int | None = None) -> Snapshot:
        """Where a table lies and the version that a read would take now. Raises NotReadable."""
        found = self._find(table, version)
        return found if found.version is not None else Snapshot(found.path, handles.opened(found.path).version())

    def batches(
        self,
        table: Any,
        *,
        version: int | None = None,
        columns: Iterable[str] | None = None,
        where: str | None = None,
        bookkeeping: bool = False,
    ) -> "pa.RecordBatchReader":
        """A stream of Arrow batches: for tables that don't fit into memory."""
        return _batches(str(table), self._find(table, version), columns, where, bookkeeping)

    def arrow(self, table: Any, **what: Any) -> "pa.Table":
        """A pyarrow.Table."""
        return self.batches(table, **what).read_all()

    def pandas(
        self, table: Any, *, dtype_backend: Literal["pyarrow", "numpy_nullable"] = "pyarrow", **what: Any
    ) -> "pd.DataFrame":
        """A pandas frame. dtype_backend as in pandas' own readers: both keep every integer and NULL (numpy's plain
        types would make floats of integers with NULLs), `pyarrow` decimals and all dates too."""
        import pandas as pd

        found = self.arrow(table, **what)
        mapper = pd.ArrowDtype if dtype_backend == "pyarrow" else _nullable()
        return found.to_pandas(types_mapper=mapper)

    def polars(self, table: Any, **what: Any) -> "pl.DataFrame":
        """A polars frame. Raises SetupError where polars isn't installed."""
        pl = _optional("polars")
        return pl.from_arrow(self.arrow(table, **what))

    def duckdb(self, table: Any, connection: "duckdb.DuckDBPyConnection | None" = None, **what: Any) -> Any:
        """A DuckDB relation over the rows, read into memory; in `connection`, else in one of its own. Raises SetupError
        where duckdb isn't installed."""
        duck = _optional("duckdb")
        return (connection or duck.connect()).from_arrow(self.arrow(table, **what))

    def connect(self, names: Mapping[str, Any], **what: Any) -> "duckdb.DuckDBPyConnection":
        """A DuckDB connection in which each table is a view of the name given: `{"orders": "shop/shop.orders"}`."""
        connection = _optional("duckdb").connect()
        for name, table in names.items():
            connection.register(name, self.arrow(table, **what))
        return connection

    def frames(self, tables: Iterable[Any], kind: Kind = "arrow", **what: Any) -> dict[Any, Any]:
        """Several tables as frames of one kind, by what they were asked by. Raises ValueError: no such kind."""
        readers: dict[str, Callable[..., Any]] = {
            "arrow": self.arrow,
            "pandas": self.pandas,
            "polars": self.polars,
            "duckdb": self.duckdb,
        }
        if kind not in readers:
            raise ValueError(f"no kind of frame is called {kind!r}; valid: {', '.join(readers)}")
        return {table: readers[kind](table, **what) for table in tables}

    def spark(
        self,
        table: Any,
        session: "SparkSession",
        *,
        version: int | None = None,
        columns: Iterable[str] | None = None,
        bookkeeping: bool = False,
    ) -> "DataFrame":
        """A Spark DataFrame, lazily read by the session that is given (it needs the Delta jars)."""
        found = self._find(table, version)
        reader = session.read.format("delta")
        if found.version is not None:
            reader = reader.option("versionAsOf", found.version)
        frame = reader.load(found.path.spark_uri())
        # a column's name may hold dots and backticks: DataFrame.select would take those for its own
        names = _selected(str(table), frame.columns, columns, bookkeeping)
        return frame.select(*("`" + n.replace("`", "``") + "`" for n in names))


def _batches(
    name: str, found: Snapshot, columns: Iterable[str] | None, where: str | None, bookkeeping: bool
) -> "pa.RecordBatchReader":
    import pyarrow as pa
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = handles.opened(found.path, found.version)
    except TableNotFoundError:
        raise NotReadable(name, f"there is no Delta table at {found.path.uri()}") from None
    except DeltaError as error:
        raise NotReadable(name, *_no_version(found, error)) from None
    names = _selected(name, [f.name for f in table.schema().fields], columns, bookkeeping)
    selected = ", ".join('"' + n.replace('"', '""') + '"' for n in names)
    sql = f"SELECT {selected} FROM t{f' WHERE {where}' if where else ''}"
    try:
        stream = QueryBuilder().register("t", table).execute(sql)
    except DeltaError as error:
        raise NotReadable(name, str(error)) from None
    reader = pa.RecordBatchReader.from_stream(stream)
    schema = pa.schema([_logical(f) for f in reader.schema])
    return pa.RecordBatchReader.from_batches(schema, (b.cast(schema) for b in reader))


def _selected(name: str, there: Iterable[str], wanted: Iterable[str] | None, bookkeeping: bool) -> list[str]:
    there = list(there)
    if wanted is None:
        return [c for c in there if bookkeeping or not c.startswith(BOOKKEEPING)]
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    if missing := [c for c in wanted if c not in there]:
        own = [c for c in there if bookkeeping or not c.startswith(BOOKKEEPING)]
        raise NotReadable(name, f"has no column {missing[0]!r}", own)
    return wanted


def _no_version(found: Snapshot, error: Exception) -> tuple[str, list[str]]:
    """Problem and valid versions, of a version that can't be opened."""
    newest = handles.opened(found.path).version()
    if found.version is None or found.version > newest:
        return f"has no version {found.version}", [f"up to {newest}"]
    return f"version {found.version} can't be opened any more: {error}", [f"{newest}, the newest"]


def _logical(field: Any) -> Any:
    """A column without the names and numbers that its files map it to, its comment kept; and not of DataFusion's view
    types, which pandas' and other readers' conversions don't all know."""
    import pyarrow as pa

    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    type_ = pa.struct([_logical(f) for f in field.type]) if pa.types.is_struct(field.type) else field.type
    kept = {k: v for k, v in (field.metadata or {}).items() if k == b"comment"}
    return pa.field(field.name, plain.get(type_, type_), field.nullable, kept or None)


def _nullable() -> Callable[[Any], Any]:
    import pandas as pd
    import pyarrow as pa

    types = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.float32(): pd.Float32Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): pd.StringDtype(),
    }
    return types.get


def _optional(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise SetupError(f"{package} is not installed: pip install {package}") from None
