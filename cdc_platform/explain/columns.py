"""Columns of the table that is asked about, and which texts are values of them."""

import re
from dataclasses import dataclass

import pyarrow as pa

from cdc_platform.errors import ConfigError, UnknownType
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.snapshots.apply.cast import typed

_INTEGER = re.compile(r"[-+]?[0-9]+")
_WHOLE = ("integer", "year")
_EXAMPLES = {
    **dict.fromkeys(("integer", "decimal", "float", "bit"), "7"),
    **dict.fromkeys(("binary", "geometry"), "AAE="),
    "boolean": "1",
    "year": "2026",
    "date": "2026-11-20",
    "time": "12:00:00",
    "datetime": "2026-11-20 12:00:00",
    "timestamp": "2026-11-20 12:00:00Z",
}
"""Family of types → a text that changes have of any of them; of the others all texts are values."""


@dataclass(frozen=True)
class Column:
    """A column of the table: its type as the feed tells it (None: it doesn't), whether it is part of the key."""

    name: str
    type: str | None
    key: bool

    @property
    def parsed(self) -> MySqlType | None:
        """None: a type that nothing reads."""
        try:
            return parse_type(self.type) if self.type else None
        except UnknownType:
            return None

    def canonical(self, told: str, *, must_fit: bool = True) -> str:
        """A text that people gave as changes have it: integers without leading zeros. Raises ConfigError where it is
        no value of the column's type, and must be one."""
        type_ = self.parsed
        if type_ is None or type_.family not in _WHOLE:
            return told
        if not _INTEGER.fullmatch(told.strip()):
            if must_fit:
                raise self._no_value(told)
            return told
        return str(int(told))

    def value(self, told: str | None, to: pa.DataType) -> pa.Array:
        """A text as a column of files has it. to: its type there. Raises ConfigError: it is no value of the column."""
        type_ = self.parsed
        if told is None or (type_ is None and not pa.types.is_string(to)):
            raise self._no_value(told)
        try:
            return pa.array([told]) if type_ is None else typed(pa.array([told]), type_, to)
        except (ValueError, pa.ArrowInvalid):
            raise self._no_value(told) from None

    def _no_value(self, told: str | None) -> ConfigError:
        shown = "NULL" if told is None else repr(told)
        type_ = f"which is {self.type}" if self.type else "of which the feed tells no type"
        example = _EXAMPLES.get(self.parsed.family) if self.parsed else None
        valid = [f"{self.name}={example}"] if example else []
        return ConfigError("KEY", f"{shown} is no value of {self.name}, {type_}", valid)
