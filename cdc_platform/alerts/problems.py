"""What needs attention now, from Dagster's history and the lake. No Spark, no Kafka: bounded time."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster import DagsterEventType, DagsterRunStatus
from dagster._core.storage.tags import PARTITION_NAME_TAG

from cdc_platform.automation import runs
from cdc_platform.automation.accounting import NOTHING_HELD
from cdc_platform.automation.beside import HAS_ALL_CHANGES
from cdc_platform.automation.failures import reason
from cdc_platform.automation.jobs import MAINTAIN
from cdc_platform.automation.loads import LOAD
from cdc_platform.automation.looks import RECONCILE, SHADOW
from cdc_platform.automation.markup import plain
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.repairs import REPAIR
from cdc_platform.automation.replays import REPLAY
from cdc_platform.automation.reporting import NO_TABLE_STOPPED
from cdc_platform.automation.table_events import NO_HELD_ROWS, NOT_STOPPED
from cdc_platform.lake import beside, held_rows, queries
from cdc_platform.tables import name_of
from cdc_platform.units import count

_WILL_RETRY = "dagster/will_retry"
_RUNS = 10
"""So many of a source's last runs are looked at: those that Dagster retries by itself decide nothing."""
_CHECKS = 500
"""Checks per question to Dagster's storage: databases bound the length of a list."""
_SAID_OTHERWISE = {
    "table_stopped": {NOT_STOPPED, NO_TABLE_STOPPED},
    "rows_held": {NO_HELD_ROWS, NOTHING_HELD},
    "changes_lacking": {HAS_ALL_CHANGES},
}
"""Checks that fail for what is a problem of its own kind."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that needs attention. what: the thing, the same as long as the problem lasts; why: its reason now;
    count: of rows, where more of them are news; path: its page, under the URL of Dagster's pages."""

    kind: str
    what: str
    why: str
    count: int = 1
    path: str = ""

    @property
    def key(self) -> str:
        """Tells problems apart, from one look to the next."""
        return f"{self.kind}: {self.what}"


@dataclass(slots=True)
class Seen:
    """One look, at problems of `kinds`. undecided: keys of which this look can't tell whether they are problems (a
    check or a run is under way, the lake can't be read): what was known of them holds."""

    problems: dict[str, Problem] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    undecided: Callable[[str], bool] = lambda key: False  # noqa: ARG005


def look(
    instance: dg.DagsterInstance, naming: Naming, checks: Sequence[dg.AssetCheckKey], kinds: Iterable[str]
) -> Seen:
    """All problems of these kinds. checks: the platform's own. A lake that can't be read is itself a problem."""
    kinds = set(kinds)
    said = {name for kind in kinds for name in _SAID_OTHERWISE.get(kind, ())}
    wanted = [key for key in checks if key.name not in said]
    running: set[str] = set()
    lookers: dict[str, Callable[[], Iterator[Problem]]] = {
        "run_failed": lambda: failed_runs(instance, naming),
        "check_failed": lambda: failed_checks(instance, wanted, running),
        "table_stopped": lambda: stopped_tables(naming),
        "rows_held": lambda: rows_held(naming),
        "changes_lacking": lambda: lacking_changes(naming, running),
    }
    found: list[Problem] = []
    blind: set[str] = set()
    for kind in lookers.keys() & kinds:
        try:
            found += lookers[kind]()
        except Exception as error:  # noqa: BLE001 - whatever a storage raises must not silence the other kinds
            blind.add(kind)
            found.append(Problem(kind, "can't be looked at", f"{type(error).__name__}: {_line(str(error))}"))
    seen = Seen({p.key: p for p in found}, frozenset(kinds))
    seen.undecided = lambda key: key in running or _kind(key) in blind
    return seen


def failed_runs(instance: dg.DagsterInstance, naming: Naming) -> Iterator[Problem]:
    """Sources, jobs that are of all sources, and what people have done to one by a job, whose last finished run
    failed."""
    finished = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
    for source in naming.config.sources:
        found = runs.of_source(instance, naming, source, finished, _RUNS)
        decisive = next((r for r in found if _decides(r.run)), None)
        if decisive and decisive.failed:
            yield _of_run(instance, f"source {source.name}", decisive.run)
    jobs: list[tuple[str, str, dict[str, str]]] = [(job, "", {}) for job in (MAINTAIN, RECONCILE, SHADOW)]
    for source in naming.config.sources:
        jobs += [
            (job, f" of source {source.name}", {PARTITION_NAME_TAG: source.name}) for job in (LOAD, REPAIR, REPLAY)
        ]
    for job, of, tags in jobs:
        asked = dg.RunsFilter(statuses=finished, job_name=naming.name(job), tags=tags)
        records = instance.get_run_records(asked, limit=_RUNS)
        run = next((r.dagster_run for r in records if _decides(r.dagster_run)), None)
        if run and run.status == DagsterRunStatus.FAILURE:
            yield _of_run(instance, f"job {naming.name(job)}{of}", run)


def _decides(run: dg.DagsterRun) -> bool:
    return run.tags.get(_WILL_RETRY) != "true"


def _of_run(instance: dg.DagsterInstance, what: str, run: dg.DagsterRun) -> Problem:
    return Problem("run_failed", what, _why_failed(instance, run.run_id), path=f"/runs/{run.run_id}")


def _why_failed(instance: dg.DagsterInstance, run_id: str) -> str:
    """The first step's own words, else the innermost cause, else the run's."""
    kinds = {DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE}
    for record in instance.get_records_for_run(run_id, of_type=kinds, limit=_RUNS).records:
        event = record.event_log_entry.dagster_event
        if event and event.is_step_failure:
            return _line(reason(event.step_failure_data) or event.message or "")
        if event and event.message:
            return _line(event.message)
    return "no reason recorded"


def failed_checks(
    instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], running: set[str]
) -> Iterator[Problem]:
    """Checks whose last evaluation failed with severity ERROR. running: gets those that are planned or running."""
    for start in range(0, len(checks), _CHECKS):
        part = checks[start : start + _CHECKS]
        found = instance.event_log_storage.get_latest_asset_check_execution_by_key(part)
        for key in part:
            record = found.get(key)
            problem = _check_problem(key, record.evaluation if record else None)
            if record and record.status.value == "PLANNED":
                running.add(problem.key)
            elif record and record.status.value == "FAILED" and _is_error(record.evaluation):
                yield problem


def _check_problem(key: dg.AssetCheckKey, evaluation: Any) -> Problem:
    name = key.asset_key.to_user_string()
    why = _line(plain(getattr(evaluation, "description", None) or ""))
    return Problem("check_failed", f"{key.name} of {name}", why, path=f"/assets/{name}?view=checks")


def _is_error(evaluation: Any) -> bool:
    return evaluation is not None and evaluation.severity == dg.AssetCheckSeverity.ERROR


def stopped_tables(naming: Naming) -> Iterator[Problem]:
    """Tables that are not kept as snapshots any more."""
    names = {s.name: s for s in naming.config.sources}
    for row in queries.table_states(naming.config):
        if row["state"] == "stopped" and row["source"] in names:
            key = naming.table(names[row["source"]], *name_of(row)).key
            what = f"{row['source']}/{'.'.join(name_of(row))}"
            yield Problem("table_stopped", what, _line(row["reason"] or ""), path=f"/assets/{key.to_user_string()}")


def rows_held(naming: Naming) -> Iterator[Problem]:
    """Tables that lack rows, because quarantine holds them."""
    for row in held_rows.by_table(naming.config):
        what = f"{row['source']}/" + (".".join(name_of(row)) if row["table"] is not None else "(no table named)")
        why = f"{count(row['rows'], 'row')}, the newest because: {_line(row['reason'] or '')}"
        key = naming.key("quarantine", naming.config.source(row["source"]))
        yield Problem("rows_held", what, why, row["rows"], f"/assets/{key.to_user_string()}")


def lacking_changes(naming: Naming, running: set[str]) -> Iterator[Problem]:
    """Histories and typed changes that lack changes of their tables. Not those that the next run makes first, nor
    those of a stopped table, which is told by itself. running: gets those that a run is making."""
    for source in naming.config.sources:
        for name, kept in beside.of_source(naming.config, source).items():
            for one in (o for o in kept if o.is_short):
                what, key = f"{one.kind} of {source.name}/{'.'.join(name)}", naming.beside(source, *name)[one.kind].key
                page = f"/assets/{key.to_user_string()}"
                problem = Problem("changes_lacking", what, _line(one.reason or ""), path=page)
                if one.reason == beside.ANEW:
                    running.add(problem.key)
                else:
                    yield problem


def _kind(key: str) -> str:
    return key.split(":", 1)[0]


def _line(text: str) -> str:
    """The first line, of a length fit for a message."""
    line = (text.strip().splitlines() or [""])[0]
    return line if len(line) <= 500 else f"{line[:499]}…"


def changes(before: Mapping[str, int], seen: Seen) -> tuple[list[Problem], list[str], dict[str, int]]:
    """What to tell since the last look: problems that are new (or ten times as many rows as when last told), keys that
    are over; and what is known now. before, and that: key → rows when last told."""
    new = [p for k, p in seen.problems.items() if k not in before or p.count >= 10 * before[k]]
    known = {k: n for k, n in before.items() if _kind(k) in seen.kinds}  # others are told no more, nor called over
    over = [k for k in known if k not in seen.problems and not seen.undecided(k)]
    kept = {k: n for k, n in known.items() if k not in over}
    return new, over, {**kept, **{p.key: p.count for p in new}}
