"""Delta tables as delta-kernel's Java reads them (KernelReader.java): the code behind Delta's connectors for Flink and
others, and behind Delta 4.4's new reader in Spark. The jars are those that Spark has."""

import json
import os
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

from cdc_platform.setup.jars import spark_jars
from cdc_platform.setup.java import find_java

_PROGRAM = Path(__file__).with_name("KernelReader.java")


class Read(NamedTuple):
    """A table as it was read. files: of each live one its URI, its vector's id (None: it has none), rows marked."""

    columns: list[str]
    rows: list[list[Any]]
    files: list[tuple[str, str | None, int]]


def read(tables: Iterable[tuple[str, int | None]], folder: Path, *, rows: bool = True) -> list[Read | str]:
    """Tables by path and version (None: the newest); rows: else their live files only. A text: what was said where one
    was refused."""
    outs = []
    jobs = []
    for path, version in tables:
        outs.append(folder / f"kernel-{len(outs)}")
        jobs.append({"path": path, "version": version, "rows": rows, "out": str(outs[-1])})
    (folder / "kernel-jobs").write_text(json.dumps(jobs))
    jars = os.pathsep.join((*spark_jars(), f"{Path(pyspark.__file__).parent}/jars/*"))
    command = [str(find_java().binary), "-cp", jars, str(_PROGRAM), str(folder / "kernel-jobs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [_found(out) for out in outs]


def _found(out: Path) -> Read | str:
    if (error := Path(f"{out}.error")).exists():
        return error.read_text()
    told = json.loads(out.read_text())
    return Read(
        told["columns"], [[_cell(c) for c in row] for row in told["rows"]], [(f, v, n) for f, v, n in told["files"]]
    )


_EPOCH = datetime(1970, 1, 1)
_KINDS: dict[str, Callable[[Any], Any]] = {
    "boolean": lambda text: text == "true",
    "int": int,
    "float": float,
    "decimal": Decimal,
    "text": str,
    "binary": b64decode,
    "date": lambda text: date(1970, 1, 1) + timedelta(days=int(text)),
    "timestamp": lambda text: (_EPOCH + timedelta(microseconds=int(text))).replace(tzinfo=UTC),
    "local": lambda text: _EPOCH + timedelta(microseconds=int(text)),
    "list": lambda cells: [_cell(c) for c in cells],
    "map": lambda pairs: [(_cell(k), _cell(v)) for k, v in pairs],
    "struct": lambda fields: {name: _cell(c) for name, c in fields},
}


def _cell(told: Any) -> Any:
    if told is None:
        return None
    kind, value = told
    return _KINDS[kind](value)
