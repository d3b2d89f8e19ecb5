"""Tables of a source with the rows that it has, told to a feed change by change: what snapshots are held to."""

from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.lake import metadata_commits
from cdc_platform.lake.store import Store
from tests.changelog.feed import Feed, Image, SourceTable, position

DB = "a shop/%é"
"""Of all tables: its name stands in their paths."""


@dataclass
class Table:
    """A table of the source. said: events that the feed hasn't got yet, of all tables."""

    feed: Feed
    name: str
    said: list[dict[str, Any]]
    at: Iterator[int]
    keys: tuple[str, ...] = ("id",)
    columns: dict[str, str] = field(default_factory=dict)
    rows: dict[tuple[str | None, ...], Image] = field(default_factory=dict)

    def has(self, columns: dict[str, str], *, keys: tuple[str, ...] | None = None) -> None:
        """Its columns from now on, by name and MySQL type."""
        self.columns, self.keys = columns, self.keys if keys is None else keys
        self.said.append(self.now.stated())

    @property
    def now(self) -> SourceTable:
        return SourceTable(DB, self.name, list(self.columns.items()), self.keys)

    def place(self) -> tuple[int, int]:
        return 1, next(self.at)

    def insert(self, *rows: Image) -> None:
        for row in rows:
            whole = {**dict.fromkeys(self.columns), **row}
            self.rows[tuple(whole[k] for k in self.keys)] = whole
            self.said.append(self.now.insert(self.place(), whole))

    def update(self, *key: str, **changes: str | None) -> None:
        old = self.rows.pop(key)
        new = {**old, **changes}
        self.rows[tuple(new[k] for k in self.keys)] = new
        self.said.append(self.now.update(self.place(), old, new))

    def delete(self, *keys: str | tuple[str, ...]) -> None:
        for key in keys:
            self.said.append(self.now.delete(self.place(), self.rows.pop(key if isinstance(key, tuple) else (key,))))

    def ddl(self, what: str) -> None:
        """ALTER TABLE."""
        sql = f"ALTER TABLE {self.name} {what}"
        self.said.append({"kind": "ddl", "db": DB, "ddl": sql, **position(*self.place())})

    def truncate(self) -> None:
        self.said.append({**self.now.change("truncate", self.place()), "schema_version": None})
        self.rows.clear()

    @property
    def snapshot(self) -> Store:
        return self.feed.target(DB, self.name).snapshot

    def sql(self, statement: str) -> None:
        """Spark's, with {} for the snapshot: as its owner, or the upkeep, has it done."""
        self.feed.spark.sql(statement.format(f"delta.`{self.snapshot.uri()}`")).collect()

    def configure(self, **properties: str) -> None:
        """Properties of the snapshot, `delta.` left out."""
        assert metadata_commits.configure(self.snapshot, {f"delta.{name}": value for name, value in properties.items()})


def differs(rows: dict[Any, Image], found: pa.Table) -> str | None:
    """Where rows that were read, without bookkeeping, aren't the source's; None: nowhere."""
    names = found.column_names
    expected = sorted(repr([_value(row[f.name], f.type) for f in found.schema]) for row in rows.values())
    read = sorted(repr([_exact(row[n]) for n in names]) for row in found.to_pylist())
    if any(row.keys() != set(names) for row in rows.values()):
        return f"columns {names}"
    return (
        None
        if read == expected
        else f"{[r for r in read if r not in expected][:3]} of {len(read)} and not {expected[:9]}"
    )


def _exact(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return Fraction(value) if isinstance(value, Decimal) else value


def _value(text: str | None, type_: pa.DataType) -> Any:
    """What a canonical text means."""
    return None if text is None else next(of for is_, of in _VALUES if is_(type_))(text)


_VALUES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...] = (
    (pa.types.is_boolean, lambda text: text == "1"),
    (pa.types.is_integer, int),
    (pa.types.is_decimal, Fraction),
    (pa.types.is_float32, lambda text: float(np.float32(text))),
    (pa.types.is_float64, float),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_timestamp, datetime.fromisoformat),
    (pa.types.is_binary, b64decode),
    (pa.types.is_string, str),
)
