"""Asset keys, and which sources a run is about."""

from typing import Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.config import Config, Source

OWNERS = ["team:cdc"]
SOURCE_TAG = "cdc/source"
TABLES = dg.DynamicPartitionsDefinition(name="tables")
CHANGELOG, SNAPSHOTS = dg.AssetKey("changelog"), dg.AssetKey("snapshots")
QUARANTINE, OFFSET_LEDGER = dg.AssetKey("quarantine"), dg.AssetKey("offset_ledger")
MAINTENANCE = dg.AssetKey("maintenance")
SHARED = (CHANGELOG, SNAPSHOTS, QUARANTINE, OFFSET_LEDGER)


def landing_key(source: Source) -> dg.AssetKey:
    """landing/<source>"""
    return dg.AssetKey(["landing", source.name])


def envelopes_key(source: Source) -> dg.AssetKey:
    """envelopes/<source>"""
    return dg.AssetKey(["envelopes", source.name])


def changes_key(source: Source) -> dg.AssetKey:
    """changes/<format>/<source>"""
    return dg.AssetKey(["changes", source.format, source.name])


def own_keys(source: Source) -> list[dg.AssetKey]:
    """The assets of one source alone, in the order of the data."""
    return [landing_key(source), envelopes_key(source), changes_key(source)]


def following_key(source: Source) -> dg.AssetKey:
    """following/<source>"""
    return dg.AssetKey(["following", source.name])


def run_keys(source: Source) -> list[dg.AssetKey]:
    """What one catch-up run of a source materialises."""
    return [*own_keys(source), *SHARED]


def topic_keys(source: Source) -> list[dg.AssetKey]:
    """Upstream: one asset per topic; a pattern is one asset, named by the source."""
    names = source.topics or [source.name]
    return [dg.AssetKey(["kafka", tables.path_name(name)]) for name in names]


def sources_of(config: Config, context: Any) -> list[Source]:
    """The sources that a run is about: those of its partitions, else those with an asset of their own in
    it, else the one of its tag, else all."""
    if isinstance(context, dg.AssetExecutionContext) and is_partitioned(context):
        named = {key.split("/", 1)[0] for key in context.partition_keys}
    else:
        selected = set(context.job_def.asset_layer.executable_asset_keys)
        named = {s.name for s in config.sources if selected & set(own_keys(s))}
        named = named or {context.run.tags.get(SOURCE_TAG)}
    return [s for s in config.sources if s.name in named] or list(config.sources)


def is_partitioned(context: dg.AssetExecutionContext) -> bool:
    """Whether the run is one of chosen partitions of this asset."""
    return context.assets_def.partitions_def is not None and (
        context.has_partition_key or context.has_partition_key_range
    )
