"""What a step tells of work that is not its own asset's: stages that it ran by itself, tables that changed.

Used where a step goes on following, and where tables were asked for alone, which catches their source up.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import dagster as dg

from cdc_platform import advice, certificate, tables
from cdc_platform.automation import overview, table_events, table_status
from cdc_platform.automation.accounting import ledger_now, quarantine_now
from cdc_platform.automation.markup import literal
from cdc_platform.automation.metadata import result_metadata
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.table_news import TableNews
from cdc_platform.automation.table_status import TableStatus
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

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        naming: Naming,
        source: Source,
        news: TableNews,
        every_s: float = 0.0,
    ):
        self.context, self.naming, self.source, self.news = context, naming, source, news
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

    def stage_events(self, *, shared: bool = True, seconds: float | None = None) -> Iterator[Any]:
        """Events of all stages that did something since, of their checks, of the tables, and of what sources share.
        seconds: so long of tables; what is left comes the next time. Dagster stores what `log_event` was given with the
        next event that the step yields."""
        sums, self.sums, self.last = self.sums, {}, time.monotonic()
        if not sums and not self.news.left:
            return
        for stage in TABLES:
            if stage in sums:
                yield self._materialized(stage, stage_metadata(self.naming, self.source, sums[stage]))
        for stage, now in (("offset_ledger", ledger_now), ("quarantine", quarantine_now)):
            metadata, results = now(self.naming, self.source)
            yield self._materialized(stage, metadata)
            for result in results:
                self._log(table_events.evaluation(result))
        if "snapshots" in sums or self.news.left:
            brought = sums.get("snapshots", StageResult("snapshots", self.source.name, 0, 0, 0.0))
            metadata, result, statuses = snapshots_now(self.naming, self.source, brought)
            yield self._materialized("snapshots", metadata, {table_events.DATA_VERSION: table_events.STEADY})
            self._log(table_events.evaluation(result))
            self.news.add(brought)
            for event in self.news.events(statuses, seconds):
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
        before = int(found.get(name, {}).get("changes", 0))
        found[name] = {**figures, "changes": before + int(figures.get("changes", 0))}
    return replace(
        second,
        rows=first.rows + second.rows,
        batches=first.batches + second.batches,
        seconds=first.seconds + second.seconds,
        metrics={**first.metrics, **metrics},
        tables=found,
    )


def snapshots_now(
    naming: Naming, source: Source, result: StageResult
) -> tuple[dict[str, Any], dg.AssetCheckResult, list[TableStatus]]:
    """Metadata and check of snapshots/<source>, and how its tables are; keeps their certificates."""
    statuses = table_status.statuses(naming.config, source)
    certificate.issue(naming.config, (s.certificate for s in statuses if s.certificate))
    stopped = [s for s in statuses if s.state == "stopped"]
    metadata = {
        **result_metadata(result, f"{naming.config.lake}/snapshots/{source.name}", None),
        "tables": len(statuses),
        "stopped_tables": len(stopped),
        "tables_with_held_rows": sum(bool(s.held) for s in statuses),
    }
    return metadata, stopped_result(naming, source, stopped), statuses


def stopped_result(naming: Naming, source: Source, stopped: list[TableStatus]) -> dg.AssetCheckResult:
    """Fails with the stopped tables of a source and their reasons."""
    shown = "; ".join(f"{s.name}: {s.reason}" for s in stopped[:_SHOWN])
    return dg.AssetCheckResult(
        asset_key=naming.key("snapshots", source),
        check_name=NO_TABLE_STOPPED,
        passed=not stopped,
        severity=dg.AssetCheckSeverity.ERROR,
        description=literal(shown or "no table is stopped"),
        metadata={"stopped": len(stopped)},
    )
