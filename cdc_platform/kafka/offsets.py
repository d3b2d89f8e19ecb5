"""What Kafka holds against what was landed: an edge, librdkafka's admin calls only.

Loss is found before anything is read, by name: Spark's own check stops a run too, but can't tell a topic that was
made again with as many records as before (its id differs) and doesn't say which offsets are gone.
"""

import difflib
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cdc_platform.config import Config, Source
from cdc_platform.errors import ConfigError
from cdc_platform.kafka.client import failure, group_id, librdkafka_properties, missing_topics, reach, topic_filter

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

TIMEOUT_S = 10.0
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What librdkafka tells as the id of a topic where the broker has none (before Kafka 2.8): zeros, in base 64."""

Where = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition in Kafka now: first offset still there, next offset to be written; base: what was added to both
    (`numbered`)."""

    topic: str
    partition: int
    topic_id: str  # "": the broker tells none
    begin: int
    end: int
    base: int = 0


def kafka_state(config: Config, source: Source) -> list[PartitionState]:
    """Partitions of the source's topics as the cluster tells them now. Raises KafkaUnreachable, KafkaAccessDenied,
    ConfigError (a topic named in the configuration doesn't exist)."""
    from confluent_kafka import KafkaException

    client, metadata = reach(config, source, TIMEOUT_S)
    try:
        wanted = topic_filter(source)
        topics = sorted(t for t in metadata.topics if wanted(t))
        if missing := missing_topics(source, metadata.topics):
            known = [t for t in sorted(metadata.topics) if not t.startswith("__")]
            known = difflib.get_close_matches(missing[0], known, n=20, cutoff=0)  # the most alike first
            raise ConfigError(f"source {source.name}: topics", f"{', '.join(missing)} not in this Kafka", known)
        ids = _topic_ids(client, topics)
        partitions = [(t, p) for t in topics for p in sorted(metadata.topics[t].partitions)]
        begin = _offsets(client, partitions, "earliest")
        end = _offsets(client, partitions, "latest", config.kafka_properties(source).get("isolation.level"))
    except KafkaException as error:
        raise failure(config, source, (), error) from None
    return [PartitionState(t, p, ids.get(t, ""), begin[t, p], end[t, p]) for t, p in partitions]


_LATER = (
    *("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "NOT_CONTROLLER"),
    *("BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"),
)
"""Errors of Kafka after which it may tell another time."""


def compacted(config: Config, source: Source, topics: Iterable[str]) -> list[str]:
    """Topics that Kafka compacts: of a key's records it keeps the newest. [] where the cluster doesn't tell (the user
    lacks the right DescribeConfigs). Raises KafkaUnreachable, KafkaAccessDenied."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import ConfigResource  # pyright: ignore[reportPrivateImportUsage]

    client, _ = reach(config, source, TIMEOUT_S)
    asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    found = []
    for resource, future in client.describe_configs(asked, request_timeout=TIMEOUT_S).items():
        try:
            policy = future.result().get("cleanup.policy")
        except KafkaException as error:
            if error.args[0].code() in {getattr(KafkaError, name) for name in _LATER}:
                raise failure(config, source, (), error) from None
            continue
        if policy is not None and "compact" in (policy.value or ""):
            found.append(resource.name)
    return sorted(found)


_STEP = 10**9


def raised(reached: int) -> int:
    """The base of a partition whose offsets begin again: a round number above all that was landed of it. Topic,
    partition and offset are the address of a record, and order it; so an offset mustn't come twice."""
    return (reached // _STEP + 1) * _STEP


def numbered(state: list[PartitionState], bases: Mapping[Where, int]) -> list[PartitionState]:
    """With offsets as the lake numbers them. bases: of partitions whose offsets have begun again, what is added."""
    told = [(s, bases.get((s.topic, s.partition), s.base)) for s in state]
    return [replace(s, begin=s.begin - s.base + base, end=s.end - s.base + base, base=base) for s, base in told]


def stable_state(
    config: Config, source: Source, landed: Mapping[Where, int], bases: Mapping[Where, int]
) -> list[PartitionState]:
    """`kafka_state`, numbered, asked again when an end lies before what was landed: right after a leader change a
    broker may report an older end for a moment (KAFKA-7703), which is no loss."""
    for wait_s in (0.5, 2.0, 0.0):
        state = numbered(kafka_state(config, source), bases)
        if all(s.end >= landed.get((s.topic, s.partition), 0) for s in state) or not wait_s:
            return state
        time.sleep(wait_s)
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class Before:
    """What a source had landed before. landed: next offset to land of each partition; topic_ids: under which topics
    were landed, the newest last (an id never comes back); ids: the same of partitions that began again; reached: above
    all offsets that a partition ever had; new: partitions that had gone and are there again with another topic's, of
    which nothing is landed yet; unsure: those of them of which nothing tells whether it is another's."""

    landed: Mapping[Where, int]
    topic_ids: Mapping[str, Sequence[str]]
    ids: Mapping[Where, str] = field(default_factory=dict)
    reached: Mapping[Where, int] = field(default_factory=dict)
    new: frozenset[Where] = frozenset()
    unsure: frozenset[Where] = frozenset()

    def is_another(self, state: PartitionState) -> bool:
        """Whether a partition is that of another topic than the one that was landed."""
        where, known = (state.topic, state.partition), self.topic_ids.get(state.topic)
        if where not in self.landed or where in self.new or not state.topic_id or not known:
            return False
        return state.topic_id not in known and state.topic_id != self.ids.get(where)


def losses(state: list[PartitionState], before: Before, named: Container[str] = ()) -> list[dict[str, Any]]:
    """Ranges that were never landed and can't be read any more. state: numbered as what was landed. named: topics that
    the configuration names one by one (`added`). Dicts: topic, partition, from_offset, to_offset (exclusive), why,
    restart (offset at which reading can go on; None: nowhere), base (of offsets from there on; None: as before),
    topic_id (of the topic that is gone, or of another one that is there; None: it is the same)."""
    if not before.landed:
        return []  # nothing was landed ever: reading begins wherever Kafka does
    new = added(state, before, named)
    found = [
        {"topic": s.topic, "partition": s.partition, **x}
        for s in state
        if (s.topic, s.partition) not in new and (x := _loss(s, before)) is not None
    ]
    there = {(s.topic, s.partition) for s in state}
    why = "no longer in Kafka, or no longer among the source's topics"
    return found + [
        {
            **{"topic": w[0], "partition": w[1], "from_offset": have, "to_offset": have + 1, "why": why},
            **{"restart": None, "base": None},
            "topic_id": before.ids.get(w) or next(reversed(before.topic_ids.get(w[0], ())), None),
        }
        for w, have in sorted(before.landed.items())
        if w not in there
    ]


def added(state: list[PartitionState], before: Before, named: Container[str]) -> dict[Where, int]:
    """Partitions of topics that were added to those that the configuration names, and where Kafka begins, from where
    they are read. Nothing was seen of them; a topic that fits a pattern was meant since it was made."""
    seen = {*before.topic_ids, *(topic for topic, _ in before.landed)}
    return {(s.topic, s.partition): s.begin for s in state if s.topic in named and s.topic not in seen}


def _loss(s: PartitionState, before: Before) -> dict[str, Any] | None:
    where = s.topic, s.partition
    have = before.landed.get(where, 0)  # a partition that is new since the last landing begins at 0
    base, topic_id = (s.base, s.topic_id) if where in before.new else (None, None)
    if where in before.unsure:
        why, to, restart = "it is there again; nothing tells whether the topic is the one of before", have + 1, s.begin
    elif before.is_another(s):
        why, to, topic_id = (
            "topic was deleted and made again; what it still held before is unknown",
            have + 1,
            s.topic_id,
        )
        base = raised(max(have, before.reached.get(where, 0)))
        restart = s.begin - s.base + base
    elif s.begin > have:
        why, to, restart = "removed by retention before they were landed", s.begin, s.begin
    elif s.end < have:
        why, to = f"partition now ends at {s.end}, {have} were landed", have + 1
        base = raised(max(have, before.reached.get(where, 0)))
        restart = s.end - s.base + base
    else:
        return None
    told = {"from_offset": have, "to_offset": to, "why": why, "restart": restart}
    return {**told, "base": base, "topic_id": topic_id}


def first_offsets(state: list[PartitionState], start: str) -> dict[Where, int]:
    """(topic, partition) → where the first landing begins; `start`: earliest or latest."""
    return {(s.topic, s.partition): s.begin if start == "earliest" else s.end for s in state}


def commit_group(config: Config, source: Source, landed: Mapping[Where, int], bases: Mapping[Where, int]) -> None:
    """Commit next offsets, as Kafka has them, to the source's consumer group, so that lag tools see them. Recovery
    never reads this. Raises KafkaException."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {**librdkafka_properties(config, source), "group.id": group_id(source), "enable.auto.commit": False}
    )
    try:
        consumer.commit(
            offsets=[TopicPartition(*w, o - bases.get(w, 0)) for w, o in landed.items()], asynchronous=False
        )
    finally:
        consumer.close()


def _offsets(
    client: "AdminClient", partitions: list[tuple[str, int]], which: str, isolation: str | None = None
) -> dict[Where, int]:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

    if not partitions:
        return {}
    spec: Any = OffsetSpec.earliest() if which == "earliest" else OffsetSpec.latest()
    level = IsolationLevel.READ_UNCOMMITTED if isolation == "read_uncommitted" else IsolationLevel.READ_COMMITTED
    futures = client.list_offsets(
        {TopicPartition(t, p): spec for t, p in partitions}, isolation_level=level, request_timeout=TIMEOUT_S
    )
    return {(tp.topic, tp.partition): future.result().offset for tp, future in futures.items()}


def _topic_ids(client: "AdminClient", topics: list[str]) -> dict[str, str]:
    from confluent_kafka import TopicCollection

    if not topics:
        return {}
    futures = client.describe_topics(TopicCollection(topics), request_timeout=TIMEOUT_S)
    ids = {}
    for topic, future in futures.items():
        told = str(future.result().topic_id)
        ids[topic] = "" if told == NO_ID else told
    return ids
