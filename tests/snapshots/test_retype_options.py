"""Types that become known, and values that can't be of them until an option of the format says how they are written."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.lake import queries
from cdc_platform.tables import TABLE_STATE
from tests.changes.test_again import Topic, row
from tests.rows import add

pytestmark = pytest.mark.spark
COLUMNS = {"d.t": {"id": "int", "n": "decimal(20,0)"}}


@pytest.mark.thorough
def test_a_table_that_stopped_for_want_of_an_option_is_made_again_once_it_is_set(spark: Any, tmp_path: Path):
    topic = Topic(spark, tmp_path)

    def state() -> tuple[str, str | None]:
        [told] = queries.table_states(topic.config)
        return told["state"], told["reason"]

    topic.land(row(10, 1, "AQ=="), row(20, 2, "1234"))
    topic.catch_up()
    topic.with_options(columns=COLUMNS)
    topic.catch_up()
    stopped, reason = state()
    assert stopped == "stopped"
    assert str(reason).endswith("option decimal_handling_mode tells which")
    assert topic.rows() == [("1", "AQ=="), ("2", "1234")], "as they were"
    topic.with_options(columns=COLUMNS, decimal_handling_mode="precise")
    topic.catch_up()
    assert state() == ("live", None)
    assert topic.rows() == [(1, 1), (2, -2658824)]


@pytest.mark.thorough
def test_a_table_that_is_live_again_is_not_stopped_by_another_option(spark: Any, tmp_path: Path):
    """What can't be decoded still can't: who made the table anew from the changelog has taken its rows as they are."""
    topic = Topic(spark, tmp_path)
    topic.land(row(10, 1, "AQ=="), row(20, 2, "1234"))
    topic.catch_up()
    topic.with_options(columns=COLUMNS)
    topic.catch_up()
    before = queries.table_states(topic.config)[0]
    assert before["state"] == "stopped"
    told = {"source": "s", "db": "d", "table": "t", "state": "live", "rebuild": 9, "batch": 9, "invalid_dates": 0}
    add(topic.config.lake, TABLE_STATE, {**told, "at": datetime.now(UTC)})
    for options in ({"columns": {**COLUMNS, "d.other": {"id": "int"}}}, {"columns": COLUMNS, "time_zone": "+01:00"}):
        topic.with_options(**options)
        topic.catch_up()
        assert [r["state"] for r in queries.table_states(topic.config) if r["table"] == "t"] == ["live"]
