"""The demo: a seeded shop's changes as Kafka records of each vendor, through the whole chain into a lake of
its own, and every snapshot cell compared with the workload's truth."""

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from cdc_platform import broker
from cdc_platform.broker.node import DEFAULT_PORT
from cdc_platform.config import Config, parse_config
from cdc_platform.demo.compare import compare
from cdc_platform.demo.feeds import DTS, FEEDS, PARTITIONS, chosen, encoders, source_config
from cdc_platform.demo.publish import Record, publish
from cdc_platform.demo.shop import TABLES
from cdc_platform.demo.workload import Transaction, Workload
from cdc_platform.errors import CdcError
from cdc_platform.resources import connect
from cdc_platform.resources.ports import free_port
from cdc_platform.tables import SNAPSHOT_PATH

EQUAL = "all snapshots equal the source"
ROUNDS = "rounds.json"
DEFAULT_FOLDER = Path(".cdc/demo")
_MARK = "# Written by `cdc-platform demo`, which removes this whole folder when it runs again.\n"

Say = Callable[[str], None]


class DemoFolderInUse(CdcError):
    """The demo's folder can't be wiped. Fields: `folder`, `problem`."""

    def __init__(self, folder: Path, problem: str):
        self.folder, self.problem = str(folder), problem
        super().__init__(f"{folder}: {problem}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a demo is run with. transactions: the backlog's, beside the hard cases; more: the increment's."""

    folder: Path = DEFAULT_FOLDER
    seed: int = 1
    transactions: int = 300
    more: int = 100
    master: str = "local[*]"
    remote: str | None = None
    keep_broker: bool = False
    formats: tuple[str, ...] = ("tencent_dts", "debezium")


@dataclass(slots=True)
class Outcome:
    """What a demo found. The lists hold one dict per row of a table; `problems` is empty when all is equal.

    published: run, source, records, mb. rooms: run, source, room, records, batches, seconds. snapshots: run,
    source, table, rows, equal. ledger: source, topic, partition, landed and what became of it. stages: stage,
    seconds of wall time.
    """

    config: str
    lake: str
    published: list[dict[str, Any]] = field(default_factory=list)
    rooms: list[dict[str, Any]] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether every comparison was made and found nothing."""
        return not self.problems and bool(self.snapshots)

    @contextmanager
    def timed(self, stage: str, say: Say) -> Iterator[None]:
        """Say and time one stage."""
        say(stage)
        started = time.monotonic()
        yield
        self.stages.append({"stage": stage, "seconds": round(time.monotonic() - started, 1)})


def run_demo(settings: Settings, say: Say) -> Outcome:
    """The whole demo. Raises ConfigError (unknown format), DemoFolderInUse, SetupError, BrokerError, KafkaUnreachable,
    PublishFailed.

    A run that fails or a difference isn't raised: it is in `problems`.
    """
    folder = settings.folder.expanduser().absolute()
    chosen(settings.formats)  # a wrong name is told before anything is wiped
    with _alone(folder):
        config = prepare(folder, settings)
        outcome = Outcome(str(config.file), config.lake)
        home = config.state_dir / "broker"
        try:
            with outcome.timed("starting the broker", say):
                broker.start(home, int(config.kafka["bootstrap.servers"].rpartition(":")[2]))
            _Feed(settings, config, outcome, say).play()
        finally:
            if not settings.keep_broker:
                broker.stop(home)
    return outcome


def as_of_now(records: Iterable[Record]) -> Iterator[Record]:
    """The records with the present time as Kafka's: the heartbeat check judges a feed by that."""
    return (r._replace(timestamp_ms=int(time.time() * 1000)) for r in records)


class _Feed:
    """The source database, its feeds, and the runs that follow them."""

    def __init__(self, settings: Settings, config: Config, outcome: Outcome, say: Say):
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
        before = table_versions(self.config.lake)
        with self.outcome.timed("run 3: nothing new", self.say):
            if not self._catch_up(3):
                return
        after = table_versions(self.config.lake)
        changed = [path for path, version in after.items() if before.get(path) != version]
        self.outcome.problems += [f"run 3 had nothing new and yet wrote {path}" for path in changed]
        self._account()

    def _round(self, number: int, transactions: list[Transaction]) -> bool:
        with self.outcome.timed(f"publishing {len(transactions)} transactions", self.say):
            self._publish(number, transactions)
        with self.outcome.timed(f"run {number}", self.say):
            if not self._catch_up(number):
                return False
        with self.outcome.timed(f"comparing after run {number}", self.say):
            self._compare(number)
        return True

    def _publish(self, number: int, transactions: list[Transaction]) -> None:
        for source, encoder in self.encoders.items():
            records = as_of_now(encoder.encode(transactions))
            done = publish(records, self.config.kafka["bootstrap.servers"], default_partitions=PARTITIONS)
            for topic, count in done.topics.items():
                self.sent[topic] = self.sent.get(topic, 0) + count
            self.outcome.published.append(
                {"run": number, "source": source, "records": done.records, "mb": round(done.bytes / 1e6, 2)}
            )

    def _catch_up(self, number: int) -> bool:
        """Dagster's job for every source, as `cdc-platform run` runs it; whether all went well."""
        from cdc_platform.cli import run as cli_run

        with cli_run.told_on_stderr():
            results = cli_run.run_all(self.config, self.config.sources)
        for result in results:
            if not result["ok"]:
                self.outcome.problems.append(f"run {number} of {result['source']} failed: {_why(result)}")
            self.outcome.rooms += [
                {"run": number, **{k: r.get(k) for k in ("source", "room", "records", "batches", "seconds")}}
                for r in result["rooms"]
            ]
        return all(r["ok"] for r in results)

    def _compare(self, number: int) -> None:
        rows, differences = compared(self.config, self.shop.truth)
        self.outcome.snapshots += [{"run": number, **row} for row in rows]
        self.outcome.problems += [f"run {number}, {line}" for line in differences]

    def _account(self) -> None:
        from cdc_platform.automation.delta import ledger

        self.outcome.ledger = ledger(self.config, self.config.sources)
        self.outcome.problems += unaccounted(self.outcome.ledger, self.sent)


def compared(config: Config, truth: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Every snapshot of every source against the truth: one dict (source, table, rows, equal) per snapshot, and
    what differs, line by line."""
    rows, differences = [], []
    for source in config.sources:
        sent = FEEDS[source.name].as_sent(truth)
        for name, table in TABLES.items():
            path = SNAPSHOT_PATH.at(config.lake, source=source.name, db=table.db, table=table.name)
            found = compare(table, sent[name], path)
            differences += [f"{source.name}: {line}" for line in found.describe()]
            rows.append({"source": source.name, "table": name, "rows": found.compared, "equal": found.equal})
    return rows, differences


def _why(result: dict[str, Any]) -> str:
    """A failed run's cause on one line, shortened: Dagster's history holds all of it."""
    text = result["error"] or "; ".join(result["failed_checks"])
    cause = text.rpartition("caused by the following exception:")[2]
    lines = [line.strip() for line in cause.partition("Stack Trace:")[0].splitlines()]
    return " | ".join(filter(None, lines))[:1500]


def unaccounted(ledger: list[dict[str, Any]], sent: dict[str, int]) -> list[str]:
    """What the offset ledger of a finished demo shows that it must not.

    ledger: rows as `automation.delta.ledger` gives them; sent: topic → records. The demo's feed is whole, so
    nothing may wait or be in quarantine.
    """
    problems, landed = [], dict.fromkeys(sent, 0)
    for row in ledger:
        where = f"{row['topic']}[{row['partition']}]"
        landed[row["topic"]] = landed.get(row["topic"], 0) + row["landed"]
        if row["landed"] != row["accounted"]:
            problems.append(f"{where}: {row['landed']} records landed, {row['accounted']} accounted for")
        problems += [f"{where}: {row[o]} records {o}" for o in ("waiting", "quarantined", "lost") if row[o]]
    problems += [
        f"{topic}: {sent.get(topic, 0)} records sent, {count} landed"
        for topic, count in landed.items()
        if sent.get(topic, 0) != count
    ]
    return problems


def table_versions(lake: str) -> dict[str, int]:
    """Path below the (local) lake → version of every Delta table there."""
    from deltalake import DeltaTable

    logs = sorted(Path(lake).glob("**/_delta_log"))
    return {str(log.parent.relative_to(lake)): DeltaTable(str(log.parent)).version() for log in logs}


def prepare(folder: Path, settings: Settings) -> Config:
    """An empty demo folder with its cdc.yaml. Raises DemoFolderInUse where it isn't ours to wipe."""
    file = folder / "cdc.yaml"
    if folder.exists() and any(folder.iterdir()):
        if not file.is_file() or not file.read_text(encoding="utf-8").startswith(_MARK):
            raise DemoFolderInUse(folder, "is no demo folder and won't be wiped; name another with --folder")
        old = parse_config(_config_data(settings, DEFAULT_PORT), file)
        if connect.living(old):
            raise DemoFolderInUse(folder, "`cdc-platform ui` is running on it; stop that first (Ctrl-C)")
        broker.stop(old.state_dir / "broker")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = _config_data(settings, free_port() if connect.answers(DEFAULT_PORT) else DEFAULT_PORT)
    file.write_text(_MARK + yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return parse_config(data, file)


def _config_data(settings: Settings, port: int) -> dict[str, Any]:
    # A demo's batches are tiny: compiling code for their queries would take most of its time.
    quiet = {
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    local = {"master": settings.master, "conf": quiet}
    return {
        "lake": "./lake",
        "spark": {"remote": settings.remote} if settings.remote else local,
        "kafka": {"bootstrap.servers": f"127.0.0.1:{port}"},
        "sources": [source_config(name, feed) for name, feed in chosen(settings.formats).items()],
    }


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0):
            yield
    except Timeout:
        raise DemoFolderInUse(folder, "another demo is running in it") from None


def next_steps(outcome: Outcome) -> dict[str, str]:
    """Commands that go on from a finished demo."""
    config = shlex.quote(_near(outcome.config))
    folder = Path(outcome.config).parent
    where = "" if folder == DEFAULT_FOLDER.absolute() else f" --folder {shlex.quote(_near(str(folder)))}"
    source = next((row["source"] for row in outcome.snapshots), DTS)
    program = shlex.quote(_near(str(Path(sys.executable).with_name("cdc-platform"))))
    orders = _near(SNAPSHOT_PATH.at(outcome.lake, source=source, db="shop", table="orders"))
    read = f'from cdc_platform.demo.compare import read_snapshot as r; print(r("{orders}").to_pandas())'
    return {
        "open the UI": f"CDC_CONFIG={config} {program} ui",
        "more changes for its sensor": f"{program} demo --more 50{where}",
        "read a snapshot": f"{shlex.quote(_near(sys.executable))} -c {shlex.quote(read)}",
    }


def _near(path: str) -> str:
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
