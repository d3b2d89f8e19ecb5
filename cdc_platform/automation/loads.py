"""The job `load`: tables of a source whole, from its server (`cdc-platform load`). A partition is a source."""

from typing import Any

import dagster as dg
from pydantic import Field

from cdc_platform.automation.metadata import table_of
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.runs import queued_with
from cdc_platform.automation.stages import RETRY, failing, interruptible, source_of, spark_of
from cdc_platform.errors import ConfigError, TableStopped
from cdc_platform.loading import CHUNK_ROWS

LOAD = "load"


class LoadConfig(dg.Config):
    """What a run loads of its source."""

    tables: list[str] = Field(description="db.table at the source")
    chunk_rows: int = Field(default=CHUNK_ROWS, ge=1, description="rows that are read in one view of the server")
    end_history: bool = Field(
        default=False,
        description="let histories and typed changes of the tables begin anew, without what was before the load; else "
        "tables that have some are refused",
    )


def load_job(naming: Naming) -> Any:
    """An op job, so that "materialize all" leaves it out. What was loaded is the metadata of its output; the run fails
    where a table's snapshot is stopped behind it."""
    sources = {s.name: (s, how) for s in naming.config.sources if (how := s.reconcile) is not None}

    @dg.op(
        name=naming.name("load_tables"),
        required_resource_keys={naming.resource_key},
        out=dg.Out(dg.Nothing),
        retry_policy=RETRY,
    )
    def load_tables(context: dg.OpExecutionContext, config: LoadConfig) -> None:
        from cdc_platform.loading import run
        from cdc_platform.reconcile.server import Server, dsn_from

        with failing(), interruptible():
            source = source_of(context, (s for s, _ in sources.values()))
            if not config.tables:
                raise ConfigError(f"ops.{context.op.name}.config.tables", "names no table", ["db.table"])
            server = Server(dsn_from(sources[source.name][1].dsn_env))
            names = run.named(source, server, config.tables)
            spark, told = spark_of(context, naming), context.log.info
            asked = {"chunk_rows": config.chunk_rows, "end_history": config.end_history}
            found = run.load(spark, naming.config, source, server, names, **asked, told=told)
            told_of = {"rows": sum(one.rows for one in found), "tables": table_of([one.data() for one in found])}
            context.add_output_metadata(told_of)
            for name, one in zip(names, found, strict=True):
                if one.state == "stopped":
                    raise TableStopped(source.name, name, str(one.reason))

    @dg.job(
        name=naming.name(LOAD),
        executor_def=dg.in_process_executor,
        config=queued_with(naming, [s for s, _ in sources.values()]),
        description="Read tables whole from the source's server and put their rows in order among the feed's changes. "
        "The partition is the source, which is only read; `tables` names its tables. A load that was interrupted goes "
        "on.",
    )
    def load() -> None:
        load_tables()

    return load
