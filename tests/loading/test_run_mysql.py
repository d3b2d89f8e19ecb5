"""Loads and repairs on MySQL itself: the tests of MariaDB's."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.run import load
from tests.loading.mysql import GTIDS, MysqlDatabase, packed, running
from tests.loading.test_repair import test_lost_rows_and_lost_deletes
from tests.loading.test_run import (
    ITEMS,
    test_a_topic_that_began_late,
    test_an_interrupted_load_goes_on,
    test_changes_that_pass_meanwhile_win,
)
from tests.loading.world import DSN_ENV

__all__ = [
    "test_a_topic_that_began_late",
    "test_an_interrupted_load_goes_on",
    "test_changes_that_pass_meanwhile_win",
    "test_lost_rows_and_lost_deletes",
]
pytestmark = [
    *(pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.thorough),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def db() -> Iterator[MysqlDatabase]:
    with (
        packed() as package,
        tempfile.TemporaryDirectory(prefix="load") as folder,
        running(package, Path(folder), GTIDS) as server,
    ):
        yield MysqlDatabase(server)


def test_what_it_does_not_tell_is_refused_with_what_would_do(world, db, monkeypatch):
    w = world("canal")
    w.db.create("items", ITEMS)
    w.db.create("bare", "(a int, b varchar(9))")
    w.db.run("INSERT INTO items VALUES (1, 'a', 1, NULL)", "INSERT INTO bare VALUES (1, 'a')")
    w.publish()
    w.catch_up()
    with pytest.raises(LoadRefused, match="bare has no key, and the server doesn't tell exactly") as refused:
        load(w.spark, w.config, w.source, w.server, [("oracle", "bare")])
    assert "a primary key" in refused.value.choices[-1]
    w.db.allow("SELECT", "REPLICATION CLIENT", user="half")
    monkeypatch.setenv(DSN_ENV, db.dsn.replace("loader", "half"))
    with pytest.raises(LoadRefused, match="doesn't let its account see that") as refused:
        load(w.spark, w.config, w.source, w.server, [("oracle", "items")])
    assert "another log" not in str(refused.value)
    assert "REPLICATION SLAVE" in refused.value.choices[0]
    assert w.problems("items", "bare") == []
