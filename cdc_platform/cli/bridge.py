"""`cdc-platform bridge canal`: canal servers' own protocol → Kafka."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.config import Config, load_config
from cdc_platform.config.bridges import Bridge
from cdc_platform.errors import ConfigError
from cdc_platform.setup.processes import STOP_S, stop_signals

app = typer.Typer(
    help="Carry feeds that are not in Kafka there.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

# A child runs this very package, installed or not.
_CHILD = "import sys; from cdc_platform.cli.app import main; sys.argv[0] = 'cdc-platform'; main()"
_POLL_S = 0.5


@app.callback()
def _group() -> None:
    """Carry feeds that are not in Kafka there."""  # its presence keeps `canal` a command of its own


@app.command("canal")
@printed(redirect=False)  # children tell their progress on our stderr
def canal_command(
    names: Annotated[list[str] | None, typer.Argument(help="Bridges of cdc.yaml. [default: all]")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
    until_idle: Annotated[
        float | None, typer.Option(min=0.1, help="End when nothing has come for so many seconds.")
    ] = None,
    unsubscribe: Annotated[
        bool, typer.Option("--unsubscribe", help="Don't carry: make the server forget this bridge's position.")
    ] = False,
) -> dict[str, Any] | Report:
    """Carry canal destinations into Kafka until Ctrl-C or SIGTERM; several in one process each."""
    loaded = load_config(config)
    bridges = bridges_named(loaded, names or [])
    if unsubscribe:
        return _unsubscribe(loaded, bridges, bool(names))
    with stop_signals() as stopped:
        if len(bridges) == 1:
            from dataclasses import asdict

            from cdc_platform.bridge.run import run

            return asdict(run(loaded, bridges[0], stopped, progress, until_idle))
        return _one_process_each(loaded, bridges, stopped, until_idle)


def bridges_named(config: Config, names: list[str]) -> list[Bridge]:
    """The bridges of these names, all for none. Raises ConfigError."""
    if not config.bridges:
        raise ConfigError("bridges", "cdc.yaml has none", ["a list of bridges, see docs/configuration.md"])
    return [config.bridge(name) for name in dict.fromkeys(names)] or list(config.bridges)


def _unsubscribe(config: Config, bridges: list[Bridge], named: bool) -> dict[str, Any]:
    from cdc_platform.bridge.run import unsubscribe

    if not named:  # positions are lost for good: only what was asked for by name
        raise ConfigError("--unsubscribe", "needs the bridges by name", [b.name for b in bridges])
    for bridge in bridges:
        unsubscribe(config, bridge)
        progress(f"{bridge.name}: the server has forgotten client {bridge.client_id}")
    return {"unsubscribed": [b.name for b in bridges]}


def _one_process_each(
    config: Config, bridges: list[Bridge], stopped: Callable[[], bool], until_idle: float | None
) -> Report:
    """A child per bridge with our stderr. One that fails says so and doesn't stop the others; the exit code tells."""
    idle = [] if until_idle is None else ["--until-idle", str(until_idle)]
    command = [sys.executable, "-c", _CHILD, "bridge", "canal", "--json", "--config", str(config.file), *idle, "--"]
    children: dict[str, subprocess.Popen[bytes]] = {}
    results: dict[str, dict[str, Any]] = {}
    try:
        for bridge in bridges:
            children[bridge.name] = subprocess.Popen(
                [*command, bridge.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches this process, which ends the children in order
            )
        while len(results) < len(children) and not stopped():
            _collect(children, results, _POLL_S)
    finally:
        for child in children.values():
            child.terminate()
        end = time.monotonic() + STOP_S
        while len(results) < len(children):
            _collect(children, results, _POLL_S)
            if time.monotonic() > end:
                for child in children.values():
                    child.kill()
    failed = any(child.returncode for child in children.values())
    return Report({"bridges": [results[b.name] for b in bridges]}, exit_code=1 if failed else 0)


def _collect(children: dict[str, subprocess.Popen[bytes]], results: dict[str, dict[str, Any]], wait_s: float) -> None:
    for name, child in children.items():
        if name in results:
            continue
        try:
            out, _ = child.communicate(timeout=wait_s)
        except subprocess.TimeoutExpired:
            continue
        results[name] = _result(name, out, child.returncode)
        if "error" in results[name]:
            progress(f"{name}: {results[name]['error']}")


def _result(name: str, out: bytes, code: int) -> dict[str, Any]:
    try:
        told = json.loads(out)
    except ValueError:
        return {"bridge": name, "error": f"ended with code {code}"}
    return {"bridge": name, "error": told["error"]["message"]} if "error" in told else told
