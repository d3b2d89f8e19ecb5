"""What sensors, checks and `status` see in Kafka: ends of topics, and whether a source is alive. Bounded
waiting."""

from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from cdc_platform.automation import silence
from cdc_platform.automation.silence import Limit
from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError, KafkaAccessDenied, KafkaUnreachable, LakeChanged
from cdc_platform.formats import FORMATS
from cdc_platform.kafka.client import failure, missing_topics, reach, topic_filter
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
    """Whether a source is alive. newest: Kafka time of its newest record, which may be ahead of our clock (where Kafka
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
_UNSEEN = ("no_topic", "unreachable", "refused", "unknown")
"""States in which Kafka's offsets aren't asked for."""
STATES = (*PASSING, "database_silent", "silent", *_UNSEEN)


def safely(config: Config, look: Callable[[], T]) -> T | CdcError:
    """What a look finds; errors as values, those of a table of the lake that can't be read, too."""
    from deltalake.exceptions import DeltaError

    try:
        return look()
    except CdcError as error:
        return error
    except (DeltaError, OSError) as error:
        return LakeChanged(config.lake, f"can't be read: {error}")


def each_source(config: Config, look: Callable[[Source], T]) -> dict[str, T | CdcError]:
    """`look` at every source at once, so that an unreachable cluster delays no other; errors as values."""
    return at_once(config, lambda source: safely(config, lambda: look(source)))


def at_once(config: Config, look: Callable[[Source], T]) -> dict[str, T]:
    """The same of a look that raises nothing."""
    with ThreadPoolExecutor(max_workers=min(8, len(config.sources))) as pool:
        return dict(zip((s.name for s in config.sources), pool.map(look, config.sources), strict=True))


def not_seen(error: CdcError) -> Heartbeat:
    """Of a source that couldn't be looked at: Kafka doesn't answer, or refuses us, or it is something else, in the lake
    or in the configuration, and the source's state is unknown."""
    kinds = ((KafkaUnreachable, "unreachable"), (KafkaAccessDenied, "refused"))
    return Heartbeat(next((state for kind, state in kinds if isinstance(error, kind)), "unknown"), str(error))


def seen(config: Config, source: Source) -> Heartbeat:
    """The state of a source; errors are states, too."""
    beat = safely(config, lambda: heartbeat(config, source))
    return not_seen(beat) if isinstance(beat, CdcError) else beat


def with_lag(config: Config, source: Source) -> tuple[Heartbeat, int | None]:
    """The same, and how many of its records haven't landed; None: it can't be known."""
    if (beat := seen(config, source)).state in _UNSEEN:
        return beat, None
    behind = safely(config, lambda: lag(kafka_ends(config, source), queries.landed(config, source)))
    if isinstance(behind, CdcError):
        unseen = not_seen(behind)
        return replace(beat, state=unseen.state, text=unseen.text), None
    return beat, behind


def kafka_ends(config: Config, source: Source) -> dict[Partition, tuple[int, int]]:
    """(topic, partition) → first offset still there, offset of the next record to be written, as the lake numbers them.

    Raises KafkaUnreachable, KafkaAccessDenied, ConfigError (a topic named in the configuration doesn't exist).
    """
    return ends_of(config, source, kafka_state(config, source))


def ends_of(config: Config, source: Source, state: list[PartitionState]) -> dict[Partition, tuple[int, int]]:
    """The same of what Kafka told."""
    now = numbered(state, bases(config, source))
    return {(s.topic, s.partition): (s.begin, s.end) for s in now}


class Newest(NamedTuple):
    """partitions: how many the source's topics have; missing: topics that the configuration names, or that are like its
    pattern and were read, and Kafka lacks; at: Kafka time of the newest record in any partition."""

    partitions: int
    missing: list[str]
    at: datetime | None


def newest_record(config: Config, source: Source) -> Newest:
    """The newest record of a source. Raises KafkaUnreachable, KafkaAccessDenied.

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
    at = datetime.fromtimestamp(newest / 1000, UTC) if newest >= 0 else None
    return Newest(len(asked), missing_topics(source, topics) or _gone(config, source, topics), at)


def _gone(config: Config, source: Source, there: Container[str]) -> list[str]:
    """Topics like the source's pattern that were read and that Kafka lacks: no run goes on without them, until their
    loss is accepted."""
    if source.topics:
        return []
    wanted = topic_filter(source)
    return sorted(t for t in queries.topics_read(config, source) if wanted(t) and t not in there)


def lag(ends: dict[Partition, tuple[int, int]], at: dict[Partition, int]) -> int:
    """Offsets in Kafka that haven't landed: records, or a few more where Kafka compacts or holds
    transactions. Of a partition that ends before what was landed (its topic was made again) all that it has."""
    next_ = {partition: at.get(partition, begin) for partition, (begin, _) in ends.items()}
    return sum(end - (max(begin, next_[p]) if next_[p] <= end else begin) for p, (begin, end) in ends.items())


def heartbeat(config: Config, source: Source, now: datetime | None = None) -> Heartbeat:
    """The state of a source: alive, quiet (no row changes; records come, or none are promised), database_silent (its
    capture is heard, its database isn't for longer than its own heartbeats allow), silent (nothing comes for longer
    than the limit: the capture is dead), no_topic (one of them is gone), unreachable or refused (credentials). Any
    record shows that the capture works; only what the database's log holds, that the database does. What else can't be
    read raises (`not_seen`)."""
    now = now or datetime.now(UTC)
    try:
        partitions, missing, newest = newest_record(config, source)
        ahead = newest is not None and newest - now > _AHEAD
        ends = kafka_ends(config, source) if ahead and not missing else None
    except (KafkaUnreachable, KafkaAccessDenied) as error:
        return _unseen(config, source, not_seen(error))
    if missing or not partitions:
        named = " or ".join(missing) or f"like {source.topic_pattern}"
        return _unseen(config, source, Heartbeat("no_topic", f"Kafka has no topic {named}", newest))
    heard = last_heard(config, source, FORMATS[source.format].log_times)
    change, landed = queries.newest_rows(config, source)
    came = newest if ends is None else _came(config, source, ends, heard, now)
    state, told = _state(config, source, came, heard, landed or change, now)
    if newest and ends is not None:
        told += f"; the newest record's time is {age(now, newest)} ahead of this machine's clock"
        told += ": counted from when it landed"
    if state != "database_silent":
        told += f"; {_of_database(heard)}"
    return Heartbeat(state, told, newest, change, landed, heard.database)


_AHEAD = timedelta(seconds=silence.FLOOR_S)
"""Records may be so much ahead of our clock: producers stamp them by theirs. One that is more would hide a dead capture
until its time has come."""
_ends: dict[tuple[str, str], tuple[dict[Partition, tuple[int, int]], datetime]] = {}
"""(lake, source) → ends of its partitions, and since when this process sees them so; of sources whose newest record is
ahead of our clock."""


def _came(
    config: Config, source: Source, ends: dict[Partition, tuple[int, int]], heard: Heard, now: datetime
) -> datetime:
    """By when, by our clock, the newest record had come: when its offset was first seen, or when it was landed."""
    key = config.lake, source.name
    before, since = _ends.get(key, (None, now))
    if before != ends:
        since = now
    _ends[key] = ends, since
    all_landed = heard.landed and not lag(ends, queries.landed(config, source))
    return min(since, heard.landed) if heard.landed and all_landed else since


def _of_database(heard: Heard) -> str:
    last = heard.database
    return f"the last of the database landed at {when(last)}" if last else "nothing of the database has landed so far"


def _unseen(config: Config, source: Source, beat: Heartbeat) -> Heartbeat:
    """Of a source of which Kafka tells not all: when its capture and its database were heard last, by what landed,
    too."""
    heard = last_heard(config, source, FORMATS[source.format].log_times)
    told = f"the last record landed at {when(heard.landed)}; {_of_database(heard)}" if heard.landed else ""
    text = f"{beat.text}; {told or 'nothing has landed so far'}"
    rows = queries.newest_rows(config, source)
    return Heartbeat(beat.state, text, beat.newest or heard.landed, *rows, heard.database)


def _database_silent(config: Config, source: Source, heard: Heard) -> str | None:
    """Whether the capture goes on sending while nothing comes from its database's log any more, in words. Both by what
    is in the changelog: of records that no run has read nobody can tell whose they are."""
    _, known, database = heard
    if known is None or database is None or known <= database:
        return None
    limit = silence.database_limit(config, source, database)
    if limit.seconds is None or known - database <= timedelta(seconds=limit.seconds):
        return None
    return (
        f"what had landed by {when(known)} has nothing from the database for {age(database, known)}: the last landed "
        f"at {when(database)} "
        f"(limit {duration(limit.seconds)}: {limit.why})"
    )


_QUIET_AFTER = timedelta(minutes=2)


def _state(
    config: Config, source: Source, newest: datetime | None, heard: Heard, rows: datetime | None, now: datetime
) -> tuple[str, str]:
    """State and text of a source whose topics are there. newest: when its newest record came. rows: when the newest row
    changes were landed."""
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
