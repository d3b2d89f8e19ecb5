"""Places of views on MySQL itself."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from cdc_platform.formats.loaded import LogPosition
from cdc_platform.loading import view
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.proof import Event, Evidence
from cdc_platform.reconcile.server import Server, dsn_from
from tests.loading.mysql import GTIDS, packed, running

pytestmark = pytest.mark.thorough

DSN_ENV = "MYSQL_TEST_DSN"


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    with packed() as folder:
        yield folder


@pytest.fixture
def mysql(package, tmp_path, monkeypatch, request) -> Iterator[pymysql.Connection]:
    """A connection that commits by itself; options by `@pytest.mark.parametrize(..., indirect=True)`."""
    with running(package, tmp_path, getattr(request, "param", GTIDS)) as server:
        monkeypatch.setenv(DSN_ENV, f"mysql://root@127.0.0.1:{server.port}")
        address = {"host": "127.0.0.1", "port": server.port, "user": "root"}
        with pymysql.connect(**address, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
            cursor.execute("CREATE TABLE shop.t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20)) ENGINE=InnoDB")
            cursor.execute("INSERT INTO shop.t (v) VALUES ('first')")
            yield connection


def asked(connection: pymysql.Connection, sql: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def rows_before(connection: pymysql.Connection, at: LogPosition) -> int:
    """How many row events of INSERTs, a row each, stand in the log before a place."""
    events = [e for file in ("b.000001", "b.000002") for e in _events(connection, file)]
    return sum(e[2] == "Write_rows" and (e[0], e[4]) <= (at.file, at.pos) for e in events)


def _events(connection: pymysql.Connection, file: str) -> list[tuple]:
    try:
        return asked(connection, f"SHOW BINLOG EVENTS IN '{file}'")
    except pymysql.err.MySQLError:
        return []


def evidence(connection: pymysql.Connection) -> Evidence:
    """The newest row change of the log, as a feed tells it."""
    [file] = asked(connection, "SHOW MASTER STATUS")[0][:1]
    written = [e for e in _events(connection, file) if e[2] == "Write_rows"]
    name, pos, _, server, *_ = written[-1]
    return Evidence("shop", 0, (Event("t/0/0", name, pos, str(server), None),))


def test_a_view_has_all_that_stands_before_its_place_while_others_write(mysql):
    known, source = evidence(mysql), Server(dsn_from(DSN_ENV))
    done = threading.Event()

    def write() -> None:
        with pymysql.connect(**_again(mysql), autocommit=True) as mine, mine.cursor() as cursor:
            while not done.is_set():
                cursor.execute("INSERT INTO shop.t (v) VALUES ('more')")

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(40):
            with view.opened(source, known) as found:
                found.cursor.execute("SELECT count(*) FROM shop.t")
                [shown] = found.cursor.fetchone()
            assert not found.at.exact
            assert shown >= rows_before(mysql, found.at) > 0
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert rows_before(mysql, found.at) < asked(mysql, "SELECT count(*) FROM shop.t")[0][0], "they wrote all the time"


def test_a_transaction_that_has_its_gtid_is_waited_for(mysql, monkeypatch):
    known, source = evidence(mysql), Server(dsn_from(DSN_ENV))
    [(uuid,)] = asked(mysql, "SELECT @@server_uuid")
    with pymysql.connect(**_again(mysql)) as other, other.cursor() as cursor:
        cursor.execute(f"SET gtid_next = '{uuid}:1000'")
        cursor.execute("INSERT INTO shop.t (v) VALUES ('open')")
        monkeypatch.setattr(view, "_WAIT_S", 0.3)
        with (
            pytest.raises(LoadRefused, match="1 transactions are in the log and not committed"),
            view.opened(source, known),
        ):
            pass
        monkeypatch.setattr(view, "_WAIT_S", 30.0)
        committed = threading.Timer(0.5, other.commit)
        committed.start()
        with view.opened(source, known) as found:
            found.cursor.execute("SELECT v FROM shop.t ORDER BY id")
            assert [v for (v,) in found.cursor.fetchall()] == ["first", "open"]


def test_another_log_is_refused(mysql):
    known = evidence(mysql)
    elsewhere = Evidence("shop", 0, (replace(known.events[0], pos=known.events[0].pos + 1),))
    with pytest.raises(LoadRefused, match="it has another log"), view.opened(Server(dsn_from(DSN_ENV)), elsewhere):
        pass


@pytest.mark.parametrize("mysql", [{}], indirect=True, ids=["without GTIDs"])
def test_without_gtids_no_place_is_told(mysql):
    known = evidence(mysql)
    with pytest.raises(LoadRefused, match="gtid_mode is OFF"), view.opened(Server(dsn_from(DSN_ENV)), known):
        pass


def _again(connection: pymysql.Connection) -> dict[str, object]:
    return {"host": "127.0.0.1", "port": connection.port, "user": "root"}


def test_another_table_of_a_name_is_told_by_when_it_was_made(mysql):
    source = Server(dsn_from(DSN_ENV))
    before = source.made("shop", "t")
    asked(mysql, "CREATE TABLE shop.g (id INT PRIMARY KEY) ENGINE=InnoDB")
    time.sleep(1.1)  # the server tells seconds
    asked(mysql, "INSERT INTO shop.t (v) VALUES ('more')")
    assert source.made("shop", "t") == before is not None
    asked(mysql, "RENAME TABLE shop.t TO shop.x, shop.g TO shop.t")
    assert source.made("shop", "t") not in (before, None)
