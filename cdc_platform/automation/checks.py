"""Asset checks: sources are alive, every landed offset is accounted for, nothing new in quarantine, no
table stopped, snapshots equal the source."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation import delta, keys, observe
from cdc_platform.automation.keys import sources_of
from cdc_platform.config import Config, Source
from cdc_platform.config.reconcile import Reconcile
from cdc_platform.errors import CdcError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_platform.reconcile.binlog import Risk
    from cdc_platform.reconcile.result import TableResult

HEARTBEAT = "heartbeat"
QUARANTINE_SPEC = dg.AssetCheckSpec(
    "no_new_rows", asset="quarantine", description="Warns when a run quarantined something."
)
STOPPED_SPEC = dg.AssetCheckSpec(
    "no_table_is_stopped",
    asset="snapshots",
    description="Fails when a table can't be kept as a snapshot; its changes stay in changelog.",
)
_LEDGER = "every_landed_offset_is_accounted_for"
_SHOWN = 20


def all_checks(config: Config) -> list[dg.AssetChecksDefinition]:
    """The checks that run by themselves; those of `quarantine` and `snapshots` come with their assets."""
    return [
        *(heartbeat_check(config, source) for source in config.sources),
        ledger_check(config),
        *(reconcile_check(config, s, s.reconcile) for s in config.sources if s.reconcile),
    ]


def reconcile_keys(config: Config) -> list[dg.AssetCheckKey]:
    """The checks that read the sources themselves: not part of a catch-up run."""
    return [dg.AssetCheckKey(keys.SNAPSHOTS, _reconcile_name(s)) for s in config.sources if s.reconcile]


def _reconcile_name(source: Source) -> str:
    return f"equals_source_{source.slug}"


def reconcile_check(config: Config, source: Source, how: Reconcile) -> dg.AssetChecksDefinition:
    """What `cdc-platform reconcile` does, for all tables of a source. Tells how much differs but no values: those stay
    with people who may read the source."""

    @dg.asset_check(
        asset=keys.SNAPSHOTS,
        name=_reconcile_name(source),
        description=f"Fails when a snapshot of {source.name} differs from the table at the source.",
        required_resource_keys={"spark"},
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        from cdc_platform.reconcile.binlog import NAMES, risks
        from cdc_platform.reconcile.run import against_server  # imports pyspark
        from cdc_platform.reconcile.server import Server, dsn_from

        try:
            server = Server(dsn_from(how.dsn_env))
            found = risks(server.variables(NAMES))
            spark = context.resources.spark.spark_session
            results = against_server(spark, config, source, server, wait_s=how.wait_s, limit=how.limit)
            return reconcile_result(source, results, found)
        except CdcError as error:
            return dg.AssetCheckResult(passed=False, description=f"not compared: {error}")

    return check


def reconcile_result(source: Source, results: "list[TableResult]", risks: "Sequence[Risk]" = ()) -> dg.AssetCheckResult:
    """Passes when all tables are equal, and there is at least one. `risks` are told, and fail nothing."""
    wrong = [r for r in results if not r.equal]
    skipped = sum(len(r.not_compared) for r in results)
    shown = "; ".join(_wrong(r) for r in wrong[:_SHOWN])
    equal = f"{len(results)} tables equal their source" + (f"; {skipped} columns not compared" if skipped else "")
    but = "".join(f"; changes may be missing: {r.name} is {r.value}" for r in risks)
    return dg.AssetCheckResult(
        passed=bool(results) and not wrong,
        severity=dg.AssetCheckSeverity.ERROR,
        description=((shown or equal) if results else f"{source.name} has no snapshot yet") + but,
        metadata={
            "tables": len(results),
            "differing_tables": len(wrong),
            "rows": sum(r.expected_rows for r in results),
            "null_dates": sum(r.null_dates for r in results),
            "not_compared": {r.table: r.not_compared for r in results if r.not_compared},
            "risks": {r.name: f"{r.value}: {r.means}" for r in risks},
        },
    )


def _wrong(result: "TableResult") -> str:
    counts = {"missing": result.missing, "extra": result.extra, "changed": result.changed}
    counts["differing buckets not looked into"] = result.not_looked_into
    told = [*result.problems, *(f"{n} {what}" for what, n in counts.items() if n)]
    return f"{result.table}: {', '.join(told)}; `cdc-platform reconcile` shows the rows"


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
        name=_LEDGER,
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
        check_name=_LEDGER,
        passed=not wrong,
        severity=dg.AssetCheckSeverity.ERROR,
        description="; ".join(wrong[:_SHOWN]) or f"all {landed} landed offsets are accounted for",
        metadata={"landed": landed, "partitions": len(rows), "wrong": len(wrong)},
    )


def evaluation(asset: dg.AssetKey, result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """A check's result as an event of a step that isn't the check's own."""
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=str(result.check_name),
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
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
