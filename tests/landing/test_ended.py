"""Partitions that another feed took the place of, by the ledger."""

import pytest

from cdc_platform.errors import ConfigError
from cdc_platform.kafka.offsets import PartitionState
from cdc_platform.lake import queries, stores
from cdc_platform.landing import ended
from cdc_platform.landing.positions import GENERATION, position
from cdc_platform.tables import OFFSET_LEDGER
from tests.rows import add

OLD, NEW = ("old", 0), ("new", 0)


@pytest.fixture
def config(make_config):
    return make_config([{"name": "a", "format": "canal_json", "topics": ["new"]}])


def landed(config, batch: int, topic: str, first: int, last: int, outcome: str = "landed") -> None:
    row = {"source": "a", "batch": batch, "room": "landing", "topic": topic, "partition": 0, "outcome": outcome}
    add(config.lake, OFFSET_LEDGER, {**row, "from_offset": first, "to_offset": last, "records": last - first + 1})


def test_one_goes_on_for_another_and_back(config):
    [source] = config.sources
    path = OFFSET_LEDGER.at(stores.lake(config))
    landed(config, 3, "old", 0, 9)
    assert ended.ended(config, source) == frozenset()
    ended.take_over(config, source, 4, [OLD], NEW, 5, {})
    assert position(path, source)[:3] == (0, {NEW: 5}, 4)
    assert (ended.ended(config, source), queries.landed(config, source)) == ({OLD}, {NEW: 5})
    landed(config, 4, "new", 5, 7)
    assert position(path, source)[:3] == (0, {NEW: 8}, 4)
    ended.take_over(config, source, 5, [NEW], OLD, 20, {})
    assert position(path, source)[:3] == (0, {OLD: 20}, 5)
    assert ended.ended(config, source) == {NEW}


def test_what_was_lost_with_its_topic_is_none_of_them(config):
    [source] = config.sources
    landed(config, 0, "old", 0, 9)
    landed(config, GENERATION - 1, "old", 10, -2, "lost")
    assert ended.ended(config, source) == frozenset()


def test_nothing_is_read_while_the_old_topic_is_configured(config):
    [source] = config.sources
    state = [PartitionState(topic, 0, "id", 0, 10) for topic in ("new", "old")]
    ended.check(source, frozenset({OLD}), state[:1], {NEW: 5})
    with pytest.raises(ConfigError, match=r"put another topic in place of old, which isn't read .*topics: \[new\]"):
        ended.check(source, frozenset({OLD}), state, {NEW: 5})
