"""`cdc-platform read TABLE`: rows of a snapshot, without Spark."""

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, clean, printed, progress, to_json
from cdc_platform.cli.quiet import out
from cdc_platform.cli.tables import ConfigFile, OnlySource, Table
from cdc_platform.config import load_config
from cdc_platform.errors import NotReadable

_CONFIG = Path("cdc.yaml")
_FEW = 20
_QUOTED = re.compile(r'[",\r\n]|^\s|\s$')


class Shape(StrEnum):
    """How rows are printed. json: one object a line."""

    table = "table"
    json = "json"
    csv = "csv"


@printed
def command(
    table: Table,
    where: Annotated[
        str | None, typer.Option(help="Condition in SQL (DataFusion's), e.g. \"amount > 10 AND city = 'Bern'\".")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Names, separated by commas. [default: all]")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help=f"So many rows. [default: {_FEW} as a table or with --json, else all]")
    ] = None,
    at: Annotated[int | None, typer.Option(min=0, help="Delta version. [default: the newest]")] = None,
    source: OnlySource = None,
    shape: Annotated[Shape, typer.Option("--format", help="How rows are printed; json: one object a line.")] = (
        Shape.table
    ),
    config: ConfigFile = _CONFIG,
) -> Report:
    """Print rows of a table as it is now, or as it was at a version. Deletion vectors and mapped columns are read
    right."""
    from cdc_platform.reading import Snapshots, described

    loaded = load_config(config)
    name = described.find(loaded, table, source)
    snapshots = Snapshots(loaded.lake, only_live=False, storage=loaded.storage)
    version = snapshots.find(name, at).version
    [known] = described.overview(loaded, [name])
    if known["state"] != "live":
        progress(f"warning: {name} is {known['state']}: {known['reason'] or 'its rows are not kept up to date'}")
    names = _names(columns)
    bookkeeping = names is not None  # asked for by name they are given
    batches = snapshots.batches(name, version=version, columns=names, where=where, bookkeeping=bookkeeping)
    most = limit or (_FEW if shape is Shape.table else None)
    rows = _rows(str(name), batches, most)
    if shape is not Shape.table:
        _write(rows, batches.schema.names, shape)
        return Report(None)
    found = list(rows)
    data = {"table": str(name), "version": version, "columns": batches.schema.names, "rows": found}
    return Report(data, shown=found or "no rows")


def _names(columns: str | None) -> list[str] | None:
    return None if columns is None else [name.strip() for name in columns.split(",")]


def _rows(name: str, batches: Any, most: int | None) -> Iterator[dict[str, Any]]:
    """Rows as dicts, at most so many; what DataFusion can't compute is an error of the condition."""
    left = most
    try:
        for batch in batches:
            part = batch if left is None else batch.slice(0, left)
            yield from part.to_pylist()
            if left is not None and (left := left - part.num_rows) <= 0:
                return
    except (ValueError, OSError) as error:  # ArrowInvalid and what delta-rs says through the stream
        raise NotReadable(name, str(error)) from None


def _write(rows: Iterator[dict[str, Any]], names: list[str], shape: Shape) -> None:
    """Rows on stdout, as they are read. For a terminal control characters are escaped; JSON holds none."""
    stream = out()
    safe = clean if stream.isatty() else str
    if shape is Shape.csv:
        stream.write(safe(",".join(map(_csv, names))) + "\n")
    for row in rows:
        if shape is Shape.csv:
            stream.write(safe(",".join(_csv(to_json(value)) for value in row.values())) + "\n")
        else:
            stream.write(json.dumps(to_json(row), allow_nan=False) + "\n")
    stream.flush()


def _csv(value: Any) -> str:
    """A field: nothing for NULL, `""` for an empty text."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return '"' + text.replace('"', '""') + '"' if not text or _QUOTED.search(text) else text
