"""What sensors, checks and `status` see in Kafka: ends of topics, and whether a source is alive. Bounded
waiting."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from cdc_platform.automation import silence
from cdc_platform.automation.silence import Limit
from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError, KafkaAccessDenied, KafkaUnreachable
from cdc_platform.formats import FORMATS
from cdc_platform.kafka.client import failure, reach, topic_filter
from cdc_platform.kafka.offsets import PartitionState, kafka_state, numbered
from cdc_platform.lake import queries
from cdc_platform.lake.heard import Heard, last_heard
from cdc_platform.lake.queries import Partition
from cdc_platform.landing.positions import bases
from cdc_platform.units import age, duration, when

KAFKA_TIMEOUT_S = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Whether a source is alive. newest: Kafka time of its newest record (where Kafka
    tells nothing: when the newest was landed); change: commit time, by the source's clock,
    of the newest row change in the changelog (as of the last run); landed: when, by our clock, the newest row changes
    were landed; database: the same of the newest sign of life of its database. None: there is none, or it can't be
    known."""

    state: str
    text: str
    newest: datetime | None = None
    change: datetime | None = None
    landed: datetime | None = None
    database: datetime | None = None

    @property
    def passed(self) -> bool:
        return self.state in PASSING


PASSING = ("alive", "quiet")


def each_source(config: Config, look: Callable[[Source], T]) -> dict[str, T | CdcError]:
    """`look` at every source at once, so that an unreachable cluster delays no other; errors as values."""

    def safe(source: Source) -> T | CdcError:
        try:
            return look(source)
        except CdcError as error:
            return error

    with ThreadPoolExecutor(max_workers=min(8, len(config.sources))) as pool:
        return dict(zip((s.name for s in config.sources), pool.map(safe, config.sources), strict=True))


def kafka_ends(config: Config, source: Source) -> dict[Partition, tuple[int, int]]:
    """(topic, partition) → first offset still there, offset of the next record to be written, as the lake numbers them.

    Raises KafkaUnreachable, KafkaAccessDenied, ConfigError (a topic named in the configuration doesn't exist).
    """
    return ends_of(config, source, kafka_state(config, source))


def ends_of(config: Config, source: Source, state: list[PartitionState]) -> dict[Partition, tuple[int, int]]:
    """The same of what Kafka told."""
    now = numbered(state, bases(config, source))
    return {(s.topic, s.partition): (s.begin, s.end) for s in now}


def newest_record(config: Config, source: Source) -> tuple[int, datetime | None]:
    """Number of partitions and Kafka time of the newest record in any of them. Raises KafkaUnreachable,
    KafkaAccessDenied.

    The broker answers from its time index (KIP-734, Kafka 3.0): no record is read.
    """
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

    wanted, spec = topic_filter(source), OffsetSpec.max_timestamp()
    client, metadata = reach(config, source, KAFKA_TIMEOUT_S)
    try:
        topics = metadata.topics
        asked: dict[TopicPartition, Any] = {
            TopicPartition(n, p): spec for n, t in topics.items() if wanted(n) for p in t.partitions
        }
        answers = client.list_offsets(asked, request_timeout=KAFKA_TIMEOUT_S) if asked else {}
        newest = max((answer.result().timestamp for answer in answers.values()), default=-1)
    except KafkaException as error:
        raise failure(config, source, (), error) from None
    return len(asked), datetime.fromtimestamp(newest / 1000, UTC) if newest >= 0 else None


def lag(ends: dict[Partition, tuple[int, int]], at: dict[Partition, int]) -> int:
    """Offsets in Kafka that haven't landed: records, or a few more where Kafka compacts or holds
    transactions."""
    return sum(max(0, end - max(begin, at.get(partition, begin))) for partition, (begin, end) in ends.items())


def heartbeat(config: Config, source: Source, now: datetime | None = None) -> Heartbeat:
    """The state of a source: alive, quiet (no row changes; records come, or none are promised), database_silent (its
    capture is heard, its database isn't for longer than its own heartbeats allow), silent (nothing comes for longer
    than the limit: the capture is dead), no_topic, unreachable or refused (credentials). Any record shows that the
    capture works; only what the database's log holds, that the database does."""
    now = now or datetime.now(UTC)
    try:
        partitions, newest = newest_record(config, source)
    except (KafkaUnreachable, KafkaAccessDenied) as error:
        return _unseen(config, source, "refused" if isinstance(error, KafkaAccessDenied) else "unreachable", str(error))
    if not partitions:
        named = " or ".join(source.topics) or f"like {source.topic_pattern}"
        return _unseen(config, source, "no_topic", f"Kafka has no topic {named}")
    heard = last_heard(config, source, FORMATS[source.format].log_times)
    change, landed = queries.newest_rows(config, source)
    state, told = _state(config, source, newest, heard, landed or change, now)
    if state != "database_silent":
        told += f"; {_of_database(heard)}"
    return Heartbeat(state, told, newest, change, landed, heard.database)


def _of_database(heard: Heard) -> str:
    last = heard.database
    return f"the last of the database at {when(last)}" if last else "nothing of the database has landed so far"


def _unseen(config: Config, source: Source, state: str, why: str) -> Heartbeat:
    """Of a source of which Kafka tells nothing: when its capture and its database were heard last, by what landed."""
    heard = last_heard(config, source, FORMATS[source.format].log_times)
    told = f"the last record landed at {when(heard.landed)}; {_of_database(heard)}" if heard.landed else ""
    rows = queries.newest_rows(config, source)
    return Heartbeat(state, f"{why}; {told or 'nothing has landed so far'}", heard.landed, *rows, heard.database)


def _database_silent(config: Config, source: Source, heard: Heard) -> str | None:
    """Whether the capture goes on sending while nothing comes from its database's log any more, in words. Both by what
    is in the changelog: of records that no run has read nobody can tell whose they are."""
    limit, (_, known, database) = silence.database_limit(config, source), heard
    if limit.seconds is None or known is None or database is None:
        return None
    if known - database <= timedelta(seconds=limit.seconds):
        return None
    return (
        f"nothing from the database for {age(database, known)}: the last came at {when(database)} "
        f"(limit {duration(limit.seconds)}: {limit.why})"
    )


_QUIET_AFTER = timedelta(minutes=2)


def _state(
    config: Config, source: Source, newest: datetime | None, heard: Heard, rows: datetime | None, now: datetime
) -> tuple[str, str]:
    """State and text of a source whose topics are there. rows: when the newest row changes were landed."""
    recent = newest is not None and now - newest <= _QUIET_AFTER
    lively = newest is not None and now - newest <= timedelta(seconds=silence.FLOOR_S)  # within any derived limit
    limit = Limit(None, "") if lively and source.heartbeat_timeout_s is None else silence.limit(config, source)
    for_long = f"no record for {age(newest, now)}" if newest else "the topics hold no record"
    if limit.seconds is not None and (newest is None or now - newest > timedelta(seconds=limit.seconds)):
        return "silent", f"{for_long} (limit {duration(limit.seconds)}: {limit.why})"
    if not recent and limit.seconds is None:
        return "quiet", f"{for_long}; {limit.why}, so there is no limit (heartbeat_timeout_s sets one)"
    came = f"newest record {age(newest, now)} ago" if newest else for_long
    if lost := _database_silent(config, source, heard):
        return "database_silent", f"{came}, but {lost}"
    if rows is None:
        return "quiet", f"{came}; no row change has landed so far"
    if now - rows > _QUIET_AFTER:
        return "quiet", f"{came}; the last row change landed {age(rows, now)} ago"
    return "alive", came
