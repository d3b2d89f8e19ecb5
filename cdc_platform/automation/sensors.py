"""Sensors: what happens outside of Dagster. They look at Kafka and at Delta's logs, and import no Spark."""

import hashlib
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import dagster as dg

from cdc_platform.automation import checks, completeness, observe, overview, reload, table_status
from cdc_platform.automation.instance import GONE, is_gone
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.table_assets import run_config
from cdc_platform.config import Source
from cdc_platform.errors import CdcError
from cdc_platform.lake import folders, queries, stores
from cdc_platform.tables import Name

INTERVAL_S = 15
REPEAT_S = 600
"""An unchanged heartbeat state is told again this often, so that the event log doesn't flood."""
AGAIN_S = (60, 600)
"""A run that didn't land what it was requested for is requested again, and so is a reload of the code location that
failed: the first pause, doubled up to the longest."""


def all_sensors(naming: Naming, job: Any) -> list[dg.SensorDefinition]:
    """They run by default: a platform that doesn't catch up by itself is no use. job: `catch_up`, the same object that
    Dagster is given as a job."""
    return [checkpoint_sensor(naming, job), heartbeat_sensor(naming), tables_sensor(naming)]


def run_request(
    naming: Naming, repository: dg.RepositoryDefinition | None, source: Source, run_key: str, **config: bool
) -> dg.RunRequest:
    """One catch-up run of one source. repository: what the code location has, which tells the checks (Dagster gives
    none to a sensor that is called by itself). config: of the step `snapshots`."""
    keys = naming.run_keys(source)
    return dg.RunRequest(
        run_key=run_key,
        tags={SOURCE_TAG: naming.tag(source)},
        asset_selection=keys,
        asset_check_keys=checks.of_run(keys, repository.asset_graph) if repository else None,
        run_config=run_config(naming, source, **config) if config else None,
    )


def is_running(instance: dg.DagsterInstance, naming: Naming, source: Source) -> bool:
    """Whether a run of this source is queued or running, whoever launched it. One that the command line began and whose
    process was killed is marked as failed: nobody else would, for hours."""
    runs = dg.RunsFilter(
        tags={SOURCE_TAG: naming.tag(source)},
        statuses=[
            dg.DagsterRunStatus.QUEUED,
            dg.DagsterRunStatus.NOT_STARTED,
            dg.DagsterRunStatus.STARTING,
            dg.DagsterRunStatus.STARTED,
            dg.DagsterRunStatus.CANCELING,
        ],
    )
    found = instance.get_runs(runs)
    gone = [run for run in found if is_gone(run)]
    for run in gone:
        instance.report_run_failed(run, GONE)
    return len(found) > len(gone)


def position_id(ends: dict[queries.Partition, tuple[int, int]]) -> str:
    """A short name of a position in all topics of a source."""
    return hashlib.sha256(repr(sorted((p, end) for p, (_, end) in ends.items())).encode()).hexdigest()[:16]


def checkpoint_sensor(naming: Naming, job: Any) -> dg.SensorDefinition:
    """Requests a catch-up run per source and position: every checkpoint, heartbeat or change moves the end
    offsets. The run goes on following where the source is to be followed. Afterwards it observes each table with the
    time up to which it is complete as data version."""
    config = naming.config

    @dg.sensor(
        name=naming.name("checkpoint_sensor"),
        job=job,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Sees new offsets (checkpoints, heartbeats, changes) in Kafka: one catch-up run each. Observes up "
        "to when tables are complete.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        cursor = _cursor(context.cursor)
        ends = observe.each_source(config, lambda source: observe.kafka_ends(config, source))
        requests, told, events = [], [], []
        for source in config.sources:
            told_last = cursor["complete"].setdefault(source.name, {})
            observed = observe.safely(
                config, partial(completeness.observations, naming, source, told_last, context.instance)
            )
            found = ends[source.name]
            if not isinstance(found, CdcError):
                found = observe.safely(config, partial(_request, context, naming, source, found, cursor))
            told += dict.fromkeys(str(one) for one in (found, observed) if isinstance(one, str | CdcError))
            requests += [found] if isinstance(found, dg.RunRequest) else []
            events += [] if isinstance(observed, CdcError) else observed
        reason = None if requests else dg.SkipReason("; ".join(told))
        return dg.SensorResult(
            run_requests=requests, asset_events=events, skip_reason=reason, cursor=json.dumps(cursor)
        )

    return sensor


def _request(
    context: dg.SensorEvaluationContext,
    naming: Naming,
    source: Source,
    ends: dict[queries.Partition, tuple[int, int]],
    cursor: dict[str, Any],
) -> dg.RunRequest | str:
    """A run of a source whose partitions have these ends, or why there is none. cursor: brought up to date."""
    request = partial(run_request, naming, context.repository_def)
    requested: dict[str, str] = cursor["positions"]
    position, again = position_id(ends), cursor["again"]
    same = requested.get(source.name) == position
    times = _due_again(again, source) if same else 0
    if (same and not times) or not queries.has_news(naming.config, source, ends):
        if times:
            del again[source.name]
        if _idle(context.instance, naming, source, ends, cursor["idle"]):
            return request(source, f"{source.name}:{position}:idle")
        return f"{source.name}: nothing new"
    if is_running(context.instance, naming, source):
        if times:  # the pause is one behind its end
            again[source.name]["at"] = time.time() + _pause(times - 1)
        return f"{source.name}: a run is under way"
    requested[source.name] = position
    again[source.name] = {"times": times + 1, "at": time.time() + _pause(times)}
    follow = {"follow": True} if source.follow_s else {}
    # Dagster launches no run for a key that it has seen, also before somebody reset the cursor.
    return request(source, f"{source.name}:{position}" + (f":{time.time():.0f}" if times else ""), **follow)


def _pause(times: int) -> int:
    """Seconds until it is looked once more, after so many pauses, whether a run has landed its position."""
    return min(AGAIN_S[0] * 2 ** min(times, 10), AGAIN_S[1])


def _due_again(again: dict[str, Any], source: Source) -> int:
    """How often a run of the newest position was requested, when it is time to look whether it has landed; else 0."""
    last = again.get(source.name)
    return last["times"] if last and time.time() >= last["at"] else 0


def _idle(
    instance: dg.DagsterInstance,
    naming: Naming,
    source: Source,
    ends: dict[queries.Partition, tuple[int, int]],
    done: dict[str, str],
) -> bool:
    """Whether a source that sends nothing more needs a run by which its idle partitions count. done: source → position
    for which that is settled; brought up to date, so that it is asked for once."""
    position = position_id(ends)
    if len(ends) < 2 or done.get(source.name) == position:
        return False
    since = completeness.idle_since(naming.config, source)
    due = since is not None and datetime.now(UTC) - since > timedelta(seconds=source.idle_partition_s)
    if (since is not None and not due) or queries.has_news(naming.config, source, ends):
        return False
    if is_running(instance, naming, source):
        return False
    done[source.name] = position
    return due


def _cursor(text: str | None) -> dict[str, Any]:
    """positions: source → position of its newest run; complete: source → what was told of it; idle: source → position
    for which its idle partitions count; again: source → how often its newest run was requested, and when to look if it
    has landed. Earlier versions kept the positions alone."""
    found = json.loads(text or "{}")
    kept = found if "positions" in found and "complete" in found else {"positions": found, "complete": {}}
    again = {name: {"times": 1, "at": 0.0} for name in kept["positions"]}  # an earlier version's runs may have failed
    return {"idle": {}, "again": again, **kept}


def heartbeat_sensor(naming: Naming) -> dg.SensorDefinition:
    """Reports each source's state as the check `heartbeat` of its landing asset and as an observation of it, and all of
    them on the page `health`, on change and every ten minutes."""
    config, sources = naming.config, naming.config.sources

    @dg.sensor(
        name=naming.name("heartbeat_sensor"),
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=[naming.key("health"), *(naming.key("landing", s) for s in sources)],
        description="Tells alive, quiet, silent and unreachable sources apart: check `heartbeat` of landing, `health`.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        told: dict[str, dict] = json.loads(context.cursor or "{}")
        seen = observe.at_once(config, lambda source: observe.seen(config, source))
        now, states = time.time(), []
        events: list[Any] = []
        for source in sources:
            found = seen[source.name]
            last = told.get(source.name, {})
            states.append(f"{source.name}: {found.state}")
            if last.get("state") != found.state or now - last.get("at", 0) >= REPEAT_S:
                events += checks.heartbeat_events(naming, source, found)
                told[source.name] = {"state": found.state, "at": now}
        if events:
            page = observe.safely(config, lambda: overview.shared_metadata(naming, context.instance))
            if isinstance(page, CdcError):
                states.append(f"health: {page}")
            else:
                events.append(dg.AssetMaterialization(naming.key("health"), metadata=page[naming.key("health")]))
        return dg.SensorResult(
            asset_events=events, skip_reason=dg.SkipReason("; ".join(states)), cursor=json.dumps(told)
        )

    return sensor


def _failed_reload(cursor: str | None, digest: str) -> dict[str, Any]:
    """How often a reload for these tables has brought nothing, when to ask for it again, and what to say until then.
    The lake may not have been readable just then, or the web server may be carrying one out that took too long to be
    waited for: another one beside it would slow both down."""
    kept = json.loads(cursor) if cursor and cursor.startswith("{") else {}
    return kept if kept.get("digest") == digest else {"times": 0, "at": 0.0, "text": ""}


def tables_sensor(naming: Naming) -> dg.SensorDefinition:
    """Has Dagster load the definitions anew when the lake's tables are others than those that have assets."""
    config = naming.config
    loaded = _texts(naming.known, naming.folders)

    @dg.sensor(
        name=naming.name("tables_sensor"),
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=[naming.key("snapshots", s) for s in config.sources],
        description="Sees new, dropped and renamed tables, and reloads the code location so that each has its asset.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        known = table_status.known(config)
        there = _texts(known, {s.name: folders.folder(stores.lake(config), s.name) for s in config.sources})
        if there == loaded:
            return dg.SkipReason(f"the same {len(known)} tables")
        digest = hashlib.sha256(json.dumps([there, loaded]).encode()).hexdigest()[:16]
        failed = _failed_reload(context.cursor, digest)
        if time.time() < failed["at"]:
            return dg.SkipReason(failed["text"])
        origin = context.code_location_origin
        reloaded = reload.reload(origin.location_name if origin else None)
        text = f"{len(known)} tables, others than those that have assets: {reloaded.text}"
        times = failed["times"]
        later = {"digest": digest, "times": times + 1, "at": time.time() + _pause(times), "text": text}
        return dg.SensorResult(skip_reason=dg.SkipReason(text), cursor=json.dumps(later))

    return sensor


def _texts(known: list[tuple[Source, Name]], placed: Mapping[str, str]) -> list[list[str]]:
    """What definitions are made of: tables, and the sources whose tables lie in another's folder."""
    moved = sorted([s, f] for s, f in placed.items() if s != f)
    return [*sorted([s.name, *name] for s, name in known), *moved]
