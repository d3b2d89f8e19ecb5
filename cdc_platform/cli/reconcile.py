"""`cdc-platform reconcile SOURCE [TABLE]`: snapshots against the source itself, or against an export of it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.cli.run import choose, with_spark
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import ConfigError
from cdc_platform.reading import moments
from cdc_platform.units import quoted_value, when

if TYPE_CHECKING:
    from cdc_platform.reconcile.binlog import Risk
    from cdc_platform.reconcile.result import Cell, TableResult
    from cdc_platform.reconcile.server import Server
    from cdc_platform.tables import Name


@printed
def command(
    source: Annotated[str, typer.Argument(help="Source of cdc.yaml.")],
    table: Annotated[str | None, typer.Argument(help="db.table; default: all tables of the source.")] = None,
    dsn_env: Annotated[
        str | None, typer.Option(help="Environment variable with the source's DSN; default: reconcile.dsn_env.")
    ] = None,
    export: Annotated[str | None, typer.Option(help="CSV or Parquet file or folder, instead of a server.")] = None,
    at: Annotated[
        str | None, typer.Option(help="When the export was made (ISO 8601, else UTC); a server is compared now.")
    ] = None,
    version: Annotated[int | None, typer.Option(min=0, help="Of the snapshot; with --export. Default: newest.")] = None,
    key: Annotated[str | None, typer.Option(help="Key columns a,b; with --export. Default: those known.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds per table for the chain to catch up.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show so many differing rows per table.")] = 20,
    repair: Annotated[
        bool, typer.Option("--repair", help="Read the keys that differ from the server, and put them right.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Compare snapshots with the source itself, or with an export of a table. Exit code 1: something differs.

    --repair catches up, reads the keys that differ from the server, puts its rows in order among the changes of the
    feed, says what it changed and why it was different, and compares again: exit code 1 says that something still
    differs.
    """
    loaded = load_config(config)
    feed = loaded.source(source)
    if at not in (None, "now") and not export:
        raise ConfigError("--at", f"{at!r} is no position", ["now"])
    if table:
        choose(loaded, [source], ".".join(feed.tables.routed(*_name(loaded, feed, table))) if "." in table else table)
    if repair and (export or wait):
        raise ConfigError("--repair", "reads the server, and catches up before it", ["without --export and --wait"])
    ready = with_spark(loaded, master)
    risks: list[Risk] = []
    if repair:
        return _repair(ready, feed, dsn_env, table, limit)
    if export:
        results = [_export(ready, feed, export, table, _made_at(at), version, key, limit)]
    else:
        if version is not None or key is not None:
            raise ConfigError("--version and --key", "go with an export only", ["--export PATH"])
        results, risks = _server(ready, feed, dsn_env, table, wait, limit)
    data = _data(source, export or "server", results, risks)
    return Report(data, 0 if data["equal"] else 1, shown(source, export or "server", results, risks))


def _server(
    config: Config, source: Source, dsn_env: str | None, table: str | None, wait: float, limit: int
) -> "tuple[list[TableResult], list[Risk]]":
    from cdc_platform.reconcile.run import against_server
    from cdc_platform.spark.session import open_session

    server, found = _reached(source, dsn_env)
    names = _name(config, source, table) if table else None
    spark = open_session(config)
    return against_server(spark, config, source, server, names, wait_s=wait, limit=limit, told=progress), found


def _reached(source: Source, dsn_env: str | None) -> "tuple[Server, list[Risk]]":
    """The server, asked for its risks: an unreachable one is told before Spark is started."""
    from cdc_platform.reconcile.binlog import risks_of
    from cdc_platform.reconcile.server import Server, dsn_from

    server = Server(dsn_from(dsn_variable(source, dsn_env)))
    return server, risks_of(server, source)


def _repair(config: Config, source: Source, dsn_env: str | None, table: str | None, limit: int) -> Report:
    from cdc_platform.explain import repaired
    from cdc_platform.loading.repair import repair
    from cdc_platform.spark.session import open_session

    server, risks = _reached(source, dsn_env)
    names = [_name(config, source, table)] if table else []
    spark = open_session(config)
    done, now = repair(spark, config, source, server, names, limit=limit, told=progress)
    was = repaired.data(config, source, done)
    data = {**_data(source.name, "server", now, risks), "repaired": was}
    people = {"repaired": repaired.tables(was), "what was different": repaired.rows(was) or "nothing"}
    return Report(data, 0 if data["equal"] else 1, {**people, **shown(source.name, "server", now, risks)})


def dsn_variable(source: Source, dsn_env: str | None) -> str:
    """The environment variable that holds the DSN. Raises ConfigError."""
    if variable := dsn_env or (source.reconcile.dsn_env if source.reconcile else None):
        return variable
    problem = f"nothing tells how to reach the database of {source.name!r}"
    raise ConfigError("--dsn-env", problem, ["sources[].reconcile.dsn_env"])


def _made_at(at: str | None) -> datetime | None:
    """When an export was made. Raises ConfigError."""
    try:
        made_at = moments.time(at) if at else None
    except ValueError:
        raise ConfigError("--at", f"{at!r} is no time", ["2026-11-20T12:00:00Z", "2026-11-20 12:00:00+08:00"]) from None
    if made_at and made_at > datetime.now(UTC):
        raise ConfigError("--at", f"{when(made_at)} is to come", ["when reading the table for the export began"])
    return made_at


def _export(
    config: Config,
    source: Source,
    path: str,
    table: str | None,
    made_at: datetime | None,
    version: int | None,
    key: str | None,
    limit: int,
) -> "TableResult":
    if not table:
        raise ConfigError("TABLE", "an export is of one table", ["db.table"])
    from cdc_platform.reconcile.run import against_export
    from cdc_platform.spark.session import open_session

    keys = [k.strip() for k in key.split(",")] if key else None
    # A Spark server has a folder of its own: a relative path is ours.
    there = path if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", path) else str(Path(path).expanduser().absolute())
    return against_export(
        open_session(config),
        config,
        source,
        there,
        _name(config, source, table),
        made_at=made_at,
        version=version,
        keys=keys,
        limit=limit,
    )


def _name(config: Config, source: Source, table: str) -> "Name":
    """The table that is called so; one that the lake doesn't know is db.table."""
    from cdc_platform.lake import queries

    known = [*queries.stated_tables(config, source), *(n for s, n in queries.known_tables(config) if s == source)]
    db, _, rest = table.partition(".")
    return next((name for name in known if ".".join(name) == table), (db, rest))


def _data(source: str, against: str, results: "list[TableResult]", risks: "Sequence[Risk]") -> dict[str, Any]:
    return {
        "source": source,
        "against": against,
        "equal": bool(results) and all(r.equal for r in results),
        "tables": [{"table": r.table, "equal": r.equal, **r.to_json()} for r in results],
        "risks": [asdict(r) for r in risks],
    }


def shown(source: str, against: str, results: "list[TableResult]", risks: "Sequence[Risk]" = ()) -> dict[str, Any]:
    """For people: a line per table, and one per column of every differing row, beside each other."""
    data = _data(source, against, results, risks)
    hidden = ("differences", "not_compared", "problems", "falls_short", "position", "seconds")
    return {
        **{k: data[k] for k in ("source", "against", "equal")},
        "tables": [
            {**{k: v for k, v in t.items() if k not in hidden}, "position": _position(t["position"])}
            for t in data["tables"]
        ],
        "problems": [{"table": r.table, "problem": p} for r in results for p in r.problems],
        "not compared": [
            {"table": r.table, "column": c, "why": why} for r in results for c, why in r.not_compared.items()
        ],
        "not proven": [{"table": r.table, "why": why} for r in results if r.equal for why in r.falls_short],
        "differing rows": list(_cells(results)),
        "risks": data["risks"],
    }


def _cells(results: "list[TableResult]") -> Iterator[dict[str, Any]]:
    for result in results:
        for one in result.differences:
            key = ", ".join(f"{k}={quoted_value(v)}" for k, v in one.key.items())
            for cell in one.cells:
                yield {
                    "table": result.table,
                    "key": key,
                    "row": one.kind,
                    "column": cell.column,
                    "expected": _side(cell.expected, one.expected_rows),
                    "actual": _side(cell.actual, one.actual_rows),
                    "differs": _mark(cell),
                }


def _mark(cell: "Cell") -> str:
    return "<<<" if cell.differs else ""


def _side(value: str | None, rows: int) -> str:
    return "(no row)" if rows == 0 else quoted_value(value) + (f" ({rows} rows)" if rows > 1 else "")


def _position(told: dict[str, Any] | None) -> str | None:
    if not told:
        return None
    about = "" if told["exact"] else "about "
    return f"{about}{told['file']}:{told['position']}" + (f" gtid {told['gtid']}" if told["gtid"] else "")
