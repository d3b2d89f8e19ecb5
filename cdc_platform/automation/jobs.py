"""The jobs: `catch_up`, `maintain`, `reconcile`, `load`, `repair`, `shadow`, `replay`. Each in one process, with one
session of Spark."""

from typing import Any

import dagster as dg

from cdc_platform.automation import checks, loads, repairs, replays, shadows
from cdc_platform.automation.looks import MAINTENANCE, RECONCILE
from cdc_platform.automation.naming import CATCH_UP, SOURCE_TAG, Naming
from cdc_platform.automation.stages import RETRY, call

MAINTAIN = "maintain"


def all_jobs(naming: Naming) -> list[Any]:
    """Every job; the first is `catch_up`."""
    readable = any(s.reconcile for s in naming.config.sources)
    found = [catch_up_job(naming), maintenance_job(naming), replays.replay_job(naming)]
    found += [reconcile_job(naming), loads.load_job(naming), repairs.repair_job(naming)] if readable else []
    return [*found, *([shadows.job(naming)] if naming.config.shadow else [])]


def catch_up_job(naming: Naming) -> Any:
    """Every stage of every source, in one process: the default executor would start one JVM per asset."""
    keys = dict.fromkeys(key for source in naming.config.sources for key in naming.run_keys(source))
    return dg.define_asset_job(
        naming.name(CATCH_UP),
        selection=dg.AssetSelection.assets(*keys) - checks.reconcile_selection(naming),
        executor_def=dg.in_process_executor,
        description="Catch up with Kafka: all stages. Sensor, schedule and command line launch it source by source.",
    )


def maintenance_job(naming: Naming) -> Any:
    """Upkeep of the lake: an op job, so that "materialize all" leaves it out. It reports to maintenance/<source>."""

    @dg.op(
        name=naming.name(MAINTENANCE),
        required_resource_keys={naming.resource_key},
        retry_policy=RETRY,
    )
    def maintenance(context: dg.OpExecutionContext) -> None:
        failed: dg.Failure | None = None
        for source in naming.config.sources:
            try:
                result = call(context, naming, source, MAINTENANCE)
            except dg.Failure as error:  # the others' tables are looked after all the same
                failed = failed or error
                continue
            context.log_event(
                dg.AssetMaterialization(
                    naming.key(MAINTENANCE, source),
                    metadata={"seconds": result.seconds, **result.metrics},
                    tags={SOURCE_TAG: naming.tag(source)},
                )
            )
        if failed:
            raise failed

    @dg.job(
        name=naming.name(MAINTAIN),
        executor_def=dg.in_process_executor,
        description="Small files compacted, files of old versions removed, old tombstones expired.",
    )
    def maintain() -> None:
        maintenance()

    return maintain


def reconcile_job(naming: Naming) -> Any:
    """The checks that compare snapshots with their sources, and nothing else."""
    return dg.define_asset_job(
        naming.name(RECONCILE),
        selection=checks.reconcile_selection(naming),
        executor_def=dg.in_process_executor,
        description="Compare all snapshots with the databases they follow.",
    )
