"""Dagster's job launched in this process, and what its events report: for the command line and the demo."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_platform.config import Config, Source

if TYPE_CHECKING:
    import dagster as dg

    from cdc_platform.automation.naming import Naming


_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


NOT_OF_A_RUN = frozenset(
    ("heartbeat", "nothing_is_held", "no_held_rows", "no_record_is_missing", "not_stopped", "certified")
)
"""Checks by which no run fails: the first judges the feed; of what the others say `attention` decides."""


@dataclass(frozen=True)
class Launcher:
    """Runs selections of assets in this process, as Dagster's pages would launch them."""

    job: "dg.JobDefinition"
    instance: "dg.DagsterInstance"

    def execute(
        self, keys: "list[dg.AssetKey]", tag: str, config: dict[str, Any] | None = None
    ) -> "dg.ExecuteInProcessResult":
        from cdc_platform.automation import checks
        from cdc_platform.automation.instance import PROCESS_TAG, process_tag
        from cdc_platform.automation.naming import SOURCE_TAG
        from cdc_platform.automation.table_events import CERTIFIED

        # A certificate blocks what lies downstream, and here nothing does: it is told as an event, and a table that was
        # rebuilt is no failure for what quarantine holds of it.
        wanted = {key for key in checks.of_run(keys, self.job.asset_layer.asset_graph) if key.name != CERTIFIED}
        result = self.job.get_subset(asset_selection=set(keys), asset_check_selection=wanted).execute_in_process(
            instance=self.instance,
            run_config={**_QUIET, **(config or {})},
            raise_on_error=False,
            tags={SOURCE_TAG: tag, PROCESS_TAG: process_tag()},
        )
        if any(e.step_failure_data.error_source.name == "INTERRUPT" for e in result.get_step_failure_events()):
            raise KeyboardInterrupt
        return result


@contextmanager
def launcher(config: Config, job: str | None = None) -> "Iterator[Launcher]":
    """job: one of the definitions' own; None: the one of all assets, which Dagster's pages launch for a selection."""
    from dagster import DagsterExecutionInterruptedError

    from cdc_platform.automation.instance import open_instance
    from cdc_platform.definitions import build

    defs = build(config)
    found = defs.resolve_job_def(job) if job else defs.resolve_implicit_global_asset_job_def()
    with open_instance(config) as instance:
        try:
            yield Launcher(found, instance)
        except DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None


def run_all(config: Config, chosen: list[Source]) -> list[dict[str, Any]]:
    """Dagster's job for each of the sources, one after the other, in this process; one dict per source."""
    from cdc_platform.automation.naming import CATCH_UP, Naming

    with launcher(config, CATCH_UP) as ready:
        return [_run(ready, Naming(config), source) for source in chosen]


def _run(launcher: Launcher, naming: "Naming", source: Source) -> dict[str, Any]:
    """One run as Dagster's sensor would request it, and its figures."""
    from cdc_platform.automation.markup import plain

    started = time.monotonic()
    result = launcher.execute(naming.run_keys(source), naming.tag(source))
    checks = [c for c in result.get_asset_check_evaluations() if not c.passed]
    wrong = [c for c in checks if c.severity.value == "ERROR" and c.check_name not in NOT_OF_A_RUN]
    return {
        "source": source.name,
        "ok": result.success and not wrong,
        "seconds": round(time.monotonic() - started, 2),
        "error": error_of(result),
        "failed_checks": list(dict.fromkeys(f"{c.check_name}: {plain(str(c.description))}" for c in checks)),
        "run_id": result.run_id,
        **run_summary(result, naming, source),
    }


def run_summary(
    result: "dg.ExecuteInProcessResult", naming: "Naming", source: Source
) -> dict[str, list[dict[str, Any]]]:
    """Stages and tables with what the run's events say of them."""
    from cdc_platform.automation.looks import STAGES
    from cdc_platform.automation.metadata import read_metrics

    named = {naming.key(stage, source): stage for stage in STAGES if stage not in ("offset_ledger", "quarantine")}
    stages, tables = [], []
    observed = [e.asset_observation_data.asset_observation for e in result.get_asset_observation_events()]
    for found in [*(e.materialization for e in result.get_asset_materialization_events()), *observed]:
        if found.asset_key in named:
            stages.append({"source": source.name, "stage": named[found.asset_key], **read_metrics(found.metadata)})
        elif "table" in found.metadata:
            rows = found.metadata.get("dagster/row_count")
            tables.append({"source": source.name, **read_metrics(found.metadata), "rows": rows.value if rows else None})
    return {"stages": stages, "tables": tables}


def error_of(result: "dg.ExecuteInProcessResult") -> str | None:
    """Why the run failed, in one line: our own errors by their text, others by their first cause."""
    from cdc_platform.automation.failures import reason

    told = [reason(e.step_failure_data) for e in result.get_step_failure_events()]
    return "; ".join(dict.fromkeys(filter(None, told))) or (
        None if result.success else "the run failed without a reason"
    )


@contextmanager
def log_followed(each: Callable[[str], None]) -> Iterator[None]:
    """Within it, `each` gets every line of the stages' log."""

    class Followed(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            each(record.getMessage())

    logger, handler = logging.getLogger("cdc_platform.run"), Followed(logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
