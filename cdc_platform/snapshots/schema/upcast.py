"""Rows written before a DDL statement → rows of today's table: names, new columns, values of another type. Arrow only.

What DDL did is told by `changelog.schema`; here it is done to row images.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cdc_platform.changelog.order_key import numbers
from cdc_platform.changelog.schema import Order, Upcast
from cdc_platform.changes.maps import of_table
from cdc_platform.mysql.effects import Retyped
from cdc_platform.snapshots.schema.by_text import Refused
from cdc_platform.snapshots.schema.conversions import conversion, may_refuse, retyped
from cdc_platform.snapshots.schema.image_columns import ImageColumn, Images, image_columns
from cdc_platform.spark import workers
from cdc_platform.tables import Name, name_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Spans = Mapping[Name, Sequence[Upcast]]
Lists = Mapping[Name, Sequence[str]]
"""Names of the columns of today's tables, in order."""
UNTOLD = "untold_before"
"""A column of carried rows that ask for it, ARRAY<STRING>: columns of which it isn't told what the row before would
hold today. In `key` and `before` they are as they were."""


def upcast(rows: "DataFrame", spans: Spans, lists: Lists, *, untold: bool = False) -> "DataFrame":
    """Changelog rows → the same under today's `db` and `table` with today's columns; without rows whose table is
    gone. Carried rows lose `schema_version`: it names columns of another day. Ask `unknown` and `refused` first: rows
    whose carry isn't known stay as they are. untold: with UNTOLD, where there are spans."""
    from pyspark.sql import functions as F  # what's below runs without Spark

    if not spans:
        return rows
    schema = rows.withColumn(UNTOLD, F.array().cast("array<string>")).schema if untold else rows.schema
    return rows.mapInArrow(partial(_each, spans, lists, untold), schema)


def _each(spans: Spans, lists: Lists, untold: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    workers.configure()
    for batch in batches:
        own = batch.append_column(UNTOLD, _names([], batch.num_rows)) if untold else batch
        yield from upcast_rows(own, spans, lists)


def upcast_rows(batch: pa.RecordBatch, spans: Spans, lists: Lists) -> Iterator[pa.RecordBatch]:
    """The same of rows in memory, with UNTOLD if they have it. They come in another order."""
    left = np.ones(batch.num_rows, bool)
    order = _orders(batch.column("order_key"))
    for name, carries in spans.items():
        mine = of_table(batch, name).to_numpy(zero_copy_only=False)
        if not mine.any():
            continue
        start: Order | None = None
        for carry in carries:
            here = mine & _within(order, start, carry.until)
            start = carry.until
            if here.any():
                left &= ~here
                if carry.today is not None:
                    yield _upcast_table(batch.filter(pa.array(here)), name, carry, lists.get(carry.today, ()))
    if left.any():
        yield batch if left.all() else batch.filter(pa.array(left))


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


def _upcast_table(rows: pa.RecordBatch, name: Name, carry: Upcast, columns: Sequence[str]) -> pa.RecordBatch:
    """Rows of one name and time."""
    n = rows.num_rows
    made: dict[str, pa.Array] = {}
    if carry.today is not None and carry.today != name:
        made = {c: pa.array([v] * n, pa.string()) for c, v in name_columns(carry.today).items() if c != "schema"}
    if not carry.nothing:
        made["after"], _ = _image(rows.column("after"), carry, columns, row=True)
        made["before"], refused = _image(rows.column("before"), carry, columns, row=True)
        key = rows.column("key")
        if carry.key is not None:  # it has other columns since: the images tell it
            made["key"] = pa.nulls(n, key.type)
        else:
            made["key"], more = _image(key, carry, columns, row=False)
            refused += more
        made["schema_version"] = pa.nulls(n, pa.string())
        made |= {UNTOLD: _names(refused, n)} if UNTOLD in rows.schema.names else {}
    arrays = [made[f.name].cast(f.type) if f.name in made else rows.column(f.name) for f in rows.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


_Refused = list[tuple[str, np.ndarray]]
"""Columns, each with the images whose value of it is refused."""


def _image(images: pa.MapArray, carry: Upcast, columns: Sequence[str], *, row: bool) -> tuple[pa.MapArray, _Refused]:
    """Row images, or keys, as they would be today; new columns are filled in rows only. Values that are refused stay
    as they were: `refused` told before of those that rows still held, the others stand for rows that were gone by
    then."""
    found = image_columns(images)
    found.rename({n: carry.names.get(n.lower(), n) for n in found.columns})
    if row:
        _fill(found, carry)
    refused: _Refused = []
    for name, of in found.columns.items():
        if types := carry.retyped.get(name.lower()):
            found.columns[name], which = _retyped(of, types)
            refused += [(name, which)] if which.any() else []
    return found.maps(columns), refused


def _fill(found: Images, carry: Upcast) -> None:
    """New columns, as the statements filled them that added them. Later ones change their types, as of all others."""
    had = {name.lower(): name for name in found.columns}
    for added in carry.added.values():
        found.fill(had.get(added.name.lower(), added.name), added.fill)


def _retyped(of: ImageColumn, statements: Sequence[Retyped]) -> tuple[ImageColumn, np.ndarray]:
    """A column after statements, one after the other, and which values one of them refuses."""
    first, refused = of, np.zeros(len(of.there), bool)
    for types in statements:
        done = False
        while not done:
            try:
                of, done = ImageColumn(retyped(of, types), of.there), True
            except Refused as why:
                refused |= why.which
                of = of.where(~why.which)
    return of.over(first), refused


def _names(refused: _Refused, n: int) -> pa.ListArray:
    """Of each image the columns of which it has a refused value."""
    of: dict[str, np.ndarray] = {}
    for name, which in refused:
        of[name] = of.get(name, False) | which
    each = np.array([*of.values()], bool).reshape(len(of), n).T
    offsets = np.append(0, np.cumsum(each.sum(axis=1))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array([*of], pa.string()).take(pa.array(np.nonzero(each)[1])))


def inexact(carry: Upcast) -> list[str]:
    """What the feed doesn't tell of such rows: new columns that hold NULL for want of better."""
    return [
        f"{a.name}: what it holds in rows from before it was added isn't told"
        for a in carry.added.values()
        if not a.told
    ]


def unknown(carry: Upcast) -> str | None:
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


def refused(rows: "Callable[[], DataFrame]", carry: Upcast) -> str | None:
    """Why some of such rows can't be carried, that hold a value of which the server may have made another one; the
    others can. Asks for the rows only where a statement may have done that: Spark takes a while to plan them."""
    if not any(may_refuse(t) for types in carry.retyped.values() for t in types):
        return None
    found = rows().mapInArrow(partial(_refusals, carry), "why STRING").first()
    return None if found is None else str(found["why"])


def _refusals(carry: Upcast, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    workers.configure()
    for batch in batches:
        for name, held in _held(batch, carry).items():
            of = held
            try:
                for types in carry.retyped[name.lower()]:
                    of = ImageColumn(retyped(of, types), of.there)
            except Refused as why:
                yield pa.RecordBatch.from_pydict({"why": [f"column {name!r}: {why}"]})


def _held(batch: pa.RecordBatch, carry: Upcast) -> dict[str, ImageColumn]:
    """What rows hold after their changes in columns of another type since: what the row after doesn't tell the row
    before does, or the key."""
    images = ("after", "before", *(("key",) if carry.key is None else ()))
    each = [image_columns(batch.column(image)) for image in images]
    found: dict[str, list[ImageColumn]] = {}
    for n, image in enumerate(each):
        image.rename({n: carry.names.get(n.lower(), n) for n in image.columns})
        if n == 0:
            _fill(image, carry)
        for name, of in image.columns.items():
            if name.lower() in carry.retyped:
                found.setdefault(name, []).append(of)
    return {name: reduce(ImageColumn.over, of).where(~each[0].none) for name, of in found.items()}
