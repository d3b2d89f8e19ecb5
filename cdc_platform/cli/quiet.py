"""What others print stays off the user's terminal and out of `--json`.

A command's own words go through `out` and `err`. While a command works, file descriptors 1 and 2 lead to a log file:
so do the JVM, its workers, C libraries, Python's warnings and whatever other process inherits them. That is done here
once, and not by settings of each of them.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

_LARGEST = 10_000_000
"""Bytes of a log before it is put aside (one older is kept)."""

_NUMBERS = {"stdout": 1, "stderr": 2}
_own: dict[str, TextIO] = {}


def out() -> TextIO:
    """Where results go."""
    return _own.get("stdout") or sys.stdout


def err() -> TextIO:
    """Where progress and errors go."""
    return _own.get("stderr") or sys.stderr


@contextmanager
def quiet(log: Path | None) -> Iterator[None]:
    """Within it all that isn't said through `out` and `err` goes into `log`; None, or where that can't be written: a
    file that nobody sees. Once is enough: inside of another it does nothing."""
    if _own:
        yield
        return
    target = _opened(log)
    saved = {name: os.dup(number) for name, number in _NUMBERS.items()}
    _flush()
    _own.update({name: _stream(name, number) for name, number in saved.items()})
    for number in _NUMBERS.values():
        os.dup2(target, number)
    try:
        yield
    finally:
        _flush()
        for name, number in saved.items():
            with suppress(OSError):  # a pipe that nobody reads any more
                _own[name].flush()
            os.dup2(number, _NUMBERS[name])
        _own.clear()
        for number in (target, *saved.values()):
            os.close(number)
        _tidied(log)


def _tidied(log: Path | None) -> None:
    """Leaves no log in which nothing stands, nor folders that were made for it."""
    with suppress(OSError):
        if log is not None and log.stat().st_size == 0:
            log.unlink()
            log.parent.rmdir()
            log.parent.parent.rmdir()


def _stream(name: str, number: int) -> TextIO:
    """The user's stream of that name: what Python has there, where that isn't the descriptor itself (tests)."""
    there: TextIO = getattr(sys, name)
    try:
        if there.fileno() != _NUMBERS[name]:
            return there
    except (OSError, ValueError, AttributeError):
        return there
    return open(  # closed with its number
        number, "w", encoding=there.encoding, errors="backslashreplace", buffering=1, closefd=False
    )


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _opened(log: Path | None) -> int:
    """Descriptor of the log."""
    if log is not None:
        with suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            if log.exists() and log.stat().st_size > _LARGEST:
                log.replace(log.with_suffix(".old"))
            return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with tempfile.TemporaryFile() as nobody:
        return os.dup(nobody.fileno())
