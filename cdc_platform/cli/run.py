"""`cdc-platform run`: the job that Dagster runs, in this process, source by source."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import ConfigError

if TYPE_CHECKING:
    import dagster as dg

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_FEED_CHECKS = frozenset(("heartbeat",))  # they judge the feed, not this run


@printed
def command(
    source: Annotated[list[str] | None, typer.Option(help="Only this source; may be repeated.")] = None,
    table: Annotated[str | None, typer.Option(help="Only sources that keep this db.table; report only it.")] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the snapshot of --table anew from the changelog.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Catch up with Kafka: all sources, or some. A failing source doesn't stop the others."""
    from cdc_platform.resources import early

    loaded = load_config(config)
    chosen = choose(loaded, source or [], table)
    if rebuild and table is None:
        raise ConfigError("--rebuild", "needs a table", ["--table db.table"])
    ready = with_spark(loaded, master)
    progress(f"Spark: {ready.spark.remote or ready.spark.master}")
    if rebuild and table:
        return Report({"rebuilt": _rebuild(ready, chosen, table)})
    early.begin(ready)
    with told_on_stderr():
        results = run_all(ready, chosen)
    data = {
        "spark": ready.spark.remote or ready.spark.master,
        "sources": [{k: v for k, v in r.items() if k not in ("rooms", "tables")} for r in results],
        "rooms": [room for r in results for room in r["rooms"]],
        "tables": [t for r in results for t in r["tables"] if table in (None, t["table"])],
    }
    return Report(data, 0 if all(r["ok"] for r in results) else 1)


def choose(config: Config, names: list[str], table: str | None) -> list[Source]:
    """The sources by name and table. Raises ConfigError where there is none such."""
    chosen = [config.source(name) for name in dict.fromkeys(names)] or list(config.sources)
    if table is None:
        return chosen
    db, dot, name = table.partition(".")
    if not (db and dot and name):
        raise ConfigError("--table", f"{table!r} is no table", ["db.table"])
    keeping = [s for s in chosen if s.tables.kept(db, name)]
    if not keeping:
        elsewhere = {".".join(s.tables.routed(db, name)) for s in chosen if s.tables.wanted(db, name)}
        if elsewhere:
            raise ConfigError("--table", f"tables.routes keep {table} in another snapshot", sorted(elsewhere))
        raise ConfigError("--table", f"no chosen source keeps {table}", [s.name for s in config.sources])
    return keeping


def with_spark(config: Config, master: str | None) -> Config:
    """The configuration with --master, else with the warm server that `ui` keeps, else as it is."""
    from cdc_platform.resources import connect

    if master:
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
    """One table of every chosen source made anew. Raises TableStopped where it can't be kept."""
    from cdc_platform.chain import rebuild
    from cdc_platform.resources.lock import source_lock
    from cdc_platform.resources.spark import open_session

    db, _, name = table.partition(".")
    spark = open_session(config)
    done = []
    for source in chosen:
        with source_lock(config, source):
            result = rebuild(spark, config, source, db, name)
        done.append({"source": source.name, "table": table, "changes": result.rows, "seconds": result.seconds})
    return done


def run_all(config: Config, chosen: list[Source]) -> list[dict[str, Any]]:
    """Dagster's job for each of the sources, one after the other, in this process; one dict per source."""
    from dagster import DagsterExecutionInterruptedError

    from cdc_platform.automation.instance import open_instance
    from cdc_platform.automation.jobs import CATCH_UP
    from cdc_platform.definitions import build

    job = build(config).resolve_job_def(CATCH_UP)
    with open_instance(config) as instance:
        try:
            return [_run(job, instance, source) for source in chosen]
        except DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None


def _run(job: "dg.JobDefinition", instance: "dg.DagsterInstance", source: Source) -> dict[str, Any]:
    """One run as Dagster's sensor would request it, and its figures."""
    from cdc_platform.automation.keys import SOURCE_TAG, run_keys

    started = time.monotonic()
    result = job.execute_in_process(
        instance=instance,
        run_config=_QUIET,
        raise_on_error=False,
        asset_selection=run_keys(source),
        tags={SOURCE_TAG: source.name},
    )
    if any(e.step_failure_data.error_source.name == "INTERRUPT" for e in result.get_step_failure_events()):
        raise KeyboardInterrupt
    error = _error(result)
    checks = [c for c in result.get_asset_check_evaluations() if not c.passed]
    wrong = [c for c in checks if c.severity.value == "ERROR" and c.check_name not in _FEED_CHECKS]
    return {
        "source": source.name,
        "ok": result.success and not wrong,
        "seconds": round(time.monotonic() - started, 2),
        "error": error,
        "failed_checks": [f"{c.check_name}: {c.description}" for c in checks],
        "run_id": result.run_id,
        **_figures(result, source),
    }


def _figures(result: "dg.ExecuteInProcessResult", source: Source) -> dict[str, list[dict[str, Any]]]:
    """Rooms and tables with what the run's materializations tell of them."""
    from cdc_platform.automation.keys import CHANGELOG, SNAPSHOTS, own_keys
    from cdc_platform.automation.metadata import read_figures

    rooms, tables = [], []
    for event in result.get_asset_materialization_events():
        found = event.materialization
        if found.asset_key == SNAPSHOTS:
            name = ".".join(str(found.partition).split("/")[1:])
            tables.append({"source": source.name, "table": name, **read_figures(found.metadata)})
        elif found.asset_key == CHANGELOG or found.asset_key in own_keys(source):
            prefix = f"{source.name}/" if found.asset_key == CHANGELOG else ""
            rooms.append(
                {
                    "source": source.name,
                    "room": found.asset_key.path[0],
                    **read_figures(found.metadata, prefix),
                }
            )
    return {"rooms": rooms, "tables": tables}


def _error(result: "dg.ExecuteInProcessResult") -> str | None:
    """Why the run failed: our own errors by their text, others with their trace."""
    failures = [e.step_failure_data for e in result.get_step_failure_events()]
    told = [
        f.user_failure_data.description for f in failures if f.user_failure_data and f.user_failure_data.description
    ]
    traces = [f.error.to_string() for f in failures if f.error and not f.user_failure_data]
    return "; ".join([*told, *traces]) or (None if result.success else "the run failed without telling why")


@contextmanager
def told_on_stderr() -> Iterator[None]:
    """Progress of the rooms as lines on stderr."""

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            progress(record.getMessage())

    logger, handler = logging.getLogger("cdc_platform.run"), Told(logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
