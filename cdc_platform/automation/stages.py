"""Stages as steps of a Dagster run: called under the source's lock, with errors as Dagster acts upon them."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import dagster as dg

from cdc_platform.automation.metadata import run_metrics
from cdc_platform.automation.naming import Naming
from cdc_platform.chain import STAGES, maintain
from cdc_platform.config import Source
from cdc_platform.errors import CdcError, ConfigError
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.results import StageResult
from cdc_platform.spark.session import leased

RETRY = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)
"""Stages may be called again at will, so whatever Spark or a store stumbled over is tried again; a CdcError
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
        raise Interrupted(
            "ended from outside: Terminate on a page of Dagster, or Ctrl-C. The next run goes on"
        ) from None


def call(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, naming: Naming, source: Source, stage: str, **how: bool
) -> StageResult:
    """One stage of one source under its lock, `how` as the stage takes it. Raises Failure for a CdcError, retried
    where that makes sense."""
    log.info("%s %s: started", stage, source.name)
    with failing(), interruptible(), source_lock(naming.config, source) as lease:
        session = spark_of(context, naming)
        with leased(session, lease):
            result = {**STAGES, "maintenance": maintain}[stage](session, naming.config, source, **how)
    log.info("%s %s: %s", stage, source.name, _short(result))
    return result


@contextmanager
def failing() -> Iterator[None]:
    """A CdcError becomes what Dagster acts upon: retried where that makes sense."""
    try:
        yield
    except CdcError as error:
        raise dg.Failure(str(error), allow_retries=error.retriable) from error


def source_of(context: dg.OpExecutionContext, sources: Iterable[Source]) -> Source:
    """The source that a run's partition names: Dagster launches one without a partition, too, or with any text. Raises
    ConfigError."""
    own = {s.name: s for s in sources}
    name = context.partition_key if context.has_partition_key else None
    if name not in own:
        raise ConfigError("partition", f"no source {name!r}" if name else "names no source", list(own))
    return own[name]


def spark_of(context: dg.AssetExecutionContext | dg.OpExecutionContext | dg.AssetCheckExecutionContext, naming: Naming):
    """The run's Spark session."""
    return getattr(context.resources, naming.resource_key).spark_session


def _short(result: StageResult) -> str:
    found = run_metrics(result)
    return f"{found['records']:,.0f} records in {found['seconds']:.1f} s"
