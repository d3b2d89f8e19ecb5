"""`cdc-platform tables` and `cdc-platform schema TABLE`: which snapshots there are, and what they hold."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed
from cdc_platform.config import Source, load_config
from cdc_platform.errors import ConfigError

ConfigFile = Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="db.table, or source/db.table.")]
OnlySource = Annotated[str | None, typer.Option(help="The table of this source.")]
_CONFIG = Path("cdc.yaml")
_FETCH = "fetch"
"""In place of a table: no table's name is without its database."""


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
    fetched: Annotated[str | None, typer.Argument(metavar="[SOURCE]", help="Of fetch: a source of cdc.yaml.")] = None,
    source: OnlySource = None,
    all_columns: Annotated[bool, typer.Option("--all", help="With the bookkeeping columns _cdc_….")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Of fetch: the file to write. [default: SOURCE.schema.sql]")
    ] = None,
    dsn_env: Annotated[
        str | None, typer.Option(help="Of fetch: variable with the source's DSN. [default: reconcile.dsn_env]")
    ] = None,
    config: ConfigFile = _CONFIG,
) -> dict[str, Any]:
    """Show a table's columns: type here and at the source, key, comment, and what the feed can't tell of them.

    `schema fetch SOURCE` writes the CREATE TABLE statements of a source's tables, read from its server, to a file for
    the option schema_file."""
    from cdc_platform.lake import folders, handles, stores
    from cdc_platform.reading import described

    loaded = load_config(config)
    if table == _FETCH and fetched is not None:
        return _fetch(loaded.source(fetched), out, dsn_env)
    if fetched is not None:
        raise ConfigError(fetched, "follows a table's name", ["schema TABLE", "schema fetch SOURCE"])
    name = described.find(loaded, table, source)
    columns = described.columns(loaded, name, all_columns)
    [row] = described.overview(loaded, [name])
    opened = handles.opened(folders.snapshot(stores.lake(loaded), name.source, name.name))
    return {
        **row,
        "columns": columns,
        "description": loaded.source(name.source).tables.description_of(*name.name),
        "version": opened.version(),
        "limits": described.limits_of(opened).get("*", []),
    }


def _fetch(source: Source, out: Path | None, dsn_env: str | None) -> dict[str, Any]:
    """Writes the source's CREATE TABLE statements to a file that isn't there yet."""
    from cdc_platform.reconcile.schema_file import script
    from cdc_platform.reconcile.server import Server, dsn_from

    variable = dsn_env or (source.reconcile and source.reconcile.dsn_env)
    if not variable:
        where = f"sources.{source.name}.reconcile.dsn_env"
        raise ConfigError(where, "names no variable with the DSN of the source database", ["SHOP_DSN", "--dsn-env"])
    path = out or Path(f"{source.name}.schema.sql")
    if path.exists():
        raise ConfigError("--out", f"{path} is there already, and is kept", ["another name", "remove it first"])
    text, tables = script(Server(dsn_from(variable)), source.tables.wanted)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    names = [".".join(name) for name in tables]
    return {"file": str(path.resolve()), "tables": names, "next": f"options: {{schema_file: {path.resolve()}}}"}
