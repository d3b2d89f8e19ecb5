"""Small files put together while a table is written: its rows stay, and who asks reads few files."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from cdc_platform.lake import commits, delta_table, new_tables, small_files
from cdc_platform.lake.store import Store
from cdc_platform.tables import TOPICS
from tests.lakes import forget_all

SEEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def note(path: Store, topic: str, source: str = "a", once: int | None = None) -> None:
    row = {"source": source, "topic": topic, "topic_id": "x", "seen_at": SEEN}
    delta_table.append_rows(path, [row], once=None if once is None else (source, once))


def topics(path: Store) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in delta_table.ask("SELECT source, topic, seen_at FROM {t} ORDER BY topic", t=path):
        assert row["seen_at"] == SEEN
        found.setdefault(row["source"], []).append(row["topic"])
    return found


@pytest.fixture
def path(store: Store) -> Store:
    new_tables.create(store.at("topics"), TOPICS)
    return store.at("topics")


def test_files_of_one_source_are_put_together_and_its_rows_stay(path):
    note(path, "other", source="b")
    for n in range(50):
        note(path, f"t{n:03}")
        assert len(delta_table.files(path, source="a")) < small_files.MANY
    assert topics(path) == {"a": [f"t{n:03}" for n in range(50)], "b": ["other"]}
    assert len(delta_table.files(path, source="b")) == 1
    forget_all()  # a process of its own
    assert topics(path)["a"] == [f"t{n:03}" for n in range(50)]


def test_what_was_written_once_stays_written_once(path):
    for n in (*range(20), *range(10, 20), *range(20, 36)):
        note(path, f"t{n:03}", once=n)
    assert topics(path) == {"a": [f"t{n:03}" for n in range(36)]}


@pytest.mark.thorough
def test_a_file_that_has_grown_stays_as_it_is(path, monkeypatch):
    monkeypatch.setattr(small_files, "_SMALL", 3000)
    sizes = set()
    for n in range(90):
        note(path, f"{n:03}{'x' * 150}")
        sizes.add(max(delta_table.sizes(path)))
    assert len(topics(path)["a"]) == 90
    assert len({size for size in sizes if size >= 3000}) < 4, "one that is large enough isn't rewritten"


def test_two_that_do_so_at_once_lose_nothing(path, monkeypatch):
    replace = commits.replace

    def late(sink, gone, files):
        note_of_another()
        replace(sink, gone, files)

    def note_of_another():
        monkeypatch.setattr(commits, "replace", replace)
        small_files.put_together(delta_table.sink(path, source="a"))

    for n in range(small_files.MANY - 1):
        note(path, f"t{n:03}")
    monkeypatch.setattr(commits, "replace", late)
    note(path, "t015")
    assert topics(path) == {"a": [f"t{n:03}" for n in range(16)]}
    assert len(delta_table.files(path)) == 1


@pytest.mark.thorough
def test_sources_that_write_at_once_lose_nothing(path):
    def of(source: str) -> None:
        for n in range(20):
            note(path, f"t{n:03}", source=source)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(of, "abc"))
    assert topics(path) == {s: [f"t{n:03}" for n in range(20)] for s in "abc"}
