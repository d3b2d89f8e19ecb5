"""The process in which Debezium's DDL parsers run (`ddl_parser`): started with the first question, ended by itself
when none comes for a while, or with this process."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from cdc_platform.errors import SetupError
from cdc_platform.setup.jars import ddl_classpath
from cdc_platform.setup.packaged import setup_command


class _Process:
    def __init__(self) -> None:
        ddl_classpath()  # raises what the other process could only print
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cdc_platform.mysql.ddl_parser"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=Path(__file__).parents[2],
            start_new_session=True,  # Ctrl-C is for who asked
        )

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def ask(self, line: bytes) -> bytes:
        """Its answer, a line; without the line's end: it has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:
            return b""
        return self.process.stdout.readline()

    def end(self) -> str:
        """Ends it; the last line of what it said of errors."""
        try:
            self.process.communicate(timeout=5)
        except (subprocess.TimeoutExpired, OSError):
            self.process.kill()
            self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()
        self.errors.close()
        return lines[-1] if lines else f"exit code {self.process.returncode}"


class _Parsers:
    """The process of this one; one question at a time."""

    def __init__(self) -> None:
        self._forget()
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A fork's pipes are those of the process that it came from."""
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def ask(self, request: dict[str, Any]) -> Any:
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            try:
                kept = self._process is not None and not self._process.gone
                answer = self._started().ask(line)
                if not answer.endswith(b"\n") and kept:  # it may have ended because nothing came for long
                    self._end()
                    answer = self._started().ask(line)
            except BaseException:  # an interrupt: the answer that is still to come would be taken for the next one's
                self._kill()
                raise
            if not answer.endswith(b"\n"):
                why = f"the DDL parsers don't start: {self._end()}"
                raise SetupError(f"{why}. Fetch their jars again: {setup_command()}")
        return json.loads(answer)

    def end(self) -> None:
        """At this process's end, whatever a thread that was left behind still waits for."""
        if self._lock.acquire(timeout=5):
            self._end()
            self._lock.release()
        elif (process := self._process) is not None:
            process.process.kill()

    def _started(self) -> _Process:
        if self._process is None or self._process.gone:
            self._end()
            self._process = _Process()
        return self._process

    def _kill(self) -> None:
        if self._process is not None:
            self._process.process.kill()
            self._end()

    def _end(self) -> str:
        process, self._process = self._process, None
        return process.end() if process is not None else ""


PARSERS = _Parsers()
