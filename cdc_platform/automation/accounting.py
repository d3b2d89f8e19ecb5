"""Beside the chain, per source: what became of every offset, and what is held in quarantine. State, not deltas: a
check is red until what it names is resolved, whatever other sources do."""

from typing import Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation.markup import literal
from cdc_platform.automation.metadata import table_metadata
from cdc_platform.automation.naming import Naming, with_deps
from cdc_platform.config import Config, Source
from cdc_platform.lake import held_rows, queries, sequences, stores
from cdc_platform.units import count

ACCOUNTED, NOTHING_MISSING = "every_landed_offset_is_accounted_for", "no_record_is_missing"
NOTHING_HELD = "nothing_is_held"
_SHOWN = 20


def accounting(naming: Naming, source: Source) -> list[dg.AssetsDefinition]:
    """offset_ledger/<source>, whose check of the sums blocks what lies downstream, and quarantine/<source>."""
    upstream = [naming.key("changelog", source)]
    ledger, quarantine = (naming.spec(stage, source) for stage in ("offset_ledger", "quarantine"))

    @dg.multi_asset(
        name=naming.name(f"offset_ledger_{source.slug}"),
        specs=[with_deps(ledger, upstream)],
        check_specs=[
            dg.AssetCheckSpec(
                ACCOUNTED,
                asset=ledger.key,
                blocking=True,
                description="Per topic and partition, the outcomes add up to what was landed. Blocks the snapshots.",
            ),
            dg.AssetCheckSpec(
                NOTHING_MISSING,
                asset=ledger.key,
                description="Fails while records that their sender numbered never came, and a table may lack them.",
            ),
        ],
        pool=naming.pool(source),
    )
    def ledger_asset() -> dg.MaterializeResult:
        metadata, results = ledger_now(naming, source)
        return dg.MaterializeResult(metadata=metadata, check_results=results)

    @dg.multi_asset(
        name=naming.name(f"quarantine_{source.slug}"),
        specs=[with_deps(quarantine, upstream)],
        check_specs=[
            dg.AssetCheckSpec(
                NOTHING_HELD,
                asset=quarantine.key,
                description="Fails while quarantine holds anything of this source; names tables and reasons.",
            )
        ],
        pool=naming.pool(source),
    )
    def quarantine_asset() -> dg.MaterializeResult:
        metadata, results = quarantine_now(naming, source)
        return dg.MaterializeResult(metadata=metadata, check_results=results)

    return [ledger_asset, quarantine_asset]


def ledger_now(naming: Naming, source: Source) -> tuple[dict[str, Any], list[dg.AssetCheckResult]]:
    """Metadata of offset_ledger/<source>, and its checks."""
    path = tables.OFFSET_LEDGER.at(stores.lake(naming.config))
    rows = queries.ledger(naming.config, [source])
    sums = {o: sum(int(row[o]) for row in rows) for o in ("landed", *queries.OUTCOMES, "lost")}
    key, missing = naming.key("offset_ledger", source), sequences.open_gaps(naming.config, source)
    metadata = {**sums, "missing": sum(gap.records for gap in missing), **table_metadata(path.uri(), None)}
    return metadata, [ledger_result(naming.config, source, key), _missing(missing, key)]


def _missing(gaps: list[sequences.Gap], key: dg.AssetKey) -> dg.AssetCheckResult:
    shown = "; ".join(gap.text for gap in gaps[:_SHOWN])
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=NOTHING_MISSING,
        passed=not gaps,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{literal(shown)}. {sequences.WHICH_TABLES}" if gaps else "none is missing",
        metadata={"missing": sum(gap.records for gap in gaps), "gaps": len(gaps)},
    )


def ledger_result(config: Config, source: Source, key: dg.AssetKey | None = None) -> dg.AssetCheckResult:
    """The sum of one source: landed = applied + control + filtered + waiting + joined + duplicate + quarantined
    + erased, and = rows in landing."""
    rows = queries.ledger(config, [source])
    wrong = [queries.unaccounted(row) for row in rows if row["unaccounted"]]
    there = queries.row_count(tables.LANDING.at(stores.lake(config), source=source.name)) or 0
    landed = sum(r["landed"] for r in rows)
    if there != landed:
        wrong.append(f"landing holds {there} records, the ledger counts {landed}")
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=ACCOUNTED,
        passed=not wrong,
        severity=dg.AssetCheckSeverity.ERROR,
        description=literal("; ".join(wrong[:_SHOWN])) or f"all {landed} landed offsets are accounted for",
        metadata={"landed": landed, "partitions": len(rows), "wrong": len(wrong)},
    )


_HOW = "`cdc-platform quarantine list` lists them, `quarantine retry` decodes them again"


def quarantine_now(naming: Naming, source: Source) -> tuple[dict[str, Any], list[dg.AssetCheckResult]]:
    """Metadata of quarantine/<source>, and its check."""
    path = tables.QUARANTINE.at(stores.lake(naming.config))
    held = [h for h in held_rows.by_table(naming.config) if h["source"] == source.name]
    rows, named = sum(h["rows"] for h in held), sum(h["table"] is not None for h in held)
    shown = "; ".join(
        f"{_table(h)}: {count(h['rows'], 'row')}, the newest because: {h['reason']}" for h in held[:_SHOWN]
    )
    result = dg.AssetCheckResult(
        asset_key=naming.key("quarantine", source),
        check_name=NOTHING_HELD,
        passed=not rows,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{rows} held. {literal(shown)}. {_HOW}" if rows else "nothing is held",
        metadata={"held": rows, "tables": named},
    )
    return {"held": rows, "held_tables": named, **table_metadata(path.uri(), None)}, [result]


def _table(held: dict[str, Any]) -> str:
    return ".".join(tables.name_of(held)) if held["table"] is not None else "no table named"
