"""What a table's log tells of its newest version."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_platform.lake import commits, delta_table, handles, log_files, log_state, looks, metadata_commits, new_tables
from cdc_platform.lake.store import Store
from cdc_platform.tables import TOPICS
from tests.lakes import store_at

STEPS = ("append", "overwrite", "delete", "checkpoint", "look", "head", "anew", "ours", "once")


def grown(path: Store, *numbers: int, **how: Any) -> None:
    told = {"mode": "append", "storage_options": path.options, **how}
    write_deltalake(path.uri(), pa.table({"n": pa.array(numbers or [1], pa.int64())}), **told)


@pytest.fixture
def table(store: Store) -> Iterator[Store]:
    path = store.at("t")
    grown(path)
    yield path
    log_state.forget(path)


def paths(path: Store) -> set[str]:
    told = log_state.now(path)
    assert told is not None
    return {add["path"] for add in told.adds}


def as_delta_rs(path: Store) -> tuple[int, set[str]]:
    opened = DeltaTable(path.uri(), storage_options=path.options)
    return opened.version(), set(pa.table(opened.get_add_actions())["path"].to_pylist())


def test_a_table_that_is_not_there_is_none(store: Store) -> None:
    assert log_state.now(store.at("none")) is None
    assert looks.look(store.at("none")) is None
    assert delta_table.version_or_none(store.at("none")) is None


def test_commits_of_others_are_read_once_and_our_own_never(table: Store) -> None:
    log_state.now(table)
    grown(table)
    with patch.object(type(table), "read", autospec=True, side_effect=type(table).read) as read:
        for _ in range(3):
            assert paths(table) == as_delta_rs(table)[1]
        assert [call.args[1] for call in read.call_args_list] == ["_delta_log/00000000000000000001.json"]
        live = commits.live(table)
        assert live is not None and live.version == 1
        told = {"operation": "WRITE", "operationParameters": {}}
        assert commits.commit(table, live, [], [commits.Marked(live.adds[0], None)], told)
        assert metadata_commits.configure(table, {"cdc.limits": "few"})
        now = log_state.now(table)
        assert now is not None and (now.version, now.metadata["configuration"]) == (3, {"cdc.limits": "few"})
        assert len(read.call_args_list) == 1
    assert (3, paths(table)) == as_delta_rs(table)


def test_a_table_that_was_made_again_is_not_the_one_before(tmp_path: Path) -> None:
    path = store_at(tmp_path / "t")
    for _ in range(2):
        grown(path)
    log_state.now(path)
    shutil.rmtree(tmp_path / "t")
    for _ in range(3):
        grown(path)
    assert (2, paths(path)) == as_delta_rs(path)
    shutil.rmtree(tmp_path / "t")
    assert log_state.now(path) is None


def test_what_has_a_checkpoint_of_several_files_is_told_by_delta_rs(table: Store) -> None:
    grown(table)
    DeltaTable(table.uri(), storage_options=table.options).create_checkpoint()
    hint = json.loads(table.read("_delta_log/_last_checkpoint") or b"")
    table.put("_delta_log/_last_checkpoint", json.dumps({**hint, "parts": 2}).encode())
    table.remove(["_delta_log/00000000000000000000.json"])
    with pytest.raises(FileNotFoundError):
        log_state.now(table)
    assert commits.live(table) is None and not metadata_commits.configure(table, {"cdc.limits": "x"})
    handles.forget(table)
    table.put("_delta_log/_last_checkpoint", json.dumps(hint).encode())
    assert (1, paths(table)) == as_delta_rs(table)


def test_a_log_with_a_hole_is_told_by_nobody(table: Store) -> None:
    for _ in range(2):
        grown(table)
    log_state.now(table)
    grown(table)
    grown(table)
    table.remove(["_delta_log/00000000000000000003.json"])
    with pytest.raises(FileNotFoundError):
        log_state.now(table)


def test_a_table_made_here_is_known_and_one_in_its_place_is_told_from_it(store: Store) -> None:
    path = store.at("t")
    with patch.object(type(path), "read", autospec=True, side_effect=type(path).read) as read:
        assert new_tables.created(path, TOPICS) is not None
        assert (now := log_state.head(path, look=False)) is not None and now.version == 0
        assert read.call_count == 0
        delta_table.append_rows(path, [{"source": "s", "topic": "t", "topic_id": "i"}])
        assert [call.args[1] for call in read.call_args_list] == ["_delta_log/00000000000000000000.json"]
    assert paths(path) == as_delta_rs(path)[1]
    assert new_tables.created(path, TOPICS) is None
    other = store.at("u")
    assert new_tables.created(other, TOPICS) is not None
    other.remove(other.below(""))
    grown(other)
    grown(other)
    assert (1, paths(other)) == as_delta_rs(other)


def test_files_of_a_large_table_are_read_when_asked_for(table: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_state, "_FEW", 0)
    grown(table)
    DeltaTable(table.uri(), storage_options=table.options).create_checkpoint()
    commits.append_files(delta_table.sink(table), [], ("app", 3))
    assert commits.done_before(table, "app", 3) and not commits.done_before(table, "app", 4)
    assert log_state.few(table) is None
    assert (2, paths(table)) == as_delta_rs(table)
    assert commits.done_before(table, "app", 3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from(["append", "overwrite", "delete", "checkpoint", "look", "head", "anew", "ours", "once"]),
        max_size=9,
    )
)
def test_it_is_what_delta_rs_tells_after_any_commits(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    path, recorded = store_at(tmp_path_factory.mktemp("t")), -1
    grown(path, 0)
    for number, step in enumerate(steps, 1):
        if step in ("append", "overwrite"):
            grown(path, number, mode=step)
        elif step == "look":
            log_state.now(path)
        elif step == "head":  # of a table that may have many files
            with patch.object(log_state, "_FEW", -1):
                log_state.head(path)
        elif step == "anew":
            log_state.forget(path)
        elif step == "once":
            commits.append_files(delta_table.sink(path), [], ("app", recorded := number))
        elif step == "ours":
            metadata_commits.configure(path, {"cdc.limits": str(number)})
        else:
            opened = DeltaTable(path.uri())
            _ = opened.create_checkpoint() if step == "checkpoint" else opened.delete(f"n = {number - 1}")
    told = log_state.now(path)
    assert told is not None
    assert (told.version, {add["path"] for add in told.adds}) == as_delta_rs(path)
    assert told.metadata["configuration"] == DeltaTable(path.uri()).metadata().configuration
    assert (told.recorded(("app", recorded)), told.recorded(("app", recorded + 1))) == (True, False) or recorded < 0
    assert log_files.checkpoint(path).version <= told.version


def test_logs_that_are_looked_at_all_the_time_stay_known(tmp_path, monkeypatch):
    monkeypatch.setattr(log_state, "_MOST", 3)
    paths = [store_at(tmp_path / str(n)) for n in range(6)]
    for path in paths:
        grown(path)
    used, *others = paths
    with patch.object(log_state, "_read", wraps=log_state._read) as read:
        for other in others:
            log_state.head(used)
            log_state.head(other)
    assert [call.args[0] for call in read.call_args_list].count(used) == 1
