"""`cdc-platform shadow`: two feeds of the same database, compared."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_platform.cli.output import Report, Verbatim, printed, progress
from cdc_platform.cli.run import with_spark
from cdc_platform.config import Config, load_config
from cdc_platform.errors import ConfigError
from cdc_platform.launch import log_followed
from cdc_platform.tables import text_of
from cdc_platform.units import quoted_value, when

if TYPE_CHECKING:
    from cdc_platform.config.shadow import Shadow

app = typer.Typer(
    help="Two feeds of the same database: compare, status, cutover.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
_Of = Annotated[str | None, typer.Argument(help="`of` of a pair of cdc.yaml; default: all pairs.")]
_Shown = Annotated[int, typer.Option(min=0, help="Show so many open differences of each pair.")]
_File = Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")]


@app.callback()
def _group() -> None:
    """Two feeds of the same database, compared."""


@app.command("compare")
@printed
def compare_command(
    of: _Of = None,
    table: Annotated[
        list[str] | None, typer.Option(metavar="DB.TABLE", help="Only this table, as `of` spells it; may be repeated.")
    ] = None,
    anew: Annotated[bool, typer.Option("--anew", help="Tables that haven't changed since, too.")] = False,
    samples: _Shown = 20,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: _File = Path("cdc.yaml"),
) -> Report:
    """Compare the tables of two feeds at a point that both have reached: who lacks which row, and which values differ.

    Tables that haven't changed since they were last compared are left out. What is found is kept in the tables
    `shadow_differences` and `shadow_comparisons`. Exit code 1: rows differ, or a table can't be compared, or not yet.
    """
    from cdc_platform.shadow.run import compare
    from cdc_platform.spark.session import open_session

    loaded = load_config(config)
    pairs = _pairs(loaded, of)
    ready = with_spark(loaded, master)
    progress(f"Spark: {ready.spark.remote or ready.spark.master}")
    spark = open_session(ready)
    found = []
    for pair in pairs:
        progress(f"comparing {pair.of} with {pair.by}")
        done = compare(spark, ready, pair, tables=table or (), anew=anew, told=progress)
        found.append({**done, **_differences(ready, pair, samples)})
    return _report(found)


@app.command("status")
@printed
def status_command(of: _Of = None, samples: _Shown = 20, config: _File = Path("cdc.yaml")) -> Report:
    """What the last comparisons found, without a new one.

    Exit code 1: rows differ, or a table can't be compared, or not yet.
    """
    from cdc_platform.shadow import kept

    loaded = load_config(config)
    found = []
    for pair in _pairs(loaded, of):
        tables = kept.last(loaded, pair)
        told = {**kept.summary(pair, tables), "rows": list(tables.values())}
        found.append({**told, **_differences(loaded, pair, samples)})
    return _report(found)


@app.command("cutover")
@printed
def cutover_command(
    of: Annotated[str, typer.Argument(metavar="SOURCE", help="`of` of a pair of cdc.yaml.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it, only what would be done is told.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only tell what would be done, as without --yes.")] = False,
    exchange: Annotated[
        bool, typer.Option("--exchange", help="Exchange the sources' tables, for feeds of one format, too.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: _File = Path("cdc.yaml"),
) -> Report:
    """Let the other feed take the place of the one in use: what readers know stays where it is.

    Feeds of one format, by one partition each, that tell GTIDs and places of one binlog: the source goes on by the
    other one's topic, from the record on that begins what it lacks. After it cdc.yaml has to name that topic: until
    then the source's runs are refused. Feeds of two formats: the sources exchange the folders of their snapshots;
    cdc.yaml stays. With --yes both are brought up to date and all tables compared anew before; rows that differ, or
    anything that isn't certain, refuse it, and nothing is changed. What is told without --yes goes by the last
    comparison: of tables that have changed since then what it found refuses nothing.
    """
    from cdc_platform.shadow.cutover import way

    loaded = load_config(config)
    if plan or not yes:
        told = way(loaded, loaded.shadow_of(of), progress, exchange=exchange).plan()
        return Report(told, 0, _cutover(told))
    from cdc_platform.spark.session import open_session

    ready = with_spark(loaded, master)
    with log_followed(progress):
        done = way(ready, ready.shadow_of(of), progress, exchange=exchange).do(open_session(ready))
    return Report(done, 0, _cutover(done))


def _cutover(told: dict[str, Any]) -> dict[str, Any]:
    if "folders" in told:
        placed = {f"snapshots/{folder}": f"tables of {source}" for source, folder in sorted(told["folders"].items())}
        shown = {"tables in use": told["of"], "are fed by": told["by"], **placed, "tables": told["tables"]}
        left = "load Dagster's definitions again; the other feed may stay, to be compared"
        return {**shown, **({"done": True, "then": left} if told["done"] else _compared(told))}
    shown = {"source": told["of"], "goes on by": told["by"]}
    if "old" in told:
        shown |= {
            "read no more": told["old"],
            "read from here on": f"{told['new']}/{told['offset']}",
            "last that both have": told["gtid"],
        }
    name, topics = told["of"], ", ".join(told["topics"])
    if not told["done"]:
        return {**shown, "cdc.yaml then": f"{name}: topics: [{topics}]", **_compared(told)}
    left = f"{name}: topics: [{topics}]; {told['by']} and the pair under `shadow` may go"
    return {**shown, "done": True, "cdc.yaml is to say": left}


def _compared(told: dict[str, Any]) -> dict[str, Any]:
    """What a plan goes by, and what `--yes` does instead."""
    changed = ", ".join(told["changed_since"]) or "none"
    shown = {"compared at": told["compared_at"], "changed since then": changed}
    found = {"found then, of these": "; ".join(told["found_then"])} if told["found_then"] else {}
    return {**shown, **found, "to do it": "--yes: brings both up to date and compares all tables anew before"}


def _pairs(config: Config, of: str | None) -> "list[Shadow]":
    """Raises ConfigError where there is none."""
    if not config.shadow:
        raise ConfigError("shadow", "cdc.yaml names no two feeds to compare", ["shadow: {of: SOURCE, by: SOURCE}"])
    return [config.shadow_of(of)] if of else list(config.shadow)


def _differences(config: Config, pair: "Shadow", samples: int) -> dict[str, Any]:
    from cdc_platform.shadow import kept

    rows = kept.differences(config, pair, samples) if samples else []
    return {"differences": [{**r, "key": json.loads(r["key"])} for r in rows]}


def _report(found: list[dict[str, Any]]) -> Report:
    """The rows of either side as maps, of columns that weren't compared, too."""
    data = [{**f, "rows": [{**r, "not_compared": dict(r["not_compared"] or ())} for r in f["rows"]]} for f in found]
    shown: dict[str, Any] = {}
    for pair in data:
        shown |= _shown(pair)
    wrong = any(p["different"] or p["not_compared"] or p["waiting"] for p in data)
    return Report(data, 1 if wrong else 0, shown)


def _shown(pair: dict[str, Any]) -> dict[str, Any]:
    """What people see of a pair: a line per table, what isn't compared, and a line per cell that differs."""
    name = f"{pair['of']} by {pair['by']}"
    rows = pair["rows"]
    told: dict[str, Any] = {name: [_table(r) for r in rows] or "not compared yet: `cdc-platform shadow compare`"}
    if rows:
        last = max(rows, key=lambda r: r["number"])
        told[f"{name}: compared at"] = last["gtid"] or (last["source_time"] and when(last["source_time"])) or "no point"
    if reasons := [{"table": text_of(r), "why": r["reason"]} for r in rows if r["reason"]]:
        told[f"{name}: why not"] = reasons
    if left := [{"table": text_of(r), "column": c, "why": w} for r in rows for c, w in r["not_compared"].items()]:
        told[f"{name}: columns that aren't compared"] = left
    if cells := [cell for row in pair["differences"] for cell in _cells(pair, row)]:
        told[f"{name}: open differences"] = Verbatim(cells)
    return told


def _table(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "table": text_of(row),
        "state": row["state"].replace("_", " "),
        "rows": row["rows_of"],
        f"{row['by']} lacks": row["only_of"],
        f"{row['source']} lacks": row["only_by"],
        "other values": row["differing"],
        "not settled": row["unsettled"],
    }


def _cells(pair: dict[str, Any], row: dict[str, Any]) -> list[dict[str, Any]]:
    key = ", ".join(f"{k}={quoted_value(v)}" for k, v in row["key"].items())
    of, by = row["of_row"], row["by_row"]
    names = [c for c in (of or by or {}) if c not in row["key"]] or [None]
    return [
        {
            "table": text_of(row),
            "key": key,
            "column": column,
            pair["of"]: "(no row)" if of is None else column and quoted_value(of[column]),
            pair["by"]: "(no row)" if by is None else column and quoted_value(by[column]),
            "since": when(row["first_seen"]),
        }
        for column in names
    ]
