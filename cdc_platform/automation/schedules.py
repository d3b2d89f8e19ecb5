"""The jobs `catch_up` and `maintain` with their schedules; the job `reconcile`."""

from typing import Any

import dagster as dg

from cdc_platform.automation import checks
from cdc_platform.automation.keys import MAINTENANCE
from cdc_platform.automation.sensors import is_running, run_request
from cdc_platform.config import Config

CATCH_UP, RECONCILE, MAINTAIN = "catch_up", "reconcile", "maintain"


def all_jobs(config: Config) -> list[Any]:
    """`catch_up` and `maintain`, and `reconcile` where a source can be read."""
    return [
        catch_up_job(config),
        maintenance_job(),
        *([reconcile_job(config)] if checks.reconcile_keys(config) else []),
    ]


def all_schedules(config: Config) -> list[dg.ScheduleDefinition]:
    """Catch-up runs, and the upkeep."""
    return [
        catch_up_schedule(config),
        dg.ScheduleDefinition(
            name="maintenance_schedule",
            job_name=MAINTAIN,
            cron_schedule=config.maintenance.cron,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description="Upkeep of all sources' tables, one source after the other.",
        ),
    ]


def maintenance_job() -> Any:
    """Upkeep of the lake."""
    return dg.define_asset_job(
        MAINTAIN,
        selection=dg.AssetSelection.assets(MAINTENANCE),
        executor_def=dg.in_process_executor,
        description="Small files put together, files of old versions removed, old tombstones expired.",
    )


def catch_up_job(config: Config) -> Any:
    """Everything, in one process: the default executor would start one JVM per asset. Reading the sources'
    databases whole is no part of it."""
    return dg.define_asset_job(
        CATCH_UP,
        selection=dg.AssetSelection.all()
        - dg.AssetSelection.assets(MAINTENANCE)
        - dg.AssetSelection.checks(*checks.reconcile_keys(config)),
        executor_def=dg.in_process_executor,
        description="Catch up with Kafka: all rooms. Sensor and schedule launch it source by source.",
    )


def reconcile_job(config: Config) -> Any:
    """The checks that compare snapshots with their sources, and nothing else."""
    return dg.define_asset_job(
        RECONCILE,
        selection=dg.AssetSelection.checks(*checks.reconcile_keys(config)),
        executor_def=dg.in_process_executor,
        description="Compare all snapshots with the databases they follow.",
    )


def catch_up_schedule(config: Config) -> dg.ScheduleDefinition:
    """The net below the sensor: it runs a source again whose last run failed at a position that hasn't
    moved since. With nothing new a run takes seconds and changes nothing."""

    @dg.schedule(
        name="catch_up_schedule",
        job_name=CATCH_UP,
        cron_schedule=config.catch_up_cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Catches up every source, whether or not the sensor saw something.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        free = [s for s in config.sources if not is_running(context.instance, s)]
        return [run_request(s) for s in free] or dg.SkipReason("runs of all sources are under way")

    return schedule
