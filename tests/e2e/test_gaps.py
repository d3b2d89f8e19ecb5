"""A record that the sender numbered and that Kafka never had: every page says so."""

from dataclasses import dataclass, field

import pytest

from cdc_platform import certificate
from cdc_platform.cli.app import run
from cdc_platform.feeds.feeds import Feed
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.lake import sequences, stores, watermarks
from cdc_platform.tables import WATERMARKS
from tests.e2e.e2e_shop import Shop, run_stages

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e]


@dataclass
class Losing:
    """DTS records without one in the middle, that is a message by itself."""

    encoder: DtsEncoder = field(default_factory=lambda: DtsEncoder("gaps-dts"))
    number: int = 0

    def encode(self, transactions):
        records = list(self.encoder.encode(transactions))
        whole = [i for i, r in enumerate(records) if pb.Envelope.FromString(r.value).total == 1]
        lost = whole[len(whole) // 2]
        self.number = int(dict(records[lost].headers)["ps"])
        return iter(records[:lost] + records[lost + 1 :])


@pytest.mark.thorough
def test_a_message_that_never_came_is_named(spark, broker, tmp_path, capfd):
    losing = Losing()
    feed = Feed("tencent_dts", lambda: losing, {"topics": ["gaps-dts"]})
    shop = Shop(broker.bootstrap_servers, "gaps", 10, {"dts": feed})
    config = shop.config(tmp_path)
    run_stages(spark, config)
    source = config.sources[0]
    [gap] = sequences.gaps(config, source)
    assert (gap.first, gap.last, gap.after - gap.before) == (losing.number, losing.number, 1)
    complete = watermarks.complete(WATERMARKS.at(stores.lake(config)), "dts")
    assert {name for name, b in complete.behind.items() if b.reason == gap.text} == {
        ("shop", t) for t in ("customers", "orders", "items")
    }
    assert {c.verdict for c in certificate.of_source(config, source).values()} == {"broken"}
    capfd.readouterr()
    assert run(["status", "--config", str(tmp_path / "cdc.yaml")]) == 1
    said = " ".join(capfd.readouterr().out.split())
    assert f"(number {gap.first} by its sender): it never came to the topic" in said
