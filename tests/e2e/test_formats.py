"""Formats beside the two that test_chain follows closely: the same shop, a backlog and an increment, equal cells."""

import pytest

from cdc_platform.feeds.feeds import FEEDS
from tests.e2e.e2e_shop import Shop, facts, run_stages, unaccounted

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e, pytest.mark.thorough]


@pytest.mark.parametrize("formats", [("canal", "tdsql"), ("canal_json", "dataworks")], ids="+".join)
def test_other_formats_end_equal(broker, spark, tmp_path, formats):
    others = {name: feed for name, feed in FEEDS.items() if feed.format in formats}
    shop = Shop(broker.bootstrap_servers, "-".join(formats), 8, others)
    config = shop.config(tmp_path)
    for more in (0, 5):
        if more:
            shop.advance(more)
        run_stages(spark, config)
        assert shop.differences(config) == []
    found = facts(config)
    assert unaccounted(found["outcomes"]) == {}
    assert found["quarantine"] == []
    assert {row[0] for row in found["changelog"]} == set(others)
