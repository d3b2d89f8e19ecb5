"""Statements that change rows, as methods; `DML` names those that a workload may choose from."""

from typing import Any

from cdc_platform.feeds.shop import Table
from tests.oracle import tables as source
from tests.oracle.catalog import quoted
from tests.oracle.cells import cell, placeholder
from tests.oracle.session import DB, Session

_MOST_ROWS = 40
DML = (
    *("insert", "insert_many", "update", "update_many", "delete", "delete_many", "reinsert", "replace", "upsert"),
    *("several_tables", "rolled_back", "key_change", "keys_swapped", "keys_shifted"),
)


class Dml(Session):
    """INSERT, UPDATE, DELETE and REPLACE, alone and in transactions."""

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
