"""The chain's rooms as Dagster assets, made from the configured sources. Declarations: the work is in
`chain.ROOMS`.

`landing`, `envelopes` and `changes` are one asset per source; `changelog` and `snapshots` are shared by all
and process the sources whose assets are in the run. Runs are launched per source, so that a broken one blocks
no other.
"""

import logging
from collections.abc import Iterable, Iterator, Set
from typing import Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation import accounting, checks, delta, observe
from cdc_platform.automation.keys import (
    CHANGELOG,
    MAINTENANCE,
    OWNERS,
    SNAPSHOTS,
    SOURCE_TAG,
    TABLES,
    changes_key,
    is_partitioned,
    own_keys,
    sources_of,
    topic_keys,
)
from cdc_platform.automation.metadata import (
    declared_metadata,
    figures,
    room_metadata,
    snapshot_metadata,
    table_metadata,
)
from cdc_platform.chain import ROOMS, RoomResult, maintain
from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError
from cdc_platform.formats import FORMATS
from cdc_platform.resources.lock import source_lock

RETRY = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)
"""Rooms may be called again at will, so whatever Spark or a store stumbled over is tried again; a CdcError
says itself whether that makes sense."""
log = logging.getLogger("cdc_platform.run")


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
        result = _call(context, config, source, room)
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
        for result in _each(context, config, "changelog"):
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
        for result in _each(context, config, "snapshots"):
            yield from _table_events(context, config, result)
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
        for result in _each(context, config, "maintenance"):
            found |= {f"{result.source}/{k}": v for k, v in {"seconds": result.seconds, **result.metrics}.items()}
        return dg.MaterializeResult(metadata=found)

    return maintenance_asset


def _table_events(
    context: dg.AssetExecutionContext, config: Config, result: RoomResult
) -> Iterator[dg.AssetMaterialization]:
    """One materialization per table that got changes, was asked for, or is new to Dagster; stopped ones
    have none."""
    asked = set(context.partition_keys) if is_partitioned(context) else set()
    known = set(context.instance.get_materialized_partitions(SNAPSHOTS))
    live: dict[str, tuple[dict, str]] = {}
    for name, found in result.tables.items():
        db, table = split_name(name)
        key = observe.partition_key(result.source, db, table)
        if found.get("state", "live") == "live" and (found.get("changes") or key in asked or key not in known):
            live[key] = found, tables.SNAPSHOT_PATH.at(config.lake, source=result.source, db=db, table=table)
    context.instance.add_dynamic_partitions(str(TABLES.name), sorted(live))
    for key, (found, path) in live.items():
        yield dg.AssetMaterialization(
            SNAPSHOTS,
            partition=key,
            metadata=snapshot_metadata(found, path),
            tags={SOURCE_TAG: result.source},
        )


def split_name(name: str) -> tuple[str, str]:
    """ "db.table" of RoomResult.tables → (db, table), at the first dot."""
    db, _, table = name.partition(".")
    return db, table


def _each(context: dg.AssetExecutionContext, config: Config, room: str) -> Iterator[RoomResult]:
    """One room for every source of the run; a failing source is told after the others are done."""
    failed: dg.Failure | None = None
    for source in sources_of(config, context):
        try:
            yield _call(context, config, source, room)
        except dg.Failure as error:
            failed = failed or error
    if failed:
        raise failed


def _call(context: dg.AssetExecutionContext, config: Config, source: Source, room: str) -> RoomResult:
    """One room of one source under its lock; a CdcError becomes what Dagster acts upon."""
    log.info("%s %s: started", room, source.name)
    try:
        with source_lock(config, source):
            result = {**ROOMS, "maintenance": maintain}[room](context.resources.spark.spark_session, config, source)
    except CdcError as error:
        raise dg.Failure(str(error), allow_retries=error.retriable) from error
    log.info("%s %s: %s", room, source.name, _short(result))
    return result


def _short(result: RoomResult) -> str:
    found = figures(result)
    return f"{found['records']:,.0f} records in {found['seconds']:.1f} s"
