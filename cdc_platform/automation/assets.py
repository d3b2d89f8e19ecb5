"""The chain as Dagster assets, made from the configured sources. Declarations: the work is in `chain.STAGES`, called by
`automation.stages`.

Every stage has one asset per source, every source table one below `snapshots/<source>`. Runs are launched per source,
so that a broken one blocks no other.
"""

from typing import Any

import dagster as dg

from cdc_platform.automation import checks, completeness, overview, shadows
from cdc_platform.automation.accounting import accounting
from cdc_platform.automation.looks import MAINTENANCE
from cdc_platform.automation.naming import Naming, with_deps
from cdc_platform.automation.reporting import TABLES, stage_metadata
from cdc_platform.automation.stages import RETRY, call
from cdc_platform.automation.table_assets import snapshots
from cdc_platform.config import Source


def all_assets(naming: Naming) -> list[Any]:
    """Every asset of the platform."""
    known = naming.known
    found: list[Any] = list(_unique(spec for s in naming.config.sources for spec in naming.topics(s)))
    for source in naming.config.sources:
        own = [name for s, name in known if s.name == source.name]
        found += [
            *stage_assets(naming, source),
            *accounting(naming, source),
            snapshots(naming, source, own),
            *(spec for name in own for spec in naming.beside(source, *name).values()),
            naming.spec(MAINTENANCE, source),
            completeness.asset(naming, source),
        ]
    return [*found, *checks.specs(naming), *shadows.specs(naming), overview.overview(naming)]


def _unique(specs: Any) -> list[dg.AssetSpec]:
    return list({spec.key: spec for spec in specs}.values())


def stage_assets(naming: Naming, source: Source) -> list[dg.AssetsDefinition]:
    """landing, envelopes, changes and changelog of one source."""
    upstream, found = [spec.key for spec in naming.topics(source)], []
    for stage in TABLES:
        found.append(_stage_asset(naming, source, stage, upstream))
        upstream = [naming.key(stage, source)]
    return found


def _stage_asset(naming: Naming, source: Source, stage: str, upstream: list[dg.AssetKey]) -> dg.AssetsDefinition:
    @dg.multi_asset(
        name=naming.name(f"{stage}_{source.slug}"),
        specs=[with_deps(naming.spec(stage, source), upstream)],
        required_resource_keys={naming.resource_key},
        retry_policy=RETRY,
        pool=naming.pool(source),
    )
    def stage_asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=stage_metadata(naming, source, call(context, naming, source, stage)))

    return stage_asset
