"""Several long-running programs as one: started in order, watched, stopped together, none left behind."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cdc_platform.errors import CdcError

STOP_S = 20.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ProgramEnded(CdcError):
    """A program ended that should run. Fields: `name`, `code` (exit code), `log` (file)."""

    retriable = True

    def __init__(self, name: str, code: int | None, log: Path):
        self.name, self.code, self.log = name, code, str(log)
        how = "didn't answer in time" if code is None else f"ended with code {code}"
        super().__init__(f"{name} {how}; its last words in {log}: {_tail(log)}")


@dataclass
class Program:
    """A started program and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


@dataclass
class Group:
    """Programs in the order of their start. Each has a process group of its own, so that Ctrl-C in the
    terminal reaches this process alone and the others end in order."""

    programs: list[Program] = field(default_factory=list)

    def start(self, name: str, command: list[str], log: Path, env: dict[str, str]) -> Program:
        """Start a program with its output in `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **env},
                start_new_session=True,
            )
        return self.add(Program(name, process, log))

    def add(self, program: Program) -> Program:
        """Watch a program that has been started elsewhere."""
        self.programs.append(program)
        return program

    def until(self, ready: Callable[[], bool], program: Program, timeout_s: float) -> None:
        """Wait until `ready`. Raises ProgramEnded for any program that ends, and when the time is up."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise ProgramEnded(program.name, None, program.log)
            time.sleep(0.2)

    def check(self) -> None:
        """Raises ProgramEnded when one has ended."""
        for program in self.programs:
            code = program.process.poll()
            if code is not None:
                raise ProgramEnded(program.name, code, program.log)

    def stop(self) -> None:
        """Stop all, the last started first; whoever doesn't end within STOP_S is killed with all its
        children."""
        for program in reversed(self.programs):
            with suppress(ProcessLookupError):
                os.killpg(program.process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                program.process.wait(STOP_S)
            with suppress(ProcessLookupError):  # its children share its group
                os.killpg(program.process.pid, signal.SIGKILL)
            program.process.wait()


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Within it Ctrl-C, SIGTERM and SIGHUP only set a flag; gives a function that tells whether one came."""
    seen: list[int] = []
    before = {s: signal.signal(s, lambda number, _: seen.append(number)) for s in _SIGNALS}
    try:
        yield lambda: bool(seen)
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _tail(log: Path, size: int = 600) -> str:
    try:
        lines = _COLOURS.sub("", log.read_bytes()[-size:].decode(errors="replace")).splitlines()
    except OSError:
        return "(none)"
    return " | ".join(line.strip() for line in lines[-4:] if line.strip()) or "(none)"
