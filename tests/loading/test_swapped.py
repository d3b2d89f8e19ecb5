"""A load of which the table is another one by the next chunk (RENAME TABLE, as online schema changes end), on a real
MariaDB: without Spark and broker."""

import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cdc_platform.formats.loaded import LogPosition, Record
from cdc_platform.loading import land, run, table
from cdc_platform.loading.errors import EvidencePurged, LoadRefused
from cdc_platform.loading.proof import Event, Evidence
from cdc_platform.loading.view import Open, who
from cdc_platform.reconcile import statements
from cdc_platform.reconcile.server import Server, dsn_from
from tests.loading.world import DSN_ENV
from tests.oracle.session import DB

pytestmark = pytest.mark.oracle
SOURCE: Any = SimpleNamespace(name="shop", format="debezium", tables=SimpleNamespace(keys={}))


def proof_at(n: int) -> Evidence:
    return Evidence("shop", 0, (Event(f"t/0/{n}/0", "b.000001", 4, None, f"0-1-{n}"),))


@contextmanager
def any_view(server: Server, *_: Any, **__: Any):
    """Of a server that was asked for no proof."""
    with server.connected(statements.BEGIN) as cursor:
        yield Open(cursor, LogPosition("b.000001", 9), int(time.time() * 1e6), who(cursor))


@pytest.fixture
def begun(db, monkeypatch):
    """A load by chunks of 5, with what it landed, and of which the newest record."""
    monkeypatch.setenv(DSN_ENV, db.dsn)
    db.run(
        "CREATE TABLE swapped (id int PRIMARY KEY)",
        "CREATE TABLE ghost (id int PRIMARY KEY)",
        *(f"INSERT INTO {t} SELECT seq FROM seq_1_to_12" for t in ("swapped", "ghost")),
    )
    landed: list[Record] = []
    monkeypatch.setattr(run, "opened", any_view)
    monkeypatch.setattr(table, "_stated", lambda *_: [])
    monkeypatch.setattr(land, "next_offset", lambda *_: len(landed))
    monkeypatch.setattr(land, "land", lambda *args: landed.extend(args[-1]))
    monkeypatch.setattr(land, "newest", lambda *_: landed[-1] if landed else None)

    def loading() -> run._Loading:
        server = Server(dsn_from(DSN_ENV))
        found = table.table_of(SimpleNamespace(), SOURCE, server, DB, "swapped")  # type: ignore[arg-type]
        of = proof_at(1)
        return run._Loading(SOURCE, server, found, of, SimpleNamespace(), 5)  # type: ignore[arg-type]

    yield loading
    db.run("DROP TABLE IF EXISTS swapped, ghost, old")


def test_a_file_that_is_purged_while_a_table_is_loaded(begun, monkeypatch):
    """The evidence is taken anew, once the feed has come on."""
    evidences, asked = iter(map(proof_at, (1, 2))), []
    views, caught = iter(range(9)), []

    @contextmanager
    def purged(server: Server, of: Any, **how: Any):
        asked.append((of.newest, of.events[0].gtid))
        if of.newest == "t/0/1/0" and next(views) == 1:
            raise EvidencePurged("shop", "has purged that file")
        with any_view(server) as view:
            yield view

    monkeypatch.setattr(run, "opened", purged)
    monkeypatch.setattr(run, "evidence", lambda *_: next(evidences))
    monkeypatch.setattr(run, "untold", lambda *_: False)
    monkeypatch.setattr(land, "path_of", lambda *_: None)
    loading = begun()
    said: list[str] = []

    def loaded() -> run.TableLoad:
        told = (5, lambda: caught.append(len(said)), said.append)
        return run._loaded(SimpleNamespace(), SOURCE, loading.server, loading.table, *told)  # type: ignore[arg-type]

    done = loaded()
    assert (done.rows, done.chunks, caught) == (12, 3, [1]), "it went on behind the first chunk"
    first, second = (("t/0/1/0", "0-1-1"), ("t/0/1/0", None)), (("t/0/2/0", "0-1-2"), ("t/0/2/0", None))
    assert asked == [*first, *second], "the transaction is asked for once"
    monkeypatch.setattr(run, "evidence", lambda *_: proof_at(1))
    monkeypatch.setattr(land, "newest", lambda *_: None)
    views = iter((1, 1))
    with pytest.raises(EvidencePurged):
        loaded()


def test_another_table_of_the_name_begins_anew(db, begun):
    loading = begun()
    first = loading.chunk(None)
    assert begun().interrupted() is not None
    time.sleep(1.1)  # the server tells seconds
    db.run("RENAME TABLE swapped TO old, ghost TO swapped")
    with pytest.raises(LoadRefused, match="another table took its name") as refused:
        loading.chunk(first)
    assert refused.value.retriable
    assert begun().interrupted() is None


def test_the_table_is_another_one_once_it_was_made_again(db, begun):
    begun().chunk(None)
    time.sleep(1.1)
    db.run("DROP TABLE swapped", "CREATE TABLE swapped (id int PRIMARY KEY)")
    assert begun().interrupted() is None


def test_what_is_written_and_the_servers_statistics_leave_it_the_same(db, begun):
    loading = begun()
    first = loading.chunk(None)
    time.sleep(1.1)
    db.run("INSERT INTO swapped VALUES (100)", "ANALYZE TABLE swapped", "FLUSH TABLES")
    assert loading.chunk(first).next == ["10"]
    assert begun().interrupted() is not None


def test_a_log_that_begins_anew_between_chunks(db, begun, monkeypatch):
    loading = replace(begun(), proven=True)
    first = loading.chunk(None)
    before = msgspec.structs.replace(first, at=LogPosition("b.000002", 4))
    with pytest.raises(LoadRefused, match="was begun anew"):
        loading.chunk(before)
