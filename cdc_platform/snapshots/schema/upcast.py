"""Rows written before a DDL statement → rows of today's table: names, new columns, values of another type. Arrow only.

What DDL did is told by `changelog.schema`; here it is done to row images.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.order_key import numbers
from cdc_platform.changelog.schema import Carry, Order
from cdc_platform.snapshots.schema.conversions import Refused, conversion, may_refuse, retyped
from cdc_platform.snapshots.schema.image_columns import image_columns
from cdc_platform.spark import workers
from cdc_platform.tables import Name, name_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Spans = Mapping[Name, Sequence[Carry]]
Lists = Mapping[Name, Sequence[str]]
"""Names of the columns of today's tables, in order."""


def carried(rows: "DataFrame", spans: Spans, lists: Lists) -> "DataFrame":
    """Changelog rows → the same under today's `db` and `table` with today's columns; without rows whose table is
    gone. Carried rows lose `schema_version`: it names columns of another day. Ask `unknown` first: rows whose carry
    isn't known stay as they are."""
    return rows.mapInArrow(partial(_each, spans, lists), rows.schema) if spans else rows


def _each(spans: Spans, lists: Lists, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    workers.settle()
    for batch in batches:
        yield from carried_rows(batch, spans, lists)


def carried_rows(batch: pa.RecordBatch, spans: Spans, lists: Lists) -> Iterator[pa.RecordBatch]:
    """The same of rows in memory. They come in another order."""
    left = np.ones(batch.num_rows, bool)
    order = _orders(batch.column("order_key"))
    for name, carries in spans.items():
        mine = _of(batch, name)
        if not mine.any():
            continue
        start: Order | None = None
        for carry in carries:
            here = mine & _within(order, start, carry.until)
            start = carry.until
            if here.any():
                left &= ~here
                if carry.today is not None:
                    yield _carried(batch.filter(pa.array(here)), name, carry, lists.get(carry.today, ()))
    if left.any():
        yield batch if left.all() else batch.filter(pa.array(left))


def _of(batch: pa.RecordBatch, name: Name) -> np.ndarray:
    parts = name_columns(name)
    mine = pc.and_(*(pc.equal(batch.column(n), parts[n]) for n in ("db", "table")))
    schema = pc.fill_null(batch.column("schema"), "")
    same = pc.and_(mine, pc.equal(schema, parts["schema"] or ""))
    return pc.fill_null(same, False).to_numpy(zero_copy_only=False)


def _orders(column: pa.StructArray) -> list[np.ndarray]:
    """The numbers of places, one array for each."""
    try:
        return list(numbers(column).T)
    except pa.ArrowInvalid:  # a position that no 64-bit integer holds
        return [np.array([int(v) for v in part.to_pylist()], object) for part in column.flatten()]


def _within(order: list[np.ndarray], start: Order | None, until: Order | None) -> np.ndarray:
    """Which places are from one up to another."""
    found = np.ones(len(order[0]), bool)
    if start is not None:
        found &= ~_before(order, start)
    return found if until is None else found & _before(order, until)


def _before(order: list[np.ndarray], place: Order) -> np.ndarray:
    found = np.zeros(len(order[0]), bool)
    for column, number in zip(order[::-1], place[::-1], strict=True):
        found = (column < number) | ((column == number) & found)
    return found.astype(bool)


def _carried(rows: pa.RecordBatch, name: Name, carry: Carry, columns: Sequence[str]) -> pa.RecordBatch:
    """Rows of one name and time."""
    n = rows.num_rows
    made: dict[str, pa.Array] = {}
    if carry.today is not None and carry.today != name:
        made = {c: pa.array([v] * n, pa.string()) for c, v in name_columns(carry.today).items() if c != "schema"}
    if not carry.nothing:
        for image in ("before", "after"):
            made[image] = _image(rows.column(image), carry, columns, row=True)
        # The key is NULL where it has other columns since: the images tell it.
        key = rows.column("key")
        made["key"] = pa.nulls(n, key.type) if carry.key is not None else _image(key, carry, columns, row=False)
        made["schema_version"] = pa.nulls(n, pa.string())
    arrays = [made[f.name].cast(f.type) if f.name in made else rows.column(f.name) for f in rows.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def _image(images: pa.MapArray, carry: Carry, columns: Sequence[str], *, row: bool) -> pa.MapArray:
    """Row images, or keys, as they would be today; new columns are filled in rows only."""
    found = image_columns(images)
    found.rename({n: carry.names.get(n.lower(), n) for n in found.columns})
    for name, of in found.columns.items():
        for types in carry.retyped.get(name.lower(), ()):
            with suppress(Refused):  # `refused` told it before
                of.texts = retyped(of, types)
    if row:
        had = {name.lower(): name for name in found.columns}
        for added in carry.added.values():
            found.fill(had.get(added.name.lower(), added.name), added.fill)
    return found.maps(columns)


def inexact(carry: Carry) -> list[str]:
    """What the feed doesn't tell of such rows: new columns that hold NULL for want of better."""
    return [
        f"{a.name}: what it holds in rows from before it was added isn't told"
        for a in carry.added.values()
        if not a.told
    ]


def unknown(carry: Carry) -> str | None:
    """Why such rows can't be carried."""
    if carry.unknown:
        return carry.unknown
    for column, types in carry.retyped.items():
        for t in types:
            if conversion(t.before, t.after) is None:
                return (
                    f"column {column!r} became {t.after} from {t.before}: what the server made of its values isn't told"
                )
    return None


def refused(rows: "Callable[[], DataFrame]", carry: Carry) -> str | None:
    """Why some of such rows can't be carried, that hold a value of which the server may have made another one; the
    others can. Asks for the rows only where a statement may have done that: Spark takes a while to plan them."""
    if not any(may_refuse(t) for types in carry.retyped.values() for t in types):
        return None
    found = rows().mapInArrow(partial(_refusals, carry), "why STRING").first()
    return None if found is None else str(found["why"])


def _refusals(carry: Carry, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    workers.settle()
    for batch in batches:
        found = image_columns(batch.column("after"))
        found.rename({n: carry.names.get(n.lower(), n) for n in found.columns})
        for name, of in found.columns.items():
            try:
                for types in carry.retyped.get(name.lower(), ()):
                    of.texts = retyped(of, types)
            except Refused as why:
                yield pa.RecordBatch.from_pydict({"why": [f"column {name!r}: {why}"]})
