"""Small tables of an object store are copied for queries: what is asked of the copy is what the table would tell, and
the store isn't asked for the same twice."""

import tempfile

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_platform.lake import answers, copies, delta_table, handles
from cdc_platform.lake.store import Store
from cdc_platform.tables import TABLE_STATE

pytestmark = pytest.mark.s3


def grown(path: Store, *numbers: int) -> None:
    """By another writer, a file for each."""
    for n in numbers:
        write_deltalake(path.uri(), pa.table({"n": [n]}), mode="append", storage_options=path.options)


def numbers(path: Store) -> list[int]:
    return [r["n"] for r in delta_table.ask("SELECT n FROM {t} ORDER BY n", t=path)]


def ours(path: Store, *numbers: int) -> None:
    delta_table.append_rows(path, [{"n": n} for n in numbers])


@pytest.fixture
def path(s3_store: Store) -> Store:
    grown(s3_store.at("t"), 1, 2, 3)
    return s3_store.at("t")


def test_each_file_is_fetched_once(path, s3):
    assert numbers(path) == [1, 2, 3]
    s3.reset()
    assert numbers(path) == [1, 2, 3]
    assert len(delta_table.rows(path)) == 3
    ours(path, 4)
    assert numbers(path) == [1, 2, 3, 4]
    asked = s3.reset()
    assert [line.split("/")[-1].split("-")[0] for line in asked if line.startswith("GET") and "parquet" in line] == [
        "part"
    ]
    assert not [line for line in asked if "GET" in line and line.endswith(".json")], "its own commit it knows"


def test_others_changes_are_seen_at_once(path):
    other = DeltaTable(path.uri(), storage_options=path.options)
    assert numbers(path) == [1, 2, 3]
    grown(path, 4)
    assert numbers(path) == [1, 2, 3, 4]
    other.update_incremental()
    other.delete("n = 2")
    assert numbers(path) == [1, 3, 4]
    other.optimize.compact()
    ours(path, 9)
    assert numbers(path) == [1, 3, 4, 9]
    assert sorted(delta_table.added(path)["num_records"].to_pylist()) == [1, 3]
    write_deltalake(
        path.uri(), pa.table({"n": [5], "m": [1]}), mode="append", schema_mode="merge", storage_options=path.options
    )
    assert delta_table.ask("SELECT n, m FROM {t} WHERE m IS NOT NULL", t=path) == [{"n": 5, "m": 1}]


def test_a_table_that_was_made_again_is_told_as_it_is(path, s3):
    assert numbers(path) == [1, 2, 3]
    path.remove(path.below(""))
    grown(path, 7, 8, 9)
    assert numbers(path) == [7, 8, 9]


def test_a_large_table_isnt_copied_and_tells_the_same(path, monkeypatch):
    monkeypatch.setattr(copies, "_FILES", 3)
    assert numbers(path) == [1, 2, 3]
    assert copies.there_is(path)
    ours(path, 4)
    assert numbers(path) == [1, 2, 3, 4]
    assert not copies.there_is(path)
    ours(path, 5)
    assert numbers(path) == [1, 2, 3, 4, 5]


def test_the_states_of_many_tables_are_copied_also_where_they_are_many(s3_store, monkeypatch):
    monkeypatch.setattr(copies, "_BYTES", 0)
    states, other = TABLE_STATE.at(s3_store), s3_store.at("other")
    for path in (states, other):
        grown(path, 1)
        assert numbers(path) == [1]
    assert copies.there_is(states)
    assert not copies.there_is(other)


def test_a_long_lived_copy_starts_again_and_leaves_nothing_behind(path, monkeypatch, tmp_path):
    monkeypatch.setattr(copies, "_COMMITS", 3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for n in range(4, 20):
        ours(path, n)
        assert numbers(path) == list(range(1, n + 1))
    [mine] = tmp_path.iterdir()
    [folder] = (p for p in mine.iterdir() if p.is_dir())
    assert mine.stat().st_mode & 0o077 == 0, "nobody else reads it"
    handles.forget(path)
    answers._remembered.clear()
    assert not folder.exists()


def test_files_that_upkeep_removed_meanwhile_are_no_error(path):
    assert numbers(path) == [1, 2, 3]
    other = DeltaTable(path.uri(), storage_options=path.options)
    grown(path, 4)
    other.update_incremental()
    other.optimize.compact()
    other.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert numbers(path) == [1, 2, 3, 4]


def test_tables_with_marked_rows_arent_copied(s3_store):
    path = s3_store.at("t")
    DeltaTable.create(
        path.uri(),
        pa.schema([("n", pa.int64())]),
        configuration={"delta.enableDeletionVectors": "true"},
        storage_options=path.options,
    )
    assert copies.of(path) is None
