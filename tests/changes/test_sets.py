"""TDSQL: what waits for option `sets`, through the stages."""

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.cli.app import run as command
from tests.changes.test_again import Topic
from tests.formats.tdsql.test_sets import TABLE, query, row

pytestmark = pytest.mark.spark


def land(topic: Topic, *messages: bytes) -> None:
    topic.land(*map(json.loads, messages))


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
