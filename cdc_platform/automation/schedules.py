"""Schedules: catch-up runs whether or not the sensor saw something, and the upkeep."""

import dagster as dg

from cdc_platform.automation.jobs import CATCH_UP, MAINTAIN
from cdc_platform.automation.sensors import is_running, run_request
from cdc_platform.config import Config


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
