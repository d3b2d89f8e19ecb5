"""Rows of the lake's own tables, written without Spark."""

from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from cdc_platform.tables import Table


def add(lake: object, table: Table, *rows: dict[str, Any], overwrite: bool = False, **names: str) -> None:
    """Appends rows to a table, which is made if it isn't there; columns that they lack are NULL. names: of the table's
    path. overwrite: in place of its rows."""
    data = pa.Table.from_pylist(list(rows), table.arrow())
    mode = "overwrite" if overwrite else "append"
    write_deltalake(table.at(str(lake), **names), data, mode=mode, partition_by=list(table.partition_by))
