"""TDSQL: what waits for option `sets`, through the stages."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.cli.app import run as command
from cdc_platform.formats import FORMATS
from tests.changes.test_again import Topic
from tests.formats.tdsql.test_sets import TABLE, query, row

pytestmark = pytest.mark.spark


def land(topic: Topic, *messages: bytes) -> None:
    topic.land(*map(json.loads, messages))


@pytest.mark.thorough
def test_a_set_whose_rows_came_in_earlier_runs_is_known(spark: Any, tmp_path: Path) -> None:
    topic = Topic(spark, tmp_path, "tdsql")
    land(topic, query("one", TABLE), row("one", "1", "a", "b"))
    topic.catch_up()
    land(topic, row("two", "2", "a", "b"))
    topic.catch_up()
    land(topic, query("one", "truncate table t"))
    topic.catch_up()
    assert ([r[0] for r in topic.rows()], topic.outcomes()["quarantined"]) == ([1, 2], 1)
    assert command(["replay", "s", "--config", str(topic.file), "--json"]) == 0, "the same comes of it"


@contextmanager
def patched(frozen: Any, **values: Any) -> Iterator[None]:
    """With other values of a frozen object."""
    before = {name: getattr(frozen, name) for name in values}
    try:
        for name, value in values.items():
            object.__setattr__(frozen, name, value)
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(frozen, name, value)


@pytest.mark.thorough
def test_a_lake_in_which_no_sets_were_noted_is_looked_through_once(spark: Any, tmp_path: Path) -> None:
    topic = Topic(spark, tmp_path, "tdsql")
    context = FORMATS["tdsql"].context
    assert context is not None
    with patched(context, senders=None):
        land(topic, query("one", TABLE), row("one", "1", "a", "b"), row("two", "2", "a", "b"))
        topic.catch_up()
    land(topic, query("one", "truncate table t"))
    topic.catch_up()
    assert ([r[0] for r in topic.rows()], topic.outcomes()["quarantined"]) == ([1, 2], 1)


@pytest.mark.thorough
def test_a_truncate_of_one_set_waits_until_it_is_told_what_it_empties(spark: Any, tmp_path: Path) -> None:
    topic = Topic(spark, tmp_path, "tdsql")
    land(topic, query("one", TABLE), row("one", "1", "a", "b"))
    land(topic, row("two", "2", "a", "b"), query("one", "truncate table t"), row("one", "3", "a", "b"))
    topic.catch_up()
    assert [r[0] for r in topic.rows()] == [1, 2, 3]
    assert topic.outcomes()["quarantined"] == 1
    topic.with_options(sets="one")
    assert command(["quarantine", "retry", "--source", "s", "--config", str(topic.file), "--json"]) == 0
    assert [r[0] for r in topic.rows()] == [3]
