"""The demo's feeds: the same shop as each vendor's tool sends it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from cdc_platform.demo.canal_json import CanalJsonEncoder
from cdc_platform.demo.debezium import DebeziumEncoder
from cdc_platform.demo.publish import Record
from cdc_platform.demo.tencent_dts import DtsEncoder
from cdc_platform.demo.workload import Transaction

PARTITIONS = 2
DTS = "shop_dts"


class Encoder(Protocol):
    """A vendor's tool: the source's transactions → its Kafka records. Keeps its state between calls."""

    def encode(self, transactions: Iterable[Transaction], /) -> Iterator[Record]: ...


@dataclass(frozen=True, slots=True)
class Feed:
    """One vendor's feed of the shop: what makes its records, and `topics` or `topic_pattern` of its source."""

    format: str
    encoder: Callable[[], Encoder]
    topics: dict[str, Any]


FEEDS = {
    DTS: Feed("tencent_dts", lambda: DtsEncoder("dts-shop", partitions=PARTITIONS), {"topics": ["dts-shop"]}),
    "shop_debezium": Feed(
        "debezium",
        lambda: DebeziumEncoder("shopdb"),
        {"topic_pattern": r"(__debezium-heartbeat\.)?shopdb.*"},
    ),
    "shop_canal_json": Feed("canal_json", lambda: CanalJsonEncoder("canal-json-shop"), {"topics": ["canal-json-shop"]}),
}
"""Source → its feed."""


def encoders() -> dict[str, Encoder]:
    """Every source's encoder, from its beginning."""
    return {source: feed.encoder() for source, feed in FEEDS.items()}
