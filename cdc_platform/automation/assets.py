"""The chain's rooms as Dagster assets, made from the configured sources. Declarations: the work is in
`chain.ROOMS`, called by `automation.rooms`.

`landing`, `envelopes` and `changes` are one asset per source; `changelog` and `snapshots` are shared by all
and process the sources whose assets are in the run. Runs are launched per source, so that a broken one blocks
no other.
"""

from collections.abc import Iterable, Iterator, Set
from typing import Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation import accounting, checks, delta
from cdc_platform.automation.following import following
from cdc_platform.automation.jobs import followed
from cdc_platform.automation.keys import (
    CHANGELOG,
    MAINTENANCE,
    OWNERS,
    SNAPSHOTS,
    SOURCE_TAG,
    TABLES,
    changes_key,
    own_keys,
    topic_keys,
)
from cdc_platform.automation.metadata import declared_metadata, room_metadata, table_metadata
from cdc_platform.automation.rooms import RETRY, call, each, table_events
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS


def all_assets(config: Config) -> list[Any]:
    """Every asset of the platform."""
    own = [asset for source in config.sources for asset in source_assets(config, source)]
    return [
        *topic_specs(config),
        *own,
        changelog(config),
        snapshots(config),
        accounting.quarantine(config),
        accounting.offset_ledger(config),
        maintenance(config),
        *(following(config, source) for source in followed(config)),
    ]


def topic_specs(config: Config) -> list[dg.AssetSpec]:
    """The Kafka topics: external, so that the lineage begins where the data does."""
    specs: dict[dg.AssetKey, dg.AssetSpec] = {}
    for source in config.sources:
        names = source.topics or [f"topics like {source.topic_pattern}"]
        for key, name in zip(topic_keys(source), names, strict=True):
            specs[key] = dg.AssetSpec(
                key,
                group_name="kafka",
                kinds={"kafka"},
                owners=OWNERS,
                description=f"Kafka: {name}",
                metadata={
                    "topic": name,
                    "servers": config.kafka_properties(source).get("bootstrap.servers", ""),
                },
            )
    return list(specs.values())


def source_assets(config: Config, source: Source) -> list[dg.AssetsDefinition]:
    """landing, envelopes and changes of one source."""
    fmt = FORMATS[source.format]
    landing, envelopes, changes = own_keys(source)
    whole = "" if fmt.part else " This format never splits a message: nothing is copied."
    return [
        _room_asset(
            config,
            source,
            tables.LANDING,
            key=landing,
            deps=topic_keys(source),
            kinds={"kafka", "spark", "deltalake"},
            description=f"Kafka records of {source.name}, byte for byte, each exactly once.",
        ),
        _room_asset(
            config,
            source,
            tables.ENVELOPES,
            key=envelopes,
            deps=[landing],
            description=f"Complete messages of {source.name}: split ones put together again.{whole}",
        ),
        _room_asset(
            config,
            source,
            tables.CHANGES,
            key=changes,
            deps=[envelopes],
            description=f"Decoded events of {source.name}. {fmt.summary}",
            code_version=fmt.version,
        ),
    ]


def _room_asset(
    config: Config,
    source: Source,
    table: tables.Table,
    *,
    key: dg.AssetKey,
    deps: Iterable[dg.AssetKey],
    description: str,
    kinds: Set[str] = frozenset(("spark", "deltalake")),
    code_version: str | None = None,
) -> dg.AssetsDefinition:
    room = key.path[0]
    path = table.at(config.lake, source=source.name, format=source.format)

    @dg.asset(
        key=key,
        deps=list(deps),
        group_name=room,
        kinds=set(kinds),
        owners=OWNERS,
        description=description,
        tags={"cdc/format": source.format, SOURCE_TAG: source.name},
        code_version=code_version,
        metadata=declared_metadata(table, path),
        required_resource_keys={"spark"},
        retry_policy=RETRY,
        pool=f"source_{source.slug}",
    )
    def room_asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        result = call(context, config, source, room)
        return dg.MaterializeResult(metadata=room_metadata(result, path, delta.row_count(path)))

    return room_asset


def changelog(config: Config) -> dg.AssetsDefinition:
    """changelog, with schema_history and control_events."""
    path = tables.CHANGELOG.at(config.lake)

    @dg.asset(
        key=CHANGELOG,
        deps=[changes_key(s) for s in config.sources],
        group_name="changelog",
        owners=OWNERS,
        kinds={"spark", "deltalake"},
        required_resource_keys={"spark"},
        retry_policy=RETRY,
        metadata=declared_metadata(tables.CHANGELOG, path),
        description="Row changes of all sources in one vocabulary; beside it schema_history, control_events.",
    )
    def changelog_asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        found: dict[str, Any] = {}
        for result in each(context, config, "changelog"):
            found |= room_metadata(result, path, None, prefix=f"{result.source}/")
        return dg.MaterializeResult(metadata={**found, **table_metadata(path, delta.row_count(path))})

    return changelog_asset


def snapshots(config: Config) -> dg.AssetsDefinition:
    """snapshots: one partition per source table.

    A catch-up run has no partition key: it brings all tables of its sources up to date and tells of each
    table it touched. A run of chosen partitions does the same for their sources.
    """

    @dg.asset(
        key=SNAPSHOTS,
        deps=[CHANGELOG],
        group_name="snapshots",
        kinds={"spark", "deltalake"},
        owners=OWNERS,
        partitions_def=TABLES,
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={"spark"},
        retry_policy=RETRY,
        output_required=False,  # no event for the asset as a whole: one per touched table
        check_specs=[checks.STOPPED_SPEC],
        description="One Delta table per source table, equal to the source: `snapshots/<source>/<db>/<table>`.",
        metadata={"dagster/uri": f"{config.lake}/snapshots"},
    )
    def snapshots_asset(
        context: dg.AssetExecutionContext,
    ) -> Iterator[Any]:
        for result in each(context, config, "snapshots"):
            yield from table_events(context, config, result)
        yield checks.stopped_result(config)

    return snapshots_asset


def maintenance(config: Config) -> dg.AssetsDefinition:
    """maintenance: what upkeep did to the lake, in figures."""

    @dg.asset(
        key=MAINTENANCE,
        group_name="accounting",
        kinds={"spark", "deltalake"},
        owners=OWNERS,
        required_resource_keys={"spark"},
        retry_policy=RETRY,
        description="Upkeep: small files put together, files of old versions removed, old tombstones expired.",
    )
    def maintenance_asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        found: dict[str, Any] = {}
        for result in each(context, config, "maintenance"):
            found |= {f"{result.source}/{k}": v for k, v in {"seconds": result.seconds, **result.metrics}.items()}
        return dg.MaterializeResult(metadata=found)

    return maintenance_asset
