"""From canonical text to the typed columns of a snapshot: one rule per family of MySQL types."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Order
from cdc_platform.config import Source
from cdc_platform.errors import TableStopped, UnknownType
from cdc_platform.formats.events import require_distinct_names
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.tables import ORDER, Name
from cdc_platform.tables.columns import sql

BOOKKEEPING = ("_cdc_order", "_cdc_source_time")
RESERVED = frozenset((*BOOKKEEPING, "_cdc_address"))
"""Names that no column of a source table may have."""

_MAY_BE_INVALID = frozenset(("date", "datetime", "timestamp"))
"""MySQL stores dates that don't exist (0000-00-00, 2026-02-30): NULL in the snapshot, and counted. Any other value
that doesn't fit its column is an error that stops the table: ANSI casts raise."""


def _date(text: Column, spark: str) -> Column:
    """Spark reads dates of the year 0, too, but no reader of its tables: SQL's dates begin at 0001-01-01."""
    return F.when(~text.startswith("0000"), text).try_cast(spark)


def _float(text: Column, spark: str) -> Column:
    """MySQL holds no infinity and no NaN; a cast makes an infinity of what is too large."""
    fits = F.abs(text.cast(spark)) < F.lit(float("inf"))
    return F.when(fits, text).otherwise(F.concat(text, F.lit(" (out of range)"))).cast(spark)


def _decimal(text: Column, spark: str) -> Column:
    """Too many digits before the point raise by themselves; too many after it would be rounded away."""
    if spark == "string":
        return text
    scale = int(spark.rstrip(")").rpartition(",")[2])
    point = F.instr(text, ".")
    fits = (point == 0) | (F.length(text) - point <= scale) | text.rlike(rf"\.\d{{0,{scale}}}0*$")
    return F.when(fits, text).otherwise(F.concat(text, F.lit(f" (more than {scale} decimals)"))).cast(spark)


def _time(text: Column, digits: int) -> Column:
    """As SELECT prints it: with all the digits that its column has. Canonical text has no zeros at the end."""
    dotted = F.when(text.contains("."), text).otherwise(F.concat(text, F.lit(".")))
    missing = F.greatest(F.lit(0), digits - (F.length(dotted) - F.instr(dotted, ".")))
    return F.concat(dotted, F.repeat(F.lit("0"), missing)) if digits else text


_CASTS: dict[str, Callable[[Column, str], Column]] = {
    **dict.fromkeys(_MAY_BE_INVALID, _date),
    **dict.fromkeys(("binary", "geometry"), lambda text, _: F.to_binary(text, F.lit("base64"))),
    **dict.fromkeys(("text", "enum", "set", "json"), lambda text, _: text),
    **dict.fromkeys(("integer", "bit", "boolean", "year"), lambda text, spark: text.cast(spark)),
    "float": _float,
    "decimal": _decimal,
}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a source table: name, MySQL type, whether it is part of the key; how it then compares, if not by
    its bytes."""

    name: str
    type: MySqlType
    key: bool
    collation: str | None = None

    @property
    def spark(self) -> str:
        """Spark type of the snapshot column, as DDL."""
        return self.type.spark

    @property
    def comment(self) -> str:
        """What a snapshot's column says of the way its values are spelled, where its Spark type doesn't: those of
        another comment are made anew."""
        return f"time({digits})" if (digits := self.type.time_digits) else ""

    def text(self, image: str) -> Column:
        """The column's canonical text in a row image (a map column); NULL when absent or NULL."""
        return F.try_element_at(F.col(image), F.lit(self.name))

    def value(self, text: Column) -> Column:
        """Typed value of a canonical text."""
        if self.type.family == "time":
            return _time(text, self.type.time_digits)
        return _CASTS[self.type.family](text, self.spark)

    def comparable(self, value: Column) -> Column:
        """A typed value as keys compare."""
        return value if self.collation is None else F.collate(value, self.collation)

    def plain(self, value: Column) -> Column:
        """A comparable value as it is kept."""
        return value if self.collation is None else F.collate(value, "UTF8_BINARY")

    def invalid(self, image: str) -> Column:
        """Whether the image holds a text that can only become NULL; always false for types that are never invalid."""
        if self.type.family not in _MAY_BE_INVALID:
            return F.lit(False)
        return self.text(image).isNotNull() & self.value(self.text(image)).isNull()


def columns_of(source: Source, name: Name, columns_json: str) -> list[TableColumn]:
    """`columns` of a schema_history row → typed columns; keys of the configuration win. None of a table
    without a key is one. Raises TableStopped."""
    keys, collation = source.tables.key_columns(*name), source.tables.collation(*name)
    out = []
    for c in json.loads(columns_json):
        try:
            type_ = parse_type(c["type"])
        except UnknownType as error:
            raise TableStopped(source.name, name, f"column {c['name']!r}: {error}") from None
        if not c["name"] or c["name"].lower() in RESERVED:
            raise TableStopped(source.name, name, f"column name {c['name']!r} can't be kept")
        key = c["name"] in keys if keys else c["key"]
        out.append(TableColumn(c["name"], type_, key, collation if key and type_.spark == "string" else None))
    try:
        require_distinct_names(c.name for c in out)
    except ValueError as error:
        raise TableStopped(source.name, name, str(error)) from None
    missing = set(keys or ()) - {c.name for c in out}
    if missing:
        raise TableStopped(source.name, name, f"configured key columns {sorted(missing)} are not in the table")
    return out


ORDER_FIELDS = {name: sql(type_) for name, type_ in ORDER.fields}
"""Of an `order_key`, as they are compared one after the other: names and types."""


def order_sql(order: Any) -> str:
    """An `order_key` value (Row) as SQL text; all numbers."""
    fields = ", ".join(f"'{f}', CAST({int(order[f])} AS {t})" for f, t in ORDER_FIELDS.items())
    return f"named_struct({fields})"


def order_literal(order: Any) -> Column:
    """An `order_key` value (Row) as a column."""
    return F.expr(order_sql(order))


def not_before(column: str, low: Order) -> Column:
    """Whether an `order_key` is this one or newer, and of some others: told field by field, so that files are passed
    over by their statistics."""
    found: Column = F.lit(True)
    for name, number in [*zip(("epoch", "file", "pos"), low, strict=False)][::-1]:
        field, bound = F.col(f"{column}.{name}"), F.lit(str(number)).cast(ORDER_FIELDS[name])
        found = (field > bound) | ((field == bound) & found)
    return found
