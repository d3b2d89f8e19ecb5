"""Handles of tables: what is asked of a kept one is what a table opened now would tell."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import commits, delta_table, handles, looks, new_tables
from cdc_platform.lake.data_files import Output, Sink
from cdc_platform.lake.store import Store
from cdc_platform.tables import TOPICS

ROWS = pa.table({"n": [1, 2]})
SINK = pa.schema([("n", pa.int64())])


def grown(path: Store, rows: pa.Table = ROWS, **how: Any) -> None:
    """By another writer."""
    write_deltalake(path.uri(), rows, mode="append", storage_options=path.options, **how)


def ours(path: Store, *numbers: int, once: tuple[str, int] | None = None) -> None:
    out = Output(Sink(path, SINK, ("n",), ()))
    if numbers:
        out.write(pa.RecordBatch.from_pydict({"n": list(numbers)}, SINK))
    done = out.close()
    commits.append_files(out.sink, [done] if done else [], once)


def numbers(path: Store) -> list[int]:
    return sorted(r["n"] for r in delta_table.ask("SELECT n FROM {t}", t=path))


@pytest.fixture
def table(store: Store) -> Store:
    path = store.at("t")
    grown(path)
    return path


def test_commits_of_others_and_our_own_are_seen_at_once(table: Store) -> None:
    for n in range(3, 9):
        if n % 2:
            ours(table, n)
        else:
            grown(table, pa.table({"n": [n]}))
        assert numbers(table) == list(range(1, n + 1))
        assert delta_table.version(table) == n - 2
    assert len(delta_table.sizes(table)) == 7


def test_columns_properties_and_deletes_of_others_are_seen_at_once(table: Store) -> None:
    assert list(delta_table.file_fields(table)) == ["n"]
    grown(table, pa.table({"n": [3], "more": ["x"]}), schema_mode="merge")
    assert list(delta_table.file_fields(table)) == ["n", "more"]
    other = DeltaTable(table.uri(), storage_options=table.options)
    other.alter.set_table_properties({"delta.checkpointInterval": "3"})
    assert looks.look(table).properties == {"delta.checkpointInterval": "3"}
    other.delete("n = 1")
    assert numbers(table) == [2, 3]


def test_what_an_application_recorded_is_known_whoever_did_and_after_a_checkpoint(table: Store) -> None:
    asked = lambda: [commits.done_before(table, "app", n) for n in (1, 2, 3)]  # noqa: E731
    assert asked() == [False, False, False]
    ours(table, 3, once=("app", 1))
    ours(table, 4, once=("app", 1))
    assert asked() == [True, False, False]
    from deltalake import CommitProperties, Transaction

    grown(table, commit_properties=CommitProperties(app_transactions=[Transaction("app", 2)]))
    assert asked() == [True, True, False]
    DeltaTable(table.uri(), storage_options=table.options).create_checkpoint()
    handles.forget(table)
    assert asked() == [True, True, False]
    ours(table, once=("app", 3))
    assert asked() == [True, True, True]
    assert numbers(table) == [1, 1, 2, 2, 3]


def test_a_table_that_was_made_again_is_opened_again(tmp_path: Any) -> None:
    from tests.lakes import store_at

    path = store_at(tmp_path / "t")
    grown(path)
    for _ in range(2):
        numbers(path)
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(TableNotFoundError):
        numbers(path)
    grown(path, pa.table({"n": [7]}))
    assert numbers(path) == [7]
    grown(path, pa.table({"n": [8]}))
    assert numbers(path) == [7, 8]
    shutil.rmtree(tmp_path / "t")
    for n in (100_000, 200_000, 300_000):
        grown(path, pa.table({"n": [n, n]}))
    assert numbers(path) == [100_000] * 2 + [200_000] * 2 + [300_000] * 2
    ours(path, 5)
    shutil.rmtree(tmp_path / "t")
    grown(path, pa.table({"n": [6]}))
    ours(path, 9)
    assert numbers(path) == [6, 9]


def test_threads_that_append_at_once_lose_nothing(table: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: ours(table, n), range(100, 112)))
    assert numbers(table) == [1, 2, *range(100, 112)]
    assert delta_table.version(table) == 12


def test_an_append_to_a_kept_table_is_three_requests(s3: Any, s3_store: Store) -> None:
    """The look at the log, the file, the commit."""
    path = s3_store.at("topics")
    new_tables.create(path, TOPICS)
    row = {"source": "s", "topic": "t", "topic_id": "i"}
    for _ in range(2):
        delta_table.append_rows(path, [row])
    s3.reset()
    delta_table.append_rows(path, [row])
    assert [r.split()[0] for r in s3.reset()] == ["GET", "PUT", "PUT"]
    delta_table.version(path)
    s3.reset()
    delta_table.version(path)
    assert len(s3.reset()) == 1


@pytest.mark.parametrize("do", ["503_after", "drop_after"])
def test_a_commit_whose_answer_was_lost_is_made_once(s3: Any, s3_store: Store, do: Any) -> None:
    path = s3_store.at("t")
    grown(path)
    ours(path, 3)
    s3.fault(do, method="PUT", path="_delta_log/")
    ours(path, 4)
    assert (numbers(path), delta_table.version(path)) == ([1, 2, 3, 4], 2)


def test_a_table_that_asks_writers_for_what_is_not_known_is_refused(table: Store) -> None:
    other = DeltaTable(table.uri(), storage_options=table.options)
    other.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    other.alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(LakeChanged, match="its protocol asks writers for"):
        ours(table, -1)


def test_an_answer_is_its_askers_own(table: Store) -> None:
    asked = lambda: delta_table.ask("SELECT n FROM {t} ORDER BY n", t=table)  # noqa: E731
    for _ in range(3):
        rows = asked()
        assert rows == [{"n": 1}, {"n": 2}]
        rows.pop()["n"] = 7
