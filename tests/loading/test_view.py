"""Places of views on servers that don't tell them exactly, by answers as MySQL's (test_mysql.py has a server)."""

from contextlib import contextmanager
from typing import Any

import pytest
from pymysql.err import MySQLError

from cdc_platform.loading import view
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.proof import Event, Evidence

EVIDENCE = Evidence("shop", 0, (Event("t/0/5", "b.000002", 300, "7", "u:9"),))
ANSWERS: dict[str, Any] = {
    "SHOW BINLOG EVENTS": [("b.000002", 300, "Write_rows", 7, 340, "")],
    "SELECT GTID_SUBSET": [(1,)],
    "SHOW GLOBAL STATUS LIKE 'Com_xa_prepare'": [("Com_xa_prepare", "0")],
    "XA RECOVER": [],
    "SHOW STATUS LIKE 'binlog_snapshot": [],
    "SHOW BINARY LOG STATUS": [("b.000002", 900, "", "", "u:1-9")],
    "SELECT @@GLOBAL.gtid_mode": [("ON",)],
    "SELECT @@GLOBAL.gtid_owned": [("",)],
    "SELECT @@server_id": [(7, "db", 3306, "8.4.3")],
    "SELECT CAST(UNIX_TIMESTAMP": [(1_000_000,)],
}


class MySql:
    """Answers by how a statement begins; a list of lists: one after the other."""

    def __init__(self, **answers: Any):
        self.answers = {**ANSWERS, **answers}
        self.said: list[str] = []
        self._rows: list[tuple] = []

    def execute(self, sql: str, arguments: tuple = ()) -> None:
        del arguments
        self.said.append(sql)
        found: Any = next((a for s, a in self.answers.items() if sql.startswith(s)), [])
        if found and isinstance(found[0], list):
            found = found.pop(0) if len(found) > 1 else found[0]
        self._rows = list(found)

    def fetchone(self) -> tuple | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple]:
        return self._rows

    @contextmanager
    def connected(self, *begin: str):
        self.said += begin
        yield self


def opened(server: MySql) -> view.Open:
    with view.opened(server, EVIDENCE) as found:  # type: ignore[arg-type]
        return found


def test_the_position_is_read_before_the_view_and_all_before_it_is_committed(monkeypatch) -> None:
    monkeypatch.setattr(view, "_POLL_S", 0)
    owned = [[("u:10#4:11#5,\nv:3#9",)], [("u:11#5:12#8",)], [("u:12#8",)]]
    server = MySql(**{"SELECT @@GLOBAL.gtid_owned": owned})
    at = opened(server).at
    assert (at.file, at.pos, at.exact) == ("b.000002", 900, False)
    position = max(i for i, s in enumerate(server.said) if s == "SHOW BINARY LOG STATUS")
    asked = [i for i, s in enumerate(server.said) if "gtid_owned" in s]
    begin = max(i for i, s in enumerate(server.said) if s.startswith("START TRANSACTION"))
    assert len(asked) == 3  # u:12 came later: it is no matter of this place
    assert position < asked[0] < asked[-1] < begin


def test_without_gtids_no_place_is_told() -> None:
    with pytest.raises(LoadRefused, match="gtid_mode is OFF") as refused:
        opened(MySql(**{"SELECT @@GLOBAL.gtid_mode": [("OFF",)]}))
    assert "gtid_mode = ON" in refused.value.choices


def test_what_stays_uncommitted_is_told(monkeypatch) -> None:
    monkeypatch.setattr(view, "_WAIT_S", 0)
    monkeypatch.setattr(view, "_POLL_S", 0)
    with pytest.raises(LoadRefused, match="1 transactions are in the log") as refused:
        opened(MySql(**{"SELECT @@GLOBAL.gtid_owned": [("u:10#4",)]}))
    assert refused.value.retriable


@pytest.mark.parametrize(
    "answers",
    [
        {"XA RECOVER": [(1, 1, 0, "x")]},
        {"SHOW GLOBAL STATUS LIKE 'Com_xa_prepare'": [[("Com_xa_prepare", "4")], [("Com_xa_prepare", "5")]]},
    ],
)
def test_prepared_transactions_hold_it_up(answers) -> None:
    with pytest.raises(LoadRefused, match="prepared XA"):
        opened(MySql(**answers))


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"SHOW BINLOG EVENTS": [("b.000002", 300, "Write_rows", 8, 340, "")]}, "of server 8"),
        ({"SELECT GTID_SUBSET": [(0,)]}, "hasn't executed transaction u:9"),
        ({"SHOW BINLOG EVENTS": [], "SHOW BINARY LOGS": [("b.000002", 310)]}, "no event there"),
        ({"SHOW BINLOG EVENTS": [("b.000002", 310, "Write_rows", 7, 340, "")]}, "no event there"),
    ],
)
def test_another_log_is_refused(answers, why) -> None:
    with pytest.raises(LoadRefused, match=why):
        opened(MySql(**answers))


@pytest.mark.parametrize("now", [("c.000001", 900), ("b.000001", 900), ("b.000002", 299)])
def test_a_log_that_began_anew_is_no_place_before_the_feed_is_there(now) -> None:
    with pytest.raises(LoadRefused, match="the log has begun anew") as refused:
        opened(MySql(**{"SHOW BINARY LOG STATUS": [(*now, "", "", "u:1-9")]}))
    assert refused.value.retriable


def test_a_proxy_of_several_servers_is_refused() -> None:
    servers = [[(7, "a", 3306, "8")], [(7, "b", 3306, "8")]]
    with pytest.raises(LoadRefused, match="answered by several servers"):
        opened(MySql(**{"SELECT @@server_id": servers}))


def test_an_event_that_tells_where_it_ends_may_be_the_last() -> None:
    assert opened(MySql(**{"SHOW BINLOG EVENTS": [], "SHOW BINARY LOGS": [("b.000002", 300)]})).at.pos == 900


class WithoutFile(MySql):
    """Of a server that hasn't the file it is asked for."""

    def execute(self, sql: str, arguments: tuple = ()) -> None:
        if sql.startswith("SHOW BINLOG EVENTS"):
            raise MySQLError(1220, "Could not find target log")
        super().execute(sql, arguments)


def test_a_file_that_was_purged_is_told_from_another_log() -> None:
    with pytest.raises(LoadRefused, match=r"has purged that file: its oldest is b\.000004") as refused:
        opened(WithoutFile(**{"SHOW BINARY LOGS": [("b.000004", 300), ("b.000005", 10)]}))
    assert refused.value.retriable
    assert "next change" in refused.value.choices[0]


@pytest.mark.parametrize("files", [[("b.000001", 300)], [("other.000004", 300)], []])
def test_a_file_that_the_log_never_had_is_of_another_log(files) -> None:
    with pytest.raises(LoadRefused, match="it has another log") as refused:
        opened(WithoutFile(**{"SHOW BINARY LOGS": files}))
    assert not refused.value.retriable
