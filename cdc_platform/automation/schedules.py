"""Schedules: catch-up runs whether or not the sensor saw something, comparisons of feeds, and the upkeep."""

from collections.abc import Iterator

import dagster as dg

from cdc_platform.automation import shadows
from cdc_platform.automation.jobs import MAINTAIN
from cdc_platform.automation.naming import CATCH_UP, Naming
from cdc_platform.automation.sensors import is_running, run_request


def all_schedules(naming: Naming) -> list[dg.ScheduleDefinition]:
    """Catch-up runs, comparisons of feeds, and the upkeep."""
    return [
        catch_up_schedule(naming),
        *shadows.schedules(naming),
        dg.ScheduleDefinition(
            name=naming.name("maintenance_schedule"),
            job_name=naming.name(MAINTAIN),
            cron_schedule=naming.config.maintenance.cron,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description="Upkeep of all sources' tables, one source after the other.",
        ),
    ]


def catch_up_schedule(naming: Naming) -> dg.ScheduleDefinition:
    """The net below the sensor: it runs a source again whose last run failed at a position that hasn't
    moved since. With nothing new a run takes seconds and changes nothing."""

    @dg.schedule(
        name=naming.name("catch_up_schedule"),
        job_name=naming.name(CATCH_UP),
        cron_schedule=naming.config.catch_up_cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Catches up every source, whether or not the sensor saw something.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        free = [s for s in naming.config.sources if not is_running(context.instance, naming, s)]
        if not free:
            yield dg.SkipReason("runs of all sources are under way")
        for source in free:  # a key per source and tick: one tick's requests must be told apart
            tick = context.scheduled_execution_time
            yield run_request(naming, context.repository_def, source, f"{source.name}:{tick.isoformat()}")

    return schedule
