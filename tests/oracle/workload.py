"""A seeded random workload of DML and DDL, run on the database; what each DDL statement did is written down.

Which kinds of statements it holds can be chosen: every method of `Workload` that stands in DML or DDL is one.
"""

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pymysql

from cdc_platform.demo.shop import Column, Table
from cdc_platform.demo.workload import TableChange
from tests.oracle import tables as source
from tests.oracle.catalog import Catalog, Rows, quoted
from tests.oracle.cells import cell, parameters, placeholder
from tests.oracle.server import Server

DB = "oracle"
_MOST_ROWS = 40
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

DML = (
    *("insert", "insert_many", "update", "update_many", "delete", "delete_many", "reinsert", "replace", "upsert"),
    *("several_tables", "rolled_back", "key_change", "keys_swapped", "keys_shifted"),
)
DDL = (
    *("create", "create_like", "drop", "drop_and_create", "truncate", "rename_table", "swap_tables", "ghost"),
    *("add_column", "add_column_first", "add_column_after", "add_column_default"),
    *("drop_column", "rename_column", "modify", "change_key"),
    *("add_index", "drop_index", "index_by_statement", "comment", "charset"),
)
ALL = frozenset((*DML, *DDL))


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


class Workload:
    """`Workload(server, seed, kinds).run(changes, ddl, checkpoints)`; equal arguments give equal statements."""

    def __init__(self, server: Server, seed: int, kinds: Collection[str] = ALL, keyless: bool = True):
        self.rng, self.kinds, self.told = random.Random(seed), kinds, Told()
        self.connection, self.catalog = server.connect(), Catalog(server.connect())
        self.live: dict[str, Table] = {}
        self._named = 0
        self._sql(f"CREATE DATABASE {DB}")
        self._sql("CREATE DATABASE elsewhere")
        self._sql(f"USE {DB}")
        for name, definition in source.TABLES.items():
            self._ddl("CREATE", f"CREATE TABLE {quoted(name)} {definition}", [(name, None)])
        if keyless:
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

    # -- running statements ----------------------------------------------------------------------------

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
        [(gtid,)] = self._asked("SELECT @@last_gtid")
        changes = []
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

    def _checkpoint(self) -> None:
        found = {}
        for name in [r[0] for r in self.catalog.ask("SHOW TABLES FROM oracle")]:
            table = self.catalog.table(DB, name)
            assert table == self.live[name]
            found[name] = (self.live[name], self.catalog.rows(self.live[name]))
        [(gtid,)] = self._asked("SELECT @@gtid_binlog_pos")
        self.told.checkpoints.append(Checkpoint(gtid, found))

    # -- what there is ---------------------------------------------------------------------------------

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

    # -- DML -------------------------------------------------------------------------------------------

    def _some(self) -> Table:
        """Half of the work is on the tables of all types."""
        wide = self.rng.random() < 0.5
        table = self._any(lambda t: t.name in source.WIDE or not wide)
        assert table
        return table

    def insert(self, count: int = 1) -> None:
        table = self._some()
        [(rows,)] = self.catalog.ask(f"SELECT count(*) FROM {DB}.{quoted(table.name)}")
        if int(rows) < _MOST_ROWS:
            self._insert(table, [self._row(table) for _ in range(count)])

    def _insert(self, table: Table, rows: list[list[Any]], verb: str = "INSERT", tail: str = "") -> int:
        names = ", ".join(quoted(c.name) for c in table.columns)
        values = ", ".join("(" + ", ".join(map(placeholder, row)) + ")" for row in rows)
        return self._change(
            f"{verb} INTO {quoted(table.name)} ({names}) VALUES {values} {tail}", [v for row in rows for v in row]
        )

    def insert_many(self) -> None:
        self.insert(self.rng.randint(2, 8))

    def update(self, count: int = 1) -> None:
        table = self._some()
        keys, free = self._keys(table, count), [c for c in table.columns if not c.key]
        if not keys or not free:
            return
        chosen = self.rng.sample(free, min(len(free), self.rng.randint(1, 4)))
        values = [cell(self.rng, c) for c in chosen]
        told = ", ".join(f"{quoted(c.name)} = {placeholder(v)}" for c, v in zip(chosen, values, strict=True))
        where, found = self._where(table, keys)
        self._change(f"UPDATE {quoted(table.name)} SET {told} WHERE {where}", [*values, *found])

    def update_many(self) -> None:
        self.update(self.rng.randint(2, 6))

    def delete(self, count: int = 1) -> None:
        table = self._any()
        assert table
        if keys := self._keys(table, count):
            where, values = self._where(table, keys)
            self._change(f"DELETE FROM {quoted(table.name)} WHERE {where}", values)

    def delete_many(self) -> None:
        self.delete(self.rng.randint(2, 4))

    def reinsert(self) -> None:
        """A row is deleted and comes again under its key, in one transaction or two."""
        table = self._any(lambda t: bool(t.key))
        assert table
        keys = self._keys(table)
        if not keys:
            return
        where, values = self._where(table, keys)
        row = self._with_key(table, keys[0])
        apart = self.rng.random() < 0.5
        self._sql("BEGIN")
        self._change(f"DELETE FROM {quoted(table.name)} WHERE {where}", values)
        if apart:
            self._sql("COMMIT")
        self._insert(table, [row])
        self._sql("COMMIT")

    def _with_key(self, table: Table, key: list[Any]) -> list[Any]:
        told = iter(key)
        return [next(told) if c.key else cell(self.rng, c) for c in table.columns]

    def replace(self, verb: str = "REPLACE", tail: str = "") -> None:
        table = self._any(lambda t: bool(t.key))
        assert table
        if keys := self._keys(table):
            self._insert(table, [self._with_key(table, keys[0])], verb, tail)

    def upsert(self) -> None:
        table = self._any(lambda t: bool(t.key) and any(not c.key for c in t.columns))
        assert table
        if keys := self._keys(table):
            c = self.rng.choice([c for c in table.columns if not c.key])
            tail = f"ON DUPLICATE KEY UPDATE {quoted(c.name)} = VALUES({quoted(c.name)})"
            self._insert(table, [self._with_key(table, keys[0]), self._row(table)], tail=tail)

    def several_tables(self) -> None:
        with self._transaction():
            for _ in range(self.rng.randint(2, 6)):
                self.rng.choice((self.insert, self.update, self.update_many, self.delete))()

    def rolled_back(self) -> None:
        """Nothing of it reaches the binlog."""
        counted = self.told.changes
        with self._transaction("ROLLBACK"):
            self.insert()
            self.update()
        self.told.changes = counted

    def key_change(self) -> None:
        table = self._any(lambda t: bool(t.key))
        assert table
        if keys := self._keys(table):
            c = self.rng.choice([c for c in table.columns if c.key])
            value = cell(self.rng, c)
            where, values = self._where(table, keys)
            told = f"{quoted(c.name)} = {placeholder(value)}"
            self._change(f"UPDATE {quoted(table.name)} SET {told} WHERE {where}", [value, *values])

    def keys_swapped(self) -> None:
        """Two rows change places through a third key, within one transaction."""
        table = self._any(lambda t: bool(t.key))
        assert table
        keys = self._keys(table, 2)
        names = [c for c in table.columns if c.key]
        if len(keys) < 2:
            return
        third = [cell(self.rng, c) for c in names]
        where, found = self._where(table, [third])
        if self._asked_count(table, where, found):
            return
        told = ", ".join(f"{quoted(c.name)} = %s" for c in names)
        with self._transaction():
            for old, new in ((keys[0], third), (keys[1], keys[0]), (third, keys[1])):
                where, found = self._where(table, [old])
                self._change(f"UPDATE {quoted(table.name)} SET {told} WHERE {where}", [*new, *found])

    def _asked_count(self, table: Table, where: str, values: list[Any]) -> int:
        sql = f"SELECT count(*) FROM {DB}.{quoted(table.name)} WHERE {where}"
        return int(self.catalog.ask(sql, tuple(values))[0][0])

    def keys_shifted(self) -> None:
        """Every row of one statement takes its neighbour's key."""
        table = self.live.get("parts")
        if table is None or "line" not in table.key:
            return
        if rows := self.catalog.ask(
            "SELECT order_id FROM oracle.parts GROUP BY order_id ORDER BY count(*) DESC LIMIT 1"
        ):
            order = int(rows[0][0])
            row = dict(zip([c.name for c in table.columns], self._row(table), strict=True))
            for line in (1, 2, 3):
                self._insert(table, [list({**row, "order_id": order, "line": line}.values())])
            self._change("DELETE FROM parts WHERE order_id = %s AND line = 4", [order])
            self._change(
                "UPDATE parts SET line = line + 1 WHERE order_id = %s AND line < 4 ORDER BY line DESC", [order]
            )

    # -- DDL -------------------------------------------------------------------------------------------

    def create(self) -> None:
        name = self._name("made")
        columns = ", ".join(f"c{i} {d}" for i, d in enumerate(self.rng.sample(source.ADDED, 5)))
        self._ddl(
            "CREATE",
            f"CREATE TABLE IF NOT EXISTS {name} (id int PRIMARY KEY, {columns}) COMMENT='x; y'",
            [(name, None)],
        )

    def create_like(self) -> None:
        model = self._any(lambda t: not _is_made(t))
        assert model
        name = self._name("copy")
        self._ddl("CREATE", f"CREATE TABLE {name} LIKE {quoted(model.name)}", [(name, None)])
        self._change(f"INSERT INTO {name} SELECT * FROM {quoted(model.name)} LIMIT 5", [])

    def drop(self) -> None:
        found = [t.name for _, t in sorted(self.live.items()) if _is_made(t)]
        names = self.rng.sample(found, min(len(found), self.rng.randint(1, 2)))
        if names:
            told = ", ".join(map(quoted, names))
            self._ddl("ERASE", f"DROP TABLE IF EXISTS {told}", [(name, "") for name in names])

    def drop_and_create(self) -> None:
        self._ddl("ERASE", "DROP TABLE notes", [("notes", "")])
        columns = ", ".join(
            f"{n} {d}" for n, d in zip(("title", "body", "z"), self.rng.sample(source.ADDED, 3), strict=True)
        )
        self._ddl("CREATE", f"CREATE TABLE notes (id int NOT NULL, {columns}, PRIMARY KEY (id))", [("notes", None)])

    def truncate(self) -> None:
        table = self._any()
        assert table
        word = self.rng.choice(("TRUNCATE TABLE", "truncate"))
        self._ddl("TRUNCATE", f"{word} {quoted(table.name)}", [(table.name, "")])

    def rename_table(self) -> None:
        if table := self._any(_is_made):
            name = self._name("made")
            if self.rng.random() < 0.5:
                self._ddl("RENAME", f"RENAME TABLE {quoted(table.name)} TO {name}", [(name, table.name)])
            else:
                self._ddl("RENAME", f"ALTER TABLE {DB}.{quoted(table.name)} RENAME TO {name}", [(name, table.name)])

    def swap_tables(self) -> None:
        made = [t.name for _, t in sorted(self.live.items()) if _is_made(t)]
        if len(made) >= 2:
            a, b = self.rng.sample(made, 2)
            self._swap(a, b)

    def _swap(self, a: str, b: str) -> None:
        """a and b change names by way of a third one: three renames in one statement."""
        sql = f"RENAME TABLE {quoted(a)} TO _swap, {quoted(b)} TO {quoted(a)}, _swap TO {quoted(b)}"
        self._ddl("RENAME", sql, [("_swap", a), (a, b), (b, "_swap")])

    def ghost(self) -> None:
        """As gh-ost changes a table: beside it, row by row, and in its place at last."""
        table = self._any(lambda t: bool(t.key) and t.name in ("parts", "notes", "odd `keys`"))
        assert table
        ghost, gone = f"_{table.name}_gho", f"_{table.name}_del"
        self._ddl(
            "CREATE",
            f"CREATE TABLE {quoted(DB)}.{quoted(ghost)} LIKE {quoted(DB)}.{quoted(table.name)}",
            [(ghost, None)],
        )
        added = f"ADD COLUMN {quoted(self._name('g'))} {self.rng.choice(source.ADDED)}"
        self._alter("ALTER", ghost, added)
        names = ", ".join(quoted(c.name) for c in table.columns)
        self._change(f"INSERT IGNORE INTO {quoted(ghost)} ({names}) SELECT {names} FROM {quoted(table.name)}", [])
        swap = f"RENAME TABLE {quoted(table.name)} TO {quoted(gone)}, {quoted(ghost)} TO {quoted(table.name)}"
        self._ddl("RENAME", swap, [(gone, table.name), (table.name, ghost)])
        self._ddl("ERASE", f"DROP TABLE IF EXISTS {quoted(gone)} /* gh-ost */", [(gone, "")])

    def add_column(self, where: str = "", definitions: tuple[str, ...] = source.ADDED_NULL) -> None:
        table = self._any()
        assert table
        name = next((n for n in source.NAMES if n not in {c.name for c in table.columns}), self._name("c"))
        word = self.rng.choice(("ADD COLUMN", "add", "ADD COLUMN IF NOT EXISTS"))
        self._alter("ALTER", table.name, f"{word} {quoted(name)} {self.rng.choice(definitions)} {where}".rstrip())

    def add_column_first(self) -> None:
        self.add_column("FIRST")

    def add_column_after(self) -> None:
        table = self._any()
        assert table
        name = self._name("after")
        behind = self.rng.choice(table.columns).name
        kind = self.rng.choice(source.ADDED_NULL)
        self._alter("ALTER", table.name, f"ADD {name} {kind} AFTER {quoted(behind)}")

    def add_column_default(self) -> None:
        """The rows that are there get the default."""
        self.add_column(definitions=source.ADDED_DEFAULT)

    def _loose(self) -> tuple[Table, Column] | None:
        """A column that may go or change."""
        found = [
            (t, c)
            for _, t in sorted(self.live.items())
            for c in t.columns
            if not c.key and (t.name == "notes" or _is_made(t) or c.name in source.NAMES)
        ]
        return self.rng.choice(found) if found else None

    def drop_column(self) -> None:
        if found := self._loose():
            table, column = found
            self._alter("ALTER", table.name, f"DROP COLUMN {quoted(column.name)}")

    def rename_column(self) -> None:
        if found := self._loose():
            table, column = found
            self._alter("ALTER", table.name, f"RENAME COLUMN {quoted(column.name)} TO {self._name('renamed')}")

    def modify(self) -> None:
        found = self._loose()
        types = source.WIDER.get(found[1].type) if found else None
        if found and types:
            table, column = found
            name, kind = quoted(column.name), self.rng.choice(types)
            place = self.rng.choice(("", "", " FIRST"))
            if self.rng.random() < 0.5:
                self._alter("ALTER", table.name, f"MODIFY COLUMN {name} {kind}{place}")
            else:
                self._alter("ALTER", table.name, f"CHANGE {name} {self._name('changed')} {kind}{place}")

    def change_key(self) -> None:
        table = self.live.get("parts")
        if table is None:
            return
        key = self.rng.choice(("line, order_id", "order_id, line, qty", "order_id, line"))
        if all(any(c.name == k for c in table.columns) for k in key.split(", ")):
            self._alter("ALTER", "parts", f"DROP PRIMARY KEY, ADD PRIMARY KEY ({key})")

    def _indexable(self) -> tuple[Table, Column]:
        found = [
            (t, c) for _, t in sorted(self.live.items()) for c in t.columns if c.base in ("int", "datetime", "decimal")
        ]
        return self.rng.choice(found)

    def add_index(self) -> None:
        table, column = self._indexable()
        self._alter("CINDEX", table.name, f"ADD INDEX {self._name('ix')} ({quoted(column.name)})")

    def drop_index(self) -> None:
        if found := self._indexes():
            table, index = self.rng.choice(found)
            self._alter("DINDEX", table, f"DROP INDEX {quoted(index)}")

    def _indexes(self) -> list[tuple[str, str]]:
        sql = "SELECT DISTINCT TABLE_NAME, INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s"
        return [(t, i) for t, i in self.catalog.ask(sql + " AND INDEX_NAME LIKE 'ix%%' ORDER BY 1, 2", (DB,))]

    def index_by_statement(self) -> None:
        found = self._indexes()
        if found and self.rng.random() < 0.4:
            table, index = self.rng.choice(found)
            self._ddl("DINDEX", f"DROP INDEX {quoted(index)} ON {quoted(table)}", [(table, "")])
        else:
            chosen, column = self._indexable()
            on = f"{quoted(chosen.name)} ({quoted(column.name)})"
            self._ddl("CINDEX", f"CREATE INDEX {self._name('ix')} ON {on}", [(chosen.name, "")])

    def comment(self) -> None:
        table = self._any()
        assert table
        self._alter("ALTER", table.name, self.rng.choice(("COMMENT 'it''s; a -- note'", "COMMENT='drop column x'")))

    def charset(self) -> None:
        if table := self._any(lambda t: _is_made(t) or t.name == "notes"):
            self._alter("ALTER", table.name, "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")


def _is_made(table: Table) -> bool:
    return table.name.startswith(("made_", "copy_"))


def _typed(column: Column, value: Any) -> Any:
    # A number as text would be compared as a double.
    return int(value) if value is not None and column.base in _ARE_INTEGERS else value
