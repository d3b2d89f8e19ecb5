"""Snapshots of all kinds, and the lake's other tables, as readers open them that share no code for it: Spark with
Delta, delta-kernel's Java, delta_kernel's Rust (deltalake), and Sail. Each cell is right, or the reader declines. The
suite is in the layout of Delta's acceptance tests (suite.py)."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from cdc_platform.config import parse_config
from cdc_platform.snapshots.schema import features
from tests.changelog.feed import Feed
from tests.reading import protocol, suite
from tests.reading.matrix import Shown
from tests.reading.verdicts import KERNEL, NO, YES, canonical, verdicts
from tests.reading.written import CASES

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FAMILIES = (KERNEL, "deltalake, query engine", "Sail")
DECLINES: dict[str, dict[str, str]] = {
    # Older versions only: of those before a checkpoint it finds no beginning where Spark left a `.crc` among them.
    # And it finds no files where the path of a table has the `~` that stands for odd characters of names.
    "Sail": {"restored": "Missing commit file", "tombstones-s-a~20shop~2F~25~C3~A9-vector": "not found"},
}
"""Reader → table → what its error says."""


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: Any) -> Path:
    """The suite's folder."""
    folder = tmp_path_factory.mktemp("written")
    source = {"name": "s", "format": "debezium", "topics": ["t"], "tables": {"readers": {"*any_*": "any"}}}
    config = parse_config({"lake": str(folder / "lake"), "sources": [source]}, folder / "cdc.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "SMALL", 0)  # each table is large enough for vectors
        suite.make(Feed(spark, config, "s"), folder / "suite")
    for log in sorted((folder / "lake").rglob("_delta_log")):
        room, *rest = log.parent.relative_to(folder / "lake").parts
        if room not in ("snapshots", "changes") and (room != "tombstones" or rest[-1] == "vector"):
            rows = spark.read.format("delta").load(str(log.parent)).toArrow()
            suite.add(folder / "suite", "-".join((room, *rest)), "no snapshot", str(log.parent), rows)
    return folder / "suite"


def versions(made: Path) -> dict[str, tuple[Shown, Path]]:
    """Name of a table and version → how to open it, and its rows."""
    found = {}
    for content in sorted(made.glob("*/expected/*/table_content")):
        case, version = content.parents[2], content.parent.name
        number = None if version == "latest" else int(version.removeprefix("v"))
        found[f"{case.name} {version}"] = Shown(str(case / "delta"), number), content
    return found


def test_there_is_a_table_for_each_feature(made: Path) -> None:
    assert len(CASES) >= 30
    for name, case in CASES.items():
        table = DeltaTable(made / name / "delta")
        of = table.protocol()
        named = {*(of.reader_features or ()), *(of.writer_features or ())}
        assert ("deletionVectors" in named, "columnMapping" in named) == (case.marks, case.mapped), name
        marked, own = protocol.vectors(str(made / name / "delta"))
        assert bool(marked) == case.vectors, name
        assert own == (case.marks and not case.by_spark), name


@pytest.mark.parametrize("reader", FAMILIES)
def test_each_cell_is_right_or_the_reader_declines(made: Path, reader: str, tmp_path: Path) -> None:
    shown = versions(made)
    expected = {name: canonical(pq.read_table(content)) for name, (_, content) in shown.items()}
    found, said = verdicts(reader, {name: s for name, (s, _) in shown.items()}, expected, tmp_path)
    refused = {name.rpartition(" ")[0] for name, verdict in found.items() if verdict == NO}
    assert set(found.values()) <= {YES, NO}, "\n".join(said)
    declines = DECLINES.get(reader, {})
    assert refused == declines.keys(), "\n".join(said)
    for text in said:
        assert declines[text.partition(" by ")[0].rpartition(" ")[0]] in text


def test_each_commit_is_as_the_protocol_asks(made: Path) -> None:
    assert protocol.of_lake(made) == {}


def test_the_layout_is_that_of_delta_acceptance_tests(made: Path) -> None:
    for case in made.iterdir():
        info = json.loads((case / "test_case_info.json").read_text())
        assert info["name"] == case.name and info["description"]
        assert (case / "delta" / "_delta_log").is_dir()
        for of in case.glob("expected/*"):
            told = json.loads((of / "table_version_metadata.json").read_text())
            assert told.keys() == {"version", "properties", "min_reader_version", "min_writer_version"}
            assert list((of / "table_content").glob("*.parquet"))
