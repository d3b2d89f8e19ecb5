"""Asset checks that look outside of the lake: is the source alive, do the snapshots equal the source. Checks of what
the lake says come with its assets (`accounting`, `table_assets`)."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph

from cdc_platform.automation import beside, completeness, evidence, observe, shadows, table_status, verdicts
from cdc_platform.automation.looks import RECONCILE
from cdc_platform.automation.markup import literal
from cdc_platform.automation.naming import Naming, with_deps
from cdc_platform.automation.overview import EQUALS_SOURCE
from cdc_platform.automation.stages import spark_of
from cdc_platform.config import Source
from cdc_platform.config.reconcile import Reconcile
from cdc_platform.errors import CdcError
from cdc_platform.lake.watermarks import lag_seconds
from cdc_platform.tables import Name
from cdc_platform.units import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_platform.reconcile.binlog import Risk
    from cdc_platform.reconcile.result import TableResult

HEARTBEAT = "heartbeat"
_SHOWN = 20


def all_checks(naming: Naming) -> list[dg.AssetChecksDefinition]:
    """heartbeat of every source, equals_source of those that can be read, has_all_changes of what is kept beside
    tables, and shadow of sources that another one feeds, too."""
    known = naming.known
    sources = naming.config.sources
    own = {s.name: [name for of, name in known if of.name == s.name] for s in sources}
    return [
        *(heartbeat_check(naming, source) for source in sources),
        *(reconcile_check(naming, s, s.reconcile, own[s.name]) for s in sources if s.reconcile),
        *(one for s in sources for one in beside.check(naming, s, own[s.name])),
        *shadows.checks(naming),
    ]


def specs(naming: Naming) -> list[dg.AssetSpec]:
    """An asset of each source that can be read, for the comparison of all its tables. Nothing materializes it: a check
    of what each run materializes anew would be shown as not evaluated from the next run on, whatever it found."""
    return [
        with_deps(naming.spec(RECONCILE, s), [naming.key("snapshots", s)]) for s in naming.config.sources if s.reconcile
    ]


def reconcile_selection(naming: Naming) -> dg.AssetSelection:
    """The checks that read the sources themselves: not part of a catch-up run."""
    known = naming.known
    keys = [
        *(naming.key(RECONCILE, s) for s in naming.config.sources if s.reconcile),
        *(naming.table(s, *name).key for s, name in known if s.reconcile),
    ]
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(key, EQUALS_SOURCE) for key in keys))


def of_run(assets: Iterable[dg.AssetKey], graph: BaseAssetGraph) -> list[dg.AssetCheckKey]:
    """The checks of a run that brings assets up to date: all of theirs but those that read the source's database. Where
    a run names none Dagster takes all of the code location, also those that the run's job leaves out."""
    keys = set(assets)
    return [key for key in sorted(graph.asset_check_keys) if key.asset_key in keys and key.name != EQUALS_SOURCE]


def reconcile_check(naming: Naming, source: Source, how: Reconcile, tables: list[Name]) -> dg.AssetChecksDefinition:
    """What `cdc-platform reconcile` does: equals_source of reconcile/<source>, which compares all tables, and of each
    table. Tells how much differs but no values: those stay with people who may read the source."""
    whole = naming.key(RECONCILE, source)
    names = {naming.table(source, *name).key: name for name in tables}
    specs = [
        dg.AssetCheckSpec(
            EQUALS_SOURCE,
            asset=key,
            description=f"Fails when {'a snapshot' if key == whole else 'the snapshot'} differs from the table at "
            f"{source.name}'s database.",
        )
        for key in (whole, *names)
    ]
    outputs = {f"check_{i}": spec for i, spec in enumerate(specs)}

    @dg.op(
        name=naming.name(f"{EQUALS_SOURCE}_{source.slug}"),
        ins={"snapshots": dg.In(dg.Nothing)},
        out={name: dg.Out(None, is_required=False) for name in outputs},
        required_resource_keys={naming.resource_key},
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from cdc_platform.reconcile.binlog import risks_of
        from cdc_platform.reconcile.run import against_server  # imports pyspark
        from cdc_platform.reconcile.server import Server, dsn_from

        asked = [c.asset_key for c in context.selected_asset_check_keys]
        chosen = [None] if whole in asked else [names[key] for key in asked]
        try:
            server = Server(dsn_from(how.dsn_env))
            found = risks_of(server, source)
            spark = spark_of(context, naming)
            results = [
                result
                for one in chosen
                for result in against_server(
                    spark,
                    naming.config,
                    source,
                    server,
                    one,
                    wait_s=how.wait_s,
                    limit=how.limit,
                    told=context.log.info,
                )
            ]
        except CdcError as error:
            # Of what was compared until then, if the lake can be read.
            observe.safely(naming.config, lambda: verdicts.report_verdicts(context.instance, naming, [source]))
            for key in asked:
                yield dg.AssetCheckResult(
                    asset_key=key, check_name=EQUALS_SOURCE, passed=False, description=literal(f"not compared: {error}")
                )
            return
        observe.safely(naming.config, lambda: verdicts.report_verdicts(context.instance, naming, [source]))
        for key in asked:
            own = results if key == whole else [r for r in results if snapshot_of(source, r.table) == names[key]]
            yield reconcile_result(source, own, found, key)

    return dg.AssetChecksDefinition.create(
        keys_by_input_name={"snapshots": naming.key("snapshots", source)},
        node_def=check,
        check_specs_by_output_name=outputs,
        can_subset=True,
    )


def snapshot_of(source: Source, table: str) -> Name:
    """The snapshot that keeps a source table, given as db.table."""
    return source.tables.routed(*table.split(".", 1))


def reconcile_result(
    source: Source,
    results: "list[TableResult]",
    risks: "Sequence[Risk]" = (),
    key: dg.AssetKey | None = None,
) -> dg.AssetCheckResult:
    """Passes when all tables are equal, and there is at least one. `risks` are told, and fail nothing."""
    wrong = [r for r in results if not r.equal]
    skipped = sum(len(r.not_compared) for r in results)
    shown = "; ".join(_wrong(r) for r in wrong[:_SHOWN])
    equal = "the table equals its source" if len(results) == 1 else f"{len(results)} tables equal their source"
    equal += f"; {count(skipped, 'column')} not compared" if skipped else ""
    short = [f"; {r.table}: {why}" for r in results if r.equal for why in r.falls_short]
    but = "".join(short[:_SHOWN]) + "".join(f"; changes may be missing: {r.name} is {r.value}" for r in risks)
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=EQUALS_SOURCE,
        passed=bool(results) and not wrong,
        severity=dg.AssetCheckSeverity.ERROR,
        description=literal(((shown or equal) if results else f"{source.name} has no snapshot yet") + but),
        metadata={
            "tables": len(results),
            "differing_tables": len(wrong),
            "rows": sum(r.expected_rows for r in results),
            "compared": {r.table: _compared(r) for r in results[:_SHOWN]},
            "null_dates": sum(r.null_dates for r in results),
            "not_compared": {r.table: r.not_compared for r in results if r.not_compared},
            "risks": {r.name: f"{r.value}: {r.means}" for r in risks},
        },
    )


def _compared(result: "TableResult") -> dict[str, Any]:
    at = result.position or {}
    place = evidence.position(at.get("file"), at.get("position"), at.get("gtid"))
    return {"rows": result.expected_rows, "position": place, "digest": result.digest}


def _wrong(result: "TableResult") -> str:
    counts = {"missing": result.missing, "extra": result.extra, "changed": result.changed}
    counts["differing buckets not looked into"] = result.not_looked_into
    told = [*result.problems, *(f"{n} {what}" for what, n in counts.items() if n)]
    return f"{result.table}: {', '.join(told)}; `cdc-platform reconcile` shows the rows"


def heartbeat_check(naming: Naming, source: Source) -> dg.AssetChecksDefinition:
    """The same look at Kafka that the heartbeat sensor takes, for runs and for the button in the UI."""

    @dg.asset_check(
        asset=naming.key("landing", source),
        name=HEARTBEAT,
        description=f"Fails when {source.name} sent nothing for longer than its limit, lacks a topic, or Kafka doesn't "
        "answer. The heartbeat sensor reports here too.",
    )
    def check() -> dg.AssetCheckResult:
        seen = observe.seen(naming.config, source)
        return dg.AssetCheckResult(
            passed=seen.passed,
            severity=dg.AssetCheckSeverity.ERROR,
            description=literal(heartbeat_text(naming, source, seen)),
            metadata=heartbeat_metadata(naming, source, seen),
        )

    return check


def heartbeat_text(naming: Naming, source: Source, seen: observe.Heartbeat) -> str:
    """State and why; of a quiet source, too, up to when it is complete or what holds it back."""
    told = f"{seen.state}: {seen.text}"
    if seen.state != "quiet":
        return told
    reached = observe.safely(naming.config, lambda: table_status.complete(naming.config, source))
    return f"{told}; {reached if isinstance(reached, CdcError) else completeness.completeness_clause(reached)}"


def heartbeat_events(naming: Naming, source: Source, seen: observe.Heartbeat) -> "list[Any]":
    """The check's result as a sensor reports it, outside of any run, and the same figures as an observation of
    landing/<source>: so its plots go on while no run comes."""
    metadata = heartbeat_metadata(naming, source, seen)
    result = dg.AssetCheckEvaluation(
        asset_key=naming.key("landing", source),
        check_name=HEARTBEAT,
        passed=seen.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=literal(heartbeat_text(naming, source, seen)),
        metadata=metadata,
    )
    return [result, dg.AssetObservation(naming.key("landing", source), metadata=metadata)]


def heartbeat_metadata(naming: Naming, source: Source, seen: observe.Heartbeat) -> dict[str, Any]:
    """state, the times it was told from, and up to when all of the source's tables are complete now."""
    reached = observe.safely(naming.config, lambda: table_status.complete_of_all(naming.config, source))
    up_to, behind = (None, None) if isinstance(reached, CdcError) else reached
    times = {
        "newest_record": seen.newest,
        "newest_change": seen.change,
        "newest_of_database": seen.database,
        "complete_up_to": up_to,
    }
    found = {"state": seen.state, "lag_seconds": lag_seconds(up_to), "tables_behind": behind}
    found |= {k: v and dg.MetadataValue.timestamp(v) for k, v in times.items()}
    return {k: v for k, v in found.items() if v is not None}
