"""Turns to commit: whoever writes by the same Spark process has them together, others after them."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from cdc_platform import tables
from cdc_platform.lake import by_spark, delta_table
from cdc_platform.lake.writer_lock import turn

_APPENDS = """
import sys
from pathlib import Path
from cdc_platform.lake.writer_lock import turn
counter, group, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for _ in range(times):
    with turn(counter.parent / "_turns" / "t", group):
        seen = counter.read_text()
        counter.with_name(group).write_text(str(int(seen) + 1))
        counter.with_name(group).replace(counter)
"""


def test_processes_that_read_and_write_take_turns(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    run = [
        subprocess.Popen([sys.executable, "-c", _APPENDS, str(counter), group, "2000"], cwd=Path(__file__).parents[2])
        for group in ("one", "another", "a-third-one")
    ]
    assert [p.wait(60) for p in run] == [0, 0, 0]
    assert counter.read_text() == "6000"


def test_a_group_is_in_together_and_another_one_after_it(tmp_path: Path) -> None:
    file, came = tmp_path / "_turns" / "t", threading.Event()

    def other() -> None:
        with turn(file, "b"):
            came.set()

    with ExitStack() as held, ThreadPoolExecutor(1) as pool:
        held.enter_context(turn(file, "a"))
        held.enter_context(turn(file, "a"))
        waiting = pool.submit(other)
        assert not came.wait(0.3)
        held.close()
        waiting.result(10)
    assert came.is_set()


def test_a_killed_process_leaves_its_turn(tmp_path: Path) -> None:
    file = tmp_path / "_turns" / "t"
    program = "import sys, time; from pathlib import Path; from cdc_platform.lake.writer_lock import turn\n"
    program += "with turn(Path(sys.argv[1]), 'gone'): print('in', flush=True); time.sleep(60)"
    killed = subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE)
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"in\n"
    killed.kill()
    killed.wait()
    with turn(file, "b"):
        assert file.read_text() == "b"


def test_the_tables_of_all_sources_are_the_shared_ones() -> None:
    every = [t for t in vars(tables).values() if isinstance(t, tables.Table)]
    assert (
        {t.path for t in every if t.partition_by == ("source",)}
        == tables.SHARED
        == {t.path for t in every if "{" not in t.path}
    )


def _ensure(spark, path: str) -> None:
    by_spark.ensure(spark, tables.LINEAGES, path)


def _append(spark, path: str) -> None:
    by_spark.append(spark.createDataFrame([("s", "1", 0, 1, None, None)], by_spark.read(spark, path).schema), path)


def _append_once(spark, path: str) -> None:
    row = spark.createDataFrame([("s", "1", 0, 1, None, None)], by_spark.read(spark, path).schema)
    by_spark.append_once(row, path, "app", 1)


@pytest.mark.spark
@pytest.mark.parametrize(("write", "scheme"), [(_ensure, ""), (_append, ""), (_append_once, ""), (_append, "file://")])
def test_a_shared_table_is_left_alone_while_another_process_writes(spark, tmp_path, write, scheme) -> None:
    there = str(tmp_path / "lineages")
    path = scheme + there
    if write is not _ensure:
        _ensure(spark, path)
    before = delta_table.version(there)
    with ThreadPoolExecutor(1) as pool:
        with turn(tmp_path / "_turns" / "lineages", "another process"):
            writing = pool.submit(write, spark, path)
            time.sleep(2)
            assert (delta_table.version(there), writing.done()) == (before, False)
        writing.result()
    assert delta_table.version(there) == (0 if before is None else before + 1)
