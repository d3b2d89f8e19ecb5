"""The matrix of docs/reading.md: which reader opens which kind of snapshot. Each cell is a table that was read and
compared with Spark's rows; the page must say just what came out (`pytest --snapshot-update` writes it there)."""

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.changelog.feed import Feed
from tests.reading import matrix
from tests.reading.opened import READERS

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "reading.md"
YES, NO, WRONG = "✓", "refused", "WRONG"


class Made:
    """The tables, and Spark's rows of each."""

    def __init__(self, spark: Any, shown: dict[str, matrix.Shown]):
        self.shown = shown
        self.rows = {name: self._by_spark(spark, s) for name, s in shown.items()}

    @staticmethod
    def _by_spark(spark: Any, shown: matrix.Shown) -> Any:
        reader = spark.read.format("delta")
        reader = reader if shown.version is None else reader.option("versionAsOf", shown.version)
        return canonical(reader.load(shown.path).toArrow())


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: Any) -> Made:
    from cdc_platform.config import parse_config

    folder = tmp_path_factory.mktemp("readers")
    source = {"name": "s", "format": "debezium", "topics": ["t"], "tables": {"readers": matrix.READERS}}
    config = parse_config({"lake": str(folder / "lake"), "sources": [source]}, folder / "cdc.yaml")
    return Made(spark, matrix.make(Feed(spark, config, "s")))


def canonical(table: pa.Table) -> tuple[list[str], list[str]]:
    """Column names, and rows in an order of their own: equal for equal values, however wide Arrow's types are."""
    rows = table.to_pylist()
    return table.column_names, sorted(repr([_plain(v) for v in r.values()]) for r in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if hasattr(value, "utcoffset") and value.utcoffset() is not None:
        return value.timestamp(), value.microsecond
    return value


def verdicts(made: Made, name: str, python: str, folder: Path) -> tuple[dict[str, str], list[str]]:
    """Kind of table → what became of it; and what a reader said, or gave instead of Spark's rows."""
    jobs = [{"path": s.path, "version": s.version, "out": str(folder / n)} for n, s in made.shown.items()]
    (folder / "jobs").write_text(json.dumps(jobs))
    program = Path(__file__).with_name("opened.py")
    done = subprocess.run(
        [python, str(program), name, str(folder / "jobs")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said: list[str] = []
    ways = [way.__name__ for way in READERS[name]]
    return {n: _verdict(made.rows[n], folder / n, ways, said) for n in made.shown}, said


def _verdict(expected: Any, out: Path, ways: list[str], said: list[str]) -> str:
    found = set()
    for way in ways:
        if (error := Path(f"{out}.{way}.error")).exists():
            said.append(f"{out.name} by {way}: {error.read_text()}")
            found.add(NO)
            continue
        with pa.OSFile(f"{out}.{way}") as file:
            rows = canonical(pa.ipc.open_file(file).read_all())
        if rows != expected:
            said.append(f"{out.name} by {way}: {rows} and not {expected}")
        found.add(YES if rows == expected else WRONG)
    return " / ".join(sorted(found))


def page_column(name: str) -> dict[str, str]:
    """What the page says of a reader."""
    lines = PAGE.read_text().partition("<!-- readers -->")[2].partition("<!-- /readers -->")[0].strip().splitlines()
    heads, *rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines if not line.startswith("|--")]
    at = heads.index(name)
    return {row[0]: row[at] for row in rows}


def _write(name: str, column: dict[str, str]) -> None:
    before, _, rest = PAGE.read_text().partition("<!-- readers -->")
    old, _, after = rest.partition("<!-- /readers -->")
    names = [*READERS]
    cells = {n: (page_column(n) if n in old else {}) for n in names} | {name: column}
    lines = [f"| snapshot | Spark | {' | '.join(names)} |", f"|{'---|' * (len(names) + 2)}"]
    lines += [f"| {r} | {YES} | {' | '.join(cells[n].get(r, '') for n in names)} |" for r in matrix.ROWS.values()]
    text = "\n".join(lines)
    PAGE.write_text(f"{before}<!-- readers -->\n{text}\n<!-- /readers -->{after}")


def check(made: Made, name: str, python: str, folder: Path, request: Any) -> None:
    found, said = verdicts(made, name, python, folder)
    column = {matrix.ROWS[n]: v for n, v in found.items()}
    if request.config.option.update_snapshots:
        _write(name, column)
    assert page_column(name) == column, "\n".join(said)


@pytest.mark.thorough
def test_the_tables_have_the_features_that_they_stand_for(made: Made) -> None:
    named = {n: matrix.reader_features(s) for n, s in made.shown.items()}
    assert named == {n: matrix.FEATURES.get(n, set()) for n in matrix.ROWS}
    assert list(Path(made.shown["large_fast"].path).glob("deletion_vector_*"))
    assert {n: len(rows) for n, (_, rows) in made.rows.items()} == {
        **dict.fromkeys(("plain", "odd", "times", "bare"), 1),
        **dict.fromkeys(("numbers", "binary"), 2),
        **{"plain": 3, "added": 4, "empty": 0, "cut": 4, "moved_any": 5, "moved_fast": 5},
        **{"large_any": 39, "large_fast": 39},
    }
    assert made.rows["moved_any"][0] == made.rows["moved_fast"][0] != made.rows["plain"][0]


@pytest.mark.parametrize("name", [n for n in READERS if n != "Daft"])
def test_a_reader(made: Made, name: str, tmp_path: Path, request: Any) -> None:
    check(made, name, sys.executable, tmp_path, request)


@pytest.mark.thorough
def test_daft(made: Made, tmp_path: Path, request: Any) -> None:
    """In an environment of its own: it wants another PyArrow than Spark's."""
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "-q", "install", "daft", "deltalake"], check=True, timeout=600)
    check(made, "Daft", python, tmp_path, request)
