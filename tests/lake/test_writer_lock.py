"""Several processes that commit to one shared table at once: no commit is lost."""

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store
from cdc_platform.spark import delta_sql
from tests.lakes import plain

_WRITER = """
import sys
import pyarrow as pa
from cdc_platform.config import Storage
from cdc_platform.lake import delta_table, stores
path, me, does, times = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
path = stores.of(path, Storage.model_validate_json(sys.stdin.read()))
for n in range(times):
    if does == "append":
        delta_table.append_rows(path, [{"source": me, "row_index": 0, "offset": n}])
    elif does == "compact":
        delta_table.compact(path, 168, source=me)
    else:
        rows = pa.table({"offset": pa.array([n], pa.int64())})
        on = f"t.source = '{me}' AND t.\\"offset\\" = s.\\"offset\\" AND t.row_index = 0"
        delta_table.merge(path, rows, on, {"row_index": "1"})
"""


def test_tables_of_all_sources_are_partitioned_by_source() -> None:
    both = tables.SNAPSHOT_FOLDERS.path  # one commit has rows of two
    shared = {t.path for t in tables.ALL if "{" not in t.path} - {both}
    assert {t.path for t in tables.ALL if t.partition_by == ("source",)} == shared


def start(path: Store, me: str, does: str, times: int) -> "subprocess.Popen[str]":
    """A process of a source's: its rows are its own."""
    root = Path(__file__).parents[2]
    program = [sys.executable, "-c", _WRITER, path.uri(), me, does, str(times)]
    process = subprocess.Popen(program, cwd=root, stdin=subprocess.PIPE, text=True)
    assert process.stdin
    process.stdin.write(plain(path.storage))
    process.stdin.close()
    return process


@pytest.mark.parametrize(
    "others",
    [
        *(pytest.param(two, marks=pytest.mark.thorough) for two in (("append", "append"), ("compact", "merge"))),
        ("merge", "compact"),
    ],
)
def test_no_commit_of_processes_that_write_at_once_is_lost(store: Store, others: tuple[str, str]) -> None:
    path = delta_sql.ensure(tables.QUARANTINE, store.at("quarantine"))
    before = [{"source": me, "row_index": 0, "offset": n} for me in "bc" for n in range(12)]
    for row in before:
        delta_table.append_rows(path, [row])
    work = {"a": ("append", 30), "b": (others[0], 12), "c": (others[1], 12)}
    run = [start(path, me, does, times) for me, (does, times) in work.items()]
    assert [p.wait(300) for p in run] == [0, 0, 0]
    rows = rows_of(path)
    wanted = [("a", n, 0) for n in range(30)]
    for me, (does, _) in list(work.items())[1:]:
        times = 2 if does == "append" else 1
        wanted += [(me, n, int(does == "merge")) for n in range(12)] * times
    assert rows == sorted(wanted)


@pytest.mark.thorough
@pytest.mark.s3
def test_of_two_thousand_commits_of_four_processes_on_s3_none_is_lost(s3_store: Store) -> None:
    path = delta_sql.ensure(tables.QUARANTINE, s3_store.at("quarantine"))
    run = [start(path, me, "append", 500) for me in "abcd"]
    assert [p.wait(1500) for p in run] == [0, 0, 0, 0]
    assert rows_of(path) == [(me, n, 0) for me in "abcd" for n in range(500)]


def rows_of(path: Store) -> list[tuple[str, int, int]]:
    """Source, offset, row_index of all rows."""
    rows = DeltaTable(path.uri(), storage_options=path.options).to_pyarrow_table().to_pylist()
    return sorted((r["source"], r["offset"], r["row_index"]) for r in rows)
