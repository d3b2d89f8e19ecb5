"""Column text as canal writes it → canonical text. The same text travels in FlatMessage JSON and in protobuf.

Facts (alibaba/canal `LogEventConvert.parseOneRow`, `RowsLogBuffer.fetchValue`; TiCDC `canal_entry.go`): ENUM is
its 1-based index, SET its bitmask; binary and geometry are one ISO-8859-1 character per byte; floats are
Java's `toString`; TIMESTAMP is in the server's time zone and says none; a partial JSON update is an expression.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import binascii
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.errors import UnknownType
from cdc_platform.mysql import values
from cdc_platform.mysql.fitting import labels_fit, longest_bytes, padded_to
from cdc_platform.mysql.types import MySqlType, lower_outside_quotes, parse_type

BinaryText = Literal["latin-1", "utf-8", "base64", "hex"]
LabelText = Literal["number", "label"]

_OPEN = {"decimal": "decimal(65,30)", "bit": "bit(64)"}
"""TiCDC and others leave lengths out. A bare `decimal` isn't MySQL's decimal(10,0) then, nor `bit` bit(1)."""
_WITH_ARGUMENTS = frozenset(
    (
        *("bit", "decimal", "numeric", "dec", "enum", "set", "char", "varchar", "binary", "varbinary"),
        *("time", "datetime", "timestamp"),
    )
)
"""Types whose name alone may leave something out."""
_LONGEST_NUMBER = 38  # digits of a decimal in Spark


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a writer's text differs from canal's own. `zone`: of TIMESTAMP text without an offset."""

    zone: str = "UTC"
    binary: BinaryText = "latin-1"
    labels: LabelText = "number"


def parse_mysql_type(text: str | None) -> tuple[str, MySqlType] | None:
    """`mysqlType` of a column → type text and type; None where it tells none that MySQL has."""
    try:
        clean = lower_outside_quotes((text or "").strip())
        known = None if "(" in clean else _OPEN.get(clean.partition(" ")[0])
        clean = known or clean
        found = parse_type(clean)
    except UnknownType:
        return None
    if known and found.family == "decimal":
        found = replace(found, args=found.args[:1])  # its scale isn't told
    return None if found.family == "bit" and not 1 <= (found.args or (1,))[0] <= 64 else (clean, found)


def is_complete_type(text: str | None) -> bool:
    """Whether `mysqlType` of a column leaves nothing open: no length, precision, digits or labels are missing."""
    clean = lower_outside_quotes((text or "").strip())
    return bool(clean) and ("(" in clean or clean.split()[0] not in _WITH_ARGUMENTS)


def completed(told: str | None, known: str | None, *, blob: bool) -> tuple[str, MySqlType] | None:
    """The type that the schema history knows, where `mysqlType` (None: there is none) leaves something open and doesn't
    contradict it; else None. `blob`: the value came as bytes, as `sqlType` says."""
    if not known or (told and is_complete_type(told) and parse_mysql_type(told)):
        return None
    real, found = parse_type(known), parse_mysql_type(told)
    same = found is None or real.family == found[1].family
    if blob and found is None:
        same = real.family in _AS_BYTES
    return (known, real) if same and (blob or found is not None or real.family not in _AS_BYTES) else None


_AS_BYTES = ("binary", "geometry")


def to_text(texts: pa.StringArray, mysql_type: MySqlType, dialect: Dialect) -> values.Checked:
    """A column's text → (canonical text, ok), as `mysql.values.to_text`."""
    convert = _FAMILIES.get(mysql_type.family)
    return convert(texts, mysql_type, dialect) if convert else values.to_text(texts, mysql_type, dialect.zone)


def is_canonical(mysql_type: MySqlType) -> bool:
    """Whether any text of a column is canonical as it stands, whatever the dialect."""
    return mysql_type.family == "text"


_HINTS = {
    "timestamp": "; it may also be a time that option time_zone has twice or never, as its clocks are turned",
    "json": "; a partial update (binlog_row_value_options=PARTIAL_JSON) doesn't tell the document",
}


def hint(mysql_type: MySqlType) -> str:
    """What else to say of a text that could not be read; mostly nothing."""
    if mysql_type.family in ("enum", "set") and not mysql_type.labels:
        return ", which tells no labels: name them in option columns"
    return _HINTS.get(mysql_type.family, "")


def _each(texts: pa.StringArray, read: Callable[[str], str | None]) -> values.Checked:
    """Distinct texts one by one; those that `read` gives None for (or raises ValueError) are not ok."""

    def safe(text: str) -> str | None:
        try:
            return read(text)
        except ValueError:
            return None

    codes = texts.dictionary_encode()
    words = pa.array(list(map(safe, codes.dictionary.to_pylist())), pa.string()).take(codes.indices)
    ok = words.is_valid().to_numpy(zero_copy_only=False) | texts.is_null().to_numpy(zero_copy_only=False)
    return words, ok


def _enum(texts: pa.StringArray, mysql_type: MySqlType, dialect: Dialect) -> values.Checked:
    labels = mysql_type.labels
    if dialect.labels == "label":
        return texts, labels_fit(texts, mysql_type)

    def label(text: str) -> str | None:
        # Index 0 is MySQL's '' of a value that was refused.
        number = _number(text)
        return ("", *labels)[number] if labels and number <= len(labels) else None

    return _each(texts, label)


def _set(texts: pa.StringArray, mysql_type: MySqlType, dialect: Dialect) -> values.Checked:
    labels = mysql_type.labels
    if dialect.labels == "label":
        return texts, labels_fit(texts, mysql_type)

    def members(text: str) -> str | None:
        bits = _number(text.removeprefix("-"))
        bits = 2**64 - bits if text.startswith("-") and len(labels) == 64 else bits
        if not labels or bits >> len(labels) or (text.startswith("-") and len(labels) < 64):
            return None
        return ",".join(x for i, x in enumerate(labels) if bits >> i & 1)

    return _each(texts, members)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        raise ValueError(text)
    return int(text)


def _hex(text: str) -> bytes:
    digits = text.removeprefix("0x")
    return binascii.a2b_hex(digits)


_BYTES: dict[BinaryText, Callable[[str], bytes]] = {
    "latin-1": lambda t: t.encode("latin-1"),
    "utf-8": lambda t: t.encode("utf-8"),
    "base64": lambda t: binascii.a2b_base64(t, strict_mode=True),
    "hex": _hex,
}


def _binary(texts: pa.StringArray, mysql_type: MySqlType, dialect: Dialect) -> values.Checked:
    read, longest = _BYTES[dialect.binary], longest_bytes(mysql_type)
    raw: list[bytes | None] = []
    ok = np.ones(len(texts), bool)
    for i, text in enumerate(texts.to_pylist()):
        try:
            found = None if text is None else read(text)
            ok[i] = found is None or longest is None or len(found) <= longest
            raw.append(found)
        except ValueError:
            raw.append(None)
            ok[i] = False
    return values.base64_text(pa.array(raw, pa.binary()), padded_to(mysql_type))[0], ok


def _json(texts: pa.StringArray, _type: MySqlType, _dialect: Dialect) -> values.Checked:
    # binlog_row_value_options=PARTIAL_JSON gives JSON_SET(…) and the like: what the document became isn't told.
    return texts, ~pc.fill_null(pc.starts_with(texts, "JSON_"), False).to_numpy(zero_copy_only=False)


def _decimal(texts: pa.StringArray, mysql_type: MySqlType, _dialect: Dialect) -> values.Checked:
    # canal 1.1.7 leaves a fraction's last digits out where they are zero and fill no group of nine: 1.0 in
    # DECIMAL(12,2), 27 zeros in DECIMAL(65,30). It would show where snapshots have text, for want of digits.
    text, ok = values.decimals(texts, mysql_type)
    precision, scale = (*mysql_type.args, 0, 0)[:2]
    if precision <= _LONGEST_NUMBER or not scale:
        return text, ok

    def padded(number: str) -> str:
        whole, _, fraction = number.partition(".")
        return f"{whole}.{fraction.ljust(scale, '0')}"

    return _each(text, padded)[0], ok


_FAMILIES: dict[str, Callable[[pa.StringArray, MySqlType, Dialect], values.Checked]] = {
    "decimal": _decimal,
    "enum": _enum,
    "set": _set,
    "binary": _binary,
    "geometry": _binary,
    "json": _json,
}
"""Families whose text isn't MySQL's own."""
