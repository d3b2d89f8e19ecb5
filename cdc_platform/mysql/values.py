"""Canonical text of MySQL values, in bulk: one Arrow array in, its canonical text and which values were
readable out. Shared by all formats.

Every function takes an array of the source's text (or bytes) and gives `(text, ok)`: `text` a string array of
the same length, `ok` a numpy bool array. Where `ok` is False the text is meaningless. Nulls stay null and are
ok. Zero and impossible dates (`0000-00-00`, `2021-02-31`) keep the source's text: later stages make them NULL
and count them. Only text that has no date's shape is not ok.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from binascii import b2a_base64
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.mysql.fitting import decimals_fit, fractions_fit, labels_fit, texts_fit
from cdc_platform.mysql.types import MySqlType
from cdc_platform.mysql.zones import zone

Checked = tuple[pa.StringArray, np.ndarray]

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_TIME = r"-?([0-7]?[0-9]{1,2}|8[0-2][0-9]|83[0-8]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_ZONE = r" ?(Z|[+-][0-9]{2}:[0-9]{2})"


def to_text(values: pa.StringArray, mysql_type: MySqlType, time_zone: str = "UTC") -> Checked:
    """The source's text of any type but binary and geometry → canonical text. `time_zone` is the zone of
    TIMESTAMP text that tells none."""
    text, ok = _FAMILIES[mysql_type.family](values, mysql_type, time_zone)
    digits = mysql_type.args[0] if mysql_type.args else 6  # bare names may leave them open
    return text, ok & fractions_fit(text, digits) if digits < 6 and mysql_type.family in _CLOCKS else ok


_CLOCKS = frozenset(("datetime", "timestamp", "time"))
"""Families with fractions of a second."""


def _matches(values: pa.StringArray, pattern: str) -> np.ndarray:
    return _bools(pc.match_substring_regex(values, f"^(?:{pattern})$"), True)


def _shaped(values: pa.StringArray, digits: str) -> bool:
    """Whether all texts are like this one, with any digits for its zeros. What nearly all are, many times faster told
    than by a pattern."""
    values = values.drop_null() if values.null_count else values
    if not len(values):
        return True
    low = np.frombuffer(digits.encode(), np.uint8)
    _, offsets, data = values.buffers()
    offsets = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    if data is None or (np.diff(offsets) != len(low)).any():
        return False
    texts = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].reshape(-1, len(low))
    return bool((texts - low <= np.where(low == ord("0"), np.uint8(9), np.uint8(0))).all())


def _bools(values: pa.Array, null: bool) -> np.ndarray:
    return pc.fill_null(values, null).to_numpy(zero_copy_only=False)


def _all_ok(values: pa.Array) -> np.ndarray:
    return np.ones(len(values), bool)


def unchanged(values: pa.StringArray) -> Checked:
    """Text that is canonical as it stands."""
    return values, _all_ok(values)


def integers(values: pa.StringArray, low: int, high: int) -> Checked:
    """Integer text within low..high; leading zeros (ZEROFILL) are dropped."""
    try:  # numbers written the canonical way survive the round trip through Arrow's integers
        numbers = values.cast(pa.int64() if low < 0 else pa.uint64())
        bounds = pc.min_max(numbers).as_py()
        in_range = bounds["min"] is None or (bounds["min"] >= low and bounds["max"] <= high)
        if in_range and numbers.cast(pa.string()).equals(values):
            return unchanged(values)
    except pa.ArrowInvalid:
        pass
    ok = _matches(values, r"-?[0-9]{1,37}")
    plain = pc.replace_substring_regex(_where(ok, values, "0"), r"^(-?)0+([0-9])", r"\1\2")
    plain = pc.if_else(pc.equal(plain, "-0"), "0", plain)
    numbers = plain.cast(pa.decimal128(38, 0))
    limits = (pa.scalar(Decimal(n), pa.decimal128(38, 0)) for n in (low, high))
    fits = pc.and_(pc.greater_equal(numbers, next(limits)), pc.less_equal(numbers, next(limits)))
    return plain, ok & _bools(fits, True)


def _where(ok: np.ndarray, values: pa.StringArray, otherwise: str) -> pa.StringArray:
    return values if ok.all() else pc.if_else(pa.array(ok), values, otherwise)


def decimals(values: pa.StringArray, mysql_type: MySqlType) -> Checked:
    """Plain decimal text (no exponent), its scale kept as the source sends it."""
    return values, _matches(values, r"-?[0-9]+(\.[0-9]+)?") & decimals_fit(values, mysql_type)


def texts(values: pa.StringArray, mysql_type: MySqlType) -> Checked:
    """Text as it stands, no longer than its type."""
    return values, texts_fit(values, mysql_type)


def floats(values: pa.StringArray, single: bool) -> Checked:
    """Any decimal text → shortest text that reads back to the same 32-bit (`single`) or 64-bit float, written
    as Python's repr does. Infinity and NaN don't exist in MySQL and are not ok."""
    ok = _matches(values, r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
    plain = pc.replace_substring_regex(_where(ok, values, "0"), r"^\+", "")
    numbers = plain.cast(pa.float32() if single else pa.float64())
    ok &= _bools(pc.is_finite(numbers), True)
    text = numbers.cast(pa.string())
    text = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, "0", "."))
    size = np.abs(numbers.to_numpy(zero_copy_only=False))  # null becomes NaN, which compares as False
    # Arrow turns to exponents at other sizes than Python does: those few are written by Python.
    odd = ((size > 0) & (size < 1e-3)) | (size >= 1e9)
    if odd.any():
        words = [repr(float(str(x))) for x in numbers.to_numpy(zero_copy_only=False)[odd]]
        text = pc.replace_with_mask(text, pa.array(odd), pa.array(words, pa.string()))
    return text, ok


def dates(values: pa.StringArray) -> Checked:
    """`YYYY-MM-DD`."""
    return unchanged(values) if _shaped(values, "0000-00-00") else (values, _matches(values, _DATE))


def datetimes(values: pa.StringArray) -> Checked:
    """`YYYY-MM-DD HH:MM:SS[.ffffff]`, zeros at the end of the fraction trimmed; ISO-8601's T is read as the blank."""
    if _shaped(values, "0000-00-00 00:00:00"):
        return unchanged(values)
    values = _with_blank(values)
    return _trim_fraction(values), _matches(values, f"{_DATE} {_CLOCK}")


def _with_blank(values: pa.StringArray) -> pa.StringArray:
    """`2026-11-20T01:02:03` as MySQL writes it (Flink's timestamp format ISO-8601)."""
    if not pc.any(pc.match_substring(values, "T")).as_py():
        return values
    return pc.replace_substring_regex(values, f"^({_DATE})T", r"\1 ")


def times(values: pa.StringArray, digits: int) -> Checked:
    """`[-]HH:MM:SS[.ffffff]`, up to 838 hours either way. Zeros at the end of the fraction are trimmed where the type
    tells how many digits there are (the snapshot puts them back); else they are the source's, and stay."""
    padded = pc.replace_substring_regex(values, r"^(-?)([0-9]:)", r"\10\2")
    return _trim_fraction(padded) if digits else padded, _matches(values, _TIME)


def _trim_fraction(values: pa.StringArray) -> pa.StringArray:
    dotted = pc.match_substring(values, ".")
    if not pc.any(dotted).as_py():
        return values
    trimmed = pc.ascii_rtrim(pc.ascii_rtrim(values, characters="0"), characters=".")
    return trimmed if pc.all(dotted).as_py() else pc.if_else(dotted, trimmed, values)


def timestamps(values: pa.StringArray, time_zone: str) -> Checked:
    """Text with an offset (`2021-05-17 07:22:42 +00:00`, also `Z` or no blank) or without one (then local to
    `time_zone`) → `2021-05-17 07:22:42Z`, in UTC. Local times that a zone has twice or never are not ok."""
    zero = _bools(pc.starts_with(values, "0000-00-00"), False)
    if not zero.any() and _matches(values, rf"{_DATE} {_CLOCK} \+00:00").all():  # what sources really send
        bare = _trim_fraction(pc.replace_substring(values, " +00:00", ""))
        return pc.binary_join_element_wise(bare, "Z", ""), _all_ok(values)
    values = _with_blank(values)
    ok = _matches(values, f"{_DATE} {_CLOCK}({_ZONE})?")
    utc = _ends_with(values, "(Z|[+-]00:00)$")
    if time_zone == "UTC":
        utc |= ~_ends_with(values, "[+-][0-9]{2}:[0-9]{2}$")
    text = _trim_fraction(pc.replace_substring_regex(values, r" ?(Z|[+-]00:00)$", ""))
    text = pc.binary_join_element_wise(text, "Z", "")
    if zero.any():
        text = pc.if_else(pa.array(zero), values, text)
    moved = np.nonzero(ok & ~utc & ~zero & values.is_valid().to_numpy(zero_copy_only=False))[0]
    if len(moved):
        words, readable = _moved_to_utc(values.take(pa.array(moved)), time_zone)
        mask = np.zeros(len(values), bool)
        mask[moved] = True
        text = pc.replace_with_mask(text, pa.array(mask), words)
        ok[moved] = readable
    return text, ok


def _ends_with(values: pa.StringArray, pattern: str) -> np.ndarray:
    return _bools(pc.match_substring_regex(values, pattern), False)


def _moved_to_utc(values: pa.StringArray, time_zone: str) -> Checked:
    """TIMESTAMP text that is not in UTC yet."""
    try:  # all with offsets, all real dates: Arrow's own parser
        instants = pc.replace_substring(values, " +", "+")
        instants = pc.replace_substring(instants, " -", "-").cast(pa.timestamp("us", "UTC"))
        text = _trim_fraction(instants.cast(pa.timestamp("us")).cast(pa.string()))
        return pc.binary_join_element_wise(text, "Z", ""), _all_ok(values)
    except pa.ArrowInvalid:
        pass
    words = [_one_in_utc(text, time_zone) for text in values.to_pylist()]
    return pa.array(words, pa.string()), np.array([w is not None for w in words], bool)


def _one_in_utc(text: str, time_zone: str) -> str | None:
    try:
        moment = datetime.fromisoformat(text.replace(" +", "+").replace(" -", "-"))
        if moment.tzinfo is None:
            first, second = (moment.replace(tzinfo=zone(time_zone), fold=fold) for fold in (0, 1))
            if first.utcoffset() != second.utcoffset():  # the clock was turned: twice or never
                return None
            moment = first
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return text  # no such day: stays as the source wrote it
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}Z"


def years(values: pa.StringArray) -> Checked:
    """Four digits; MySQL's zero year is `0000`. Two digits would be a guess and are not ok.

    YEAR holds 1901 to 2155 and 0000, which is stored as 0: readers of the binlog that add 1900 to every stored byte
    (mysqlbinlog's printer does) make 1900 of it."""
    zero = pc.is_in(values, pa.array(["0", "1900"]))
    return pc.if_else(zero, "0000", values), _matches(
        values, r"0|0000|190[0-9]|19[1-9][0-9]|20[0-9]{2}|21[0-4][0-9]|215[0-5]"
    )


def bits(values: pa.StringArray, width: int) -> Checked:
    """BIT(`width`) as an unsigned integer. A negative number is BIT(64) read as a signed 64-bit integer."""
    if width == 64 and pc.any(pc.starts_with(values, "-")).as_py():
        values = pa.array([_unsigned64(v) for v in values.to_pylist()], pa.string())
    return integers(values, 0, 2**width - 1)


def _unsigned64(text: str | None) -> str | None:
    negative = text is not None and text[0:1] == "-" and text[1:].isdecimal() and len(text) <= 20
    return str(int(text) % 2**64) if negative and int(text) >= -(2**63) else text  # type: ignore[arg-type]


def booleans(values: pa.StringArray) -> Checked:
    """`0` or `1`."""
    return values, _matches(values, "[01]")


def base64_text(values: pa.BinaryArray, width: int = 0) -> Checked:
    """Bytes → standard base64 with padding. (Arrow has no such kernel; CPython's runs at memory speed.)

    `width`: n of BINARY(n). Such a column always holds n bytes, but the binlog leaves zeros at the end out
    (MySQL `Field_string::pack`), so they are put back."""
    words = [
        None if v is None else b2a_base64(v.ljust(width, b"\0"), newline=False).decode() for v in values.to_pylist()
    ]
    return pa.array(words, pa.string()), _all_ok(values)


def integer_range(mysql_type: MySqlType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    width = _BITS[mysql_type.name]
    return (0, 2**width - 1) if mysql_type.unsigned else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)


def _integer(values: pa.StringArray, mysql_type: MySqlType, _zone: str) -> Checked:
    return integers(values, *integer_range(mysql_type))


_FAMILIES: dict[str, Callable[[pa.StringArray, MySqlType, str], Checked]] = {
    "integer": _integer,
    "decimal": lambda v, t, _z: decimals(v, t),
    "float": lambda v, t, _z: floats(v, single=t.spark == "float"),
    "bit": lambda v, t, _z: bits(v, (t.args or (1,))[0]),
    "year": lambda v, _t, _z: years(v),
    "boolean": lambda v, _t, _z: booleans(v),
    "date": lambda v, _t, _z: dates(v),
    "datetime": lambda v, _t, _z: datetimes(v),
    "time": lambda v, t, _z: times(v, t.time_digits),
    "timestamp": lambda v, _t, z: timestamps(v, z),
    "text": lambda v, t, _z: texts(v, t),
    **dict.fromkeys(("enum", "set"), lambda v, t, _z: (v, labels_fit(v, t))),
    "json": lambda v, _t, _z: unchanged(v),
}
