"""Rooms as steps of a Dagster run: called under the source's lock, errors as Dagster acts upon them, a materialization
per table."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation import observe
from cdc_platform.automation.keys import SNAPSHOTS, SOURCE_TAG, TABLES, is_partitioned, sources_of
from cdc_platform.automation.metadata import figures, snapshot_metadata
from cdc_platform.chain import ROOMS, RoomResult, maintain
from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError
from cdc_platform.resources.lock import source_lock

RETRY = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)
"""Rooms may be called again at will, so whatever Spark or a store stumbled over is tried again; a CdcError
says itself whether that makes sense."""
log = logging.getLogger("cdc_platform.run")


class Interrupted(dg.DagsterError, dg.DagsterExecutionInterruptedError):
    """The run is to end (Ctrl-C, Terminate in Dagster's pages). Of a step with a retry policy Dagster tries that again,
    too, unless it is an error of its own (`op_execution_error_boundary` in dagster/_core/execution/plan/utils.py)."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Work that ends the run when it is interrupted, also where who tidies up after that fails in turn (a call to Java
    that was broken off leaves its answer to the next)."""
    try:
        yield
    except BaseException as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, (dg.DagsterExecutionInterruptedError, KeyboardInterrupt)):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        raise Interrupted from None


def table_events(
    context: dg.AssetExecutionContext, config: Config, result: RoomResult
) -> Iterator[dg.AssetMaterialization]:
    """One materialization per table that got changes, was asked for, or is new to Dagster; stopped ones
    have none."""
    asked = set(context.partition_keys) if is_partitioned(context) else set()
    known = set(context.instance.get_materialized_partitions(SNAPSHOTS))
    live: dict[str, tuple[dict, str]] = {}
    for name, found in result.tables.items():
        db, table = split_name(name)
        key = observe.partition_key(result.source, db, table)
        if found.get("state", "live") == "live" and (found.get("changes") or key in asked or key not in known):
            live[key] = found, tables.SNAPSHOT_PATH.at(config.lake, source=result.source, db=db, table=table)
    context.instance.add_dynamic_partitions(str(TABLES.name), sorted(live))
    for key, (found, path) in live.items():
        yield dg.AssetMaterialization(
            SNAPSHOTS,
            partition=key,
            metadata=snapshot_metadata(found, path),
            tags={SOURCE_TAG: result.source},
        )


def split_name(name: str) -> tuple[str, str]:
    """ "db.table" of RoomResult.tables → (db, table), at the first dot."""
    db, _, table = name.partition(".")
    return db, table


def each(context: dg.AssetExecutionContext, config: Config, room: str) -> Iterator[RoomResult]:
    """One room for every source of the run; a failing source is told after the others are done."""
    failed: dg.Failure | None = None
    for source in sources_of(config, context):
        try:
            yield call(context, config, source, room)
        except dg.Failure as error:
            failed = failed or error
    if failed:
        raise failed


def call(context: dg.AssetExecutionContext, config: Config, source: Source, room: str, **how: bool) -> RoomResult:
    """One room of one source under its lock, `how` as the room takes it; a CdcError becomes what Dagster acts upon."""
    log.info("%s %s: started", room, source.name)
    try:
        with interruptible(), source_lock(config, source):
            session = context.resources.spark.spark_session
            result = {**ROOMS, "maintenance": maintain}[room](session, config, source, **how)
    except CdcError as error:
        raise dg.Failure(str(error), allow_retries=error.retriable) from error
    log.info("%s %s: %s", room, source.name, _short(result))
    return result


def _short(result: RoomResult) -> str:
    found = figures(result)
    return f"{found['records']:,.0f} records in {found['seconds']:.1f} s"
