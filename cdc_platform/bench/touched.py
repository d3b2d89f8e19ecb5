"""What a user waits for when a source has many tables: `status`, the sensors' looks, and Dagster's definitions."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from cdc_platform.config import Config
from cdc_platform.errors import SetupError

_LOAD = """
from pathlib import Path
from cdc_platform.config import load_config
from cdc_platform.definitions import build
build(load_config(Path({file!r}))).get_repository_def()
"""


def measurements(config: Config, told: dict[str, Any], tables: int) -> list[dict[str, Any]]:
    """Per `status` (with its process's start), definitions (the same) and sensor (its first look in a process, and one
    more): what, tables, seconds, cpu_s, again_s. told: the configuration as cdc.yaml has it. Raises SetupError."""
    config.file.write_text(yaml.safe_dump(told))
    command = str(Path(sys.executable).with_name("cdc-platform"))
    started = {
        "status": [command, "status", "--config", str(config.file)],
        "definitions": [sys.executable, "-c", _LOAD.format(file=str(config.file))],
    }
    pairs = {what: (_measured(partial(_run, c)), _measured(partial(_run, c))) for what, c in started.items()}
    with _looks(config) as looks:
        pairs |= {name: (_measured(look), _measured(look)) for name, look in looks.items()}
    return [
        {"what": what, "tables": tables, "seconds": one[0], "cpu_s": one[1], "again_s": again[0]}
        for what, (one, again) in pairs.items()
    ]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: something needs attention
        raise SetupError(f"{command[1]} failed: {done.stderr[-500:]}")


def _measured(do: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process and of those that have ended."""
    began, cpu = time.perf_counter(), _cpu()
    do()
    return round(time.perf_counter() - began, 2), round(_cpu() - cpu, 2)


def _cpu() -> float:
    return sum(os.times()[:4])


@contextmanager
def _looks(config: Config) -> Iterator[dict[str, Callable[[], Any]]]:
    """What evaluates each sensor of the platform's."""
    import dagster as dg

    from cdc_platform.definitions import build

    definitions = build(config)
    repository = definitions.get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:

        def look(sensor: dg.SensorDefinition) -> Callable[[], Any]:
            context = dg.build_sensor_context(instance=instance, repository_def=repository)
            return lambda: sensor.evaluate_tick(context)

        found = [s for s in definitions.sensors or () if isinstance(s, dg.SensorDefinition)]
        yield {s.name: look(s) for s in found}
