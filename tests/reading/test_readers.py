"""The matrix of docs/reading.md: which reader opens which kind of snapshot. Each cell is a table that was read and
compared with Spark's rows; the page must say just what came out (`pytest --snapshot-update` writes it there)."""

import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.changelog.feed import Feed
from tests.reading import matrix, protocol
from tests.reading.verdicts import KERNEL, NAMES, YES, canonical, verdicts

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "reading.md"


class Made:
    """The tables of a lake, and Spark's rows of each."""

    def __init__(self, spark: Any, lake: Path, shown: dict[str, matrix.Shown]):
        self.lake, self.shown = lake, shown
        self.rows = {name: self._by_spark(spark, s) for name, s in shown.items()}

    @staticmethod
    def _by_spark(spark: Any, shown: matrix.Shown) -> Any:
        reader = spark.read.format("delta")
        reader = reader if shown.version is None else reader.option("versionAsOf", shown.version)
        return canonical(reader.load(shown.path).toArrow())


FEW = ("plain", "numbers", "bare", "cut", "large_fast", "moved_fast", "odd")
"""Tables of the short tests: of each feature one, and what the others have beside them."""


@pytest.fixture(scope="module", params=[FEW, pytest.param(tuple(matrix.ROWS), marks=pytest.mark.thorough)], ids=len)
def made(request: Any, spark: Any, tmp_path_factory: Any) -> Made:
    from cdc_platform.config import parse_config

    folder = tmp_path_factory.mktemp("readers")
    source = {"name": "s", "format": "debezium", "topics": ["t"], "tables": {"readers": matrix.READERS}}
    config = parse_config({"lake": str(folder / "lake"), "sources": [source]}, folder / "cdc.yaml")
    return Made(spark, folder / "lake", matrix.make(Feed(spark, config, "s"), request.param))


def page_column(name: str) -> dict[str, str]:
    """What the page says of a reader."""
    lines = PAGE.read_text().partition("<!-- readers -->")[2].partition("<!-- /readers -->")[0].strip().splitlines()
    heads, *rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines if not line.startswith("|--")]
    at = heads.index(name)
    return {row[0]: row[at] for row in rows}


def _write(name: str, column: dict[str, str]) -> None:
    before, _, rest = PAGE.read_text().partition("<!-- readers -->")
    old, _, after = rest.partition("<!-- /readers -->")
    cells = {n: (page_column(n) if n in old else {}) for n in NAMES}
    cells[name] |= column
    lines = [f"| snapshot | Spark | {' | '.join(NAMES)} |", f"|{'---|' * (len(NAMES) + 2)}"]
    lines += [f"| {r} | {YES} | {' | '.join(cells[n].get(r, '') for n in NAMES)} |" for r in matrix.ROWS.values()]
    text = "\n".join(lines)
    PAGE.write_text(f"{before}<!-- readers -->\n{text}\n<!-- /readers -->{after}")


def check(made: Made, name: str, python: str, folder: Path, request: Any) -> None:
    found, said = verdicts(name, made.shown, made.rows, folder, python)
    column = {matrix.ROWS[n]: v for n, v in found.items()}
    if request.config.option.update_snapshots:
        _write(name, column)
    told = page_column(name)
    assert list(told) == list(matrix.ROWS.values())
    assert {row: told[row] for row in column} == column, "\n".join(said)


@pytest.mark.thorough
def test_the_tables_have_the_features_that_they_stand_for(made: Made) -> None:
    named = {n: matrix.reader_features(s) for n, s in made.shown.items()}
    assert named == {n: matrix.FEATURES.get(n, set()) for n in made.shown}
    assert list(Path(made.shown["large_fast"].path).glob("deletion_vector_*"))
    rows = {
        **dict.fromkeys(("plain", "odd", "times", "bare"), 1),
        **dict.fromkeys(("numbers", "binary"), 2),
        **{"plain": 3, "added": 4, "empty": 0, "cut": 4, "moved_any": 5, "moved_fast": 5},
        **{"large_any": 39, "large_fast": 39},
    }
    assert {n: len(found) for n, (_, found) in made.rows.items()} == {n: rows[n] for n in made.shown}
    assert made.rows["moved_fast"][0] != made.rows["plain"][0]
    assert "moved_any" not in made.rows or made.rows["moved_any"][0] == made.rows["moved_fast"][0]


def test_each_commit_of_the_lake_is_as_the_protocol_asks(made: Made) -> None:
    assert protocol.of_lake(made.lake) == {}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.thorough) if n == KERNEL else n for n in NAMES if n != "Daft"]
)
def test_a_reader(made: Made, name: str, tmp_path: Path, request: Any) -> None:
    check(made, name, sys.executable, tmp_path, request)


@pytest.mark.thorough
def test_daft(made: Made, tmp_path: Path, request: Any) -> None:
    """In an environment of its own: it wants another PyArrow than Spark's."""
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "-q", "install", "daft", "deltalake"], check=True, timeout=600)
    check(made, "Daft", python, tmp_path, request)
