"""Figures and columns as Dagster shows them. Numbers chart; names stay the same from run to run."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_platform.results import StageResult
from cdc_platform.tables import Table
from cdc_platform.tables.columns import shown

_MOST = 1_000
"""Records of a table in the metadata."""


def column_schema(table: Table) -> dg.TableSchema:
    """A table's columns, as Dagster shows them."""
    columns = [dg.TableColumn(c.name, shown(c.type), description=c.meaning or None) for c in table.columns]
    return dg.TableSchema(columns=columns)


def run_metrics(result: StageResult) -> dict[str, float]:
    """A stage's figures by name, all numbers; rates per second of wall time."""
    rate = result.rows / result.seconds if result.seconds > 0 else 0.0
    return {
        "records": result.rows,
        "batches": result.batches,
        "seconds": result.seconds,
        "events_per_second": round(rate, 1),
        **result.metrics,
    }


def result_metadata(result: StageResult, uri: str, rows: int | None) -> dict[str, Any]:
    """Metadata of one stage of one source."""
    found = {name: _number(value) for name, value in run_metrics(result).items()}
    return {**found, **table_metadata(uri, rows)}


def table_metadata(uri: str, rows: int | None) -> dict[str, Any]:
    """Where a table lies and how many rows it has."""
    return {"dagster/uri": uri, **({} if rows is None else {"dagster/row_count": rows})}


def declared_metadata(table: Table, path: str) -> dict[str, Any]:
    """What a definition says of its table before any run."""
    return {"dagster/uri": path, "dagster/column_schema": column_schema(table)}


def read_metrics(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    """The figures that `result_metadata` wrote, as plain values."""
    return {k: v.value for k, v in metadata.items() if not k.startswith("dagster/")}


def _number(value: float) -> dg.MetadataValue:
    return dg.MetadataValue.int(value) if isinstance(value, int) else dg.MetadataValue.float(float(value))


def table_of(records: Sequence[Mapping[str, Any]]) -> Any:
    """Records with the same fields (one at least) as a table of metadata."""
    kept = [{k: v if isinstance(v, int) else str(v or "") for k, v in r.items()} for r in records[:_MOST]]
    types = {bool: "bool", int: "int"}
    columns = [dg.TableColumn(name, types.get(type(value), "string")) for name, value in kept[0].items()]
    return dg.MetadataValue.table([dg.TableRecord(r) for r in kept], dg.TableSchema(columns))
