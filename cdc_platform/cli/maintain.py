"""`cdc-platform maintain`: upkeep of the lake now, as the scheduled job does it."""

from pathlib import Path
from typing import Annotated

import typer

from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.cli.run import choose, with_spark
from cdc_platform.config import load_config


@printed
def command(
    source: Annotated[list[str] | None, typer.Option(help="Only this source; may be repeated.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Upkeep: small files put together, files of old versions removed, old tombstones expired."""
    from cdc_platform.chain import maintain
    from cdc_platform.lake.writer_lock import source_lock
    from cdc_platform.spark.session import leased, open_session

    loaded = load_config(config)
    chosen = choose(loaded, source or [], None)
    ready = with_spark(loaded, master)
    progress(f"Spark: {ready.spark.remote or ready.spark.master}")
    spark = open_session(ready)
    results = []
    for one in chosen:
        progress(one.name)
        with source_lock(ready, one) as lease, leased(spark, lease):
            results.append(maintain(spark, ready, one))
    return Report(
        {
            "sources": [{"source": r.source, "seconds": r.seconds, **r.metrics} for r in results],
            "tables": [{"source": r.source, "table": name, **f} for r in results for name, f in r.tables.items()],
        }
    )
