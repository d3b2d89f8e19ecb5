"""Figures and columns as Dagster shows them. Numbers chart; names stay the same from run to run."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from cdc_platform.results import StageResult
from cdc_platform.tables import Table

_COLUMN = re.compile(
    r"(?:`(?P<quoted>[^`]+)`|(?P<plain>\w+))\s+(?P<type>.+?)(?:\s+COMMENT\s+'(?P<comment>[^']*)')?", re.S
)


def column_schema(table: Table) -> dg.TableSchema:
    """The columns of a table's DDL (of our own `tables.py`, not of the wire)."""
    columns = []
    for part in _split(table.columns):
        found = _COLUMN.fullmatch(part)
        if not found:
            raise ValueError(f"{table.path}: not a column: {part!r}")
        columns.append(
            dg.TableColumn(
                found["quoted"] or found["plain"],
                re.sub(r"\s+", " ", found["type"]).lower(),
                description=found["comment"],
            )
        )
    return dg.TableSchema(columns=columns)


def _split(ddl: str) -> Iterator[str]:
    """Parts between the commas that stand outside of quotes and brackets."""
    depth, quoted, start = 0, False, 0
    for i, c in enumerate(ddl):
        if c == "'":
            quoted = not quoted
        elif not quoted:
            depth += (c in "<(") - (c in ">)")
            if c == "," and depth == 0:
                yield ddl[start:i].strip()
                start = i + 1
    yield ddl[start:].strip()


def figures(result: StageResult) -> dict[str, float]:
    """A stage's figures by name, all numbers; rates per second of wall time."""
    rate = result.rows / result.seconds if result.seconds > 0 else 0.0
    return {
        "records": result.rows,
        "batches": result.batches,
        "seconds": result.seconds,
        "events_per_second": round(rate, 1),
        **result.metrics,
    }


def result_metadata(result: StageResult, uri: str, rows: int | None, prefix: str = "") -> dict[str, Any]:
    """Metadata of one stage of one source. `prefix` keeps the sources apart on assets that several share."""
    found = {f"{prefix}{name}": _number(value) for name, value in figures(result).items()}
    return {**found, **table_metadata(uri, rows)}


def table_metadata(uri: str, rows: int | None) -> dict[str, Any]:
    """Where a table lies and how many rows it has."""
    return {"dagster/uri": uri, **({} if rows is None else {"dagster/row_count": rows})}


def declared_metadata(table: Table, path: str) -> dict[str, Any]:
    """What a definition says of its table before any run."""
    return {"dagster/uri": path, "dagster/column_schema": column_schema(table)}


def snapshot_metadata(found: Mapping[str, float | str], uri: str) -> dict[str, Any]:
    """Metadata of one snapshot table from its figures in StageResult.tables."""
    shown = {
        k: _number(v) if isinstance(v, int | float) else dg.MetadataValue.text(v)
        for k, v in found.items()
        if v is not None
    }
    rows = found.get("rows")
    return {
        **shown,
        "dagster/uri": uri,
        **({"dagster/partition_row_count": int(rows)} if rows is not None else {}),
    }


def read_figures(metadata: Mapping[str, dg.MetadataValue], prefix: str = "") -> dict[str, Any]:
    """The figures that `result_metadata` and `snapshot_metadata` wrote, as plain values."""
    own = {k.removeprefix(prefix): v.value for k, v in metadata.items() if k.startswith(prefix)}
    return {k: v for k, v in own.items() if not k.startswith("dagster/")}


def _number(value: float) -> dg.MetadataValue:
    return dg.MetadataValue.int(value) if isinstance(value, int) else dg.MetadataValue.float(float(value))
