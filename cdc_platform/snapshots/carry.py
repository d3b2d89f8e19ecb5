"""Rows written before a DDL statement → rows of today's table: names, new columns, values of another type.

Frames only. What DDL did is told by `changelog.schema`; here it is done to row images.
"""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Carry, Order
from cdc_platform.errors import UnknownType
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.snapshots.columns import ORDER_FIELDS, order_sql
from cdc_platform.snapshots.touched import of_table
from cdc_platform.tables import Name

Convert = Callable[[Column], Column]


def order_literal(order: Order) -> Column:
    """A place as an `order_key`."""
    return F.expr(order_sql(dict(zip(ORDER_FIELDS, order, strict=True))))


def carried(rows: DataFrame, spans: Mapping[Name, Sequence[Carry]]) -> DataFrame:
    """Changelog rows → the same under today's `db` and `table` with today's columns; without rows whose table is
    gone. Carried rows lose `schema_version`: it names columns of another day. Ask `unknown` first: rows whose carry
    isn't known stay as they are."""
    db, table, kept = F.col("db"), F.col("table"), F.lit(True)
    images = {name: F.col(name) for name in ("before", "after")}
    key, version = F.col("key"), F.col("schema_version")
    for name, carries in spans.items():
        start: Order | None = None
        for carry in carries:
            here = within(name, start, carry.until)
            start = carry.until
            if carry.today is None:
                kept = kept & ~here
                continue
            if carry.today != name:
                db, table = F.when(here, carry.today[0]).otherwise(db), F.when(here, carry.today[-1]).otherwise(table)
            if not carry.nothing:
                images = {n: F.when(here, _image(F.col(n), carry, True)).otherwise(c) for n, c in images.items()}
                key = F.when(here, _key(carry)).otherwise(key)
                version = F.when(here, F.lit(None).cast("string")).otherwise(version)
    names = {"db": db, "table": table, **images, "key": key, "schema_version": version}
    return rows.where(kept).select(*(names.get(c, F.col(c)).alias(c) for c in rows.columns))


def within(name: Name, start: Order | None, until: Order | None) -> Column:
    """Rows of a name from one place up to another."""
    here = of_table(*name)
    if start is not None:
        here = here & (F.col("order_key") >= order_literal(start))
    return here if until is None else here & (F.col("order_key") < order_literal(until))


def _key(carry: Carry) -> Column:
    """The key under today's names; null where the key has other columns since: the images tell it."""
    return F.lit(None).cast("map<string,string>") if carry.key is not None else _image(F.col("key"), carry, False)


def _image(image: Column, carry: Carry, row: bool) -> Column:
    """A row image, or a key, as it would be today; new columns are filled in rows only."""
    out = image
    if carry.names:
        today = F.create_map(*(F.lit(x) for old, new in carry.names.items() for x in (old, new)))
        dropped = [old for old, new in carry.names.items() if new is None]
        out = F.map_filter(out, lambda k, _: ~F.lower(k).isin(dropped)) if dropped else out
        out = F.transform_keys(out, lambda k, _: F.coalesce(F.try_element_at(today, F.lower(k)), k))
    if carry.retyped:
        out = F.transform_values(out, lambda k, v: _converted(k, v, carry))
    fills = {a.name: a.fill for a in carry.added.values()}
    if row and fills:
        new = F.create_map(*(F.lit(x).cast("string") for pair in fills.items() for x in pair))
        had = F.transform(F.map_keys(out), F.lower)
        out = F.map_concat(out, F.map_filter(new, lambda k, _: ~F.array_contains(had, F.lower(k))))
    return F.when(image.isNotNull(), out)


def _converted(name: Column, text: Column, carry: Carry) -> Column:
    out = text
    for column, types in carry.retyped.items():
        value = text
        for before, after in types:
            convert = conversion(before, after)
            value = convert(value) if convert is not None else value
        out = F.when(F.lower(name) == column, value).otherwise(out)
    return out


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


def _same(value: Column) -> Column:
    return value


def _scale(t: MySqlType) -> int:
    return (*t.args, 0, 0)[1]


def _decimals(old: MySqlType, new: MySqlType) -> Convert | None:
    if _scale(new) >= _scale(old) and new.spark != "string":
        return _same
    wide = f"decimal(38,{_scale(new)})"
    if (*old.args, 10)[0] > 38 or (*new.args, 10)[0] > 38:
        return None
    return lambda v: F.round(v.cast(f"decimal(38,{_scale(old)})"), _scale(new)).cast(wide).cast("string")


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
        _same if old.spark in (new.spark, "double") else (lambda v: v.cast("float").cast("double").cast("string"))
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
    ("date", "datetime"): lambda *_: lambda v: F.concat(v, F.lit(" 00:00:00")),
    ("datetime", "datetime"): _fractions,
    ("datetime", "date"): lambda old, _: (lambda v: F.substring(v, 1, 10)) if _fraction(old) == 0 else None,
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
