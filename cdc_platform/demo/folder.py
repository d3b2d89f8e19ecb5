"""The folder that a demo runs in: its cdc.yaml, made anew each time, and who may use it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from cdc_platform.config import Config, parse_config
from cdc_platform.errors import CdcError
from cdc_platform.feeds.feeds import FEEDS, feeds_of, source_config
from cdc_platform.kafka import broker
from cdc_platform.kafka.broker.node import DEFAULT_PORT
from cdc_platform.lake import probe, stores
from cdc_platform.setup.ports import free_port
from cdc_platform.spark import connect

DEFAULT_FOLDER = Path(".cdc/demo")
ROUNDS = "rounds.json"
"""File with the seed and the transactions of each round: what `demo --more` makes the shop again from."""
_MARK = "# Written by `cdc-platform demo`, which removes this whole folder when it runs again.\n"
_SILENCE = {"heartbeat_timeout_s": 31_536_000}
_WHY = "# heartbeat_timeout_s: these feeds end with the demo, so its default limit of silence would be no help here.\n"


class DemoFolderInUse(CdcError):
    """The demo's folder can't be wiped. Fields: `folder`, `problem`."""

    def __init__(self, folder: Path, problem: str):
        self.folder, self.problem = str(folder), problem
        super().__init__(f"{folder}: {problem}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a demo is run with. transactions: the backlog's, beside the hard cases; more: the increment's."""

    folder: Path = DEFAULT_FOLDER
    seed: int = 1
    transactions: int = 120
    more: int = 40
    master: str = "local[*]"
    remote: str | None = None
    keep_broker: bool = False
    formats: tuple[str, ...] = tuple(feed.format for feed in FEEDS.values())
    lake: str = "./lake"


def prepare(folder: Path, settings: Settings) -> Config:
    """An empty demo folder with its cdc.yaml, and a lake that takes writes. Raises DemoFolderInUse where it isn't ours
    to wipe, ConfigError, StorageError."""
    file = folder / "cdc.yaml"
    own = stores.lake(parse_config(_config_data(settings, DEFAULT_PORT), file))
    if own.remote and probe.is_known(own):
        raise DemoFolderInUse(folder, f"{own.uri()} is in use; name an empty place in the bucket with --lake")
    if folder.exists() and any(folder.iterdir()):
        if not file.is_file() or not file.read_text(encoding="utf-8").startswith(_MARK):
            raise DemoFolderInUse(folder, "is no demo folder and won't be wiped; name another with --folder")
        old = parse_config(_config_data(settings, DEFAULT_PORT), file)
        if connect.living(old):
            raise DemoFolderInUse(folder, "`cdc-platform ui` is running on it; stop that first (Ctrl-C)")
        broker.stop(old.state_dir / "broker")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if own.remote:
        probe.check(own)
    data = _config_data(settings, free_port() if connect.answers(DEFAULT_PORT) else DEFAULT_PORT)
    file.write_text(_MARK + _WHY + yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return parse_config(data, file)


def _config_data(settings: Settings, port: int) -> dict[str, Any]:
    # A demo's batches are tiny: compiling code for their queries would take most of its time.
    quiet = {
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    local = {"master": settings.master, "conf": quiet}
    return {
        "lake": settings.lake,
        "spark": {"remote": settings.remote} if settings.remote else local,
        "kafka": {"bootstrap.servers": f"127.0.0.1:{port}"},
        "sources": [source_config(name, feed) | _SILENCE for name, feed in feeds_of(settings.formats).items()],
    }


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the folder against a second demo. Raises DemoFolderInUse where one is running."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0):
            yield
    except Timeout:
        raise DemoFolderInUse(folder, "another demo is running in it") from None
