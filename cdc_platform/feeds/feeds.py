"""The demo's feeds: the same shop as each vendor's tool sends it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdc_platform.config import Config
from cdc_platform.errors import ConfigError
from cdc_platform.feeds import dataworks
from cdc_platform.feeds.canal import CanalEncoder
from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.tdsql import TdsqlEncoder
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.feeds.workload import Transaction

Truth = Mapping[str, dict[Any, dict[str, Any]]]
"""Table → key → row."""


class Encoder(Protocol):
    """A vendor's tool: the source's transactions → its Kafka records. Keeps its state between calls."""

    def encode(self, transactions: Iterable[Transaction], /) -> Iterator[Record]: ...


@dataclass(frozen=True, slots=True)
class Feed:
    """One vendor's feed of the shop: what makes its records, and `topics` or `topic_pattern` of its source.

    partitions: of each of its topics. as_sent: the truth as far as the messages can tell it.
    """

    format: str
    encoder: Callable[[], Encoder]
    topics: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    as_sent: Callable[[Truth], Truth] = lambda truth: truth
    partitions: int = 1


FEEDS = {
    "shop_dts": Feed("tencent_dts", lambda: DtsEncoder("dts-shop"), {"topics": ["dts-shop"]}),
    "shop_debezium": Feed(
        "debezium",
        lambda: DebeziumEncoder("shopdb"),
        {"topic_pattern": r"(__debezium-heartbeat\.)?shopdb.*"},
        partitions=2,
    ),
    "shop_canal_json": Feed("canal_json", lambda: CanalJsonEncoder("canal-json-shop"), {"topics": ["canal-json-shop"]}),
    "shop_canal": Feed("canal", lambda: CanalEncoder("canal-shop"), {"topics": ["canal-shop"]}),
    "shop_dataworks": Feed(
        "dataworks",
        lambda: dataworks.DataworksEncoder("dataworks-shop"),
        {"topics": ["dataworks-shop"]},
        {"columns": dataworks.COLUMNS},
        dataworks.as_sent,
        partitions=2,
    ),
    "shop_tdsql": Feed("tdsql", lambda: TdsqlEncoder("tdsql-shop"), {"topics": ["tdsql-shop"]}),
}
"""Source → its feed. One partition, with begin and commit among the rows, is what lets a cut stand between two
transactions (DTS, canal, TDSQL); the others show cuts of kind `position`."""


def feeds_of(formats: Iterable[str]) -> dict[str, Feed]:
    """The feeds of these formats. Raises ConfigError for one that the demo doesn't have."""
    wanted, valid = list(formats), [feed.format for feed in FEEDS.values()]
    if unknown := [name for name in wanted if name not in valid]:
        raise ConfigError("--format", f"{unknown[0]!r} is no format of the demo", valid)
    return {source: feed for source, feed in FEEDS.items() if feed.format in wanted}


def source_config(name: str, feed: Feed) -> dict[str, Any]:
    """A source of cdc.yaml that reads the feed."""
    options = {"options": feed.options} if feed.options else {}
    return {"name": name, "format": feed.format, **feed.topics, **options}


def encoders(config: Config) -> dict[str, Encoder]:
    """Every source's encoder, from its beginning."""
    return {source.name: FEEDS[source.name].encoder() for source in config.sources}
