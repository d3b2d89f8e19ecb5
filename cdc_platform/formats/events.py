"""Small builders shared by all decoders: schema versions and EVENT batches."""

import gc
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.formats.contract import BAD_COLUMN, EVENT
from cdc_platform.formats.texts import BAD, shown

Event = dict[str, Any]
"""An event by fields of EVENT, without wire address; maps as lists of pairs."""

_FILE_NO = re.compile(r"\.(\d+)$")
_WORTH_A_CUT = 100  # events that copying must save to be worth a cut


def columns_json(columns: list[dict[str, Any]]) -> str:
    """Columns in table order → JSON text `[{"name","type","key"}, …]`; `type` is MySQL type text
    (`bigint(20) unsigned`, `decimal(12,2)`, `enum('a','b')`), `key` whether it is part of the primary key. Some have
    `limits`, names of `Limit.stated`."""
    return json.dumps(
        [
            {"name": c["name"], "type": c["type"], "key": bool(c["key"])}
            | ({"limits": list(c["limits"])} if c.get("limits") else {})
            for c in columns
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    )


def require_distinct_names(names: Iterable[str]) -> None:
    """Raises ValueError where names of columns differ by case only: MySQL has no such columns, and no Delta table
    can."""
    ordered = sorted(names, key=str.lower)
    for one, other in pairwise(ordered):
        if one.lower() == other.lower():
            raise ValueError(f"columns {shown(one)} and {shown(other)} have one name but for its case")


def schema_version(db: str | None, table: str | None, columns: str, schema: str | None = None) -> str:
    """16 hex digits that name this state of this table's columns: equal columns, equal version."""
    text = "\x00".join((db or "", *([schema] if schema else []), table or "", columns))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def file_number(binlog_file: str | None) -> int | None:
    """`mysql-bin.000123` → 123; None when the name ends in no number."""
    found = _FILE_NO.search(binlog_file or "")
    return int(found.group(1)) if found and len(found.group(1)) <= 18 else None


def event_batch(rows: list[Event]) -> pa.RecordBatch:
    """Dicts with keys of EVENT (missing = null; maps as lists of pairs) → EVENT batch. For rare events:
    row changes are built column by column."""
    return pa.RecordBatch.from_pylist(rows, schema=EVENT)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Parsed JSON holds no cycles; walking it again and again costs more than parsing."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class BadColumn(ValueError):
    """A row can't be used for the value of one `column`."""

    def __init__(self, column: str, reason: str):
        self.column = column
        super().__init__(reason)


class OfTable(ValueError):
    """A message without rows can't be used; the table that it is about, and no other, is known."""

    def __init__(self, db: str | None, table: str, reason: str):
        self.db, self.table = db, table
        super().__init__(reason)


def error_event(error: BaseException) -> Event:
    """What is wrong with a message or row, as a decoder found it."""
    named = isinstance(error, (LookupError, AttributeError, TypeError, RecursionError))
    event: Event = {"kind": "error", "reason": f"{type(error).__name__}: {error}" if named else str(error)}
    if isinstance(error, BadColumn) and _is_text(error.column):
        event["info"] = [(BAD_COLUMN, error.column)]
    if isinstance(error, OfTable):
        event |= of_table(error.db, error.table)
    return event


def of_table(db: Any, table: Any, schema: Any = None) -> Event:
    """Fields of an error event that name its table, as far as the message does: of what a parser gave those that are
    names."""
    told = {"db": db, "schema": schema, "table": table}
    return {field: name for field, name in told.items() if name and _is_text(name)}


def readable_key(columns: Iterable[tuple[str, Callable[[], str | None]]]) -> Event:
    """Field `key` of an error event: names of key columns, each with what reads its value. Values that can't be read,
    and NULL, are left out."""
    key = {}
    for name, read in columns:
        try:
            text = read()
        except BAD:
            continue
        if _is_text(name) and _is_text(text):
            key[name] = text
    return {"key": list(key.items())} if key else {}


def _is_text(value: Any) -> bool:
    """Whether Arrow takes it: JSON may spell halves of characters."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def addresses(messages: pa.RecordBatch, at: list[int]) -> dict[str, pa.Array]:
    """What events take over from their messages, by column of EVENT; `at`: the message of each."""
    taken = messages.select(["topic", "partition", "offset", "landed_at"])
    if at != list(range(len(messages))):
        taken = taken.take(pa.array(at, pa.int64()))
    return dict(zip(taken.schema.names, taken.columns, strict=True))


class Addresses:
    """Topic, partition and offset of each message, listed when the first is asked for."""

    def __init__(self, messages: pa.RecordBatch):
        self.messages = messages

    def __call__(self, at: int) -> tuple[str, int, int]:
        return self._all[at]

    @cached_property
    def _all(self) -> list[tuple[str, int, int]]:
        columns = (self.messages.column(name).to_pylist() for name in ("topic", "partition", "offset"))
        return list(zip(*columns, strict=True))


def row_batch(messages: pa.RecordBatch, at: list[int], columns: dict[str, Any]) -> pa.RecordBatch:
    """EVENT batch of row changes; `at`: the message of each. A column is an array, a list (of µs where EVENT has a
    time), a text that all rows have, or None (or missing): null."""
    zeros = pa.array(np.zeros(len(at), np.int32))
    columns = {**addresses(messages, at), "entry_index": zeros, "row_index": zeros, "kind": "row", **columns}
    return pa.RecordBatch.from_arrays([_array(columns.get(f.name), f.type, len(at)) for f in EVENT], schema=EVENT)


def _array(values: Any, kind: pa.DataType, n: int) -> pa.Array:
    if values is None:
        return pa.nulls(n, kind)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, str):
        return pa.repeat(values, n)
    if pa.types.is_decimal(kind) or pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def rare_batch(messages: pa.RecordBatch, rare: list[tuple[tuple[int, ...], Event]]) -> pa.RecordBatch:
    """Events by dicts, each with a place that begins with its message's number → EVENT batch with their addresses. An
    event with a number beyond its column's range becomes an error."""
    events = [{"entry_index": 0, "row_index": 0, **event} for _, event in rare]
    try:
        batch = event_batch(events)
    except BAD:
        batch = event_batch(list(map(_checked, events)))
    named = addresses(messages, [place[0] for place, _ in rare])
    return pa.RecordBatch.from_arrays([named.get(f.name, batch.column(f.name)) for f in EVENT], schema=EVENT)


def _checked(event: Event) -> Event:
    try:
        event_batch([event])
    except BAD as e:
        names = of_table(*map(event.get, ("db", "table", "schema"))) if event["kind"] in ("row", "schema") else {}
        return {"entry_index": event["entry_index"], "row_index": 0, **names, **error_event(e)}
    return event


def in_order(batches: list[pa.RecordBatch], places: np.ndarray) -> pa.RecordBatch:
    """Events sorted by their places, of each a row of numbers. Mostly they need but few cuts: copying what lies between
    is quicker than taking every event by itself."""
    order = np.lexsort(places.T[::-1])
    cuts = np.flatnonzero(np.diff(order) != 1) + 1
    if len(cuts) * _WORTH_A_CUT > len(order):
        return pa.concat_batches(batches).take(pa.array(order))
    events = pa.Table.from_batches(batches)
    runs = [events.slice(run[0], len(run)) for run in np.split(order, cuts)]
    return pa.concat_batches([piece for run in runs for piece in run.to_batches()])
