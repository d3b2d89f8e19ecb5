"""What delta-rs answers, as Arrow and as rows, without pandas: pyarrow imports it, which takes 0.4 s, as soon as it is
asked for a table of anything, or for a time as Python has it. Answers are remembered: what they rest on doesn't change.
"""

import threading
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1)
_MOST, _MOST_ROWS, _LONGEST = 128, 20_000, 5000
"""Answers that are remembered, rows of all of them, and of one: a source may have a thousand tables."""
_MOST_BYTES, _LARGEST = 32 << 20, 2 << 20
"""The same of their bytes: a value of a record has up to 8 MB."""


class _Answer(NamedTuple):
    """rows, of tables as they were; size: its bytes as Arrow."""

    rows: list[dict[str, Any]]
    tables: tuple[Any, ...]
    size: int


_remembered: "OrderedDict[tuple[Any, ...], _Answer]" = OrderedDict()
"""What was asked (SQL, which tables) → answer: one for tables as they are now takes the place of an earlier one."""
_lock = threading.Lock()


def table(found: Any) -> pa.Table:
    """Something that streams Arrow batches, in whole."""
    return pa.RecordBatchReader.from_stream(found).read_all()


def rows(found: pa.Table) -> list[dict[str, Any]]:
    """A row for each, as Table.to_pylist gives them; their zone, if they have one, is UTC."""
    times = {f.name: f.type for f in found.schema if pa.types.is_timestamp(f.type) and f.type.unit == "us"}
    for name in times:
        found = found.set_column(found.schema.get_field_index(name), name, found[name].cast(pa.int64()))
    out = found.to_pylist()
    for name, type_ in times.items():
        epoch = _EPOCH.replace(tzinfo=UTC) if type_.tz else _EPOCH
        for row in out:
            if row[name] is not None:
                row[name] = epoch + timedelta(microseconds=row[name])
    return out


def known(asked: tuple[Any, ...], tables: tuple[Any, ...]) -> list[dict[str, Any]] | None:
    """An answer that is remembered, of tables as they are."""
    with _lock:
        found = _remembered.get(asked)
        if found is None or found.tables != tables:
            return None
        _remembered.move_to_end(asked)
    return [dict(row) for row in found.rows]


def remember(asked: tuple[Any, ...], tables: tuple[Any, ...], found: list[dict[str, Any]], size: int) -> None:
    """Keeps an answer that isn't long, and forgets those that were asked for longest ago. size: its bytes."""
    with _lock:
        _remembered.pop(asked, None)
        if len(found) > _LONGEST or size > _LARGEST:
            return
        _remembered[asked] = _Answer([dict(row) for row in found], tables, size)
        rows = sum(len(one.rows) for one in _remembered.values())
        every = sum(one.size for one in _remembered.values())
        while len(_remembered) > _MOST or rows > _MOST_ROWS or every > _MOST_BYTES:
            _, gone = _remembered.popitem(last=False)
            rows, every = rows - len(gone.rows), every - gone.size
