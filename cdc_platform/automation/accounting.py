"""The assets beside the chain: what became of every offset, and what could not be used. They only read."""

from typing import Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation import checks, delta
from cdc_platform.automation.keys import CHANGELOG, OFFSET_LEDGER, OWNERS, QUARANTINE
from cdc_platform.automation.metadata import declared_metadata, read_figures, table_metadata
from cdc_platform.config import Config


def quarantine(config: Config) -> dg.AssetsDefinition:
    """quarantine: how many rows, how many of them new; a check warns of new ones."""
    path = tables.QUARANTINE.at(config.lake)

    @dg.asset(
        key=QUARANTINE,
        deps=[CHANGELOG],
        group_name="accounting",
        kinds={"deltalake"},
        owners=OWNERS,
        check_specs=[checks.QUARANTINE_SPEC],
        metadata=declared_metadata(tables.QUARANTINE, path),
        description="What could not be used, and why. The bytes stay in landing under the same address.",
    )
    def quarantine_asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        metadata, result = quarantine_now(context.instance, config)
        return dg.MaterializeResult(metadata=metadata, check_results=[result])

    return quarantine_asset


def quarantine_now(instance: dg.DagsterInstance, config: Config) -> tuple[dict[str, Any], dg.AssetCheckResult]:
    """What the asset `quarantine` tells; new: since it was told last."""
    path = tables.QUARANTINE.at(config.lake)
    rows = delta.row_count(path) or 0
    before = instance.get_latest_materialization_event(QUARANTINE)
    earlier = before.asset_materialization.metadata if before and before.asset_materialization else {}
    new = rows - int(read_figures(earlier).get("records", 0))
    left = sum(delta.quarantined(config).values())
    metadata = {"records": rows, "new": new, "resolved": rows - left, **table_metadata(path, rows)}
    return metadata, checks.quarantine_result(rows, new)


def offset_ledger(config: Config) -> dg.AssetsDefinition:
    """offset_ledger: what became of every landed offset."""
    path = tables.OFFSET_LEDGER.at(config.lake)

    @dg.asset(
        key=OFFSET_LEDGER,
        deps=[CHANGELOG],
        group_name="accounting",
        kinds={"deltalake"},
        owners=OWNERS,
        metadata=declared_metadata(tables.OFFSET_LEDGER, path),
        description="What became of every landed offset: applied, control, filtered, waiting, …",
    )
    def ledger_asset() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=ledger_now(config))

    return ledger_asset


def ledger_now(config: Config) -> dict[str, Any]:
    """What the asset `offset_ledger` tells."""
    path = tables.OFFSET_LEDGER.at(config.lake)
    rows = delta.ledger(config, config.sources)
    sums = {o: sum(int(row[o]) for row in rows) for o in ("landed", *delta.OUTCOMES, "lost")}
    return {**sums, **table_metadata(path, delta.row_count(path))}
