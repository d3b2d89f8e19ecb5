"""What the checkpoint sensor tells of tables: an observation each time that they are complete up to a later time.

A source that has become quiet needs one more run: that nothing has come by its idle partitions, a run finds that looks
at Kafka after `idle_partition_s`.
"""

import time
import warnings
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation import table_events, table_status
from cdc_platform.automation.looks import COMPLETE
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.table_status import TableStatus
from cdc_platform.config import Config, Source
from cdc_platform.lake import folders, stores, watermarks
from cdc_platform.lake.watermarks import Complete
from cdc_platform.units import count, when

LEAST_S = 60.0
"""A table is observed at most once in so many seconds."""
TABLES_PER_S = 2
"""Of a source with many tables each is observed so much more seldom that Dagster stores no more than so many."""


def observations(
    naming: Naming, source: Source, told: dict[str, Any], instance: dg.DagsterInstance
) -> list[dg.AssetObservation]:
    """Observations of a source's live tables, where a publication is newer than what was told, and it is time to tell
    it. told: number of the publication and when it was told (s since 1970); brought up to date."""
    if has_moved(naming, source):
        return []
    reached = table_status.complete(naming.config, source)
    waited = time.time() - told.get("at", 0.0)
    if reached is None or reached.number == told.get("number") or waited < LEAST_S:
        return []
    followed = _followed(naming, source)
    statuses = [s for s in followed if s.state == "live"]
    if waited < len(statuses) / TABLES_PER_S:
        return []
    told.update(number=reached.number, at=time.time())
    events = [*_events(naming, source, statuses)]
    events += (
        event
        for event in _of_all(naming, source, followed)
        if event.tags[table_events.DATA_VERSION]
        > _last_data_version(instance, event.asset_key)  # texts ascend as times do
    )
    return events


def has_moved(naming: Naming, source: Source) -> bool:
    """Whether a source's snapshots are in another folder than when these definitions were loaded: their names are those
    of other tables, until they are loaded again."""
    return folders.folder(stores.lake(naming.config), source.name) != naming.folders[source.name]


def _followed(naming: Naming, source: Source) -> list[TableStatus]:
    """Tables that are, or should be, kept up to date."""
    return [s for s in table_status.statuses(naming.config, source) if s.state not in ("dropped", "left_out")]


def asset(naming: Naming, source: Source) -> dg.AssetsDefinition:
    """The asset `complete/<source>`, which is only observed: conditions of what lies downstream follow observations of
    such an asset, and of one that is materialized, as tables are, they don't."""
    spec = naming.spec(COMPLETE, source)

    def observe(context: dg.AssetExecutionContext) -> Iterator[dg.ObserveResult]:
        told = [] if has_moved(naming, source) else [*_of_all(naming, source, _followed(naming, source))]
        metadata = (
            told[0].metadata
            if told
            else {"complete_up_to": completeness_clause(table_status.complete(naming.config, source))}
        )
        versions = (
            *(event.tags[table_events.DATA_VERSION] for event in told),
            _last_data_version(context.instance, spec.key),
        )
        newest = max(versions)
        yield dg.ObserveResult(spec.key, metadata, data_version=dg.DataVersion(newest) if newest else None)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.multi_observable_source_asset(name=naming.name(f"complete_{source.slug}"), specs=[spec])(observe)


def _last_data_version(instance: dg.DagsterInstance, key: dg.AssetKey) -> str:
    """The newest data version that was observed; "": none. A table that joins may be complete up to an earlier time
    than the others were, and what lies downstream had been told of those."""
    last = instance.get_latest_data_version_record(key)
    tags = last.asset_observation.tags if last and last.asset_observation else None
    return (tags or {}).get(table_events.DATA_VERSION, "")


def completeness_clause(told: Complete | None) -> str:
    """Up to when a source's tables are complete, and what holds them back, as a clause."""
    if told is None:
        return "nothing tells so far up to when it is complete"
    if told.source_time is None:
        return f"complete up to no time: {told.reason}"
    found = f"complete up to {when(told.source_time)}"
    if told.reason:
        found += f", held back: {told.reason}" if told.proven else f" (assumed: {told.reason})"
    if told.behind:
        first = next(iter(told.behind.values()))
        found += f", {count(len(told.behind), 'table')} up to an earlier time: {first.reason}"
    return found


def idle_since(config: Config, source: Source) -> datetime | None:
    """Since when the newest time that a source's partitions told waits for those that are idle; None: its snapshots are
    complete up to it."""
    newest, since = newest_source_time(config, source)
    reached = table_status.complete(config, source)
    if newest is None or (reached and reached.source_time and reached.source_time >= newest):
        return None
    return since


def newest_source_time(config: Config, source: Source) -> tuple[datetime | None, datetime | None]:
    """The newest time, by the source's clock, that any of its partitions told (None: none did), and when, by ours, a
    batch last brought any."""
    marks = watermarks.partitions(tables.WATERMARKS.at(stores.lake(config)), source.name).values()
    newest = max((r["source_time"] for r in marks if r["source_time"]), default=None)
    return newest, max((r["at"] for r in marks), default=None)


def _events(naming: Naming, source: Source, statuses: list[TableStatus]) -> Iterator[dg.AssetObservation]:
    for status in statuses:
        if (up_to := status.complete_up_to) is not None:
            yield dg.AssetObservation(
                naming.table(source, *status.id).key,
                metadata={k: v for k, v in table_events.completeness(status).items() if v is not None},
                tags={SOURCE_TAG: naming.tag(source), table_events.DATA_VERSION: data_version(up_to)},
            )


def _of_all(naming: Naming, source: Source, statuses: list[TableStatus]) -> Iterator[dg.AssetObservation]:
    """Of `complete/<source>`: the time up to which each of these tables is complete; none where one tells none, or
    isn't kept up to date."""
    times = [status.complete_up_to for status in statuses]
    if not times or None in times or any(s.state != "live" for s in statuses):
        return
    first = min(statuses, key=lambda s: s.complete_up_to or datetime.max)
    up_to = first.complete_up_to
    assert up_to is not None
    of_one = ("complete_up_to_position", "complete_up_to_gtids")
    told = {k: v for k, v in table_events.completeness(first).items() if k not in of_one}
    yield dg.AssetObservation(
        naming.key(COMPLETE, source),
        metadata={"tables": len(times), "earliest": ".".join(first.id), **told},
        tags={SOURCE_TAG: naming.tag(source), table_events.DATA_VERSION: data_version(up_to)},
    )


def data_version(up_to: datetime) -> str:
    """A watermark as the data version of an observation: UTC in ISO 8601, so that texts ascend as times do."""
    return up_to.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
