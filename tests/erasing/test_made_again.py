"""A topic that is deleted and made again with the same messages, after an erasure."""

from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from cdc_platform import tables
from cdc_platform.config import load_config
from cdc_platform.kafka import offsets
from cdc_platform.lake import delta_table, stores
from tests.erasing.bytes import holding
from tests.erasing.people import MAIL, SECRET, erasure, filled, lake, rows
from tests.kafka_topics import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(600)]


@pytest.mark.thorough
def test_a_topic_that_is_made_again(world):
    """With the same messages: what was erased stays away, and what it shared a message with is there once."""
    w, name = world("canal"), "made_again"
    filled(w, name)
    w.db.create("no_key", "(v varchar(60))")
    w.db.run("BEGIN", "INSERT INTO no_key VALUES ('a'), ('a')", f"UPDATE {name} SET born = NULL WHERE id = 7", "COMMIT")
    w.publish()
    w.catch_up()
    erasure(w, name).erase(w.spark)
    erasures = tables.ERASURES.at(stores.lake(w.config))
    [begun] = delta_table.ask("SELECT records FROM {t} WHERE stage = 'begun'", t=erasures)
    assert any(r["shared"] for r in begun["records"])
    before, none_new = rows(w, name), delta_table.ask(_EVENTS, t=_changelog(w))
    [topic] = {s.topic for s in offsets.stable_state(w.config, w.source, {}, {})}
    kafka, records = Kafka(w.bootstrap), everything(w.bootstrap, topic)
    kafka.delete(topic)
    kafka.topic(topic)
    kafka.produce(topic, records)
    raw = yaml.safe_load(w.file.read_text())
    raw["sources"][0]["on_lost_offsets"] = "accept"
    w.file.write_text(yaml.safe_dump(raw))
    w.config = load_config(w.file)
    w.source = w.config.source(w.source.name)
    w.catch_up()
    assert holding(lake(w), SECRET, MAIL) == []
    assert [r["unaccounted"] for r in w.ledger()] == [0] * len(w.ledger())
    assert rows(w, name) == before
    assert w.problems("no_key") == []
    assert delta_table.ask(_EVENTS, t=_changelog(w)) == none_new


_EVENTS = 'SELECT "table", op, count(*) AS n FROM {t} GROUP BY 1, 2 ORDER BY 1, 2'


def _changelog(w: Any) -> Any:
    return tables.CHANGELOG.at(stores.lake(w.config))


def everything(servers: str, topic: str) -> list[dict[str, Any]]:
    """All that a topic of one partition holds."""
    at = TopicPartition(topic, 0, 0)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "everything", "log_level": 0})
    consumer.assign([at])
    _, end = consumer.get_watermark_offsets(at, timeout=20)
    found = consumer.consume(end, timeout=30)
    consumer.close()
    assert len(found) == end
    return [{"key": m.key(), "value": m.value(), "timestamp": m.timestamp()[1]} for m in found]
