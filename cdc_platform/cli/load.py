"""`cdc-platform load SOURCE DB.TABLE…`: tables whole, from the source's server."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.cli.reconcile import dsn_variable
from cdc_platform.cli.run import with_spark
from cdc_platform.config import load_config
from cdc_platform.launch import log_followed
from cdc_platform.loading import CHUNK_ROWS


@printed
def command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source of cdc.yaml.")],
    table: Annotated[list[str], typer.Argument(metavar="DB.TABLE", help="Tables at the source.")],
    dsn_env: Annotated[
        str | None, typer.Option(help="Environment variable with the source's DSN; default: reconcile.dsn_env.")
    ] = None,
    chunk_rows: Annotated[int, typer.Option(min=1, help="Rows that are read in one view of the server.")] = CHUNK_ROWS,
    end_history: Annotated[
        bool, typer.Option("--end-history", help="Let histories and typed changes of the tables begin anew.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Read tables from the source's server, whole, and put their rows in order among the changes of the feed.

    For a topic that began late, a table that was never loaded, rows that were lost before Kafka. The source is only
    read; changes that pass meanwhile win. Refused where nothing proves the order: the feed has to tell its place in the
    log of that server. A load that was interrupted goes on. Exit code 1: a table's snapshot is stopped.

    What tables.history and tables.typed_changes keep of a table begins anew at a load, and loses what was before it:
    refused without --end-history.
    """
    loaded = load_config(config)
    feed = loaded.source(source)
    variable = dsn_variable(feed, dsn_env)
    from cdc_platform.loading.run import load, named
    from cdc_platform.reconcile.server import Server, dsn_from
    from cdc_platform.spark.session import open_session

    server = Server(dsn_from(variable))
    names = named(feed, server, table)  # an unreachable server and misspelled names are told before Spark is started
    ready = with_spark(loaded, master)
    spark = open_session(ready)
    with log_followed(progress):
        found = load(spark, ready, feed, server, names, chunk_rows=chunk_rows, end_history=end_history, told=progress)
    data: dict[str, Any] = {"source": source, "tables": [one.data() for one in found]}
    return Report(data, 1 if any(one.state == "stopped" for one in found) else 0)
