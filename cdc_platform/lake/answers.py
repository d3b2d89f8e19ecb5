"""What delta-rs answers, as Arrow and as rows, without pandas: pyarrow imports it, which takes 0.4 s, as soon as it is
asked for a table of anything, or for a time as Python has it. Answers are remembered: what they rest on doesn't change.
"""

import threading
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1)
_MOST, _MOST_ROWS, _LONGEST = 128, 20_000, 5000
"""Answers that are remembered, rows of all of them, and of one: a source may have a thousand tables."""
_remembered: "OrderedDict[tuple[Any, ...], list[dict[str, Any]]]" = OrderedDict()
"""What was asked (SQL, tables as they were) → answer."""
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


def known(asked: tuple[Any, ...]) -> list[dict[str, Any]] | None:
    """An answer that is remembered."""
    with _lock:
        if (found := _remembered.get(asked)) is None:
            return None
        _remembered.move_to_end(asked)
    return [dict(row) for row in found]


def remember(asked: tuple[Any, ...], found: list[dict[str, Any]]) -> None:
    """Keeps an answer that isn't long, and forgets those that were asked for longest ago."""
    if len(found) > _LONGEST:
        return
    with _lock:
        _remembered[asked] = [dict(row) for row in found]
        rows = sum(map(len, _remembered.values()))
        while len(_remembered) > _MOST or rows > _MOST_ROWS:
            rows -= len(_remembered.popitem(last=False)[1])
