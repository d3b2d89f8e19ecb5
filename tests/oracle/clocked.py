"""A workload whose commit times are told: after each transaction all rows are asked for. One of two sessions holds
transactions open while the other one commits, so that rows are stamped earlier than what the log had before them."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from cdc_platform.feeds.workload import Transaction
from tests.oracle import server
from tests.oracle.binlog import transactions
from tests.oracle.session import DB, Session

BEGIN = 1_700_000_000
KEYED, SLOW, KEYLESS = ("often", "seldom"), "slow", "noted"
TABLES = (*KEYED, SLOW, KEYLESS)
Rows = dict[str, frozenset[tuple[int, int]]]
"""Table → (id, v); v is another one after each change."""


@dataclass(frozen=True)
class Commit:
    """A transaction, when it was committed (s), and all rows then."""

    transaction: Transaction
    time: int
    rows: Rows


class Clocked(Session):
    """Its clock is the test's."""

    def __init__(self, running: server.Server, seed: int):
        super().__init__(running, seed)
        self.clock, self.number = BEGIN, 0
        self.other = running.connect()
        self.open_since: int | None = None
        self.done: dict[int, tuple[int, int, Rows]] = {}
        """Number of its GTID → commit time, time that its rows are stamped with, all rows."""
        self._at(f"CREATE DATABASE {DB}")
        self._sql(f"USE {DB}")
        for name in TABLES:
            key = "" if name == KEYLESS else " PRIMARY KEY"
            self._sql(f"SET timestamp = {self.clock}")
            assert self._ddl("CREATE", f"CREATE TABLE {name} (id int{key}, v int)", [(name, None)])
            self._note(self.clock)
        self._on_other(f"USE {DB}")

    def _at(self, sql: str) -> None:
        self._sql(f"SET timestamp = {self.clock}")
        self._sql(sql)

    def _on_other(self, *statements: str) -> None:
        with self.other.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)
            cursor.execute("SELECT @@last_gtid")
            [(self.last,)] = cursor.fetchall()

    def _note(self, stamped: int, gtid: str = "") -> None:
        gtid = gtid or self._asked("SELECT @@last_gtid")[0][0]
        rows = {t: frozenset(self._asked(f"SELECT id, v FROM {t}")) for t in self.live}
        self.done.setdefault(int(gtid.rpartition("-")[2]), (self.clock, stamped, rows))

    def step(self) -> None:
        """Time goes on, perhaps, and something is committed."""
        self.clock += self.rng.choice([0, 0, 1, 2, 7])
        self.number += 1
        if self.rng.random() < 0.25:
            self._slowly()
            return
        table = self.rng.choice([KEYED[0]] * 6 + [KEYED[1], KEYLESS, KEYLESS])
        a, n = self.rng.randrange(6), self.number
        if table == KEYLESS:
            found = [f"INSERT INTO {table} VALUES ({n}, {n})", f"DELETE FROM {table} ORDER BY id LIMIT 1"]
        else:
            put = f"INSERT INTO {table} VALUES ({a}, {n}) ON DUPLICATE KEY UPDATE v = {n}"
            found = [put, put, f"UPDATE {table} SET v = {n} WHERE id <= {a}", f"DELETE FROM {table} WHERE id = {a}"]
        self._at(self.rng.choice(found))
        self._note(self.clock)

    def _slowly(self) -> None:
        """The other session begins a transaction, or commits the one that it has."""
        now = f"SET timestamp = {self.clock}"
        if self.open_since is None:
            n = self.number
            put = f"INSERT INTO {SLOW} VALUES ({n % 4}, {n}) ON DUPLICATE KEY UPDATE v = {n}"
            self._on_other(now, "BEGIN", put)
            self.open_since = self.clock
        else:
            self._on_other(now, "COMMIT")
            self._note(self.open_since, self.last)
            self.open_since = None


def made(seed: int, steps: int) -> list[Commit]:
    """What the log has, in its order."""
    with tempfile.TemporaryDirectory(prefix="clocked") as folder, server.running(Path(folder)) as running:
        session = Clocked(running, seed)
        for _ in range(steps):
            session.step()
        if session.open_since is not None:
            session._slowly()
        found = []
        for tx in transactions(running, session.told.ddl):
            if not tx.events and not tx.ddl:
                continue
            time, stamped, rows = session.done[int(tx.gtid.rpartition(":")[2])]
            assert tx.timestamp_ms == time * 1000, "the log has the commit's time"
            found.append(Commit(replace(tx, timestamp_ms=stamped * 1000), time, rows))
    return found
