"""What needs a person, by the lake and by Dagster's history: `status` and `run` say it and end with exit code 1."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.tables import name_of, text_of
from cdc_platform.units import count, when

_SHOWN = 5
_RUNS = 20
"""Of a source's newest runs, among which there may be some of its jobs `load` and `repair`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that needs attention. kind: held, stopped, beside, ledger, gap, differs, shadow, erasure, feed, bridge,
    run, schedule. source: None: not of one."""

    kind: str
    source: str | None
    text: str


def of_lake(config: Config, sources: Sequence[Source], *, allow_held: bool = False) -> list[Finding]:
    """Held rows, stopped tables, histories and typed changes that lack changes, sums of the ledger that don't come out,
    records that never came, tables that differed from the source, or from another feed's, when they were last compared,
    and erasures that aren't finished, or of which something was sent again, of these sources. No Spark, no Kafka."""
    held = [] if allow_held else _held(config, sources)
    looks = (_stopped, _lacking, _ledger, _gaps, _different, _shadowed, _erased)
    return [*held, *(finding for look in looks for finding in look(config, sources))]


def _held(config: Config, sources: Sequence[Source]) -> list[Finding]:
    from cdc_platform.lake import held_rows

    rows, tables = held_rows.by_source(config), held_rows.by_table(config)
    found = []
    for source in sources:
        if not (n := rows.get(source.name)):
            continue
        named = [f"{text_of(t)} {t['rows']}" for t in tables if t["source"] == source.name and t["table"] is not None]
        of = f" ({_some(named)})" if named else ""
        how = f"`cdc-platform quarantine list --source {source.name}` shows them"
        found.append(Finding("held", source.name, f"{count(n, 'row')} held in quarantine{of}; {how}"))
    return found


def _some(texts: list[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _stopped(config: Config, sources: Sequence[Source]) -> list[Finding]:
    from cdc_platform.lake import queries

    names = {s.name for s in sources}
    return [
        Finding("stopped", t["source"], f"table {text_of(t)} is stopped: {t['reason']}")
        for t in queries.table_states(config)
        if t["state"] == "stopped" and t["source"] in names
    ]


def _lacking(config: Config, sources: Sequence[Source]) -> list[Finding]:
    from cdc_platform.lake import beside

    found = [(s.name, one) for s in sources for of in beside.of_source(config, s).values() for one in of]
    return [
        Finding("beside", source, f"{one.kind} of {'.'.join(one.name)} lacks changes: {one.reason}")
        for source, one in found
        if one.is_short
    ]


def _erased(config: Config, sources: Sequence[Source]) -> list[Finding]:
    from cdc_platform.lake import erasing, stores
    from cdc_platform.landing import erased

    once_more, lake = "`cdc-platform erase` with its key once more", stores.lake(config)
    decided = {*erasing.noted(lake)}
    found = []
    for source in sources:
        told = erased.of_source(config, source)
        note = erasing.pending(lake, source.name) if source.name in decided else None
        late = bool(note) and note["stage"] == erasing.LATE
        if note and (late or all(e["number"] != note["number"] for e in told)):  # nobody has held the source since
            told.insert(0, {"number": note["number"], "table": text_of(note["row"]), "left": None, "again": 0})
        for i, e in enumerate(told):
            of = f"erasure {e['number']} of a row of {e['table']}"
            if e["left"] is None and i == 0:
                found.append(Finding("erasure", source.name, f"{of} was begun and isn't done: {once_more} finishes it"))
            if e["again"]:
                sent = f"{count(e['again'], 'message')} of it were sent again and are landed"
                found.append(Finding("erasure", source.name, f"{of}: {sent}: {once_more}"))
    return found


def _ledger(config: Config, sources: Sequence[Source]) -> list[Finding]:
    """Between two stages of a run that is under way the sum doesn't come out: no finding then."""
    from cdc_platform.lake import queries
    from cdc_platform.lake.writer_lock import is_held

    once = {row["source"] for row in queries.ledger(config, sources) if row["unaccounted"]}
    idle = [source for name in sorted(once) if not is_held(config, source := config.source(name))]
    # A run that has ended since may have accounted for what was open.
    wrong = [row for row in queries.ledger(config, idle) if row["unaccounted"]] if idle else []
    return [
        Finding(
            "ledger",
            row["source"],
            f"{queries.unaccounted(row)}; run it again, or look into offset_ledger",
        )
        for row in wrong
    ]


def _gaps(config: Config, sources: Sequence[Source]) -> list[Finding]:
    from cdc_platform.lake import sequences

    found = ((s.name, gap) for s in sources for gap in sequences.open_gaps(config, s))
    return [Finding("gap", name, f"{gap.text}; {sequences.WHICH_TABLES}") for name, gap in found]


def _different(config: Config, sources: Sequence[Source]) -> list[Finding]:
    from cdc_platform.certificate import difference
    from cdc_platform.lake import queries
    from cdc_platform.lake.comparisons import comparisons

    live = {(t["source"], name_of(t)) for t in queries.table_states(config) if t["state"] == "live"}
    return [
        Finding("differs", s.name, difference(row))
        for s in sources
        for name, compared in comparisons(config, s).items()
        for row in compared
        if not row["equal"] and (s.name, name) in live
    ]


def _shadowed(config: Config, sources: Sequence[Source]) -> list[Finding]:
    """Pairs of feeds whose tables differed, or couldn't be compared, of sources that are `of` in one."""
    from cdc_platform.shadow import kept

    names, found = {s.name for s in sources}, []
    for pair in config.shadow:
        if pair.of in names and (texts := kept.clauses(pair, kept.last(config, pair))):
            how = f"`cdc-platform shadow status {pair.of}` shows more"
            found.append(Finding("shadow", pair.of, f"unlike {pair.by}: {kept.shortened(texts)}; {how}"))
    return found


def of_history(config: Config, sources: Sequence[Source]) -> list[Finding]:
    """Sources whose last run failed, and schedules and sensors whose last tick did, by Dagster's history. Nothing where
    there is none."""
    if not os.environ.get("DAGSTER_HOME") and not (config.state_dir / "dagster").is_dir():
        return []
    from cdc_platform.automation.instance import open_instance

    with open_instance(config) as instance:
        return [*_runs(config, instance, sources), *_ticks(instance)]


def _runs(config: Config, instance: Any, sources: Sequence[Source]) -> list[Finding]:
    from dagster import DagsterRunStatus, RunsFilter

    from cdc_platform.automation.loads import LOAD
    from cdc_platform.automation.naming import SOURCE_TAG, Naming
    from cdc_platform.automation.repairs import REPAIR

    found, naming = [], Naming(config)
    for source in sources:
        ended = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
        its = RunsFilter(tags={SOURCE_TAG: naming.tag(source)}, statuses=ended)
        records = instance.get_run_records(its, limit=_RUNS)
        record = next((r for r in records if not r.dagster_run.job_name.endswith((LOAD, REPAIR))), None)
        if record and record.dagster_run.status == DagsterRunStatus.FAILURE:
            run, at = record.dagster_run, datetime.fromtimestamp(record.end_time or 0, UTC)
            found.append(
                Finding("run", source.name, f"the last run failed at {when(at)}: {_why(instance, run.run_id)}")
            )
    return found


def _why(instance: Any, run_id: str) -> str:
    """The first failed step's reason in one line, and which run it is."""
    from dagster import DagsterEventType

    from cdc_platform.automation.failures import reason

    records = instance.get_records_for_run(run_id, of_type=DagsterEventType.STEP_FAILURE, limit=1).records
    if not records:
        return f"run {run_id}"
    return f"{reason(records[0].event_log_entry.dagster_event.step_failure_data)} (run {run_id})"


def _is_ours(state: Any) -> bool:
    """Whether a schedule or sensor is this platform's: an instance that DAGSTER_HOME names may serve others, too."""
    from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

    if "DAGSTER_HOME" not in os.environ:
        return True
    origin = state.origin.repository_origin.code_location_origin
    if isinstance(origin, GrpcServerCodeLocationOrigin):  # a deployment's code server: it knows the module, we the name
        return origin.location_name == "cdc"
    return (origin.loadable_target_origin.module_name or "").startswith("cdc_platform")


def _ticks(instance: Any) -> list[Finding]:
    """Schedules and sensors that are on and whose newest tick failed."""
    from dagster._core.scheduler.instigation import TickStatus

    from cdc_platform.automation.failures import cause

    found = []
    for state in instance.all_instigator_state():
        if not state.is_running or not _is_ours(state):
            continue
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        if ticks and ticks[0].status == TickStatus.FAILURE:
            why = cause(ticks[0].error) or "no reason was noted"
            kind = state.instigator_type.value.lower()
            at = datetime.fromtimestamp(ticks[0].timestamp, UTC)
            found.append(Finding("schedule", None, f"{kind} {state.name}: its tick at {when(at)} failed: {why}"))
    return found
