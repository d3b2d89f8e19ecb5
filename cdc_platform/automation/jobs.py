"""The jobs: `catch_up`, `follow`, `maintain`, `reconcile`. All in one process each, with one Spark session."""

from typing import Any

import dagster as dg

from cdc_platform.automation import checks
from cdc_platform.automation.keys import MAINTENANCE, following_key
from cdc_platform.config import Config, Source

CATCH_UP, FOLLOW, MAINTAIN, RECONCILE = "catch_up", "follow", "maintain", "reconcile"


def other_jobs(config: Config) -> list[Any]:
    """`maintain`, and `reconcile` where a source can be read."""
    return [maintenance_job(), *([reconcile_job(config)] if checks.reconcile_keys(config) else [])]


def sensed_jobs(config: Config) -> list[Any]:
    """The jobs that the checkpoint sensor launches: `catch_up`, and `follow` where a source is followed."""
    return [catch_up_job(config), *([follow_job(config)] if followed(config) else [])]


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
        selection=_rooms(config),
        executor_def=dg.in_process_executor,
        description="Catch up with Kafka: all rooms. Schedule and command line launch it source by source.",
    )


def follow_job(config: Config) -> Any:
    """A catch-up that goes on, for the sensor."""
    return dg.define_asset_job(
        FOLLOW,
        selection=_rooms(config) | dg.AssetSelection.assets(*map(following_key, followed(config))),
        executor_def=dg.in_process_executor,
        description="Catch up with Kafka and go on while changes come. The sensor launches it source by source.",
    )


def followed(config: Config) -> list[Source]:
    """The sources whose runs go on following."""
    return [s for s in config.sources if s.follow_s]


def _rooms(config: Config) -> dg.AssetSelection:
    return (
        dg.AssetSelection.all()
        - dg.AssetSelection.assets(MAINTENANCE, *map(following_key, followed(config)))
        - dg.AssetSelection.checks(*checks.reconcile_keys(config))
    )


def reconcile_job(config: Config) -> Any:
    """The checks that compare snapshots with their sources, and nothing else."""
    return dg.define_asset_job(
        RECONCILE,
        selection=dg.AssetSelection.checks(*checks.reconcile_keys(config)),
        executor_def=dg.in_process_executor,
        description="Compare all snapshots with the databases they follow.",
    )
