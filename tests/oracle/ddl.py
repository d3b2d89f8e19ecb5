"""Statements that change tables, as methods; `DDL` names those that a workload may choose from."""

from cdc_platform.feeds.shop import Column, Table
from tests.oracle import tables as source
from tests.oracle.catalog import quoted
from tests.oracle.session import DB, Session

DDL = (
    *("create", "create_like", "drop", "drop_and_create", "truncate", "rename_table", "swap_tables", "ghost"),
    *("add_column", "add_column_first", "add_column_after", "add_column_default"),
    *("drop_column", "rename_column", "modify", "change_key"),
    *("add_index", "drop_index", "index_by_statement", "comment", "charset"),
)


class Ddl(Session):
    """CREATE, DROP, RENAME, TRUNCATE, ALTER and indexes; a ghost of a table in its place."""

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
