"""`cdc-platform metrics`: lag, held rows, stopped tables for Prometheus. No Spark."""

import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import progress, show, show_error
from cdc_platform.config import Config, load_config
from cdc_platform.errors import CdcError


def command(
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
    serve: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve them on this port of 127.0.0.1, until Ctrl-C.")
    ] = None,
    textfile: Annotated[
        Path | None, typer.Option(help="Write them to this file in one step, for node_exporter's textfile collector.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """Metrics of sources and tables in Prometheus' text format: on stdout, to a file, or served."""
    try:
        loaded = load_config(config)
        if json_output:
            show(_as_json(loaded), as_json=True)
        else:
            _run(loaded, serve, textfile)
    except CdcError as error:
        show_error(error, json_output)
        raise typer.Exit(error.exit_code) from None


def _as_json(config: Config) -> list[dict[str, Any]]:
    from cdc_platform.metrics import METRICS, samples

    return [
        {"metric": name, **dict(zip(METRICS[name][0], labels, strict=True)), "value": value}
        for name, labels, value in samples(config)
    ]


def _run(config: Config, serve: int | None, textfile: Path | None) -> None:
    from cdc_platform.metrics import registry  # prometheus_client is an extra

    found = registry(config)
    from prometheus_client import generate_latest, start_http_server, write_to_textfile

    if textfile:
        write_to_textfile(str(textfile), found)
    if serve:
        server, thread = start_http_server(serve, addr="127.0.0.1", registry=found)
        progress(f"metrics at http://127.0.0.1:{serve}/metrics")
        _until_stopped()
        server.shutdown()
        thread.join()
    if not textfile and not serve:
        typer.echo(generate_latest(found).decode(), nl=False)


def _until_stopped() -> None:
    """Returns on Ctrl-C and on SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    stopped.wait()
