"""An exchange is done once: whatever request comes late, and wherever a process stops."""

import hashlib
import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform import tables
from cdc_platform.errors import LakeChanged, LeaseLost
from cdc_platform.lake import commits, delta_table, exchange, folders, lease, unfinished, writer_lock
from cdc_platform.lake.data_files import Output
from cdc_platform.lake.exchange import Exchanged
from cdc_platform.lake.store import Store
from cdc_platform.spark import delta_sql
from tests.lake.test_exchange import TABLE, as_they_are, batches, next_run, row
from tests.s3_server import Server

SECOND = tables.WATERMARKS
FOLDERS = 1
KINDS = [None, FOLDERS]
"""Of exchanges, by their `folders_too`."""


@pytest.fixture
def lake(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(lease, "_last", {})
    monkeypatch.setattr(unfinished, "_looked", {})
    path = delta_sql.ensure(TABLE, TABLE.at(store))
    for table in (SECOND, tables.SNAPSHOT_FOLDERS):
        delta_sql.ensure(table, table.at(store))
    for source in ("s", "other"):
        delta_table.append_rows(path, [row(source, 1)])
    return store


def other_run(lake: Store, *brings: int) -> None:
    """Of another process, with batches."""
    lease._last.clear()
    unfinished._looked.clear()
    with lease.held(lake, "s", "s", 5.0) as mine:
        writer_lock._finish(lake, "s", mine.number)
        for batch in brings:
            delta_table.append_rows(TABLE.at(lake), [row("s", batch)])


def decided(lake: Store, kind: int | None, *found: Exchanged) -> None:
    exchange.decide(lake, "s", list(found), {}, kind)
    if kind is not None:
        assert folders.exchange(lake, kind, "other", "s", 0)


def nothing(lake: Store) -> Exchanged:
    """A table that has no rows, and gets none."""
    return Exchanged(SECOND.path, {"source": "s"}, [])


def made(lake: Store, table: tables.Table, of: dict[str, Any]) -> Exchanged:
    """One row, in place of those that the source has in a table."""
    sink = delta_table.sink(table.at(lake), source="s")
    out = Output(sink)
    out.write(pa.RecordBatch.from_pylist([{n: v for n, v in of.items() if n != "source"}], sink.schema))
    written = out.close()
    assert written is not None
    return Exchanged(table.path, {"source": "s"}, [written])


def second_row(lake: Store) -> Exchanged:
    """A row for a table that has none."""
    return made(lake, SECOND, {"scope": "source"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_note_that_lands_after_it_was_done_counts_no_more(
    lake: Store, monkeypatch: pytest.MonkeyPatch, kind: int | None
) -> None:
    put, noted = type(lake).put, list[tuple[str, bytes]]()

    def sent(of: Store, path: str, data: bytes) -> None:
        if "_exchanges" in of.uri(path):
            noted.append((path, data))
        put(of, path, data)

    with lease.held(lake, "s", "s", 1.0), monkeypatch.context() as seen:
        seen.setattr(type(lake), "put", sent)
        decided(lake, kind, as_they_are(lake), nothing(lake))
        assert exchange.finish(lake, "s")
    other_run(lake, 2, 3)
    assert noted
    for path, data in noted:  # the store was slow, and the request was sent again meanwhile
        lake.put(path, data)
        other_run(lake)
        assert batches(lake) == [1, 2, 3]
        assert exchange.noted(lake) == []


@pytest.mark.s3
@pytest.mark.thorough
@pytest.mark.parametrize("skip", [0, 1], ids=["the first", "the second"])
def test_a_slow_request_of_a_store(s3_store: Store, s3: Server, impatient: None, skip: int) -> None:
    path = delta_sql.ensure(TABLE, TABLE.at(s3_store))
    delta_table.append_rows(path, [row("s", 1)])
    with lease.held(s3_store, "s", "s", 1.0):
        found = as_they_are(s3_store)
        s3.fault("delay", method="PUT", path="_exchanges/", skip=skip, seconds=9)
        began = time.monotonic()
        exchange.decide(s3_store, "s", [found], {})
        exchange.finish(s3_store, "s")
    other_run(s3_store, 2, 3)
    time.sleep(max(0.0, began + 12 - time.monotonic()))
    other_run(s3_store)
    assert batches(s3_store) == [1, 2, 3]
    assert exchange.noted(s3_store) == []


@pytest.mark.parametrize("kind", KINDS)
def test_who_stops_while_it_is_done_undoes_nothing_of_what_comes_then(
    lake: Store, monkeypatch: pytest.MonkeyPatch, kind: int | None
) -> None:
    """Right behind each of its looks at the lease: the next run does it, and writes."""
    stopped, at = True, 0
    while stopped:
        at, stopped = at + 1, False
        brought = (10 * at, 10 * at + 1)
        before = batches(lake)
        with suppress(LeaseLost), lease.held(lake, "s", "s", 5.0) as mine, monkeypatch.context() as patched:
            decided(lake, None if kind is None else at, as_they_are(lake), nothing(lake))
            real, looks = lease.check, [at]

            def check(real: Callable[[], None] = real, looks: list[int] = looks, mine: Any = mine) -> None:
                nonlocal stopped
                real()
                looks[0] -= 1
                if looks[0] == 0:
                    stopped = True
                    taken_over(lake, mine, brought)  # noqa: B023

            patched.setattr(lease, "check", check)
            exchange.finish(lake, "s")
        if not stopped:
            other_run(lake, *brought)
        other_run(lake)
        assert batches(lake) == [*before, *brought]
        assert exchange.noted(lake) == []
    assert at > 2


def taken_over(lake: Store, stopped: lease.Lease, brings: tuple[int, ...]) -> None:
    """Another process has the source, and does what was left."""
    mine, lease._held[:] = list(lease._held), []
    lake.put(f"{stopped.folder}/{stopped.token}", stopped.record(released=True))
    other_run(lake, *brings)
    lease._held[:] = mine
    stopped._renewed = -math.inf


class Killed(BaseException):
    """The process ends here."""


def killed_after(commits_: int, monkeypatch: pytest.MonkeyPatch, lake: Store, *found: Exchanged) -> None:
    """An exchange whose process ends when so many tables have taken it."""
    real, left = commits.replace, [commits_]

    def one(*args: Any, **more: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        real(*args, **more)

    with pytest.raises(Killed), lease.held(lake, "s", "s", 1.0), monkeypatch.context() as killed:
        killed.setattr(commits, "replace", one)
        exchange.decide(lake, "s", list(found), {})
        exchange.finish(lake, "s")


def test_a_table_that_something_else_wrote_meanwhile_is_left_alone(
    lake: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the exchange is done: nobody is to go on, and nothing is lost."""
    killed_after(1, monkeypatch, lake, second_row(lake), as_they_are(lake))
    delta_table.append_rows(TABLE.at(lake), [row("s", 2)])
    [note] = lake.below("_exchanges")
    for _ in range(2):
        with pytest.raises(LakeChanged, match="was written to since") as told:
            next_run(lake)
        assert told.value.path == TABLE.at(lake).uri()
        assert lake.uri(f"_exchanges/{note}") in str(told.value)
        assert batches(lake) == [1, 2]
    lake.remove([f"_exchanges/{note}"])
    next_run(lake)
    assert batches(lake) == [1, 2]


def test_where_something_else_wrote_before_it_was_begun_it_is_not_done(
    lake: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after(0, monkeypatch, lake, second_row(lake), as_they_are(lake))
    delta_table.append_rows(TABLE.at(lake), [row("s", 2)])
    next_run(lake)
    assert batches(lake) == [1, 2]
    assert delta_table.files(SECOND.at(lake)) == []
    assert exchange.noted(lake) == []


def test_a_table_that_has_taken_it_may_be_written_to_before_the_others_have(
    lake: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after(1, monkeypatch, lake, as_they_are(lake), second_row(lake))
    delta_table.append_rows(TABLE.at(lake), [row("s", 2)])
    next_run(lake)
    assert batches(lake) == [1, 2]
    assert len(delta_table.files(SECOND.at(lake))) == 1


def test_of_two_that_are_noted_the_one_that_is_begun_is_done(lake: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's request came late: its process had lost the source."""
    killed_after(1, monkeypatch, lake, nothing(lake), as_they_are(lake))
    begun = lake.below("_exchanges")
    exchange.decide(lake, "s", [nothing(lake), Exchanged(TABLE.path, {"source": "s"}, [])], {})
    assert len(lake.below("_exchanges")) == len(begun) + 1
    next_run(lake)
    assert batches(lake) == [1]
    assert exchange.noted(lake) == []


class TestNotesOfBefore:
    """`_exchanges/<source>.json`, as versions before wrote them."""

    NAME = "_exchanges/s.json"

    def note(self, lake: Store, *found: Exchanged, kind: int | None = None, was: bool = True, **more: Any) -> None:
        told = [{**t._asdict(), "files": [f._asdict() for f in t.files]} for t in found]
        if kind is None and was:
            for table in told:
                names = sorted(delta_table.files(lake.at(table["path"]), **table["partition"]))
                table["was"] = hashlib.sha256("\n".join(names).encode()).hexdigest()
        note = {"tables": told, "batches": {}, "folders": kind, "lease": 1, **more}
        lake.put(self.NAME, json.dumps(note).encode())

    def test_are_done_once(self, lake: Store) -> None:
        delta_table.append_rows(TABLE.at(lake), [row("s", 7)])
        self.note(lake, made(lake, TABLE, row("s", 1)), nothing(lake))
        note = lake.read(self.NAME) or b""
        assert exchange.noted(lake) == ["s"]
        other_run(lake, 2)
        assert (batches(lake), exchange.noted(lake)) == ([1, 2], [])
        for data in (note, json.dumps({**json.loads(note), "begun": True}).encode()):
            lake.put(self.NAME, data)
            other_run(lake)
            assert (batches(lake), exchange.noted(lake)) == ([1, 2], [])

    def test_are_done_where_some_of_the_tables_have_taken_them(self, lake: Store) -> None:
        delta_table.append_rows(TABLE.at(lake), [row("s", 7)])
        first, second = made(lake, TABLE, row("s", 1)), second_row(lake)
        self.note(lake, first, second, begun=True)
        sink = delta_table.sink(TABLE.at(lake), source="s")
        commits.replace(sink, delta_table.files(TABLE.at(lake), source="s"), first.files)
        other_run(lake, 2)
        assert batches(lake) == [1, 2]
        assert len(delta_table.files(SECOND.at(lake))) == 1

    def test_are_refused_where_a_version_of_before_has_done_them(self, lake: Store) -> None:
        self.note(lake, as_they_are(lake), begun=True)
        delta_table.append_rows(TABLE.at(lake), [row("s", 2)])
        with pytest.raises(LakeChanged, match="was written to since"):
            other_run(lake)
        assert batches(lake) == [1, 2]

    def test_of_versions_that_told_nothing_of_what_was_there_are_kept_until_all_of_it_is_done(
        self, lake: Store
    ) -> None:
        delta_table.append_rows(TABLE.at(lake), [row("s", 7)])
        first, second = made(lake, TABLE, row("s", 1)), second_row(lake)
        self.note(lake, first, second, was=False)
        sink = delta_table.sink(TABLE.at(lake), source="s")
        commits.replace(sink, delta_table.files(TABLE.at(lake), source="s"), first.files)
        with pytest.raises(LakeChanged, match="is for the earlier version that noted it"):
            other_run(lake)
        assert exchange.noted(lake) == ["s"]
        commits.replace(delta_table.sink(SECOND.at(lake), **second.partition), [], second.files)
        other_run(lake, 2)
        assert (batches(lake), exchange.noted(lake)) == ([1, 2], [])

    def test_of_folders_are_for_the_version_that_wrote_them(self, lake: Store) -> None:
        self.note(lake, as_they_are(lake), kind=FOLDERS)
        assert folders.exchange(lake, FOLDERS, "other", "s", 0)
        with pytest.raises(LakeChanged, match="is for the earlier version that noted it"):
            other_run(lake)
        assert batches(lake) == [1]

    def test_of_folders_that_were_not_decided_are_given_up(self, lake: Store) -> None:
        self.note(lake, as_they_are(lake), kind=FOLDERS)
        other_run(lake, 2)
        assert (batches(lake), exchange.noted(lake)) == ([1, 2], [])
