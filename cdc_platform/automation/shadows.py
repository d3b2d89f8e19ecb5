"""Pairs of feeds in Dagster: the asset `shadow/<of>`, its check, the job of all such checks, and a schedule for each
pair."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from cdc_platform.automation import observe, verdicts
from cdc_platform.automation.instance import is_gone
from cdc_platform.automation.looks import SHADOW
from cdc_platform.automation.markup import literal
from cdc_platform.automation.naming import Naming, with_deps
from cdc_platform.automation.stages import interruptible, spark_of
from cdc_platform.config.shadow import Shadow
from cdc_platform.errors import CdcError
from cdc_platform.shadow import kept
from cdc_platform.tables import Name, name_of
from cdc_platform.units import count

_TAG = "cdc/shadow"
_MOST = 1_000
"""Tables in the metadata."""
_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def key(naming: Naming, pair: Shadow) -> dg.AssetCheckKey:
    """Of the pair's check, which is called like the stage and the job."""
    return dg.AssetCheckKey(naming.key(SHADOW, naming.config.source(pair.of)), SHADOW)


def specs(naming: Naming) -> list[dg.AssetSpec]:
    """An asset for each pair. Nothing materializes it: a check of what each run materializes anew would be shown as not
    evaluated from the next run on, whatever it found."""
    return [
        with_deps(
            naming.spec(SHADOW, naming.config.source(pair.of)),
            [naming.key("snapshots", naming.config.source(name)) for name in (pair.of, pair.by)],
        )
        for pair in naming.config.shadow
    ]


def checks(naming: Naming) -> list[dg.AssetChecksDefinition]:
    """One check of each pair."""
    return [_check(naming, pair) for pair in naming.config.shadow]


def job(naming: Naming) -> Any:
    """The checks of all pairs, and nothing else."""
    return dg.define_asset_job(
        naming.name(SHADOW),
        selection=dg.AssetSelection.checks(*(key(naming, pair) for pair in naming.config.shadow)),
        executor_def=dg.in_process_executor,
        description="Compare the tables of two feeds of the same database, those that have changed since.",
    )


def schedules(naming: Naming) -> list[dg.ScheduleDefinition]:
    """One of each pair."""
    return [_schedule(naming, pair) for pair in naming.config.shadow]


def _check(naming: Naming, pair: Shadow) -> dg.AssetChecksDefinition:
    """What `cdc-platform shadow compare` does. Tells how much differs but no values: those stay with people who may
    read the tables."""

    @dg.asset_check(
        asset=key(naming, pair).asset_key,
        name=SHADOW,
        required_resource_keys={naming.resource_key},
        description=f"Fails when tables differ from those that {pair.by} brings from the same database. Which rows: "
        f"`cdc-platform shadow status {pair.of}`.",
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        from cdc_platform.shadow.run import compare  # imports pyspark

        try:
            with interruptible():
                found = compare(spark_of(context, naming), naming.config, pair, told=context.log.info)
        except CdcError as error:
            return dg.AssetCheckResult(passed=False, description=literal(f"not compared: {error}"))
        both = [naming.config.source(name) for name in (pair.of, pair.by)]
        observe.safely(naming.config, lambda: verdicts.report_verdicts(context.instance, naming, both))
        return result(pair, found)

    return check


def result(pair: Shadow, found: dict[str, Any]) -> dg.AssetCheckResult:
    """Passes when nothing differs and all tables were compared, but for rows that one feed has later. A warning where
    no row differs and something wasn't compared, or can't be judged yet."""
    tables: dict[Name, dict[str, Any]] = {name_of(r): r for r in found["rows"]}
    wrong = kept.clauses(pair, tables) + kept.waiting(tables)
    told = _same(pair, found) if tables else "neither feed has a table yet"
    counts = (
        "tables",
        "compared",
        "different",
        "not_compared",
        "behind",
        "waiting",
        "only_of",
        "only_by",
        "differing",
        "unsettled",
    )
    return dg.AssetCheckResult(
        passed=found["equal"],
        severity=dg.AssetCheckSeverity.ERROR if found["different"] else dg.AssetCheckSeverity.WARN,
        description=literal(kept.shortened(wrong) or told),
        metadata={
            **{name: found[name] for name in counts},
            "seconds": found["seconds"],
            **({"states": _states(tables)} if tables else {}),
        },
    )


def _same(pair: Shadow, found: dict[str, Any]) -> str:
    behind = f"; of {found['behind']} not all can be judged yet" if found["behind"] else ""
    return f"the same in {pair.by}: {count(found['tables'], 'table')}{behind}"


def _states(tables: dict[Name, dict[str, Any]]) -> Any:
    ordered = sorted(tables.items(), key=lambda item: (kept.STATES.index(item[1]["state"]), item[0]))
    numbers = ("only_of", "only_by", "differing", "unsettled")
    records = [
        dg.TableRecord(
            {
                **{"table": ".".join(name), "state": t["state"], **{n: int(t[n] or 0) for n in numbers}},
                **{"why": t["reason"] or "", "columns_not_compared": ", ".join(dict(t["not_compared"] or ()))},
            }
        )
        for name, t in ordered[:_MOST]
    ]
    texts = ("table", "state"), ("why", "columns_not_compared")
    columns = [*((t, "string") for t in texts[0]), *((n, "int") for n in numbers), *((t, "string") for t in texts[1])]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn(*c) for c in columns]))


def _schedule(naming: Naming, pair: Shadow) -> dg.ScheduleDefinition:
    source = naming.config.source(pair.of)

    @dg.schedule(
        name=naming.name(f"{SHADOW}_{source.slug}_schedule"),
        job_name=naming.name(SHADOW),
        cron_schedule=pair.cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Compares the tables of {pair.of} with those of {pair.by} that have changed since.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        tags = {_TAG: naming.tag(source)}
        before = context.instance.get_runs(dg.RunsFilter(tags=tags, statuses=_UNDER_WAY))
        if any(not is_gone(run) for run in before):
            yield dg.SkipReason("the comparison before is under way")
            return
        tick = context.scheduled_execution_time.isoformat()
        yield dg.RunRequest(
            run_key=f"{pair.of}:{tick}", tags=tags, asset_check_keys=[key(naming, pair)], asset_selection=[]
        )

    return schedule
