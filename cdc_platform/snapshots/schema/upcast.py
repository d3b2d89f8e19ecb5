"""Rows written before a DDL statement → rows of today's table: names, new columns, values of another type. Arrow only.

What DDL did is told by `changelog.schema`; here it is done to row images.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.order_key import numbers
from cdc_platform.changelog.schema import Carry, Order
from cdc_platform.errors import UnknownType
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.snapshots.schema.image_columns import image_columns
from cdc_platform.spark import workers
from cdc_platform.tables import Name, name_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DIGITS = Context(prec=80, rounding=ROUND_HALF_UP)
Convert = Callable[[pa.StringArray], pa.StringArray]
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
            if (convert := conversion(*types)) is not None:
                of.texts = convert(of.texts)
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
        for before, after in types:
            if conversion(before, after) is None:
                return f"column {column!r} became {after} from {before}: what the server made of its values isn't told"
    return None


def conversion(before: str, after: str) -> Convert | None:
    """How a server turns the values of a column whose type changes (MySQL manual, "ALTER TABLE", strict SQL mode), as a
    function of canonical text; None: the feed doesn't tell."""
    try:
        old, new = parse_type(before), parse_type(after)
    except UnknownType:
        return None
    rule = _RULES.get((old.family, new.family))
    return rule(old, new) if rule else None


def _same(texts: pa.StringArray) -> pa.StringArray:
    return texts


def _scale(t: MySqlType) -> int:
    return (*t.args, 0, 0)[1]


def _decimals(old: MySqlType, new: MySqlType) -> Convert | None:
    if _scale(new) >= _scale(old) and new.spark != "string":
        return _same
    if (*old.args, 10)[0] > 38 or (*new.args, 10)[0] > 38:
        return None
    grain = Decimal(1).scaleb(-_scale(new))

    def rounded(text: str) -> str:
        found = _DIGITS.quantize(Decimal(text), grain)
        return f"{found if found else abs(found):f}"  # there is no negative zero

    return _by_text(rounded)


def _by_text(made: Callable[[str], str]) -> Convert:
    """One text after the other. What isn't of the old type stays as it is: it fits the new one no more."""

    def one(text: str | None) -> str | None:
        try:
            return None if text is None else made(text)
        except (ValueError, InvalidOperation):
            return text

    return lambda texts: pa.array([one(text) for text in texts.to_pylist()], pa.string())


def _fraction(t: MySqlType) -> int:
    return (*t.args, 0)[0]


def _fractions(old: MySqlType, new: MySqlType) -> Convert | None:
    return _same if _fraction(new) >= _fraction(old) else None  # rounds, carrying over to the next day


def _labels(old: MySqlType, new: MySqlType) -> Convert | None:
    return _same if set(old.labels) <= set(new.labels) else None


_RULES: dict[tuple[str, str], Callable[[MySqlType, MySqlType], Convert | None]] = {
    ("integer", "integer"): lambda *_: _same,
    ("integer", "decimal"): lambda _, new: _same if new.spark != "string" else None,
    ("integer", "text"): lambda *_: _same,
    ("integer", "boolean"): lambda *_: None,
    ("year", "integer"): lambda *_: _same,
    ("decimal", "decimal"): _decimals,
    ("decimal", "text"): lambda *_: _same,
    ("float", "float"): lambda old, new: (
        _same if old.spark in (new.spark, "double") else _by_text(lambda text: repr(float(np.float32(text))))
    ),
    ("text", "text"): lambda *_: _same,
    ("enum", "text"): lambda *_: _same,
    ("set", "text"): lambda *_: _same,
    ("text", "enum"): lambda *_: _same,
    ("enum", "enum"): _labels,
    ("set", "set"): _labels,
    ("binary", "binary"): lambda old, new: _same if "binary" not in (old.name, new.name) or old == new else None,
    ("bit", "bit"): lambda *_: _same,
    ("date", "date"): lambda *_: _same,
    ("date", "datetime"): lambda *_: lambda v: pc.binary_join_element_wise(v, " 00:00:00", ""),
    ("datetime", "datetime"): _fractions,
    ("datetime", "date"): lambda old, _: (lambda v: pc.utf8_slice_codeunits(v, 0, 10)) if _fraction(old) == 0 else None,
    ("timestamp", "timestamp"): _fractions,
    ("time", "time"): _fractions,
    ("json", "json"): lambda *_: _same,
    ("json", "text"): lambda *_: None,
    ("geometry", "geometry"): lambda *_: _same,
    ("year", "year"): lambda *_: _same,
    ("boolean", "boolean"): lambda *_: _same,
}
"""(family before, family after) → rule. A pair that isn't here isn't told by the feed."""


def same_values(before: str, after: str) -> bool:
    """Whether a change of type changes no value and no type in the snapshot."""
    try:
        return conversion(before, after) is _same and parse_type(before).spark == parse_type(after).spark
    except UnknownType:
        return False
