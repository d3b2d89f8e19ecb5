"""A small lake without Spark: snapshots of several versions, their states and cuts, as the platform writes them."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from cdc_platform import tables
from tests.rows import add

AT = datetime(2026, 11, 20, tzinfo=UTC)
BIG = 2**60 + 1
"""A number that a double has no room for."""


def orders(*rows: tuple[int, str | None, int | None]) -> pa.Table:
    """(id, amount, parent) → rows of shop.orders with bookkeeping."""
    return pa.table(
        {
            "id": pa.array([r[0] for r in rows], pa.int64()),
            "amount": pa.array([None if r[1] is None else Decimal(r[1]) for r in rows], pa.decimal128(12, 2)),
            "parent": pa.array([r[2] for r in rows], pa.int64()),
            'odd "name`': pa.array(["x"] * len(rows)),
            "_cdc_source_time": pa.array([AT] * len(rows), pa.timestamp("us", "UTC")),
        }
    )


def items(*rows: tuple[int, int]) -> pa.Table:
    """(id, order) → rows of shop.items."""
    return pa.table(
        {"id": pa.array([r[0] for r in rows], pa.int64()), "order": pa.array([r[1] for r in rows], pa.int64())}
    )


def write(lake: Path, source: str, db: str, table: str, *versions: pa.Table) -> None:
    """A snapshot, each version the whole of it."""
    path = tables.SNAPSHOT_PATH.at(str(lake), source=source, db=db, table=table)
    for rows in versions:
        write_deltalake(path, rows, mode="overwrite")


def state(lake: Path, source: str, db: str, table: str, state: str = "live", reason: str | None = None) -> None:
    """What became of a table."""
    row = {"source": source, "db": db, "table": table, "batch": 0, "rebuild": 0, "state": state, "reason": reason}
    add(lake, tables.TABLE_STATE, {**row, "invalid_dates": 0, "at": AT})


def cut(lake: Path, source: str, number: int, kind: str = "transaction", **versions: int) -> None:
    """A cut of tables of the database `shop`."""
    named = [
        {"db": "shop", "table": t, "path": f"snapshots/{source}/shop/{t}", "version": v} for t, v in versions.items()
    ]
    reason = None if kind == "transaction" else "it tells no transactions"
    row = {"source": source, "cut": number, "kind": kind, "reason": reason, "snapshots": named}
    add(lake, tables.CUTS, {**row, "source_time": AT, "at": AT})


def make(lake: Path) -> Path:
    """Sources `shop` (orders, items, a stopped and a dropped table; cuts 1, 2 of kind transaction, 3 of kind position)
    and `other` (orders, never cut; two tables of one dotted name)."""
    write(lake, "shop", "shop", "orders", orders((1, "1.10", None)), orders((1, "1.10", None), (2, None, BIG)))
    write(lake, "shop", "shop", "items", items((1, 1)), items((1, 1), (2, 2)), items((1, 1), (2, 2), (3, 2)))
    write(lake, "shop", "shop", "halted", items((7, 7)))
    write(lake, "other", "shop", "orders", orders((9, "9.00", None)))
    for db, table in (("a", "b.c"), ("a.b", "c")):
        write(lake, "other", db, table, items((1, 1)))
        state(lake, "other", db, table)
    for source, table in (("shop", "orders"), ("shop", "items"), ("other", "orders")):
        state(lake, source, "shop", table)
    state(lake, "shop", "shop", "halted", "stopped", "ddl: stop, DROP COLUMN seen")
    state(lake, "shop", "shop", "gone", "dropped", "DROP TABLE")
    cut(lake, "shop", 1, orders=0, items=0)
    cut(lake, "shop", 2, orders=1, items=1)
    cut(lake, "shop", 3, "position", orders=1, items=2)
    return lake


def ids(frame: Any) -> list[int]:
    """Values of `id`, sorted, of a frame of any kind."""
    if isinstance(frame, pa.RecordBatchReader):
        frame = frame.read_all()
    arrow = {"pandas": pa.Table.from_pandas, "duckdb": lambda f: f.arrow(), "polars": lambda f: f.to_arrow()}
    package = type(frame).__module__.split(".")[0]
    found = arrow[package](frame) if package in arrow else frame
    if isinstance(found, pa.RecordBatchReader):
        found = found.read_all()
    return sorted(found["id"].to_pylist())
