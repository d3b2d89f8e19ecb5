"""`cdc-platform bench`: events per second of each room and of the whole chain."""

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
    rows: Annotated[int, typer.Option(min=1, help="Row changes per format.")] = 200_000,
    keys: Annotated[int, typer.Option(min=1, help="Rows of the table; later changes are updates.")] = 50_000,
    repeats: Annotated[int, typer.Option(min=1, help="Measured runs per format, after a small one.")] = 1,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
    folder: Annotated[
        Path | None, typer.Option(help="Where broker and lakes are made and removed. [default: the system's]")
    ] = None,
) -> Report:
    """Measure a raw copy, each room and the whole chain; exit code 1 when the snapshot isn't the truth."""
    from cdc_platform.demo.bench import FORMATS, Settings, run_bench

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the broker is stopped then, too
    settings = Settings(tuple(dict.fromkeys(formats or FORMATS)), rows, keys, repeats, master, folder)
    result: dict[str, Any] = run_bench(settings, progress)
    data = {**result.pop("machine"), **result}
    return Report(data, 1 if result["differences"] else 0)
