"""A real MariaDB, a feed of its binlog in one of the formats on the real broker, and a lake that reads it."""

import itertools
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from cdc_platform import chain
from cdc_platform.config import Config, load_config
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.feeds.publish import Record, publish
from cdc_platform.feeds.workload import SERVER_ID, Transaction
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.reconcile.server import Server as Source
from cdc_platform.reconcile.server import dsn_from
from cdc_platform.snapshots.target import Target
from cdc_platform.spark.session import leased
from tests.oracle import server as database
from tests.oracle.binlog import transactions
from tests.oracle.catalog import quoted
from tests.oracle.cells import placeholder
from tests.oracle.feeds import FEEDS
from tests.oracle.lake import compared
from tests.oracle.session import DB, Session

READER, PASSWORD = "loader", "p@ss/word:1"
NAME = "oracle"
DSN_ENV = "LOAD_TEST_DSN"


class Database(Session):
    """Its connection writes; `dsn` is of an account that may only read."""

    def __init__(self, server: database.Server):
        super().__init__(server, 1)
        self.server = server
        self._sql(f"CREATE DATABASE IF NOT EXISTS {DB}")
        self._sql(f"USE {DB}")
        self._allow()

    def _allow(self) -> None:
        """An account that may only read."""
        self._sql(f"CREATE USER IF NOT EXISTS {READER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        self._sql(f"GRANT SELECT, BINLOG MONITOR ON *.* TO {READER}@'127.0.0.1'")

    @property
    def dsn(self) -> str:
        return f"mysql://{READER}:p%40ss%2Fword%3A1@127.0.0.1:{self.server.port}"

    def create(self, name: str, definition: str) -> None:
        assert self._ddl("CREATE", f"CREATE TABLE {quoted(name)} {definition}", [(name, None)])

    def alter(self, name: str, what: str) -> None:
        assert self._ddl("ALTER", f"ALTER TABLE {quoted(name)} {what}", [(name, "")])

    def truncate(self, name: str) -> None:
        assert self._ddl("TRUNCATE", f"TRUNCATE TABLE {quoted(name)}", [(name, "")])

    def swap(self, name: str, by: str, old: str) -> None:
        """As an online schema change ends."""
        both = f"RENAME TABLE {quoted(name)} TO {quoted(old)}, {quoted(by)} TO {quoted(name)}"
        assert self._ddl("RENAME", both, [(old, name), (name, by)])

    def run(self, *statements: str) -> None:
        for one in statements:
            self._sql(one)

    def rows(self, name: str) -> list[tuple]:
        return self._asked(f"SELECT * FROM {quoted(name)}")

    def insert_random(self, name: str) -> None:
        """A row of random and extreme values."""
        table = self.live[name]
        names = ", ".join(quoted(c.name) for c in table.columns)
        row = self._row(table)
        self._change(f"INSERT INTO {quoted(name)} ({names}) VALUES ({', '.join(map(placeholder, row))})", row)

    def log(self) -> list[Transaction]:
        """All that its binlog has of the tables."""
        told = transactions(self.server, self.told.ddl)
        return [t for t in told if t.events or t.ddl]

    def own_gtid(self, tx: Transaction) -> str:
        """The server's own, which `transactions` gives as MySQL's tools would."""
        return f"0-{SERVER_ID}-{tx.gtid.rpartition(':')[2]}"


class World:
    """`publish` sends what is new in the binlog; `catch_up` runs the stages; `problems` compares with SELECT."""

    def __init__(self, spark: Any, bootstrap: str, db: Database, folder: Path, format: str, **rules: Any):
        self.spark, self.bootstrap, self.db, self.format = spark, bootstrap, db, format
        self.topic = f"load-{uuid.uuid4().hex[:8]}"
        self.feed = FEEDS[format]
        self.encoder = self.feed.encoder()
        self.sent = len(db.log())
        source = {
            **{"name": NAME, "format": format, "topic_pattern": f"{self.topic}.*"},
            **{"tables": {"include": [f"{DB}.*"], **rules}, "reconcile": {"dsn_env": DSN_ENV}},
        }
        told = {
            **{"lake": str(folder / "lake"), "kafka": {"bootstrap.servers": bootstrap}},
            **{"spark": {"master": "local[2]"}, "sources": [source]},
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "cdc.yaml"
        self.file.write_text(yaml.safe_dump(told))
        self.config: Config = load_config(self.file)
        self.source = self.config.source(NAME)

    @property
    def server(self) -> Source:
        return Source(dsn_from(DSN_ENV))

    def skip(self) -> None:
        """What the binlog has by now never comes: the feed begins here."""
        self.sent = len(self.db.log())

    def publish(self, lose: Callable[[Transaction], bool] = lambda _: False) -> None:
        """lose: transactions that never come to Kafka."""
        log = self.db.log()
        new, self.sent = log[self.sent :], len(log)
        records = self.encoder.encode(self._told(t) for t in new if not lose(t))
        publish(map(self._placed, records), self.bootstrap, default_partitions=1)

    def _told(self, tx: Transaction) -> Transaction:
        """Debezium says the server's own GTID."""
        return replace(tx, gtid=self.db.own_gtid(tx)) if self.format == "debezium" else tx

    def _placed(self, record: Record) -> Record:
        return record._replace(topic=f"{self.topic}.{record.topic}".replace("`", "").replace(" ", "_"))

    def catch_up(self, only: Iterable[str] = tuple(chain.STAGES)) -> None:
        with source_lock(self.config, self.source) as lease, leased(self.spark, lease):
            for name in only:
                chain.STAGES[name](self.spark, self.config, self.source)

    def problems(self, *names: str) -> list[str]:
        found = []
        for name in names:
            table = self.db.live[name]
            path = Target.of(self.config, NAME, DB, name).snapshot.uri()
            rows = self.db.catalog.rows(table)
            found += list(itertools.islice(compared(table, rows, read_snapshot(path), self.feed.as_sent, True), 5))
        return found

    def ledger(self) -> list[dict[str, Any]]:
        from cdc_platform.lake import queries

        return queries.ledger(self.config, [self.source])
