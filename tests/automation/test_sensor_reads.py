"""What a tick of a sensor reads of a lake on an object store: the news, however long the lake's past is."""

import sys
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from cdc_platform import tables
from cdc_platform.automation import sensors
from cdc_platform.automation.jobs import catch_up_job
from cdc_platform.automation.naming import Naming
from cdc_platform.config import Config, parse_config
from cdc_platform.definitions import build
from cdc_platform.lake import delta_table, new_tables, stores
from tests.automation.conftest import new_topic, send

pytestmark = [pytest.mark.s3, pytest.mark.broker]

NOW = datetime.now(UTC).replace(microsecond=0)
QUIET, NEWS = 8, 12
"""Requests that a tick may take when nothing has happened, and with a batch that is new in each table."""


class Feed:
    """A source whose batches are noted in the lake's tables, as runs do it, without their data."""

    def __init__(self, config: Config) -> None:
        self.config, self.batch = config, 0
        self.store, self.name = stores.lake(config), config.sources[0].name
        for table in (tables.CONTROL_EVENTS, tables.CHANGELOG, tables.WATERMARKS, tables.OFFSET_LEDGER):
            new_tables.ensure(table, table.at(self.store))
        new_tables.ensure(tables.LANDING, tables.LANDING.at(self.store, source=self.name))

    def batches(self, number: int) -> None:
        for _ in range(number):
            at, self.batch = NOW - timedelta(hours=1) + timedelta(seconds=self.batch), self.batch + 1
            row = {"source": self.name, "batch": self.batch, "landed_at": at, "source_time": at, "at": at}
            place = {"topic": self.config.sources[0].topics[0], "partition": 0, "offset": self.batch}
            ledger = {"from_offset": self.batch, "to_offset": self.batch, "records": 1, "outcome": "landed"}
            for table, own in (
                (tables.CONTROL_EVENTS, {"kind": "heartbeat"}),
                (tables.CHANGELOG, {}),
                (tables.WATERMARKS, {"scope": "source", "proven": True, "behind": []}),
                (tables.OFFSET_LEDGER, ledger),
            ):
                known = {k: v for k, v in {**row, **place, **own}.items() if k in table.names}
                assert delta_table.append_rows(table.at(self.store), [known])


@pytest.fixture
def feed(in_a_bucket, servers, tmp_path) -> Feed:
    topic = new_topic(servers)
    source = {"name": "shop", "format": "tencent_dts", "topics": [topic]}
    raw = {**in_a_bucket, "kafka": {"bootstrap.servers": servers}, "sources": [source]}
    config = parse_config(raw, tmp_path / "cdc.yaml")
    send(servers, topic, NOW)
    return Feed(config)


def test_a_tick_asks_the_store_for_the_news_alone(feed, s3, instance, monkeypatch):
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 10)
    naming, definitions = Naming(feed.config), build(feed.config)
    both = {
        "heartbeat": sensors.heartbeat_sensor(naming),
        "checkpoint": sensors.checkpoint_sensor(naming, catch_up_job(naming)),
    }
    cursors: dict[str, str | None] = dict.fromkeys(both)

    def ticks() -> dict[str, int]:
        """Sensor → requests of one tick."""
        asked = {}
        for name, sensor in both.items():
            s3.reset()
            context = dg.build_sensor_context(instance=instance, definitions=definitions, cursor=cursors[name])
            cursors[name] = sensor.evaluate_tick(context).cursor
            asked[name] = len(s3.reset())
        return asked

    found = []
    for past in (12, 36):
        feed.batches(past - feed.batch)
        ticks()
        quiet = ticks()
        feed.batches(1)
        found.append((quiet, ticks()))
    sys.stdout.write(f"{found}\n")
    assert found[0] == found[1]
    for quiet, news in found:
        assert (max(quiet.values()) <= QUIET, max(news.values()) <= NEWS) == (True, True)
