"""Which runs are a source's. Sensor, schedules and command line tag theirs; a run that somebody launched on Dagster's
pages has no tag: there the assets that it materializes decide. Runs of other jobs that write a source have its tag,
too, for Dagster's queue; they aren't the chain's."""

from collections.abc import Iterable
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterRunStatus

from cdc_platform.automation.looks import STAGES
from cdc_platform.automation.naming import CATCH_UP, SOURCE_TAG, Naming
from cdc_platform.config import Source
from cdc_platform.lake import queries
from cdc_platform.tables import name_of

_OF_ASSETS = "__ASSET_JOB"
"""Dagster's own name for the job of runs that are launched from assets' pages."""
_UNTAGGED = 50
"""So many of the newest runs of such a job are looked at: in a code location of many it is everybody's."""


@dataclass(frozen=True, slots=True)
class SourceRun:
    """A run of a source. failed: whether it failed for this source; one run may be of several."""

    record: dg.RunRecord
    failed: bool

    @property
    def run(self) -> dg.DagsterRun:
        """Dagster's own."""
        return self.record.dagster_run


def of_source(
    instance: dg.DagsterInstance,
    naming: Naming,
    source: Source,
    statuses: Iterable[DagsterRunStatus] = (),
    limit: int = 1,
) -> list[SourceRun]:
    """The newest runs of a source, the newest first. statuses: only those; none: any."""
    only = list(statuses)

    def records(limit: int, **more: object) -> list[dg.RunRecord]:
        return list(instance.get_run_records(dg.RunsFilter(statuses=only, **more), limit=limit))  # type: ignore[arg-type]

    stages = {naming.key(stage, source) for stage in STAGES}
    found = {}
    for job in (_OF_ASSETS, naming.name(CATCH_UP)):
        tagged = records(limit, job_name=job, tags={SOURCE_TAG: naming.tag(source)})
        found |= {r.dagster_run.run_id: r for r in tagged}
        found |= {
            r.dagster_run.run_id: r
            for r in records(_UNTAGGED, job_name=job)
            if SOURCE_TAG not in r.dagster_run.tags and _is_of(r.dagster_run, naming, source, stages)
        }
    newest = sorted(found.values(), key=lambda r: r.storage_id, reverse=True)[:limit]
    return [SourceRun(r, _failed(instance, r.dagster_run, stages)) for r in newest]


def queued_with(naming: Naming, sources: Iterable[Source]) -> dg.PartitionedConfig:
    """Partitions of a job that writes a source: its name. Their runs have the source's tag, so that Dagster's queue
    lets each wait for the runs of its source, and those for it. Without it a run would wait in a started process, and
    not for long."""
    tags = {s.name: {SOURCE_TAG: naming.tag(s)} for s in sources}
    return dg.PartitionedConfig(
        dg.StaticPartitionsDefinition(list(tags)),
        run_config_for_partition_key_fn=lambda _: {},
        tags_for_partition_key_fn=tags.__getitem__,
    )


def _is_of(run: dg.DagsterRun, naming: Naming, source: Source, stages: set[dg.AssetKey]) -> bool:
    """Whether a run materializes assets of a source; without a selection it is all that the job has."""
    selection = run.asset_selection
    if not selection:
        return not run.asset_check_selection
    if not stages.isdisjoint(selection):
        return True
    tables = naming.key("snapshots", source).path
    if any(key.path[: len(tables)] == tables for key in selection):
        return True
    return naming.translates and not _tables(naming, source).isdisjoint(selection)


def _tables(naming: Naming, source: Source) -> set[dg.AssetKey]:
    rows = queries.table_states(naming.config)
    return {naming.table(source, *name_of(r)).key for r in rows if r["source"] == source.name}


def _failed(instance: dg.DagsterInstance, run: dg.DagsterRun, stages: set[dg.AssetKey]) -> bool:
    """A run of several sources failed for those of which it left a stage undone."""
    if run.status != DagsterRunStatus.FAILURE:
        return False
    if SOURCE_TAG in run.tags:
        return True
    wanted = stages & run.asset_selection if run.asset_selection else stages
    done = {
        r.asset_entry.asset_key
        for r in instance.get_asset_records(list(wanted))
        if (m := r.asset_entry.last_materialization_record) and m.run_id == run.run_id
    }
    return not wanted or done != wanted
