"""A small shop as a source database in memory: seeded transactions, and the truth they lead to.

The truth is kept by the statements themselves, in Python's own types, before any encoder sees a change; so
a snapshot that equals it can't owe that to a mistake made twice.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from cdc_platform.feeds import values
from cdc_platform.feeds.shop import CUSTOMERS, ITEMS, ORDERS, TABLES, Table

Row = dict[str, Any]
"""Column name → int, Decimal, float, str, bytes, date, naive or UTC datetime, timedelta (TIME) or None."""

# A server numbers its binlogs with at least six digits and goes on past them: sorted as text,
# mysql-bin.1000000 comes before mysql-bin.999999.
FIRST_FILE = 999_998
SERVER_ID = 223344
SERVER_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
START_MS = 1_790_000_000_000
MAX_BINLOG_BYTES = 60_000
BIG_NOTE_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row of one rows event. Rows of one statement share `pos` and count up in `row`."""

    table: Table
    op: str  # insert | update | delete
    before: Row | None
    after: Row | None
    pos: int
    row: int


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a DDL statement did to a table: its state afterwards (None: it is gone); after a rename, its old name."""

    db: str
    name: str
    table: Table | None
    created: bool = False
    old: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Ddl:
    """One DDL statement. `db`: its session's database; `kind`: its canal event type (CREATE, ALTER, ERASE, TRUNCATE,
    RENAME, CINDEX, DINDEX, QUERY); `target`: database and table that tools name it by (a rename: the new one)."""

    db: str
    sql: str
    kind: str
    target: tuple[str, str]
    changes: tuple[TableChange, ...] = ()

    @classmethod
    def creating(cls, table: Table) -> "Ddl":
        change = TableChange(table.db, table.name, table, created=True)
        return cls(table.db, table.ddl, "CREATE", (table.db, table.name), (change,))


@dataclass(frozen=True, slots=True)
class Transaction:
    """One binlog transaction, or (`ddl` set, no events) one DDL statement.

    `pos` is where it begins, `end_pos` where its commit event ends; both in `file`. Times are ms since epoch.
    """

    gtid: str
    file: str
    pos: int
    end_pos: int
    timestamp_ms: int
    thread_id: int
    events: tuple[RowChange, ...]
    ddl: Ddl | None = None


class Workload:
    """`Workload(seed, n)` holds the tables' DDL, a fixed set of hard cases and n random transactions.

    `transactions`: all so far, in commit order. `truth`: full table name → {key tuple: row}, the content of
    the tables after the last of them. `advance(n)` makes more and returns only the new ones. Equal seeds
    and equal calls give equal transactions.
    """

    def __init__(self, seed: int = 0, transactions: int = 200):
        self.truth: dict[str, dict[tuple, Row]] = {name: {} for name in TABLES}
        self.transactions: list[Transaction] = []
        self._rng = random.Random(seed)  # noqa: S311 (a workload, not a secret)
        self._file, self._pos, self._gno, self._now = FIRST_FILE, 4, 8, START_MS
        self._order_no = 0
        self._changes: list[RowChange] = []
        for table in TABLES.values():
            self._commit(ddl=Ddl.creating(table))
        self._hard_cases()
        # The extremes stay as they are, and the 2 MB row isn't rewritten by chance.
        self._protected = {name: frozenset(rows) for name, rows in self.truth.items()}
        self._new_customer(20)
        self._commit()
        self.advance(transactions)

    def advance(self, n: int) -> list[Transaction]:
        """n more transactions: `[Transaction, …]`, already part of `transactions` and `truth`."""
        start = len(self.transactions)
        for _ in range(n):
            # Half of the work makes orders, the rest changes what is there.
            self._rng.choices(
                (
                    self._new_order,
                    self._new_customer,
                    self._pay,
                    self._edit_customers,
                    self._cancel,
                    self._renumber,
                    self._replace_item,
                ),
                (40, 15, 20, 10, 6, 3, 6),
            )[0]()
            self._commit()
        return self.transactions[start:]

    # -- statements: each changes the truth and writes one rows event ----------------------------------

    def insert(self, table: Table, *rows: Row) -> None:
        for row in rows:
            live, key = self.truth[table.full_name], table.key_of(row)
            if key in live:
                raise ValueError(f"duplicate key {key} in {table.full_name}")
            live[key] = row
        self._event(table, "insert", [(None, row) for row in rows])

    def update(self, table: Table, *pairs: tuple[tuple, Row]) -> None:
        """pairs: (key, changed columns); a changed key column moves the row to its new key."""
        images = []
        for key, changed in pairs:
            live = self.truth[table.full_name]
            before = live.pop(key)
            after = {**before, **changed}
            if table.key_of(after) in live:
                raise ValueError(f"duplicate key {table.key_of(after)} in {table.full_name}")
            live[table.key_of(after)] = after
            images.append((before, after))
        self._event(table, "update", images)

    def delete(self, table: Table, *keys: tuple) -> None:
        self._event(table, "delete", [(self.truth[table.full_name].pop(key), None) for key in keys])

    def _event(self, table: Table, op: str, images: list[tuple[Row | None, Row | None]]) -> None:
        # An empty statement leaves nothing in the binlog. A table map event of ~60 bytes precedes the rows.
        if not images:
            return
        pos = self._pos + 180 + sum(60 + _size(c.after or c.before) for c in self._changes)
        self._changes += [RowChange(table, op, b, a, pos, i) for i, (b, a) in enumerate(images)]

    def _commit(self, ddl: Ddl | None = None) -> None:
        if not self._changes and ddl is None:
            return
        start = self._pos
        last = self._changes[-1] if self._changes else None
        end = start + 400 if last is None else last.pos + _size(last.after or last.before) + 91
        self._gno += 1
        self._now += self._rng.randint(1, 1500)
        self.transactions.append(
            Transaction(
                f"{SERVER_UUID}:{self._gno}",
                f"mysql-bin.{self._file:06d}",
                start,
                end,
                self._now,
                self._rng.randint(10, 40),
                tuple(self._changes),
                ddl,
            )
        )
        self._changes = []
        self._pos = end
        # max_binlog_size rolls the file between transactions, never inside one.
        if self._pos > MAX_BINLOG_BYTES:
            self._file, self._pos = self._file + 1, 4

    # -- what the shop does ----------------------------------------------------------------------------

    def _hard_cases(self) -> None:
        for step in _HARD_CASES:
            step(self)
            self._commit()

    def _new_customer(self, count: int = 1) -> None:
        known = self.truth[CUSTOMERS.full_name]
        rows = [values.customer(self._rng, self._now) for _ in range(count)]
        self.insert(CUSTOMERS, *(r for r in rows if (r["id"],) not in known))

    def _new_order(self) -> None:
        rng = self._rng
        self._order_no += 1
        order = values.order(rng, self._now, self._order_no, self._any(CUSTOMERS)[0])
        items = [values.item(rng, self._order_no, line) for line in range(1, rng.randint(2, 6))]
        self.insert(ORDERS, order)
        self.insert(ITEMS, *items)
        total = sum((i["price"] for i in items), Decimal("0.00"))
        self.update(ORDERS, ((self._order_no,), {"amount": total}))

    def _pay(self) -> None:
        keys = {self._any(ORDERS) for _ in range(self._rng.randint(1, 3))}
        paid = {"status": "paid", "changed": values.utc(self._now, 0)}
        self.update(ORDERS, *((key, paid) for key in sorted(keys)))

    def _edit_customers(self) -> None:
        keys = sorted({self._any(CUSTOMERS) for _ in range(self._rng.randint(1, 4))})
        for key in keys:
            fresh = values.customer(self._rng, self._now)
            names = self._rng.sample([c.name for c in CUSTOMERS.columns if not c.key], 4)
            self.update(CUSTOMERS, (key, {n: fresh[n] for n in names}))

    def _cancel(self) -> None:
        order = self._any(ORDERS)
        self.delete(ITEMS, *self._items_of(order[0]))
        self.delete(ORDERS, order)

    def _renumber(self) -> None:
        """An update of primary keys, over two tables."""
        old = self._any(ORDERS)[0]
        self._order_no += 1
        self.update(ORDERS, ((old,), {"id": self._order_no}))
        self.update(ITEMS, *((key, {"order_id": self._order_no}) for key in self._items_of(old)))

    def _replace_item(self) -> None:
        """Delete and insert of the same key within one transaction."""
        key = self._any(ITEMS)
        self.delete(ITEMS, key)
        self.insert(ITEMS, values.item(self._rng, *key))

    def _any(self, table: Table) -> tuple:
        """A random live key; makes an order first when none is left (customers aren't deleted by chance)."""
        live = [key for key in self.truth[table.full_name] if key not in self._protected[table.full_name]]
        if live or table is CUSTOMERS:
            return self._rng.choice(live)
        self._new_order()
        return self._any(table)

    def _items_of(self, order_id: int) -> list[tuple]:
        return [key for key in self.truth[ITEMS.full_name] if key[0] == order_id]


def _size(row: Row | None) -> int:
    """Bytes a row takes in the binlog, roughly: positions have only to grow."""
    return sum(len(v) if isinstance(v, (str, bytes)) else 8 for v in (row or {}).values())


def _extremes(w: Workload) -> None:
    w.insert(CUSTOMERS, *values.extreme_customers())
    w.insert(ORDERS, *values.extreme_orders())


def _big_note(w: Workload) -> None:
    w.insert(ORDERS, {**values.extreme_orders()[0], "id": 9_000_001, "note": values.big_text(BIG_NOTE_BYTES)})


def _touch_big_note(w: Workload) -> None:
    w.update(ORDERS, ((9_000_001,), {"status": "sent"}))


def _delete_then_insert(w: Workload) -> None:
    row = w.truth[ITEMS.full_name][(9_000_000, 1)]
    w.delete(ITEMS, (9_000_000, 1))
    w.insert(ITEMS, {**row, "remark": "again"})


def _items(w: Workload) -> None:
    w.insert(ITEMS, *(values.item(w._rng, 9_000_000, line) for line in (1, 2, 3)))


_HARD_CASES = (
    _extremes,
    _big_note,
    _items,
    _delete_then_insert,
    # Keys swapped through a third one, inside one transaction: only the order of rows tells who stays.
    lambda w: [w.update(ITEMS, ((9_000_000, a), {"line_no": b})) for a, b in ((2, 9), (3, 2), (9, 3))],
    lambda w: w.delete(ITEMS, (9_000_000, 3)),
    lambda w: w.delete(CUSTOMERS, (2**64 - 1,)),
    lambda w: w.insert(CUSTOMERS, {**values.extreme_customers()[0], "visits": None}),
    _touch_big_note,
)
"""Steps every workload begins with, each its own transaction: what the issue's list of hard values names."""


def row_events(transaction: Transaction) -> Iterator[list[RowChange]]:
    """The transaction's rows events: changes that share a position, in order."""
    group: list[RowChange] = []
    for change in transaction.events:
        if group and change.pos != group[0].pos:
            yield group
            group = []
        group.append(change)
    if group:
        yield group
