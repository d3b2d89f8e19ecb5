"""What a step tells of work that is not its own asset's: stages that it ran by itself, tables that changed.

Used where a step goes on following, and where tables were asked for alone, which catches their source up.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from cdc_platform import advice, tables
from cdc_platform.automation import overview, table_events, table_status
from cdc_platform.automation.accounting import ledger_now, quarantine_now
from cdc_platform.automation.metadata import result_metadata
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.table_status import Name, TableStatus
from cdc_platform.certificate import BROKEN
from cdc_platform.config import Source
from cdc_platform.lake import queries, stores
from cdc_platform.results import StageResult

LEVELS = frozenset(
    ("lag", "partitions", "waiting", "cut", "cut_held_back", "not_registered", "stopped_tables", "tables")
)
"""Metrics that say how things are now; all others count what was done."""
TABLES = {
    "landing": tables.LANDING,
    "envelopes": tables.ENVELOPES,
    "changes": tables.CHANGES,
    "changelog": tables.CHANGELOG,
}
"""Stages that are nothing but a table."""
NO_TABLE_STOPPED = "no_table_is_stopped"
_SHOWN = 20


class Report:
    """Sums of rounds, told at once or once a minute: an event for each round would fill Dagster's storage."""

    def __init__(self, context: dg.AssetExecutionContext, naming: Naming, source: Source, every_s: float = 0.0):
        self.context, self.naming, self.source = context, naming, source
        self.began = self.last = time.monotonic()
        self.rounds = 0
        self._every_s = every_s
        self.sums: dict[str, StageResult] = {}

    @property
    def seconds(self) -> float:
        """Since the report began."""
        return round(time.monotonic() - self.began, 1)

    @property
    def due(self) -> bool:
        """Whether it is time to tell."""
        return time.monotonic() - self.last > self._every_s

    def add(self, found: Iterable[StageResult]) -> None:
        """Results of stages."""
        self.sums |= {r.stage: added(self.sums.get(r.stage), r) for r in found}

    def told(self, *, shared: bool = True) -> Iterator[Any]:
        """Events of all stages that did something since, of their checks, of the tables, and of what sources share.
        Dagster stores what `log_event` was given with the next event that the step yields."""
        sums, self.sums, self.last = self.sums, {}, time.monotonic()
        if not sums:
            return
        for stage in TABLES:
            if stage in sums:
                yield self._materialized(stage, stage_metadata(self.naming, self.source, sums[stage]))
        for stage, now in (("offset_ledger", ledger_now), ("quarantine", quarantine_now)):
            metadata, result = now(self.naming, self.source)
            yield self._materialized(stage, metadata)
            self._log(table_events.evaluation(result))
        if "snapshots" in sums:
            metadata, result, events = snapshots_now(self.context, self.naming, self.source, sums["snapshots"])
            yield self._materialized("snapshots", metadata, {table_events.DATA_VERSION: table_events.STEADY})
            self._log(table_events.evaluation(result))
            for event in events:
                self._log(event)
        if shared:
            yield from shared_now(self.naming, self.context.instance)

    def _materialized(
        self, stage: str, metadata: dict[str, Any], tags: Mapping[str, str] | None = None
    ) -> dg.AssetMaterialization:
        key, tag = self.naming.key(stage, self.source), {SOURCE_TAG: self.naming.tag(self.source)}
        return dg.AssetMaterialization(key, metadata=metadata, tags={**tag, **(tags or {})})

    def _log(self, event: Any) -> None:  # evaluations are taken, but not in the signature
        self.context.log_event(event)


def shared_now(naming: Naming, instance: dg.DagsterInstance) -> Iterator[dg.AssetMaterialization]:
    """Events of the assets that show all sources."""
    for key, metadata in overview.shared_metadata(naming, instance).items():
        yield dg.AssetMaterialization(key, metadata=metadata)


def stage_metadata(naming: Naming, source: Source, result: StageResult) -> dict[str, Any]:
    """Metadata of one stage's materialization: what the run did, and how large the table is now."""
    path = TABLES[result.stage].at(stores.lake(naming.config), source=source.name, format=source.format)
    rows = queries.row_count(path, source if result.stage == "changelog" else None)
    found = result_metadata(result, path.uri(), rows)
    if result.stage == "changes" and (changed := advice.of_source(naming.config, source)):
        found["options_changed"] = dg.MetadataValue.text("\n".join(changed))
    return found


def added(first: StageResult | None, second: StageResult) -> StageResult:
    """Two results of one stage as one."""
    if first is None:
        return second
    metrics = {k: v if k in LEVELS else first.metrics.get(k, 0) + v for k, v in second.metrics.items()}
    found = dict(first.tables)
    for name, figures in second.tables.items():
        before = float(found.get(name, {}).get("changes", 0))
        found[name] = {**figures, "changes": before + float(figures.get("changes", 0))}
    return replace(
        second,
        rows=first.rows + second.rows,
        batches=first.batches + second.batches,
        seconds=first.seconds + second.seconds,
        metrics={**first.metrics, **metrics},
        tables=found,
    )


def snapshots_now(
    context: dg.AssetExecutionContext,
    naming: Naming,
    source: Source,
    result: StageResult,
    asked: Mapping[Name, dg.AssetKey] | None = None,
) -> tuple[dict[str, Any], dg.AssetCheckResult, list[Any]]:
    """Metadata and check of snapshots/<source>, and events of the tables that have news, without those `asked` for:
    what the run brought, what Dagster doesn't know yet, and what a freshness window asks to be told again."""
    statuses = table_status.statuses(naming.config, source)
    news = news_of(context.instance, naming, source, statuses, result)
    shown = table_status.opened(naming.config, [s for s in news if s.id not in (asked or {})])
    keys = [naming.table(source, *s.id).key for s in shown]
    before = table_events.schemas_before(context.instance, keys) if keys else {}
    events = [
        event
        for table, checks in table_events.events(naming, shown, result.tables, before)
        for event in (table, *checks)
    ]
    stopped = [s for s in statuses if s.state == "stopped"]
    metadata = {
        **result_metadata(result, f"{naming.config.lake}/snapshots/{source.name}", None),
        "tables": len(statuses),
        "stopped_tables": len(stopped),
        "tables_with_held_rows": sum(bool(s.held) for s in statuses),
    }
    return metadata, stopped_result(naming, source, stopped), events


def stopped_result(naming: Naming, source: Source, stopped: list[TableStatus]) -> dg.AssetCheckResult:
    """Fails with the stopped tables of a source and their reasons."""
    shown = "; ".join(f"{s.name}: {s.reason}" for s in stopped[:_SHOWN])
    return dg.AssetCheckResult(
        asset_key=naming.key("snapshots", source),
        check_name=NO_TABLE_STOPPED,
        passed=not stopped,
        severity=dg.AssetCheckSeverity.ERROR,
        description=shown or "no table is stopped",
        metadata={"stopped": len(stopped)},
    )


def news_of(
    instance: dg.DagsterInstance, naming: Naming, source: Source, statuses: list[TableStatus], result: StageResult
) -> list[TableStatus]:
    """Tables to be told: touched by the run, unknown to Dagster, with checks that say otherwise than the lake, or due
    by their freshness window."""
    keys = {s.id: naming.table(source, *s.id).key for s in statuses}
    seen = {r.asset_entry.asset_key: r.asset_entry for r in instance.get_asset_records(list(keys.values()))}
    names = (table_events.NOT_STOPPED, table_events.NO_HELD_ROWS, table_events.CERTIFIED)
    checks = instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(k, n) for k in keys.values() for n in names]
    )

    def passed(key: dg.AssetKey, name: str) -> bool | None:
        record = checks.get(dg.AssetCheckKey(key, name))
        found = record.evaluation if record else None
        return found.passed if isinstance(found, dg.AssetCheckEvaluation) else None  # else planned, not done

    def due(s: TableStatus) -> bool:
        key = keys[s.id]
        entry = seen.get(key)
        newest = entry.last_materialization_record if entry else None
        if float(result.tables.get(s.name, {}).get("changes", 0)):
            return True
        if s.state == "live" and newest is None:
            return True
        intact = s.certificate is None or s.certificate.verdict != BROKEN
        now = (s.state != "stopped", not s.held, intact)
        if any(passed(key, name) is not ok for name, ok in zip(names, now, strict=True)):
            return s.state != "waiting" or bool(s.held)
        if source.freshness_s and s.state == "live" and newest:
            return (datetime.now(UTC).timestamp() - newest.timestamp) > source.freshness_s / 2
        return False

    return [s for s in statuses if due(s)]
