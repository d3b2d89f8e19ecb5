"""`cdc-platform cut list`: versions of all snapshots of a source that belong together."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed
from cdc_platform.config import Config, Source, load_config
from cdc_platform.lake import stores

app = typer.Typer(
    help="Versions of all tables of a source that belong together.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Versions of all tables of a source that belong together."""


@app.command("list")
@printed
def list_command(
    source: Annotated[str | None, typer.Argument(help="Only this source.")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 20,
) -> Report:
    """List the cuts, the newest first. With a source: also the snapshots of its newest cut and their versions."""
    loaded = load_config(config)
    found = cuts(loaded, [loaded.source(source)] if source else list(loaded.sources), limit)
    return Report(found, shown=_shown(found, bool(source)) if found else "no cut was published yet")


def _shown(found: list[dict[str, Any]], one_source: bool) -> dict[str, Any]:
    """What people see: a line per cut, why some aren't between two transactions, and of a single source the newest
    cut's snapshots."""
    reasons = dict.fromkeys((c["source"], c["reason"]) for c in found if c["kind"] != "transaction" and c["reason"])
    data: dict[str, Any] = {"cuts": [_row(c, one_source) for c in found]}
    if reasons:
        data["kind position: the feed can't tell transactions apart"] = [{"source": s, "why": w} for s, w in reasons]
    if one_source:
        from cdc_platform import tables

        newest = [{"table": ".".join(tables.name_of(t)), **_of(t)} for t in found[0]["snapshots"]]
        data[f"snapshots of cut {found[0]['cut']}"] = newest or "none"
    return data


def _row(cut: dict[str, Any], one_source: bool) -> dict[str, Any]:
    told = cut["binlog_file"] is not None and cut["binlog_pos"] is not None
    position = f"{cut['binlog_file']}:{cut['binlog_pos']}" if told else cut["gtid"]
    return {
        "source": cut["source"],
        "cut": cut["cut"],
        "kind": cut["kind"],
        "complete to": cut["source_time"],
        "published": cut["at"],
        "tables": len(cut["snapshots"]),
        **({"position": position} if one_source else {}),
    }


def _of(table: dict[str, Any]) -> dict[str, Any]:
    return {"version": table["version"], "path": table["path"]}


def cuts(config: Config, sources: list[Source], limit: int) -> list[dict[str, Any]]:
    """Cuts of some sources, the newest first: what they are, where the source stood, and db, schema, table, path
    under the lake and Delta version of every snapshot."""
    from cdc_platform import tables
    from cdc_platform.lake.queries import columns, query, text

    names = ", ".join(text(s.name) for s in sources)
    path = tables.CUTS.at(stores.lake(config))
    schemas = ", schemas" if "schemas" in (columns(path) or ()) else ""
    rows = query(
        f"SELECT source, cut, kind, reason, binlog_file, binlog_pos, gtid, source_time, at, snapshots{schemas} "
        f"FROM t WHERE source IN ({names}) ORDER BY at DESC, source, cut DESC LIMIT {int(limit)}",
        t=path,
    )
    for row in rows or []:
        of = dict(row.pop("schemas", None) or ())
        row["snapshots"] = [{"db": t["db"], "schema": of.get(t["path"]), **t} for t in row["snapshots"]]
    return rows or []
