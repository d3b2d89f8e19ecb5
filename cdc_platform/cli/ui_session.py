"""One `cdc-platform ui` per cdc.yaml, and the end of what one that was killed left running."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import psutil
from filelock import FileLock, Timeout

from cdc_platform.config import Config
from cdc_platform.errors import CdcError
from cdc_platform.setup.processes import STOP_S

MARK = "CDC_UI"
"""Variable in the environment of every program of a session, and of all that they start."""


class UiRunning(CdcError):
    """Another `ui` runs on the same state: two daemons would launch each run twice. Field: `file` (cdc.yaml)."""

    def __init__(self, file: Path):
        self.file = str(file)
        super().__init__(f"`cdc-platform ui` is running on {file} already; stop that first (Ctrl-C)")


@dataclass
class Session:
    """A session as its file says it, for the session after it. mark: value of MARK; own_broker: whether the broker is
    to be stopped with it; left: how many processes of a killed session were ended before it began."""

    file: Path
    mark: str
    own_broker: bool = False
    left: int = 0

    def save(self) -> None:
        """Write the file."""
        found = {k: v for k, v in asdict(self).items() if k in ("mark", "own_broker")}
        self.file.write_text(json.dumps(found), encoding="utf-8")


@contextmanager
def session(config: Config) -> Iterator[Session]:
    """Hold the state beside cdc.yaml. Raises UiRunning.

    The lock is free once the process that held it is gone, however it ended. Its programs outlive it if it was killed:
    they are ended first.
    """
    config.state_dir.mkdir(parents=True, exist_ok=True)
    file = config.state_dir / "ui.json"
    try:
        with FileLock(config.state_dir / "ui.lock", timeout=0):
            before = _read(file)
            own = Session(file, uuid4().hex, before.get("own_broker") is True, _end(before.get("mark")))
            own.save()
            try:
                yield own
            finally:
                file.unlink(missing_ok=True)
    except Timeout:
        raise UiRunning(config.file) from None


def _read(file: Path) -> dict[str, object]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _end(mark: object) -> int:
    """End all processes with this mark; how many there were."""
    found = list(_marked(mark)) if mark else []
    for process in found:
        with suppress(psutil.Error):
            process.terminate()
    psutil.wait_procs(found, STOP_S)
    for process in _marked(mark) if found else ():  # also those that were being started
        with suppress(psutil.Error):
            process.kill()
            process.wait(STOP_S)
    return len(found)


def _marked(mark: object) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # somebody else's, or gone
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                yield process
