"""A seeded random workload of DML and DDL, run on the database.

Which kinds of statements it holds can be chosen: every method that DML or DDL names is one.
"""

from collections.abc import Collection

from tests.oracle import tables as source
from tests.oracle.catalog import quoted
from tests.oracle.ddl import DDL, Ddl
from tests.oracle.dml import DML, Dml
from tests.oracle.server import Server
from tests.oracle.session import DB, Checkpoint, Told

ALL = frozenset((*DML, *DDL))


class Workload(Dml, Ddl):
    """`Workload(server, seed, kinds).run(changes, ddl, checkpoints)`; equal arguments give equal statements."""

    def __init__(self, server: Server, seed: int, kinds: Collection[str] = ALL):
        super().__init__(server, seed)
        self.kinds = kinds
        self._sql(f"CREATE DATABASE {DB}")
        self._sql("CREATE DATABASE elsewhere")
        self._sql(f"USE {DB}")
        for name, definition in source.TABLES.items():
            self._ddl("CREATE", f"CREATE TABLE {quoted(name)} {definition}", [(name, None)])
        self._ddl("CREATE", f"CREATE TABLE bare {source.KEYLESS}", [("bare", None)])

    def run(self, changes: int, ddl: int, checkpoints: int = 1) -> Told:
        """At least so many changed rows and DDL statements; all tables are looked at `checkpoints` times."""
        kinds = [k for k in DDL if k in self.kinds]
        work = [k for k in DML if k in self.kinds]
        for part in range(1, checkpoints + 1):
            while self.told.changes < changes * part / checkpoints or len(self.told.ddl) < ddl * part / checkpoints:
                per_ddl = changes / max(ddl, 1)
                if kinds and self.told.changes / per_ddl > len(self.told.ddl):
                    self._one_of(kinds)
                else:
                    self._one_of(work)
            self._checkpoint()
        return self.told

    def _one_of(self, kinds: list[str]) -> None:
        getattr(self, self.rng.choice(kinds))()

    def _checkpoint(self) -> None:
        found = {}
        for name in [r[0] for r in self.catalog.ask("SHOW TABLES FROM oracle")]:
            table = self.catalog.table(DB, name)
            assert table == self.live[name]
            found[name] = (self.live[name], self.catalog.rows(self.live[name]))
        [(gtid,)] = self._asked("SELECT @@gtid_binlog_pos")
        self.told.checkpoints.append(Checkpoint(gtid, found))
