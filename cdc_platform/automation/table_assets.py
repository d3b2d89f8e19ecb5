"""snapshots/<source> and one asset per source table, made by one step.

A catch-up run selects snapshots/<source> alone: the step tells of each table that has news. Where tables are selected
by themselves (their pages, a back-fill, a job of one's own) the step first catches their source up from Kafka, or with
`rebuild: true` builds them anew from the changelog; then each of them ends in the state it really reached.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg

from cdc_platform.automation import beside, following, silence, table_events, table_status
from cdc_platform.automation.accounting import ledger_result
from cdc_platform.automation.markup import plain
from cdc_platform.automation.naming import Naming, with_deps
from cdc_platform.automation.reporting import NO_TABLE_STOPPED, Report, shared_now, snapshots_now
from cdc_platform.automation.stages import RETRY, call, failing, interruptible, spark_of
from cdc_platform.automation.table_events import DATA_VERSION, STEADY
from cdc_platform.automation.table_news import TELLING_S, TableNews
from cdc_platform.automation.table_status import TableStatus
from cdc_platform.chain import STAGES, rebuild
from cdc_platform.config import Source
from cdc_platform.errors import TableStopped
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.results import StageResult
from cdc_platform.spark.session import leased
from cdc_platform.tables import Name


class SnapshotsConfig(dg.Config):
    """How a run brings snapshots up to date."""

    rebuild: bool = False  # build the selected tables anew from the whole changelog, instead of catching up
    follow: bool = False  # go on catching up while changes come


def step_name(naming: Naming, source: Source) -> str:
    """Name of the step, for run configuration."""
    return naming.name(f"snapshots_{source.slug}")


def run_config(naming: Naming, source: Source, **config: bool) -> dict[str, Any]:
    """Run configuration for the step of one source."""
    return {"ops": {step_name(naming, source): {"config": config}}}


def snapshots(naming: Naming, source: Source, known: Iterable[Name]) -> dg.AssetsDefinition:
    """The assets. known: tables that the lake knew when the definitions were loaded."""
    upstream = [naming.key("changelog", source), naming.key("offset_ledger", source)]
    stage = with_deps(naming.spec("snapshots", source), upstream)
    window = silence.freshness(naming.config, source)
    tables = {name: with_deps(_with_freshness(naming.table(source, *name), window), [stage.key]) for name in known}
    specs = [stage, *tables.values()]
    stopped = dg.AssetCheckSpec(
        NO_TABLE_STOPPED,
        asset=stage.key,
        description="Fails while a table can't be kept as a snapshot; its changes stay in changelog.",
    )
    checks = [stopped, *(c for spec in tables.values() for c in table_events.check_specs(spec.key))]
    # Outputs have names of their own: those that Dagster makes of keys must be identifiers, and table names aren't.
    outputs = {f"asset_{i}": spec.key for i, spec in enumerate(specs)}
    check_outputs = {f"check_{i}": check for i, check in enumerate(checks)}
    inputs = {f"upstream_{i}": key for i, key in enumerate(upstream)}

    @dg.op(
        name=step_name(naming, source),
        ins={name: dg.In(dg.Nothing) for name in inputs},
        out={
            **{name: dg.Out(dg.Nothing, is_required=False) for name in outputs},
            **{name: dg.Out(None, is_required=False) for name in check_outputs},
        },
        required_resource_keys={naming.resource_key},
        retry_policy=RETRY,
        pool=naming.pool(source),
        tags={"dagster/priority": "-1"},  # it may go on following: checks of the stages before it come first
    )
    def step(context: dg.AssetExecutionContext, config: SnapshotsConfig) -> Iterator[Any]:
        yield from _Step(context, naming, source, config, stage.key, {name: s.key for name, s in tables.items()}).run()

    return dg.AssetsDefinition(
        keys_by_input_name=inputs,
        keys_by_output_name=outputs,
        node_def=step,
        specs=specs,
        check_specs_by_output_name=check_outputs,
        can_subset=True,
    )


def _with_freshness(spec: dg.AssetSpec, seconds: int | None) -> dg.AssetSpec:
    if seconds is None or spec.freshness_policy:
        return spec
    policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=seconds))
    return spec.replace_attributes(freshness_policy=policy)


class _Step:
    """One execution of the step."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        naming: Naming,
        source: Source,
        config: SnapshotsConfig,
        stage: dg.AssetKey,
        tables: dict[Name, dg.AssetKey],
    ):
        self.context, self.naming, self.source, self.config, self.stage = context, naming, source, config, stage
        selected = context.selected_asset_keys
        checked = {c.asset_key for c in context.selected_asset_check_keys}
        self.asked = {name: key for name, key in tables.items() if key in selected}
        self.looked_at = {name: key for name, key in tables.items() if key in checked - selected}
        self.whole = stage in selected
        self.news = TableNews(context.instance, naming, source, self.asked, context.run.run_id)

    def run(self) -> Iterator[Any]:
        """Does what was selected and yields what came of it. Raises Failure at the end where a table that was asked
        for is stopped."""
        failed: dict[str, str] = {}
        if self.config.rebuild:
            result = self._rebuilt(failed)
        elif self.whole:
            result = call(self.context, self.naming, self.source, "snapshots")
        elif self.asked:
            result = yield from self._caught_up()
        else:
            result = StageResult("snapshots", self.source.name, 0, 0, 0.0)
        if self.whole or self.asked:  # tables that nobody asked for may have got changes, too
            yield from self._stage(result)  # before the tables: Dagster wants outputs in the order of the graph
        yield from self._tables(result, failed)
        if self.asked and not self.whole:  # a catch-up run has steps of its own for what sources share
            yield from shared_now(self.naming, self.context.instance)
        if self.whole and self.config.follow:
            yield from self._followed()
        if failed:
            text = "; ".join(f"{name} {why}" for name, why in failed.items())
            raise dg.Failure(text, allow_retries=False)

    def _caught_up(self) -> Iterator[Any]:
        """All stages, as a catch-up run calls them; those before the snapshots are told here."""
        report = Report(self.context, self.naming, self.source, self.news)
        *before, last = STAGES
        report.add([call(self.context, self.naming, self.source, stage) for stage in before])
        yield from report.stage_events(shared=False)  # that comes when the tables are done
        ledger = ledger_result(self.naming.config, self.source)
        if not ledger.passed:
            raise dg.Failure(f"the offset ledger doesn't add up: {plain(str(ledger.description))}", allow_retries=False)
        return call(self.context, self.naming, self.source, last)

    def _rebuilt(self, failed: dict[str, str]) -> StageResult:
        """The asked tables from the whole changelog."""
        if not self.asked:
            raise dg.Failure("rebuild needs tables: select their assets", allow_retries=False)
        found: dict[str, dict[str, float | str]] = {}
        config, seconds = self.naming.config, 0.0
        with failing(), interruptible(), source_lock(config, self.source) as lease:
            spark = spark_of(self.context, self.naming)
            for name in self.asked:
                text = ".".join(name)
                self.context.log.info("rebuilding %s", text)
                try:
                    with leased(spark, lease):
                        result = rebuild(spark, config, self.source, *name)
                except TableStopped as error:
                    failed[text] = f"is stopped: {error.reason}"
                    continue
                seconds += result.seconds
                found[text] = {"changes": result.rows, "state": "live"}
            try:  # publishes up to when they are complete now; the next run does it where this one can't
                rest = call(self.context, self.naming, self.source, "snapshots")
            except dg.Failure as error:
                self.context.log.warning("the tables are rebuilt, but: %s", error.description)
                rest = StageResult("snapshots", self.source.name, 0, 0, 0.0)
        rows = sum(int(f["changes"]) for f in found.values()) + rest.rows
        metrics, told = {**rest.metrics, "rebuilt": len(found)}, {**rest.tables, **found}
        return StageResult("snapshots", self.source.name, rows, len(told), seconds + rest.seconds, metrics, told)

    def _tables(self, result: StageResult, failed: dict[str, str]) -> Iterator[Any]:
        """What was asked for, table by table."""
        names = {**self.asked, **self.looked_at}
        if not names:
            return
        config = self.naming.config
        wanted = [s for s in table_status.statuses(config, self.source) if s.id in names]
        before = table_events.shown(table_events.newest(self.context.instance, names.values()))
        for status in table_status.opened(config, wanted):
            key = names[status.id]
            checks = table_events.check_results(status, key, before.get(key))
            if status.id in self.asked:
                yield from self._asked(status, key, result, failed)
                for check in checks:
                    yield from self._checked(check)
            else:
                yield from (c for c in checks if _key_of(c) in self.context.selected_asset_check_keys)

    def _asked(
        self, status: TableStatus, key: dg.AssetKey, result: StageResult, failed: dict[str, str]
    ) -> Iterator[Any]:
        metadata = table_events.metadata(status, result.tables.get(status.name))
        if status.state == "live" and status.version is not None:
            version = dg.DataVersion(str(status.version))
            yield dg.MaterializeResult(asset_key=key, metadata=metadata, data_version=version)
            for event in beside.events(self.context.instance, self.naming, status):
                self._log(event)
            return
        if status.state == "stopped":
            failed.setdefault(status.name, f"is stopped: {status.reason}")
        self.context.log.warning("%s is not materialized: %s %s", status.name, status.state, status.reason or "")
        yield dg.AssetObservation(key, metadata=metadata)

    def _checked(self, result: dg.AssetCheckResult) -> Iterator[Any]:
        """As this step's result where the check was selected, else as an event."""
        if _key_of(result) in self.context.selected_asset_check_keys:
            yield result
        else:
            self._log(table_events.evaluation(result))

    def _stage(self, result: StageResult) -> Iterator[Any]:
        """snapshots/<source>, and the tables that nobody asked for and that have news."""
        metadata, stopped, statuses = snapshots_now(self.naming, self.source, result)
        self.news.add(result)
        goes_on = self.whole and self.config.follow
        for event in self.news.events(statuses, TELLING_S if goes_on else None):
            self._log(event)
        if self.whole:
            yield dg.MaterializeResult(asset_key=self.stage, metadata=metadata, data_version=dg.DataVersion(STEADY))
        else:
            yield dg.AssetMaterialization(self.stage, metadata=metadata, tags={DATA_VERSION: STEADY})
        yield from self._checked(stopped)

    def _followed(self) -> Iterator[Any]:
        report = Report(self.context, self.naming, self.source, self.news, every_s=following.TOLD_S)
        with interruptible():
            try:
                why = yield from following.follow(self.context, self.naming, self.source, report)
            except Exception:
                yield from report.stage_events()
                raise
            yield from report.stage_events()
            ended = {"rounds": report.rounds, "seconds": report.seconds, "ended": why}
            yield dg.AssetObservation(self.stage, metadata=ended, description=f"followed for {report.seconds} s: {why}")

    def _log(self, event: Any) -> None:  # evaluations are taken, but not in the signature
        self.context.log_event(event)


def _key_of(result: dg.AssetCheckResult) -> dg.AssetCheckKey:
    assert result.asset_key is not None
    return dg.AssetCheckKey(result.asset_key, str(result.check_name))
