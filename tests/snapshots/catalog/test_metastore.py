"""Snapshots as tables of a catalog, Spark's own Hive catalog with an embedded metastore: in a process of its own, for a
session has one catalog from its start."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.spark
@pytest.mark.thorough
def test_tables_are_made_follow_and_go(tmp_path: Path) -> None:
    program = Path(__file__).with_name("hive.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    made, altered, dropped, taken = json.loads(done.stdout.splitlines()[-1])
    assert made == {
        "tables": ["__54 odd".replace(" ", "__20"), "t"],
        "columns": [["id", "bigint"], ["a", "int"]],
        "comment": "Live rows of shop.t from source s",
        "rows": [[1, 1]],
        "not_registered": 0.0,
    }
    assert altered["columns"] == [["id", "bigint"], ["n", "int"], ["b", "decimal(9,2)"]]
    assert altered["rows"] == [[1, 5, "2.50"]]
    assert dropped["tables"] == ["__54__20odd"] and dropped["not_registered"] == 0.0
    assert taken == {"not_registered": 1.0, "rows": ["somebody's"]}
