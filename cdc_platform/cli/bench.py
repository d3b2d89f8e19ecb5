"""`cdc-platform bench`: events per second of each stage and of the whole chain."""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed, progress


@printed
def command(
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="Only this format; may be repeated. [default: all]")
    ] = None,
    what: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this: chain, increments, breadth, ddl, explain, latency; repeatable. "
            "[default: chain, increments]"
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Row changes per format.")] = 200_000,
    keys: Annotated[int, typer.Option(min=1, help="Rows of the table; later changes are updates.")] = 50_000,
    repeats: Annotated[int, typer.Option(min=1, help="Measured runs per format, after a small one.")] = 3,
    topic: Annotated[str | None, typer.Option(help="A topic that is there, in place of generated rows.")] = None,
    servers: Annotated[str | None, typer.Option(help="The Kafka that has it.")] = None,
    sizes: Annotated[
        list[int] | None, typer.Option("--table", min=1000, help="Rows of a table that gets increments; repeatable.")
    ] = None,
    changes: Annotated[int, typer.Option(min=1, help="Changes of one increment.")] = 20_000,
    tables: Annotated[int, typer.Option(min=1, help="Tables of `--what breadth`.")] = 1_000,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic of `--what breadth`.")] = 1,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Its tables have no key, and rows are only inserted.")
    ] = False,
    rate: Annotated[int, typer.Option(min=1, help="Changes per second whose way to the snapshot is timed.")] = 20,
    seconds: Annotated[int, typer.Option(min=10, help="For how long.")] = 120,
    over: Annotated[int, typer.Option(min=1, help="Tables of `--what latency`.")] = 1,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
    folder: Annotated[
        Path | None, typer.Option(help="Where broker and lakes are made and removed. [default: the system's]")
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(
            help="An empty place on S3 for the lakes, e.g. s3://bucket/bench; reached by the environment's AWS_…."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Save the seconds of each stage as a picture: .svg, .png or .pdf.")
    ] = None,
) -> Report:
    """Measure a raw copy, each stage and the whole chain, increments of large tables and, when asked for, the time from
    Kafka to the snapshot; exit code 1 when a snapshot isn't the truth."""
    from cdc_platform.bench.bench import run_bench
    from cdc_platform.bench.plot import check, save
    from cdc_platform.bench.settings import FORMATS, Settings

    if plot is not None:
        check(plot)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the broker is stopped then, too
    settings = Settings(
        what=tuple(dict.fromkeys(what or Settings().what)),
        formats=tuple(dict.fromkeys(formats or FORMATS)),
        rows=rows,
        keys=keys,
        repeats=repeats,
        master=master,
        folder=folder,
        lake=lake,
        topic=topic,
        servers=servers,
        sizes=tuple(sizes or Settings().sizes),
        changes=changes,
        tables=tables,
        partitions=partitions,
        keyless=keyless,
        rate=rate,
        seconds=seconds,
        over=over,
    )
    result: dict[str, Any] = run_bench(settings, progress)
    if plot is not None:
        save(result, plot)
        progress(f"saved {plot}")
    data = {**result.pop("machine"), **result}
    return Report(data, 1 if result["differences"] else 0)
