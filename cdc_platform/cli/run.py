"""`cdc-platform run`: the job that Dagster runs, in this process, source by source."""

import difflib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import ConfigError, RunFailed

if TYPE_CHECKING:
    import dagster as dg
    from dagster_shared.error import SerializableErrorInfo

    from cdc_platform.automation.naming import Naming

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_NOT_OF_A_RUN = frozenset(("heartbeat", "nothing_is_held", "no_held_rows", "not_stopped"))
"""Checks by which no run fails: the first judges the feed; of what the others say `attention` decides."""


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
    from cdc_platform.resources import early

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
        return Report({"rebuilt": _rebuild(ready, chosen, table)})
    early.begin(ready)
    with told_on_stderr():
        results = run_all(ready, chosen)
    if table and all(r["error"] is None for r in results):
        _expect(loaded, chosen, table, sure=True)
    findings = of_lake(loaded, chosen, allow_held=allow_held)
    data = {
        "spark": ready.spark.remote or ready.spark.master,
        "sources": [{k: v for k, v in r.items() if k not in ("rooms", "tables")} for r in results],
        "rooms": [room for r in results for room in r["rooms"]],
        "tables": [t for r in results for t in r["tables"] if table in (None, t["table"])],
        "problems": [f"{f.source}: {f.text}" for f in findings],
        "warnings": advice.warnings(loaded),
    }
    return Report(data, 0 if all(r["ok"] for r in results) and not findings else 1, _shown(data))


_STAGE = ("source", "room", "records", "batches", "seconds", "events_per_second", "lag", "waiting", "quarantined")
_TABLE = ("source", "table", "rows", "changes", "seconds", "state", "reason")


def _shown(data: dict[str, Any]) -> dict[str, Any]:
    """What people see: the figures that every stage or table has, and what needs attention at the end."""
    failed = [
        f"{s['source']}: {text}"
        for s in data["sources"]
        for text in s["failed_checks"]
        if text.split(":")[0] not in _NOT_OF_A_RUN
    ]
    errors = [s["error"] for s in data["sources"] if s["error"]]
    return {
        "spark": data["spark"],
        "sources": [{k: s[k] for k in ("source", "ok", "seconds")} for s in data["sources"]],
        "stages": [{k.replace("room", "stage"): r.get(k) for k in _STAGE} for r in data["rooms"]],
        "tables": [{k: t.get(k) for k in _TABLE} for t in data["tables"]] or "nothing new",
        "needs attention": [{"what": text} for text in [*errors, *data["problems"], *failed]] or "nothing",
    }


def _expect(config: Config, chosen: list[Source], table: str, *, sure: bool = False) -> None:
    """Raises ConfigError where the table isn't known to any of the sources, though all that Kafka holds has landed:
    before a run (`sure`: after it, when that is so) no table is refused that only Kafka knows of."""
    from cdc_platform.automation import delta, observe
    from cdc_platform.errors import CdcError

    names = {s.name for s in chosen}
    known = {f"{db}.{name}" for source, db, name in delta.known_tables(config) if source.name in names}
    if table in known:
        return
    try:
        sure = sure or not any(delta.has_news(config, s, observe.kafka_ends(config, s)) for s in chosen)
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
    from cdc_platform.resources.spark import check_master

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

    db, _, name = table.partition(".")
    known = table_status.known(config)
    having = [s for s in chosen if (s.name, db, name) in {(of.name, *names) for of, *names in known}]
    if not having:
        raise ConfigError("--table", f"the lake has no table {table}", sorted({f"{d}.{t}" for _, d, t in known}))
    naming, done = Naming(config), []
    with _launcher(config) as launcher:
        for source in having:
            started = time.monotonic()
            key = naming.table(source, db, name).key
            result = launcher.execute([key], naming.tag(source), run_config(naming, source, rebuild=True))
            if error := _error(result):
                raise RunFailed(source.name, error)
            [found] = _figures(result, naming, source)["tables"]
            seconds = round(time.monotonic() - started, 2)
            done.append({"source": source.name, "table": table, "changes": found["changes"], "seconds": seconds})
    return done


@dataclass(frozen=True)
class _Launcher:
    """Runs selections of assets in this process, as Dagster's pages would launch them."""

    job: "dg.JobDefinition"
    instance: "dg.DagsterInstance"

    def execute(
        self, keys: "list[dg.AssetKey]", tag: str, config: dict[str, Any] | None = None
    ) -> "dg.ExecuteInProcessResult":
        from cdc_platform.automation.naming import SOURCE_TAG

        result = self.job.execute_in_process(
            instance=self.instance,
            run_config={**_QUIET, **(config or {})},
            raise_on_error=False,
            asset_selection=keys,
            tags={SOURCE_TAG: tag},
        )
        if any(e.step_failure_data.error_source.name == "INTERRUPT" for e in result.get_step_failure_events()):
            raise KeyboardInterrupt
        return result


@contextmanager
def _launcher(config: Config, job: str | None = None) -> "Iterator[_Launcher]":
    """job: one of the definitions' own; None: the one of all assets, which Dagster's pages launch for a selection."""
    from dagster import DagsterExecutionInterruptedError

    from cdc_platform.automation.instance import open_instance
    from cdc_platform.definitions import build

    defs = build(config)
    found = defs.resolve_job_def(job) if job else defs.resolve_implicit_global_asset_job_def()
    with open_instance(config) as instance:
        try:
            yield _Launcher(found, instance)
        except DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None


def run_all(config: Config, chosen: list[Source]) -> list[dict[str, Any]]:
    """Dagster's job for each of the sources, one after the other, in this process; one dict per source."""
    from cdc_platform.automation.jobs import CATCH_UP
    from cdc_platform.automation.naming import Naming

    with _launcher(config, CATCH_UP) as launcher:
        return [_run(launcher, Naming(config), source) for source in chosen]


def _run(launcher: _Launcher, naming: "Naming", source: Source) -> dict[str, Any]:
    """One run as Dagster's sensor would request it, and its figures."""
    started = time.monotonic()
    result = launcher.execute(naming.run_keys(source), naming.tag(source))
    checks = [c for c in result.get_asset_check_evaluations() if not c.passed]
    wrong = [c for c in checks if c.severity.value == "ERROR" and c.check_name not in _NOT_OF_A_RUN]
    return {
        "source": source.name,
        "ok": result.success and not wrong,
        "seconds": round(time.monotonic() - started, 2),
        "error": _error(result),
        "failed_checks": list(dict.fromkeys(f"{c.check_name}: {c.description}" for c in checks)),
        "run_id": result.run_id,
        **_figures(result, naming, source),
    }


def _figures(result: "dg.ExecuteInProcessResult", naming: "Naming", source: Source) -> dict[str, list[dict[str, Any]]]:
    """Stages and tables with what the run's events say of them."""
    from cdc_platform.automation.metadata import read_figures
    from cdc_platform.automation.naming import STAGES

    stages = {naming.key(stage, source): stage for stage in STAGES if stage not in ("offset_ledger", "quarantine")}
    rooms, tables = [], []
    observed = [e.asset_observation_data.asset_observation for e in result.get_asset_observation_events()]
    for found in [*(e.materialization for e in result.get_asset_materialization_events()), *observed]:
        if found.asset_key in stages:
            rooms.append({"source": source.name, "room": stages[found.asset_key], **read_figures(found.metadata)})
        elif "table" in found.metadata:
            rows = found.metadata.get("dagster/row_count")
            tables.append({"source": source.name, **read_figures(found.metadata), "rows": rows.value if rows else None})
    return {"rooms": rooms, "tables": tables}


def _error(result: "dg.ExecuteInProcessResult") -> str | None:
    """Why the run failed, in one line: our own errors by their text, others by their first cause."""
    failures = [e.step_failure_data for e in result.get_step_failure_events()]
    told = [
        f.user_failure_data.description if f.user_failure_data and f.user_failure_data.description else _cause(f.error)
        for f in failures
        if f.error or f.user_failure_data
    ]
    return "; ".join(dict.fromkeys(filter(None, told))) or (
        None if result.success else "the run failed without a reason"
    )


def _cause(error: "SerializableErrorInfo | None") -> str:
    """The innermost cause's class and first line. Dagster's pages have the stack."""
    while error and error.cause:
        error = error.cause
    return error.message.strip().split("\n")[0] if error else ""


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
