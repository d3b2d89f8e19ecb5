"""Sensors: what happens outside of Dagster. They look at Kafka and at Delta's logs, and import no Spark."""

import hashlib
import json
import time
from typing import Any

import dagster as dg

from cdc_platform.automation import checks, delta, keys, observe
from cdc_platform.automation.jobs import CATCH_UP, FOLLOW
from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError

INTERVAL_S = 15
REPEAT_S = 600
"""An unchanged heartbeat state is told again this often, so that the event log doesn't flood."""


def all_sensors(config: Config, jobs: list[Any]) -> list[dg.SensorDefinition]:
    """They run by default: a platform that doesn't catch up by itself is no use. jobs: `jobs.sensed_jobs`, the same
    objects that Dagster is given as jobs."""
    return [checkpoint_sensor(config, jobs), heartbeat_sensor(config), new_tables_sensor(config)]


def run_request(source: Source) -> dg.RunRequest:
    """One catch-up run of one source."""
    return dg.RunRequest(tags={keys.SOURCE_TAG: source.name}, asset_selection=keys.run_keys(source))


def follow_request(source: Source, position: str) -> dg.RunRequest:
    """The run for a new position: a catch-up, after which it goes on following if the source is to be followed."""
    selection = [*keys.run_keys(source), *([keys.following_key(source)] if source.follow_s else [])]
    return dg.RunRequest(
        run_key=f"{source.name}:{position}",
        job_name=FOLLOW if source.follow_s else CATCH_UP,
        tags={keys.SOURCE_TAG: source.name},
        asset_selection=selection,
    )


def is_running(instance: dg.DagsterInstance, source: Source) -> bool:
    """Whether a run of this source is queued or running, whoever launched it."""
    runs = dg.RunsFilter(
        tags={keys.SOURCE_TAG: source.name},
        statuses=[
            dg.DagsterRunStatus.QUEUED,
            dg.DagsterRunStatus.NOT_STARTED,
            dg.DagsterRunStatus.STARTING,
            dg.DagsterRunStatus.STARTED,
            dg.DagsterRunStatus.CANCELING,
        ],
    )
    return instance.get_runs_count(runs) > 0


def position_id(ends: dict[delta.Partition, tuple[int, int]]) -> str:
    """A short name of a position in all topics of a source."""
    return hashlib.sha256(repr(sorted((p, end) for p, (_, end) in ends.items())).encode()).hexdigest()[:16]


def checkpoint_sensor(config: Config, jobs: list[Any]) -> dg.SensorDefinition:
    """Requests a catch-up run per source and position: every checkpoint, heartbeat or change moves the end
    offsets."""

    @dg.sensor(
        name="checkpoint_sensor",
        jobs=jobs,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Sees new offsets (checkpoints, heartbeats, changes) in Kafka; one catch-up run each.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        requested: dict[str, str] = json.loads(context.cursor or "{}")
        ends = observe.each_source(config, lambda source: observe.kafka_ends(config, source))
        requests, told = [], []
        for source in config.sources:
            found = ends[source.name]
            if isinstance(found, CdcError):
                told.append(str(found))
                continue
            position = position_id(found)
            if requested.get(source.name) == position or not delta.has_news(config, source, found):
                told.append(f"{source.name}: nothing new")
            elif is_running(context.instance, source):
                told.append(f"{source.name}: a run is under way")
            else:
                requested[source.name] = position
                requests.append(follow_request(source, position))
        reason = None if requests else dg.SkipReason("; ".join(told))
        return dg.SensorResult(run_requests=requests, skip_reason=reason, cursor=json.dumps(requested))

    return sensor


def heartbeat_sensor(config: Config) -> dg.SensorDefinition:
    """Reports each source's state as the check `heartbeat` on its landing asset, on change and every ten
    minutes."""

    @dg.sensor(
        name="heartbeat_sensor",
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=[keys.landing_key(s) for s in config.sources],
        description="Tells alive, quiet, silent and unreachable sources apart: check `heartbeat` of landing.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        told: dict[str, dict] = json.loads(context.cursor or "{}")
        seen = observe.each_source(config, lambda source: observe.heartbeat(config, source))
        now, events, states = time.time(), [], []
        for source in config.sources:
            found = seen[source.name]
            if isinstance(found, CdcError):
                found = observe.Heartbeat("unreachable", str(found))
            last = told.get(source.name, {})
            states.append(f"{source.name}: {found.state}")
            if last.get("state") != found.state or now - last.get("at", 0) >= REPEAT_S:
                events.append(checks.heartbeat_evaluation(source, found))
                told[source.name] = {"state": found.state, "at": now}
        return dg.SensorResult(
            asset_events=events, skip_reason=dg.SkipReason("; ".join(states)), cursor=json.dumps(told)
        )

    return sensor


def new_tables_sensor(config: Config) -> dg.SensorDefinition:
    """Adds a partition of `snapshots` for each table that the schema history names."""

    @dg.sensor(
        name="new_tables_sensor",
        minimum_interval_seconds=2 * INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=[keys.SNAPSHOTS],
        description="Adds a partition of snapshots for each table seen in the schema history.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        known = set(context.instance.get_dynamic_partitions(str(keys.TABLES.name)))
        seen = {observe.partition_key(s.name, db, table) for s, db, table in delta.known_tables(config)}
        new = sorted(seen - known)
        if not new:
            return dg.SensorResult(skip_reason=dg.SkipReason(f"no new table beside {len(known)}"))
        return dg.SensorResult(dynamic_partitions_requests=[keys.TABLES.build_add_request(new)])

    return sensor
