"""`cdc-platform broker start|stop|status`: the embedded Kafka."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import printed, working
from cdc_platform.kafka.broker import DEFAULT_PORT, BrokerInfo, default_home, start, status, stop

app = typer.Typer(
    help="The embedded single-node Kafka broker, for local use and tests (loopback only).",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Home = Annotated[
    Path | None,
    typer.Option(help="Folder of its data, settings and log. [default: .cdc/broker beside cdc.yaml]"),
]
Config = Annotated[
    Path,
    typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml; the state folder .cdc lies beside it."),
]
Port = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help=f"Port for clients. [default: the one used last, else {DEFAULT_PORT}]"),
]
_CONFIG = Path("cdc.yaml")


def _data(info: BrokerInfo, **more: Any) -> dict[str, Any]:
    return {
        "state": "running" if info.running else "stopped",
        **more,
        "bootstrap_servers": info.bootstrap_servers,
        "pid": info.pid,
        "started_at": info.started_at,
        "home": str(info.home),
        "log": str(info.log),
    }


@app.command("start")
@printed
def start_command(
    config: Config = _CONFIG,
    home: Home = None,
    port: Port = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until it answers.")] = 120,
) -> dict[str, Any]:
    """Start the broker and wait until it answers; says so when it already runs."""
    with working("starting the broker"):
        info = start(home or default_home(config), port, timeout)
    return _data(info, already_running=info.already_running)


@app.command("stop")
@printed
def stop_command(config: Config = _CONFIG, home: Home = None) -> dict[str, Any]:
    """Stop the broker cleanly; its data stays."""
    with working("stopping the broker"):
        info, stopped = stop(home or default_home(config))
    return _data(info, was_running=stopped)


@app.command("status")
@printed
def status_command(config: Config = _CONFIG, home: Home = None) -> dict[str, Any]:
    """Tell whether the broker runs, where, and whether it answers."""
    info = status(home or default_home(config))
    return _data(info, answers=info.answers)
