"""Several processes that commit to one shared table at once: no commit is lost."""

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.spark import delta_sql

_APPENDS = """
import sys
from cdc_platform.lake import delta_table
path, me, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
for n in range(times):
    delta_table.append_rows(path, [{"source": me, "lineage": "1", "epoch": 0, "batch": n}])
"""


def test_tables_of_all_sources_are_partitioned_by_source() -> None:
    shared = {t.path for t in tables.ALL if "{" not in t.path}
    assert {t.path for t in tables.ALL if t.partition_by == ("source",)} == shared


@pytest.mark.spark
def test_no_commit_of_processes_that_append_at_once_is_lost(spark, tmp_path: Path) -> None:
    path = delta_sql.ensure(tables.LINEAGES, str(tmp_path / "lineages"))
    root = Path(__file__).parents[2]
    run = [subprocess.Popen([sys.executable, "-c", _APPENDS, path, me, "40"], cwd=root) for me in ("a", "b", "c")]
    assert [p.wait(300) for p in run] == [0, 0, 0]
    rows = DeltaTable(path).to_pyarrow_table(columns=["source", "batch"]).to_pylist()
    assert sorted((r["source"], r["batch"]) for r in rows) == [(me, n) for me in "abc" for n in range(40)]
