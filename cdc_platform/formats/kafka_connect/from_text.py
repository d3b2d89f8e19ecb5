"""Columns that arrive as text of their values though MySQL's type isn't text: Debezium's custom converters and
Connect's transformations write them (Flink CDC's MysqlDebeziumTimeConverter, holmofy/debezium-datetime-converter)."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.kafka_connect.values import Convert, each
from cdc_platform.formats.texts import BAD, shown
from cdc_platform.mysql.types import MySqlType
from cdc_platform.mysql.values import to_text

_CLOCK = r"([0-9]{2}:[0-9]{2})(?:(:[0-9]{2})(?:\.0+|(\.[0-9]{1,6})0*)?)?"  # Java leaves zero seconds out
_DAY = r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
_UTC = r"(?: ?(?:Z|[+-]00:?00))?"
_REGION = r"(?:\[[^\]]*\])?"  # ZonedDateTime.toString()
_FORMS: dict[str, tuple[tuple[str, str], ...]] = {
    "date": ((rf"^{_DAY}(?:[T ]00:00(?::00(?:\.0+)?)?)?{_UTC}$", r"\1"),),
    "time": ((rf"^(-?[0-9]{{1,3}}:[0-9]{{2}}){_UTC}$", r"\1:00"), (r"(:[0-9]{2}\.[0-9]{1,6})0*", r"\1"), ("Z$", "")),
    "datetime": (
        (rf"^{_DAY}[T ]{_CLOCK}{_UTC}$", r"\1 \2\3\4"),
        (rf"^{_DAY} ([0-9]{{2}}:[0-9]{{2}})$", r"\1 \2:00"),
    ),
    "timestamp": (
        (rf"^{_DAY}[T ]{_CLOCK} ?(Z|[+-][0-9]{{2}}:?[0-9]{{2}})?{_REGION}$", r"\1 \2\3\4\5"),
        (r"([+-][0-9]{2})([0-9]{2})$", r"\1:\2"),
        (rf"^{_DAY} ([0-9]{{2}}:[0-9]{{2}})(Z|[+-].*)?$", r"\1 \2:00\3"),
    ),
    "boolean": (("^true$", "1"), ("^false$", "0")),
    "bit": (("^true$", "1"), ("^false$", "0")),
}
"""Family → patterns and what they become, in order: ISO-8601 and what Java prints, put as MySQL does."""

_HINTS = {"timestamp": "; without an offset it is read in option time_zone, which may have it twice or never"}


def from_text(real: MySqlType, zone: str) -> Convert:
    """Converter of a column's texts to MySQL's type `real`. `zone`: of TIMESTAMP without an offset. Text of another
    form raises ValueError."""

    def convert(values: list[Any]) -> list[Any]:
        texts = pa.array(TEXTS(values), pa.string())
        for pattern, replacement in _FORMS.get(real.family, ()):
            texts = pc.replace_substring_regex(texts, pattern, replacement)
        found, ok = to_text(texts, real, zone)
        if not ok.all():
            wrong = values[int(np.flatnonzero(~ok)[0])]
            raise ValueError(
                f"{shown(wrong)} can't be read as {real.name}{_HINTS.get(real.family, '')}; option columns can call "
                "the column varchar, which keeps it as it is"
            )
        return found.to_pylist()

    return convert


TEXTS = each("text", (str,), None)


def or_text(convert: Convert, real: MySqlType, zone: str) -> Convert:
    """Converter of a column whose form no schema tells: what `convert` reads, else texts of its values."""
    of_texts = from_text(real, zone)

    def either(values: list[Any]) -> list[Any]:
        try:
            return convert(values)
        except BAD:
            if str not in set(map(type, values)):
                raise
            return of_texts(values)

    return either
