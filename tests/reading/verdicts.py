"""What becomes of tables with a reader: its rows are those expected, or it refuses, or they are others."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.reading import kernel_java
from tests.reading.matrix import Shown
from tests.reading.opened import READERS

YES, NO, WRONG = "✓", "refused", "WRONG"
KERNEL = "delta-kernel, Java"
NAMES = (*READERS, KERNEL)
Rows = tuple[list[str], list[str]]
"""Column names, and rows in an order of their own."""


def canonical(table: pa.Table) -> Rows:
    """Equal for equal values, however wide Arrow's types are."""
    return rows_of(table.column_names, (row.values() for row in table.to_pylist()))


def rows_of(names: list[str], rows: Iterable[Iterable[Any]]) -> Rows:
    """The same of cells as Python has them."""
    return names, sorted(repr([_plain(v) for v in row]) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "utcoffset") and value.utcoffset() is not None:
        return value.timestamp(), value.microsecond
    return value


def verdicts(
    reader: str, shown: Mapping[str, Shown], expected: Mapping[str, Rows], folder: Path, python: str = sys.executable
) -> tuple[dict[str, str], list[str]]:
    """Name of a table → what became of it; and what the reader said, or gave instead of the rows expected. python: of
    an environment that has the reader."""
    find = _by_kernel if reader == KERNEL else _by_program
    said: list[str] = []
    found: dict[str, set[str]] = {name: set() for name in shown}
    for name, way, rows in find(reader, shown, folder, python):
        if isinstance(rows, str):
            said.append(f"{name} by {way}: {rows}")
            found[name].add(NO)
            continue
        if rows != expected[name]:
            said.append(f"{name} by {way}: {rows} and not {expected[name]}")
        found[name].add(YES if rows == expected[name] else WRONG)
    return {name: " / ".join(sorted(verdict)) for name, verdict in found.items()}, said


def _by_kernel(_: str, shown: Mapping[str, Shown], folder: Path, _python: str) -> Iterable[tuple[str, str, Rows | str]]:
    for name, of in zip(shown, kernel_java.read(shown.values(), folder), strict=True):
        yield name, "delta-kernel", of if isinstance(of, str) else rows_of(of.columns, of.rows)


def _by_program(
    reader: str, shown: Mapping[str, Shown], folder: Path, python: str
) -> Iterable[tuple[str, str, Rows | str]]:
    outs = {name: folder / f"out-{n}" for n, name in enumerate(shown)}
    jobs = [{"path": s.path, "version": s.version, "out": str(outs[n])} for n, s in shown.items()]
    (folder / "jobs").write_text(json.dumps(jobs))
    command = [python, str(Path(__file__).with_name("opened.py")), reader, str(folder / "jobs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, out in outs.items():
        for way in (way.__name__ for way in READERS[reader]):
            if (error := Path(f"{out}.{way}.error")).exists():
                yield name, way, error.read_text()
            else:
                with pa.OSFile(f"{out}.{way}") as file:
                    yield name, way, canonical(pa.ipc.open_file(file).read_all())
