"""Loads and repairs on MySQL itself: the tests of MariaDB's."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loading.mysql import GTIDS, MysqlDatabase, packed, running
from tests.loading.test_repair import test_lost_rows_and_lost_deletes
from tests.loading.test_run import (
    test_a_table_without_a_key_is_read_in_one_view,
    test_a_topic_that_began_late,
    test_an_interrupted_load_goes_on,
    test_changes_that_pass_meanwhile_win,
)

__all__ = [
    "test_a_table_without_a_key_is_read_in_one_view",
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
