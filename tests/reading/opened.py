"""Snapshots as readers open them. Run as a program by the Python of an environment that has the reader: it needs
nothing of the platform.

    python opened.py READER JOBS

JOBS is a JSON file: a list of {"path", "version" (or null), "out"}. Each table's rows are written to `out` as an Arrow
IPC file; where the reader refuses the table, `out` with `.error` behind holds the first line of what it says.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Reader = Callable[[str, int | None], Any]
"""Path and version (None: the newest) → rows: an Arrow table, or what `_arrow` makes one of."""


def query(path: str, version: int | None) -> Any:
    from deltalake import DeltaTable, QueryBuilder

    return QueryBuilder().register("t", DeltaTable(path, version=version)).execute("SELECT * FROM t").read_all()


def pyarrow_table(path: str, version: int | None) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(path, version=version).to_pyarrow_table()


def pyarrow_dataset(path: str, version: int | None) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(path, version=version).to_pyarrow_dataset().to_table()


def pandas(path: str, version: int | None) -> Any:
    import pandas as pd
    import pyarrow as pa
    from deltalake import DeltaTable

    return pa.Table.from_pandas(DeltaTable(path, version=version).to_pandas(types_mapper=pd.ArrowDtype))


def polars_read(path: str, version: int | None) -> Any:
    import polars as pl

    return pl.read_delta(path, version=version).to_arrow()


def polars_scan(path: str, version: int | None) -> Any:
    import polars as pl

    return pl.scan_delta(path, version=version).collect().to_arrow()


def duckdb(path: str, version: int | None) -> Any:
    import duckdb

    t = query(path, version)  # noqa: F841 - DuckDB finds it by its name
    return duckdb.sql("SELECT * FROM t").to_arrow_table()


def daft(path: str, version: int | None) -> Any:
    import daft

    return daft.read_deltalake(path, version=version).to_arrow()


def sail(path: str, version: int | None) -> Any:
    reader = _sail().read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(path).toArrow()


_SAIL: list[Any] = []


def _sail() -> Any:
    """A session on a Sail server of this process."""
    if not _SAIL:
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession

        server = SparkConnectServer(ip="127.0.0.1", port=0)
        server.start(background=True)
        host, port = server.listening_address
        _SAIL[:] = [SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate(), server]
        _SAIL[0].conf.set("spark.sql.session.timeZone", "UTC")
    return _SAIL[0]


READERS: dict[str, list[Reader]] = {
    "deltalake, query engine": [query],
    "deltalake, pandas and PyArrow": [pyarrow_table, pyarrow_dataset, pandas],
    "polars": [polars_read, polars_scan],
    "DuckDB over deltalake": [duckdb],
    "Daft": [daft],
    "Sail": [sail],
}
"""Name on the page → the ways to read, which must all end alike."""


def main(name: str, jobs: str) -> None:
    """Reads what the file tells."""
    import pyarrow as pa

    for job in json.loads(Path(jobs).read_text()):
        for way in READERS[name]:
            try:
                found = way(job["path"], job["version"])
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                lines = (str(error) or repr(error)).strip().splitlines()
                Path(f"{job['out']}.{way.__name__}.error").write_text(f"{type(error).__name__}: {lines[0]}")
                continue
            table = found.read_all() if isinstance(found, pa.RecordBatchReader) else pa.table(found)
            with pa.OSFile(f"{job['out']}.{way.__name__}", "wb") as file, pa.ipc.new_file(file, table.schema) as out:
                out.write_table(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
