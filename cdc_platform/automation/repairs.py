"""The job `repair`: rows that differ from the source's server put right (`cdc-platform reconcile --repair`). A
partition is a source."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from cdc_platform.automation import observe, verdicts
from cdc_platform.automation.checks import reconcile_result, snapshot_of
from cdc_platform.automation.looks import RECONCILE
from cdc_platform.automation.metadata import table_of
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.runs import queued_with
from cdc_platform.automation.stages import RETRY, failing, interruptible, source_of, spark_of
from cdc_platform.automation.table_events import evaluation
from cdc_platform.config import Source

if TYPE_CHECKING:
    from cdc_platform.reconcile.binlog import Risk
    from cdc_platform.reconcile.result import TableResult
    from cdc_platform.tables import Name

REPAIR = "repair"
_OF_VALUES = ("key", "server", "snapshot")


class RepairConfig(dg.Config):
    """What a run repairs of its source."""

    tables: list[str] = Field(default=[], description="db.table at the source; none: all")
    values: bool = Field(
        default=False,
        description="show keys and values of the rows that differed: they then stand in Dagster's database, where "
        "`cdc-platform erase` doesn't look",
    )


def repair_job(naming: Naming) -> Any:
    """An op job, so that "materialize all" leaves it out. What was changed and why is the metadata of its output, or of
    its failure where something still differs; what the tables are found to be then is told as their checks."""
    sources = {s.name: (s, how) for s in naming.config.sources if (how := s.reconcile) is not None}

    @dg.op(
        name=naming.name("repair_tables"),
        required_resource_keys={naming.resource_key},
        out=dg.Out(dg.Nothing),
        retry_policy=RETRY,
    )
    def repair_tables(context: dg.OpExecutionContext, config: RepairConfig) -> None:
        from cdc_platform.explain import repaired
        from cdc_platform.loading import repair, run
        from cdc_platform.reconcile.binlog import risks_of
        from cdc_platform.reconcile.server import Server, dsn_from

        with failing(), interruptible():
            source = source_of(context, (s for s, _ in sources.values()))
            how = sources[source.name][1]
            server = Server(dsn_from(how.dsn_env))
            names = run.named(source, server, config.tables)
            risks = risks_of(server, source)
            asked = {"limit": how.limit, "told": context.log.info}
            done, now = repair.repair(spark_of(context, naming), naming.config, source, server, names, **asked)
            was = repaired.data(naming.config, source, done)
        checks: list[Any] = [evaluation(r) for r in check_results(naming, source, now, risks, every=not names)]
        for check in checks:
            context.log_event(check)
        observe.safely(naming.config, lambda: verdicts.report_verdicts(context.instance, naming, [source]))
        metadata = repair_metadata(was, now, values=config.values)
        if not now or not all(r.equal for r in now):
            left = [f"{one.table}: {why}" for one in done for why in one.left]
            text = "; ".join([str(reconcile_result(source, now).description), *left])
            raise dg.Failure(text, metadata=metadata, allow_retries=False)
        context.add_output_metadata(metadata)

    @dg.job(
        name=naming.name(REPAIR),
        executor_def=dg.in_process_executor,
        config=queued_with(naming, [s for s, _ in sources.values()]),
        description="Compare tables with the source's server, read the rows that differ from it, and put them in order "
        "among the feed's changes. The partition is the source, which is only read; `tables` names its tables. The run "
        "fails where something still differs.",
    )
    def repair() -> None:
        repair_tables()

    return repair


def check_results(
    naming: Naming, source: Source, now: "list[TableResult]", risks: "Sequence[Risk]", *, every: bool
) -> Iterator[dg.AssetCheckResult]:
    """equals_source as it is now, of each snapshot that was compared whole. every: all tables of the source were."""
    own: dict[Name, list[TableResult]] = {}
    for result in now:
        own.setdefault(snapshot_of(source, result.table), []).append(result)
    for name, results in own.items():
        if every or not source.tables.merged(*name):
            yield reconcile_result(source, results, risks, naming.table(source, *name).key)
    if every:
        yield reconcile_result(source, now, risks, naming.key(RECONCILE, source))


def repair_metadata(was: list[dict[str, Any]], now: "Sequence[TableResult]", *, values: bool) -> dict[str, Any]:
    """Metadata: figures that chart, per table what was done, how many rows differed why, and the rows themselves, as
    far as reconcile.limit lets them be read. Without `values` no key and no value."""
    from cdc_platform.explain import repaired

    differs = {r.table: not r.equal for r in now}
    counts = ("missing", "extra", "changed", "rows", "gone")
    tables = [
        {"table": t["table"], **{_CALLED.get(n, n): t[n] for n in counts}, "at": t["at"]}
        | {"equal_now": not differs[t["table"]], "left": "; ".join(t["left"])}
        for t in was
    ]
    rows = repaired.rows(was)
    kinds = Counter((r["table"], r["why"], r["column"]) for r in rows)
    shown = {
        "tables": tables,
        "reasons": [{"table": t, "why": w, "column": c, "rows": n} for (t, w, c), n in kinds.items()],
        "rows": [r if values else {k: v for k, v in r.items() if k not in _OF_VALUES} for r in rows],
    }
    figures = {"compared": len(now), "differed": len(was), "differ_now": sum(differs.values())}
    figures |= {_CALLED[n]: sum(t[n] for t in was) for n in _CALLED}
    return {**figures, **{name: table_of(records) for name, records in shown.items() if records}}


_CALLED = {"rows": "put_in", "gone": "taken_out"}
