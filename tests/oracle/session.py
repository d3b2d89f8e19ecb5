"""A session on the database that runs statements and writes down what the DDL among them did."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pymysql

from cdc_platform.feeds.shop import Column, Table
from cdc_platform.feeds.workload import TableChange
from tests.oracle.catalog import Catalog, Rows, quoted
from tests.oracle.cells import cell, parameters
from tests.oracle.server import Server

DB = "oracle"
_REFUSED = (
    167,
    1054,
    1060,
    1061,
    1062,
    1067,
    1071,
    1091,
    1101,
    1118,
    1170,
    1171,
    1264,
    1265,
    1292,
    1364,
    1366,
    1406,
    4025,
)
"""The database's own No: duplicate keys, values that don't fit a narrower column, names in use."""
_ARE_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class Done:
    """A DDL statement that the database took: its GTID, canal's event type, the names tools give it, and the rows of
    the tables it concerns, right before and right after."""

    gtid: str
    kind: str
    target: tuple[str, str]
    changes: tuple[TableChange, ...]
    before: dict[str, Rows]
    after: dict[str, Rows]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All tables as they were after the transaction of this GTID."""

    gtid: str
    tables: dict[str, tuple[Table, Rows]]


@dataclass(slots=True)
class Told:
    """What the workload knows of its own statements."""

    ddl: dict[str, Done] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    changes: int = 0


class Session:
    """The connection that writes, one that only asks, and the tables as they are now (`live`)."""

    def __init__(self, server: Server, seed: int):
        self.rng, self.told = random.Random(seed), Told()
        self.connection, self.catalog = server.connect(), self._asks(server)
        self.live: dict[str, Table] = {}
        self._named = 0

    def _asks(self, server: Server) -> Catalog:
        return Catalog(server.connect())

    def _last_gtid(self) -> str:
        """Of the last transaction of this session, as the reader of the log tells it."""
        [(gtid,)] = self._asked("SELECT @@last_gtid")
        return gtid

    def _sql(self, sql: str, values: list[Any] | None = None) -> int:
        with self.connection.cursor() as cursor:
            return cursor.execute(sql, parameters(values) if values is not None else None)

    def _change(self, sql: str, values: list[Any]) -> int:
        """A statement that changes rows; what the database refuses changes nothing."""
        try:
            count = self._sql(sql, values)
        except pymysql.err.MySQLError as error:
            if error.args[0] not in _REFUSED:
                raise
            return 0
        self.told.changes += count
        return count

    @contextmanager
    def _transaction(self, end: str = "COMMIT") -> Iterator[None]:
        self._sql("BEGIN")
        yield
        self._sql(end)

    def _ddl(self, kind: str, sql: str, results: list[tuple[str, str | None]], shown: str | None = None) -> bool:
        """One statement. `results`: each table it concerns by its name afterwards, and the one before ("": the same;
        None: there was none). Returns whether the database took it."""
        olds = [old or new for new, old in results if old is not None]
        before = {name: self.catalog.rows(self.live[name]) for name in olds if name in self.live}
        try:
            self._sql(sql)
        except pymysql.err.MySQLError as error:
            if error.args[0] not in _REFUSED:
                raise
            return False
        gtid, changes = self._last_gtid(), []
        for new, old in results:
            was = None if old is None else self.live.pop(old or new)
            # Of several renames one may undo what another did: only the last state can be asked for.
            table = replace(was, name=new) if was and old else self.catalog.table(DB, new)
            if table is not None:
                self.live[new] = table
            changes.append(TableChange(DB, new, table, old is None, (DB, old) if old else None))
        assert all(self.live.get(new) == self.catalog.table(DB, new) for new, _ in results)
        after = {new: self.catalog.rows(self.live[new]) for new, _ in results if new in self.live}
        if kind in ("CINDEX", "DINDEX") and not sql.startswith("ALTER"):
            changes = []
        target = (DB, shown or results[0][0])
        self.told.ddl[gtid] = Done(gtid, kind, target, tuple(changes), before, after)
        return True

    def _asked(self, sql: str) -> list[tuple]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def _alter(self, kind: str, name: str, what: str) -> bool:
        """ALTER TABLE; now and then from a session of another database."""
        if self.rng.random() < 0.85:
            return self._ddl(kind, f"ALTER TABLE {quoted(name)} {what}", [(name, "")])
        self._sql("USE elsewhere")
        done = self._ddl(kind, f"alter table {DB} . {quoted(name)}\n {what}", [(name, "")])
        self._sql(f"USE {DB}")
        return done

    def _any(self, fits: Callable[[Table], bool] = lambda _: True) -> Table | None:
        found = [t for _, t in sorted(self.live.items()) if fits(t)]
        return self.rng.choice(found) if found else None

    def _keys(self, table: Table, count: int = 1) -> list[list[Any]]:
        """Keys of some rows, none twice; a table without a key gives whole rows."""
        columns = [c for c in table.columns if c.key or not table.key]
        names = ", ".join(quoted(c.name) for c in columns)
        rows = self.catalog.ask(f"SELECT DISTINCT {names} FROM {quoted(DB)}.{quoted(table.name)} ORDER BY {names}")
        some = self.rng.sample(rows, min(count, len(rows)))
        return [[_typed(c, v) for c, v in zip(columns, row, strict=True)] for row in some]

    def _where(self, table: Table, keys: list[list[Any]]) -> tuple[str, list[Any]]:
        columns = [c for c in table.columns if c.key or not table.key]
        one = "(" + " AND ".join(f"{quoted(c.name)} <=> %s" for c in columns) + ")"
        return " OR ".join([one] * len(keys)), [v for key in keys for v in key]

    def _row(self, table: Table) -> list[Any]:
        return [cell(self.rng, c) for c in table.columns]

    def _name(self, stem: str) -> str:
        self._named += 1
        return f"{stem}_{self._named}"


def _typed(column: Column, value: Any) -> Any:
    # A number as text would be compared as a double.
    return int(value) if value is not None and column.base in _ARE_INTEGERS else value
