"""Progress of a demo in words: a line per step, and one at least every quarter of a minute."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from cdc_platform.config import Config
from cdc_platform.launch import log_followed

Say = Callable[[str], None]

_SILENT_S = 15.0
_STAGES = {
    "landing": "reading from Kafka",
    "envelopes": "putting split messages together",
    "changes": "decoding",
    "changelog": "bringing changes into one vocabulary",
    "snapshots": "updating the tables",
}
"""First word of a stage's log → what it does."""


class Progress:
    """Hands lines on to `say`. While it is entered, a thread says what is still going on when nothing came for
    `silent_s`: the last line, and the stage of it that was noted since."""

    def __init__(self, say: Say, silent_s: float = _SILENT_S):
        self._say, self._silent_s = say, silent_s
        self._last, self._stage = "", ""
        self._since = self._said = time.monotonic()
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._repeat, name="demo-progress", daemon=True)

    def __call__(self, line: str) -> None:
        with self._lock:
            self._last, self._stage, self._since = line, "", time.monotonic()
            self._out(line)

    def note(self, stage: str) -> None:
        """What is being done now, as part of the last line."""
        self._stage = stage

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _out(self, line: str) -> None:
        self._said = time.monotonic()
        self._say(line)

    def _repeat(self) -> None:
        while not self._ended.wait(min(1.0, self._silent_s / 2)):
            with self._lock:
                if self._last and time.monotonic() - self._said >= self._silent_s:
                    stage = f": {self._stage}" if self._stage else ""
                    self._out(f"  {self._last.strip()}{stage}, {time.monotonic() - self._since:.0f} s so far")


@contextmanager
def each_source_said(run: str, config: Config, told: Progress) -> Iterator[None]:
    """Within it, says which source a run over all of them has come to, and notes the stage: from the stages' log."""
    formats = {source.name: source.format for source in config.sources}
    said: set[str] = set()

    def each(line: str) -> None:
        words = re.findall(r"[\w-]+", line)
        for word in words:
            if word in formats and word not in said:
                said.add(word)
                told(f"  {run}, {formats[word]} ({len(said)} of {len(formats)})")
        if words and words[0] in _STAGES:
            told.note(_STAGES[words[0]])

    with log_followed(each):
        yield
