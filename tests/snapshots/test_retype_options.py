"""Types that become known, and values that can't be of them until an option of the format says how they are written."""

from pathlib import Path
from typing import Any

import pytest

from cdc_platform.lake import queries
from tests.changes.test_again import Topic, row

pytestmark = pytest.mark.spark
COLUMNS = {"d.t": {"id": "int", "n": "decimal(20,0)"}}


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
