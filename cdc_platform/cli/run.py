"""`cdc-platform run`: the job that Dagster runs, in this process, source by source."""

import difflib
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed, progress, working
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import ConfigError, RunFailed
from cdc_platform.launch import NOT_OF_A_RUN, error_of, launcher, log_followed, run_all, run_summary


@printed
def command(
    source: Annotated[list[str] | None, typer.Option(help="Only this source; may be repeated.")] = None,
    table: Annotated[str | None, typer.Option(help="Only sources that keep this db.table; report only it.")] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the snapshot of --table anew from the changelog.")
    ] = False,
    allow_held: Annotated[
        bool, typer.Option("--allow-held", help="Rows held in quarantine are no reason for exit code 1.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Catch up with Kafka: all sources, or some. A failing source doesn't stop the others.

    Exit code 1 when the run of a source failed or when one of these sources needs attention, as `status` says it: rows
    held in quarantine, a stopped table, a failed check. A source that is merely silent doesn't fail its run.
    """
    from cdc_platform import advice
    from cdc_platform.cli.attention import of_lake
    from cdc_platform.spark import prestart

    loaded = load_config(config)
    chosen = choose(loaded, source or [], table)
    if rebuild and table is None:
        raise ConfigError("--rebuild", "needs a table", ["--table db.table"])
    ready = with_spark(loaded, master)
    if table:
        _expect(loaded, chosen, table)
    progress(f"Spark: {ready.spark.remote or ready.spark.master}")
    for text in advice.warnings(loaded):
        progress(f"warning: {text}")
    if rebuild and table:
        with working(f"making {table} anew"), log_followed(progress):
            return Report({"rebuilt": _rebuild(ready, chosen, table)})
    prestart.begin(ready)
    with log_followed(progress):
        results = run_all(ready, chosen)
    if table and all(r["error"] is None for r in results):
        _expect(loaded, chosen, table, sure=True)
    findings = of_lake(loaded, chosen, allow_held=allow_held)
    data = {
        "spark": ready.spark.remote or ready.spark.master,
        "sources": [{k: v for k, v in r.items() if k not in ("stages", "tables")} for r in results],
        "stages": [stage for r in results for stage in r["stages"]],
        "tables": [t for r in results for t in r["tables"] if table in (None, t["table"])],
        "problems": [f"{f.source}: {f.text}" for f in findings],
        "warnings": advice.warnings(loaded),
    }
    return Report(data, 0 if all(r["ok"] for r in results) and not findings else 1, _shown(data))


_STAGE = ("source", "stage", "records", "batches", "seconds", "events_per_second", "lag", "waiting", "quarantined")
_TABLE = ("source", "table", "rows", "changes", "seconds", "state", "reason")


def _shown(data: dict[str, Any]) -> dict[str, Any]:
    """What people see: the figures that every stage or table has, and what needs attention at the end."""
    failed = [
        f"{s['source']}: {text}"
        for s in data["sources"]
        for text in s["failed_checks"]
        if text.split(":")[0] not in NOT_OF_A_RUN
    ]
    errors = [s["error"] for s in data["sources"] if s["error"]]
    return {
        "spark": data["spark"],
        "sources": [{k: s[k] for k in ("source", "ok", "seconds")} for s in data["sources"]],
        "stages": [{k: r.get(k) for k in _STAGE} for r in data["stages"]],
        "tables": [{k: t.get(k) for k in _TABLE} for t in data["tables"]] or "nothing new",
        "needs attention": [{"what": text} for text in [*errors, *data["problems"], *failed]] or "nothing",
    }


def _expect(config: Config, chosen: list[Source], table: str, *, sure: bool = False) -> None:
    """Raises ConfigError where the table isn't known to any of the sources, though all that Kafka holds has landed:
    before a run (`sure`: after it, when that is so) no table is refused that only Kafka knows of."""
    from cdc_platform.automation import observe
    from cdc_platform.errors import CdcError
    from cdc_platform.lake import queries

    names = {s.name for s in chosen}
    known = {".".join(name) for source, name in queries.known_tables(config) if source.name in names}
    if table in known:
        return
    try:
        sure = sure or not any(queries.has_news(config, s, observe.kafka_ends(config, s)) for s in chosen)
    except CdcError:  # the run says it
        return
    if sure:
        near = difflib.get_close_matches(table, sorted(known), n=20, cutoff=0)
        raise ConfigError("--table", f"no change of {table} has come from {', '.join(sorted(names))}", near)


def choose(config: Config, names: list[str], table: str | None) -> list[Source]:
    """The sources by name and table. Raises ConfigError where there is none such."""
    chosen = [config.source(name) for name in dict.fromkeys(names)] or list(config.sources)
    if table is None:
        return chosen
    name = table.split(".", 1)
    if len(name) < 2 or not all(name):
        raise ConfigError("--table", f"{table!r} is no table", ["db.table", "db.schema.table"])
    keeping = [s for s in chosen if s.tables.kept(*name)]
    if not keeping:
        elsewhere = {".".join(s.tables.routed(*name)) for s in chosen if s.tables.wanted(*name)}
        if elsewhere:
            raise ConfigError("--table", f"tables.routes keep {table} in another snapshot", sorted(elsewhere))
        raise ConfigError("--table", f"no chosen source keeps {table}", [s.name for s in config.sources])
    return keeping


def with_spark(config: Config, master: str | None) -> Config:
    """The configuration with --master, else with the warm server that `ui` keeps, else as it is."""
    from cdc_platform.spark import connect
    from cdc_platform.spark.session import check_master

    if master:
        check_master(master, "--master")
        changed = config.model_copy(
            update={"spark": config.spark.model_copy(update={"master": master, "remote": None})}
        )
        changed._file = config.file
        return changed
    server = None if config.spark.remote else connect.living(config)
    if server:
        os.environ |= server.env
    return connect.with_remote(config, server.remote if server else None)


def _rebuild(config: Config, chosen: list[Source], table: str) -> list[dict[str, Any]]:
    """One table of every chosen source built anew, by a run that Dagster's pages show. Raises ConfigError where the
    lake knows no such table, RunFailed where a run fails."""
    from cdc_platform.automation import table_status
    from cdc_platform.automation.naming import Naming
    from cdc_platform.automation.table_assets import run_config

    known, names = table_status.known(config), {s.name for s in chosen}
    having = [(s, name) for s, name in known if s.name in names and ".".join(name) == table]
    if not having:
        raise ConfigError("--table", f"the lake has no table {table}", sorted({".".join(name) for _, name in known}))
    naming, done = Naming(config), []
    with launcher(config) as ready:
        for source, name in having:
            started = time.monotonic()
            key = naming.table(source, *name).key
            result = ready.execute([key], naming.tag(source), run_config(naming, source, rebuild=True))
            if error := error_of(result):
                raise RunFailed(source.name, error)
            told = run_summary(result, naming, source)["tables"]  # with those of which nobody was told before
            found = next(t for t in told if t["table"] == table)
            seconds = round(time.monotonic() - started, 2)
            made = {"source": source.name, "table": table, "changes": found["changes"], "seconds": seconds}
            done.append({**made, "certificate": found.get("certificate")})
    return done
