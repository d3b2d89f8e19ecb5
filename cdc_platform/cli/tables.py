"""`cdc-platform tables` and `cdc-platform schema TABLE`: which snapshots there are, and what they hold."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed
from cdc_platform.config import load_config
from cdc_platform.tables import SNAPSHOT_PATH

ConfigFile = Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="db.table, or source/db.table.")]
OnlySource = Annotated[str | None, typer.Option(help="The table of this source.")]
_CONFIG = Path("cdc.yaml")


@printed
def tables_command(
    source: Annotated[str | None, typer.Option(help="Only tables of this source.")] = None,
    config: ConfigFile = _CONFIG,
) -> Report:
    """List all tables: state, rows, rows held in quarantine, columns, key, last change at the source, where it lies."""
    from cdc_platform.reading import described

    loaded = load_config(config)
    found = described.overview(loaded, described.known(loaded, source))
    shown = {
        "folders": f"{loaded.lake}/snapshots/SOURCE/DB/TABLE; --json gives each",
        "tables": [{k: v for k, v in row.items() if k not in ("path", "reason")} for row in found],
    }
    return Report(found, shown=shown if found else "no table yet: `cdc-platform run` makes them")


@printed
def schema_command(
    table: Table,
    source: OnlySource = None,
    all_columns: Annotated[bool, typer.Option("--all", help="With the bookkeeping columns _cdc_….")] = False,
    config: ConfigFile = _CONFIG,
) -> dict[str, Any]:
    """Show a table's columns: type here and at the source, key, comment, and what the feed can't tell of them."""
    from cdc_platform.lake import delta_table, stores
    from cdc_platform.reading import described

    loaded = load_config(config)
    name = described.find(loaded, table, source)
    columns = described.columns(loaded, name, all_columns)
    [row] = described.overview(loaded, [name])
    opened = delta_table.opened(SNAPSHOT_PATH.at(stores.lake(loaded), **name._asdict()))
    return {
        **row,
        "columns": columns,
        "description": loaded.source(name.source).tables.description_of(name.db, name.table),
        "version": opened.version(),
        "limits": described.limits_of(opened).get("*", []),
    }
