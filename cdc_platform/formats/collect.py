"""What the decoders of JSON messages have in common: rows are collected by table and columns and converted column by
column, everything else is an event at once. A format fills in what is its own: `Collector`.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.contract import LOAD
from cdc_platform.formats.events import (
    BadColumn,
    Event,
    columns_json,
    error_event,
    event_batch,
    in_order,
    rare_batch,
    require_distinct_names,
    schema_version,
)
from cdc_platform.formats.exact_json import certain_json, read_json
from cdc_platform.formats.json_scanner import JsonScanner
from cdc_platform.formats.texts import BAD
from cdc_platform.mysql.types import MySqlType

_EVENT_RANK = 1  # of all events but schemas: Collector.SCHEMA_RANK


@dataclass(slots=True)
class Changes:
    """Rows field by field: a list for each field of the format's `ROW`, in its order. `at`: the number of each row's
    message in the batch."""

    ROW: ClassVar[Callable[..., Any]]  # a NamedTuple

    at: list[int]

    @classmethod
    def from_rows(cls, rows: Sequence[tuple]) -> Self:
        """At least one row."""
        return cls(*map(list, zip(*rows, strict=True)))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, in the order of their messages."""
        whole = parts[0]
        if len(parts) > 1:
            whole = cls(*map(list, map(chain.from_iterable, zip(*(part.lists() for part in parts), strict=True))))
        order = sorted(range(len(whole)), key=whole.at.__getitem__)
        return whole if order == list(range(len(order))) else whole.take(order)

    def __len__(self) -> int:
        return len(self.at)

    def lists(self) -> list[list[Any]]:
        """The fields in order."""
        return [getattr(self, f.name) for f in fields(self)]

    def row(self, i: int) -> Any:
        """One row, as the format's `ROW`."""
        return self.ROW(*(values[i] for values in self.lists()))

    def take(self, which: Iterable[int]) -> Self:
        """Some of the rows."""
        which = list(which)
        return type(self)(*([values[i] for i in which] for values in self.lists()))


@dataclass(slots=True, eq=False)
class Table:
    """What all rows of a group share. `types`: MySQL's type text of each column, and the type; `key`: positions of the
    key's columns among `names`; `others`: how many columns it had in states whose columns aren't the first of these."""

    db: str
    table: str
    names: tuple[str, ...]
    types: list[tuple[str, MySqlType]]
    key: list[int]
    schema: str | None = None
    others: frozenset[int] = frozenset()
    columns_json: str = field(init=False)
    version: str = field(init=False)

    def __post_init__(self) -> None:
        require_distinct_names(self.names)
        in_key = set(self.key)
        columns = zip(self.names, self.types, strict=True)
        self.columns_json = columns_json(
            [{"name": n, "type": t, "key": i in in_key} for i, (n, (t, _)) in enumerate(columns)]
        )
        self.version = schema_version(self.db, self.table, self.columns_json, self.schema)

    def schema_event(self) -> Event:
        """EVENT of kind schema, without wire address."""
        names = {"db": self.db, "schema": self.schema, "table": self.table}
        return {**names, "kind": "schema", "schema_version": self.version, "columns": self.columns_json}

    def load_event(self) -> Event:
        """The same of rows of a full load, of which nothing tells where in the log it was taken."""
        version = schema_version(self.db, self.table, f"{self.columns_json}\x00{LOAD}", self.schema)
        return {**self.schema_event(), "schema_version": version, "info": [(LOAD, "")]}


class HasSchema(Protocol):
    """A table as the collector needs it."""

    def schema_event(self) -> Event:
        """EVENT of kind schema, without wire address."""
        ...


G = TypeVar("G", bound=Hashable)
C = TypeVar("C", bound=Changes)
T = TypeVar("T", bound=HasSchema)
Converted = tuple[pa.RecordBatch | None, C, dict[int, BadColumn]]
"""EVENT batch of the rows that are good (None: none is), these rows, and what is wrong with each of the others."""
Place = tuple[int, int, int]
"""Where an event stands in its batch: message, row of the message, rank among the events of that row."""


class Collector(ABC, Generic[G, C, T]):
    """Decodes one MESSAGE batch. G: what rows must have in common to be converted together; C: rows of such a group;
    T: what is known of the group's table, with `schema_event`. `scanner`: reads most messages quickly."""

    CHANGES: ClassVar[type[Any]]  # C
    NO_VALUE: ClassVar[str] = "no value"
    """Why a message whose value is null is skipped."""
    LOADS: ClassVar[bool] = False
    """Whether rows of op `read` are of full loads of which nothing tells where they were taken."""
    SCHEMA_RANK: ClassVar[int] = 0
    """Where a table's schema stands: 0 before the first row that shows it, 2 behind it."""

    def __init__(self, messages: pa.RecordBatch, scanner: JsonScanner | None = None):
        self.messages, self.scanner = messages, scanner
        self.rows: dict[G, list[Any]] = {}
        """Rows of the messages that were read one by one, as CHANGES.ROW."""
        self.rare: list[tuple[int, Event]] = []
        """Events that are no good rows, each with the number of its message; those of a message in order."""

    @abstractmethod
    def read(self, at: int, message: Any) -> None:
        """Adds the row or the events of a parsed message, number `at`. Raises one of BAD when it can't be used."""

    @abstractmethod
    def of_message(self, at: int, message: Any, /) -> Event:
        """What is known of a message that can't be used: its table and key. `message`: None where it isn't JSON."""

    @abstractmethod
    def of_row(self, group: Any, row: Any, /) -> Event:
        """The same of a row."""

    @abstractmethod
    def table(self, group: G) -> T:
        """The table of a group. Raises one of BAD when none of its rows can be used."""

    @abstractmethod
    def convert(self, group: G, table: T, rows: C, /) -> Converted[C]:
        """Some or all rows of a group. Raises one of BAD where it isn't known which row is bad."""

    def batches(self, group: G, table: T) -> Iterable[tuple[pa.RecordBatch, C]]:
        """EVENT batches of all rows of a group, each with its rows; bad rows go to `fail`."""
        return convert_rows(self.changes(group), partial(self.convert, group, table), partial(self.fail, group))

    def variants(self, group: G, /) -> Iterable[tuple[G, C | None]]:
        """A group by what is known of its table where its rows stand, each with its rows; None: all of them."""
        return [(group, None)]

    def parse(self, _at: int, value: bytes, /) -> Any:
        """A message's value, parsed. Raises one of BAD."""
        return read_json(value)

    def certain(self, value: bytes, /) -> Any:
        """What is sure of a value that can't be parsed, as `of_message` takes it; None: nothing."""
        return certain_json(value)

    def scanned(self, group: G) -> list[C]:
        """The rows of a group that the scanner read."""
        return self.scanner.rows.get(group, []) if self.scanner else []

    def changes(self, group: G) -> C:
        """All rows of a group, in the order of their messages."""
        rows = self.rows.get(group)
        return self.CHANGES.concat([*self.scanned(group), *([self.CHANGES.from_rows(rows)] if rows else [])])

    def add(self, group: G, row: Any) -> None:
        """A row of a group."""
        self.rows.setdefault(group, []).append(row)

    def fail(self, group: Any, row: Any, error: BaseException) -> None:
        """A row can't be used."""
        self.rare.append((row.at, {**self.of_row(group, row), **error_event(error)}))

    def decode(self) -> pa.RecordBatch:
        """The EVENT batch, in the order of the messages. Never raises for bad bytes. Call it on a temporary within
        `collection_paused`: what was read is then gone before a collection could walk it."""
        self._read()
        batches, places = [], []
        schemas: dict[tuple, tuple[Place, Event]] = {}
        for table, batch, at in self._converted():
            place = np.column_stack((at, batch.column("row_index").to_numpy(), np.full(len(at), _EVENT_RANK)))
            self._note_schema(schemas, table, batch, place)
            batches.append(batch)
            places.append(place)
        events = [((at, event.get("row_index", 0), _EVENT_RANK), event) for at, event in self.rare]
        if events := [*events, *schemas.values()]:
            batches.append(rare_batch(self.messages, events))
            places.append(np.array([place for place, _ in events]))
        return in_order(batches, np.concatenate(places)) if batches else event_batch([])

    def _read(self) -> None:
        """Scans the messages and reads those that the scanner left, one by one."""
        values = self.messages.column("value").to_pylist()
        others: Sequence[int] = range(len(values))
        if self.scanner:
            others = self.scanner(values)
            self.rare += self.scanner.events
        for at in others:
            value = values[at]
            if value is None:
                self.rare.append((at, {"kind": "skip", "reason": self.NO_VALUE}))
                continue
            message = None
            try:
                message = self.parse(at, value)
                self.read(at, message)
            except BAD as e:
                if message is None:
                    message = self.certain(value)
                self.rare.append((at, {**self.of_message(at, message), **error_event(e)}))

    def _converted(self) -> Iterator[tuple[T, pa.RecordBatch, list[int]]]:
        """EVENT batches of all rows, each with its table and the message of each row."""
        for group in {**(self.scanner.rows if self.scanner else {}), **self.rows}:
            for variant, some in self.variants(group):
                try:
                    table = self.table(variant)
                except BAD as e:
                    rows = self.changes(group) if some is None else some
                    for i in range(len(rows)):
                        self.fail(variant, rows.row(i), e)
                    continue
                for batch, rows in self._batches(variant, table, some):
                    yield table, batch, rows.at

    def _batches(self, group: G, table: T, some: C | None) -> Iterable[tuple[pa.RecordBatch, C]]:
        if some is None:
            return self.batches(group, table)
        return convert_rows(some, partial(self.convert, group, table), partial(self.fail, group))

    def _note_schema(self, schemas: dict, table: T, batch: pa.RecordBatch, places: np.ndarray) -> None:
        """The table's schema belongs beside the first row of the MESSAGE batch that shows it."""
        shows = np.flatnonzero(batch.column("schema_version").is_valid())
        if not len(shows):
            return
        self._note(schemas, table.schema_event(), places[shows])
        loaded = (
            np.flatnonzero(pc.equal(batch.column("op"), "read").to_numpy(zero_copy_only=False)) if self.LOADS else ()
        )
        if len(loaded) and isinstance(table, Table):
            self._note(schemas, table.load_event(), places[loaded])

    def _note(self, schemas: dict, event: Event, places: np.ndarray) -> None:
        at, row, _ = places[places[:, 0].argmin()].tolist()  # a message's rows are in order
        of, place = event["schema_version"], (at, row, self.SCHEMA_RANK)
        if of not in schemas or place < schemas[of][0]:
            schemas[of] = place, {**event, "row_index": row}


def convert_rows(
    rows: C, convert: Callable[[C], Converted[C]], fail: Callable[[Any, BaseException], None]
) -> Iterator[tuple[pa.RecordBatch, C]]:
    """Rows of one group → EVENT batches, each with its rows. A bad row goes to `fail`. Where `convert` raises one of
    BAD, the rows are halved until the bad ones are alone: a few extra passes for one bad row among many."""
    try:
        batch, good, bad = convert(rows)
    except BAD as e:
        if len(rows) == 1:
            fail(rows.row(0), e)
            return
        middle = len(rows) // 2
        for half in (range(middle), range(middle, len(rows))):
            yield from convert_rows(rows.take(half), convert, fail)
        return
    for i, error in bad.items():
        fail(rows.row(i), error)
    if batch is not None:
        yield batch, good
