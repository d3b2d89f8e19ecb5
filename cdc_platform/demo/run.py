"""The demo: a seeded shop's changes as Kafka records of each vendor, through the whole chain into a lake of
its own, and every snapshot cell compared with the workload's truth."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config
from cdc_platform.demo import counts
from cdc_platform.demo.folder import ROUNDS, Settings, alone, prepare
from cdc_platform.demo.progress import Progress, Say, each_source_said
from cdc_platform.feeds.compare import compare
from cdc_platform.feeds.feeds import FEEDS, encoders, feeds_of
from cdc_platform.feeds.publish import Record, publish
from cdc_platform.feeds.shop import TABLES
from cdc_platform.feeds.workload import Transaction, Workload
from cdc_platform.kafka import broker
from cdc_platform.lake import delta_table, stores, watermarks
from cdc_platform.tables import SNAPSHOT_PATH, TOMBSTONES_PATH


@dataclass(slots=True)
class Outcome:
    """What a demo found. The lists hold one dict per row of a table; `problems` is empty when all is equal.

    transactions: published in run 1 and run 2. feeds: what became of each feed's data (see `counts.of_feeds`), and its
    newest cut. published: run, source, records, mb. stages: what the runs say of each of them, with the run's number.
    snapshots: run, source, format, table, rows, equal. ledger: source, topic, partition, landed and what became of it.
    steps: what the demo did, one after the other: step, seconds of wall time.
    """

    config: str
    lake: str
    transactions: list[int] = field(default_factory=list)
    feeds: list[dict[str, Any]] = field(default_factory=list)
    published: list[dict[str, Any]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether every comparison was made and found nothing."""
        return not self.problems and bool(self.snapshots)

    @contextmanager
    def timed(self, step: str, say: Say) -> Iterator[None]:
        """Say and time one step."""
        say(step)
        started = time.monotonic()
        yield
        self.steps.append({"step": step, "seconds": round(time.monotonic() - started, 1)})


def run_demo(settings: Settings, say: Say) -> Outcome:
    """The whole demo. say: takes each line of progress, the next within 15 s. Raises ConfigError (unknown format),
    DemoFolderInUse, StorageError, SetupError, BrokerError, KafkaUnreachable, PublishFailed.

    A run that fails or a difference isn't raised: it is in `problems`.
    """
    from cdc_platform.spark import prestart

    folder = settings.folder.expanduser().absolute()
    feeds_of(settings.formats)  # a wrong name is reported before anything is wiped
    with alone(folder), Progress(say) as told:
        config = prepare(folder, settings)
        outcome = Outcome(str(config.file), config.lake)
        home = config.state_dir / "broker"
        try:
            with outcome.timed("starting Spark and a Kafka broker", told):
                prestart.begin(config)
                broker.start(home, int(config.kafka["bootstrap.servers"].rpartition(":")[2]))
            _Feed(settings, config, outcome, told).play()
        finally:
            if not settings.keep_broker:
                broker.stop(home)
    return outcome


def as_of_now(records: Iterable[Record]) -> Iterator[Record]:
    """The records with the present time as Kafka's: the heartbeat check judges a feed by that."""
    return (r._replace(timestamp_ms=int(time.time() * 1000)) for r in records)


class _Feed:
    """The source database, its feeds, and the runs that follow them."""

    def __init__(self, settings: Settings, config: Config, outcome: Outcome, say: Progress):
        self.settings, self.config, self.outcome, self.say = settings, config, outcome, say
        self.encoders = encoders(config)
        self.sent: dict[str, int] = {}

    def play(self) -> None:
        """Backlog, increment, and a run with nothing new."""
        with self.outcome.timed("making the shop", self.say):
            self.shop = Workload(self.settings.seed, self.settings.transactions)
        rounds = {"seed": self.settings.seed, "rounds": [self.settings.transactions, self.settings.more]}
        (self.config.file.parent / ROUNDS).write_text(json.dumps(rounds))
        # Compared before the shop goes on: its truth is that of now only.
        if not self._round(1, self.shop.transactions):
            return
        if not self._round(2, self.shop.advance(self.settings.more)):
            return
        before = table_versions(self.config)
        with self.outcome.timed("run 3: nothing new", self.say):
            if not self._catch_up(3):
                return
        changed = written_since(self.config, before)
        self.outcome.problems += [f"run 3 had nothing new and yet wrote {path}" for path in changed]
        self._account()

    def _round(self, number: int, transactions: list[Transaction]) -> bool:
        self.outcome.transactions.append(len(transactions))
        to = f"{len(self.encoders)} feed{'s' if len(self.encoders) > 1 else ''}"
        with self.outcome.timed(f"publishing {len(transactions)} transactions to {to}", self.say):
            self._publish(number, transactions)
        with self.outcome.timed(f"run {number}: from Kafka to snapshots", self.say):
            if not self._catch_up(number):
                return False
        with self.outcome.timed(f"comparing every cell after run {number}", self.say):
            self._compare(number)
        return True

    def _publish(self, number: int, transactions: list[Transaction]) -> None:
        for source, encoder in self.encoders.items():
            records = as_of_now(encoder.encode(transactions))
            servers = self.config.kafka["bootstrap.servers"]
            done = publish(records, servers, default_partitions=FEEDS[source].partitions)
            for topic, count in done.topics.items():
                self.sent[topic] = self.sent.get(topic, 0) + count
            self.outcome.published.append(
                {"run": number, "source": source, "records": done.records, "mb": round(done.bytes / 1e6, 2)}
            )

    def _catch_up(self, number: int) -> bool:
        """Dagster's job for every source, as `cdc-platform run` runs it; whether all went well."""
        from cdc_platform.launch import run_all

        with each_source_said(f"run {number}", self.config, self.say):
            results = run_all(self.config, self.config.sources)
        for result in results:
            if not result["ok"]:
                self.outcome.problems.append(f"run {number} of {result['source']} failed: {_why(result)}")
            self.outcome.stages += [{"run": number, **stage} for stage in result["stages"]]
        return all(r["ok"] for r in results)

    def _compare(self, number: int) -> None:
        rows, differences = compared(self.config, self.shop.truth)
        self.outcome.snapshots += [{"run": number, **row} for row in rows]
        self.outcome.problems += [f"run {number}, {line}" for line in differences]

    def _account(self) -> None:
        from cdc_platform.lake.queries import ledger

        self.outcome.ledger = ledger(self.config, self.config.sources)
        self.outcome.problems += unaccounted(self.outcome.ledger, self.sent)
        self.outcome.feeds = counts.of_feeds(self.config)


def compared(config: Config, truth: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Every snapshot of every source against the truth: one dict (source, format, table, rows, equal) per snapshot, and
    what differs, line by line."""
    rows, differences = [], []
    for source in config.sources:
        sent = FEEDS[source.name].as_sent(truth)
        for name, table in TABLES.items():
            path = SNAPSHOT_PATH.at(stores.lake(config), source=source.name, db=table.db, table=table.name)
            found = compare(table, sent[name], path.uri(), storage_options=path.options)
            differences += [f"{source.name}: {line}" for line in found.describe()]
            of = {"source": source.name, "format": source.format, "table": name}
            rows.append({**of, "rows": found.compared, "equal": found.equal})
    return rows, differences


def _why(result: dict[str, Any]) -> str:
    """A failed run's cause on one line, shortened: Dagster's history holds all of it."""
    text = result["error"] or "; ".join(result["failed_checks"])
    cause = text.rpartition("caused by the following exception:")[2]
    lines = [line.strip() for line in cause.partition("Stack Trace:")[0].splitlines()]
    return " | ".join(filter(None, lines))[:1500]


def unaccounted(ledger: list[dict[str, Any]], sent: dict[str, int]) -> list[str]:
    """What the offset ledger of a finished demo shows that it must not.

    ledger: rows as `lake.queries.ledger` gives them; sent: topic → records. The demo's feed is whole, so
    nothing may wait or be in quarantine.
    """
    from cdc_platform.lake import queries

    problems, landed = [], dict.fromkeys(sent, 0)
    for row in ledger:
        where = f"{row['topic']}[{row['partition']}]"
        landed[row["topic"]] = landed.get(row["topic"], 0) + row["landed"]
        if row["unaccounted"]:
            problems.append(queries.unaccounted(row))
        problems += [f"{where}: {row[o]} records {o}" for o in ("waiting", "quarantined", "lost") if row[o]]
    problems += [
        f"{topic}: {sent.get(topic, 0)} records sent, {count} landed"
        for topic, count in landed.items()
        if sent.get(topic, 0) != count
    ]
    return problems


def written_since(config: Config, before: Mapping[str, int]) -> list[str]:
    """Tables with a newer version than `before`. Up to when a source is complete is left out where that is assumed of
    idle partitions: it goes by the clock (`idle_partition_s`), so it may be told anew without anything new."""
    after, path = table_versions(config), tables.WATERMARKS.at(stores.lake(config))
    if any(found and not found.proven for s in config.sources for found in [watermarks.complete(path, s.name)]):
        after.pop(path.uri(), None)
    return [place for place, version in after.items() if before.get(place) != version]


def table_versions(config: Config) -> dict[str, int]:
    """Place → version of every Delta table of the platform's, and of the shop's snapshots."""
    lake, places = stores.lake(config), set()
    for source in config.sources:
        places |= {table.at(lake, source=source.name, format=source.format) for table in tables.ALL}
        for of in (SNAPSHOT_PATH, TOMBSTONES_PATH):
            places |= {of.at(lake, source=source.name, db=t.db, table=t.name) for t in TABLES.values()}
    return {place.uri(): delta_table.version(place) for place in places if delta_table.exists(place)}
