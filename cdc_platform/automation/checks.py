"""Asset checks: sources are alive, every landed offset is accounted for, nothing new in quarantine, no
table stopped."""

from typing import Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation import delta, observe
from cdc_platform.automation.keys import sources_of
from cdc_platform.config import Config, Source

HEARTBEAT = "heartbeat"
QUARANTINE_SPEC = dg.AssetCheckSpec(
    "no_new_rows", asset="quarantine", description="Warns when a run quarantined something."
)
STOPPED_SPEC = dg.AssetCheckSpec(
    "no_table_is_stopped",
    asset="snapshots",
    description="Fails when a table can't be kept as a snapshot; its changes stay in changelog.",
)
_SHOWN = 20


def all_checks(config: Config) -> list[dg.AssetChecksDefinition]:
    """The checks that run by themselves; those of `quarantine` and `snapshots` come with their assets."""
    return [
        *(heartbeat_check(config, source) for source in config.sources),
        ledger_check(config),
    ]


def heartbeat_check(config: Config, source: Source) -> dg.AssetChecksDefinition:
    """The same look at Kafka that the heartbeat sensor takes, for runs and for the button in the UI."""

    @dg.asset_check(
        asset=dg.AssetKey(["landing", source.name]),
        name=HEARTBEAT,
        description=f"Fails when {source.name} sent nothing for {source.heartbeat_timeout_s} s, has no "
        "topic, or Kafka doesn't answer. The heartbeat sensor reports here too.",
    )
    def check() -> dg.AssetCheckResult:
        seen = observe.heartbeat(config, source)
        return dg.AssetCheckResult(
            passed=seen.passed,
            severity=dg.AssetCheckSeverity.ERROR,
            description=f"{seen.state}: {seen.text}",
            metadata=heartbeat_metadata(seen),
        )

    return check


def heartbeat_evaluation(source: Source, seen: observe.Heartbeat) -> dg.AssetCheckEvaluation:
    """The check's result as a sensor reports it, outside of any run."""
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(["landing", source.name]),
        check_name=HEARTBEAT,
        passed=seen.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{seen.state}: {seen.text}",
        metadata=heartbeat_metadata(seen),
    )


def heartbeat_metadata(seen: observe.Heartbeat) -> dict[str, Any]:
    """state, and the times it was told from."""
    times = {"newest_record": seen.newest, "newest_change": seen.change}
    return {"state": seen.state, **{k: dg.MetadataValue.timestamp(v) for k, v in times.items() if v}}


def ledger_check(config: Config) -> dg.AssetChecksDefinition:
    """Landed = applied + control + filtered + waiting + joined + duplicate + quarantined, and = rows in
    landing.

    Looks at the run's sources only: another source may be in the middle of its own run.
    """

    @dg.asset_check(
        asset="offset_ledger",
        name="every_landed_offset_is_accounted_for",
        description="Per topic and partition, the outcomes add up to what was landed.",
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return ledger_result(config, sources_of(config, context))

    return check


def ledger_result(config: Config, sources: list[Source]) -> dg.AssetCheckResult:
    """The sum, checked for these sources."""
    rows = delta.ledger(config, sources)
    wrong = [
        f"{r['source']} {r['topic']}[{r['partition']}]: landed {r['landed']}, accounted {r['accounted']}"
        for r in rows
        if r["landed"] != r["accounted"]
    ]
    for source in sources:
        there = delta.row_count(tables.LANDING.at(config.lake, source=source.name)) or 0
        counted = sum(r["landed"] for r in rows if r["source"] == source.name)
        if there != counted:
            wrong.append(f"{source.name}: landing holds {there} records, the ledger counts {counted}")
    landed = sum(r["landed"] for r in rows)
    return dg.AssetCheckResult(
        passed=not wrong,
        severity=dg.AssetCheckSeverity.ERROR,
        description="; ".join(wrong[:_SHOWN]) or f"all {landed} landed offsets are accounted for",
        metadata={"landed": landed, "partitions": len(rows), "wrong": len(wrong)},
    )


def quarantine_result(rows: int, new: int) -> dg.AssetCheckResult:
    """A warning with the number of new rows; it passes again with the next run that adds none."""
    return dg.AssetCheckResult(
        check_name=QUARANTINE_SPEC.name,
        passed=new <= 0,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{new} new; `cdc-platform quarantine list` shows them" if new > 0 else f"none new, {rows} in all",
        metadata={"new": new, "records": rows},
    )


def stopped_result(config: Config) -> dg.AssetCheckResult:
    """Fails with the stopped tables of all sources and their reasons."""
    stopped = [t for t in delta.table_states(config) if t["state"] == "stopped"]
    shown = "; ".join(f"{t['source']} {t['db']}.{t['table']}: {t['reason']}" for t in stopped[:_SHOWN])
    return dg.AssetCheckResult(
        check_name=STOPPED_SPEC.name,
        passed=not stopped,
        severity=dg.AssetCheckSeverity.ERROR,
        description=shown or "no table is stopped",
        metadata={"stopped": len(stopped)},
    )
