"""A table made in a folder below another one takes its place in one commit."""

import json
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_platform.errors import LakeChanged, LeaseLost
from cdc_platform.lake import lease, log_state, metadata_commits, new_tables, takeover
from cdc_platform.lake.store import Store, commit_name
from cdc_platform.tables import Table
from cdc_platform.tables.columns import BIGINT, STRING, Column

TABLE = Table("", "A table", (Column("id", BIGINT), Column("a", STRING)))
OTHER = Table("", "A table", (Column("id", BIGINT, "its key"), Column("an a", STRING)))


@pytest.fixture
def table(store: Store) -> Store:
    """With one row."""
    path = store.at("t")
    new_tables.create(path, TABLE)
    write(path, {"id": [1], "a": ["old"]})
    assert metadata_commits.configure(path, {"cdc.limits": "few"})
    return path


def opened(path: Store) -> DeltaTable:
    return DeltaTable(path.uri(), storage_options=path.options)


def write(path: Store, rows: dict[str, list[Any]]) -> None:
    table = pa.table(rows)
    write_deltalake(path.uri(), table, mode="append", storage_options=path.options)


def rows(path: Store) -> list[dict[str, Any]]:
    return opened(path).to_pyarrow_table().to_pylist()


def made(table: Store) -> Store:
    """A table below that may take its place, with two rows."""
    place = takeover.beside(table)
    assert takeover.like(place, table, TABLE)
    write(place, {"id": [2, 3], "a": ["new", "newer"]})
    return place


def test_rows_of_the_one_are_followed_by_those_of_the_other(table: Store) -> None:
    place, version = made(table), opened(table).version()
    assert [r["a"] for r in rows(table)] == ["old"]
    assert takeover.take_over(table, place)
    now = opened(table)
    assert sorted(r["a"] for r in rows(table)) == ["new", "newer"]
    assert (now.version(), now.metadata().configuration["cdc.limits"]) == (version + 1, "few")
    now.load_as_version(version)
    assert now.to_pyarrow_table()["a"].to_pylist() == ["old"]
    assert log_state.now(place) is None
    assert {p.split("/")[0] for p in table.below("") if p.startswith("rebuild-")} == {place.root.rpartition("/")[2]}


def test_it_has_todays_columns_and_its_own_identity(table: Store) -> None:
    before = opened(table).metadata().id
    place = takeover.beside(table)
    assert takeover.like(place, table, OTHER)  # a name that needs column mapping
    assert takeover.take_over(table, place)
    now = opened(table)
    assert [f.name for f in now.schema().fields] == ["id", "an a"]
    assert (now.metadata().id, now.file_uris()) == (before, [])


def test_a_table_that_is_not_there_is_made_with_its_rows(store: Store) -> None:
    path = store.at("none")
    place = takeover.beside(path)
    assert not takeover.like(place, path, TABLE)
    new_tables.create(place, TABLE)
    write(place, {"id": [2], "a": ["new"]})
    assert takeover.take_over(path, place)
    assert (opened(path).version(), rows(path)) == (0, [{"id": 2, "a": "new"}])


def test_later_commits_find_its_files(table: Store) -> None:
    assert takeover.take_over(table, made(table))
    opened(table).delete("id = 2")
    assert [r["id"] for r in rows(table)] == [3]
    again = made(table)
    assert takeover.take_over(table, again)
    assert sorted(r["id"] for r in rows(table)) == [2, 3]
    opened(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert sorted(r["id"] for r in rows(table)) == [2, 3]


def test_what_a_killed_run_made_is_removed_by_the_next_one(table: Store) -> None:
    killed = made(table)
    place = takeover.beside(table)
    assert not killed.below("")
    assert takeover.like(place, table, TABLE)
    write(place, {"id": [4], "a": ["x"]})
    assert takeover.take_over(table, place)
    assert takeover.beside(table).root != place.root
    assert [r["id"] for r in rows(table)] == [4], "what was taken over stays"


def test_a_place_whose_log_came_back_stays_as_long_as_its_files_count(table: Store) -> None:
    place = made(table)
    log = place.read(new_tables.FIRST)
    assert log
    assert takeover.take_over(table, place)
    place.put_new(new_tables.FIRST, log)  # as a backup may
    takeover.sweep(table)
    assert sorted(r["id"] for r in rows(table)) == [2, 3]


@pytest.mark.parametrize("gone", [0, 1])
def test_a_log_that_cannot_be_read_in_full_is_no_missing_table(table: Store, gone: int) -> None:
    place = made(table)
    table.remove([commit_name(gone)])  # as where a checkpoint of several parts tells of it
    log_state.forget(table)
    with pytest.raises(FileNotFoundError):
        log_state.now(table)
    assert not takeover.take_over(table, place)
    assert not takeover.like(table.at("x"), table, TABLE)
    assert len(rows(place)) == 2, "it is left for Spark to take"
    takeover.sweep(table)
    assert len(rows(place)) == 2, "what is the table's can't be told"


def test_a_run_whose_lease_another_has_taken_removes_nothing(table: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    place = made(table)

    def lost() -> None:
        raise LeaseLost("s", "1", "2")

    monkeypatch.setattr(lease, "check", lost)
    with pytest.raises(LeaseLost):
        takeover.beside(table)
    assert len(rows(place)) == 2


def test_what_was_taken_over_is_not_discarded(table: Store) -> None:
    place = made(table)
    assert takeover.take_over(table, place)
    other = made(table)
    for of in (place, other):
        takeover.discard(of)
    assert sorted(r["id"] for r in rows(table)) == [2, 3]
    assert not other.below("")


def test_a_commit_that_comes_between_is_seen(table: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    place = made(table)
    commit, told = log_state.commit, []

    def after_another(path: Store, version: int, lines: list[Any]) -> bool:
        if not told:
            told.append(version)
            write(table, {"id": [9], "a": ["by another"]})
        return commit(path, version, lines)

    monkeypatch.setattr(log_state, "commit", after_another)
    assert takeover.take_over(table, place)
    assert sorted(r["id"] for r in rows(table)) == [2, 3]


def test_what_is_not_kept_to_is_refused_and_left(table: Store) -> None:
    place = made(table)
    opened(table).alter.add_constraint({"positive": "id > 0"})
    assert not takeover.like(takeover.beside(table.at("x")), table, TABLE)
    assert not takeover.take_over(table, place)
    assert rows(table) == [{"id": 1, "a": "old"}]
    assert len(rows(place)) == 2


def test_a_protocol_that_changes_in_the_last_moment_is_told(table: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    place, remove = made(table), type(table).remove

    def then_constrained(self: Store, paths: Any) -> None:
        remove(self, paths)
        opened(table).alter.add_constraint({"positive": "id > 0"})

    monkeypatch.setattr(type(table), "remove", then_constrained)
    with pytest.raises(LakeChanged, match="protocol was changed"):
        takeover.take_over(table, place)
    assert rows(table) == [{"id": 1, "a": "old"}]


def test_statistics_come_along(table: Store) -> None:
    assert takeover.take_over(table, made(table))
    told = log_state.now(table)
    assert told
    [add] = told.adds
    assert json.loads(add["stats"])["numRecords"] == 2
