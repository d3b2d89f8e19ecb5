"""What a server makes of the values of a column whose type changes, or that can't be NULL any more: canonical text →
canonical text. Arrow only.

A server in strict mode refuses a statement that would lose something, one that isn't bends the values: what is done
here is right for both, or is refused (MySQL manual, "ALTER TABLE", "Strict SQL Mode"; held against MariaDB 10.11 by
tests/oracle/test_conversions.py).
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.errors import UnknownType
from cdc_platform.mysql.charsets import with_question_marks
from cdc_platform.mysql.defaults import instead_of_null
from cdc_platform.mysql.effects import Retyped
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.snapshots.schema.by_text import Convert, Refused, RefusedText, by_text, same
from cdc_platform.snapshots.schema.image_columns import ImageColumn
from cdc_platform.snapshots.schema.numbers import (
    bits,
    decimals,
    floats,
    integer_as_decimal,
    integers,
    scale_of,
    year_as_integer,
)


def conversion(before: str, after: str) -> Convert | None:
    """How a server turns the values of a column whose type changes, as a function of canonical text, which may raise
    Refused; None: the feed doesn't tell."""
    try:
        old, new = parse_type(before), parse_type(after)
    except UnknownType:
        return None
    if before == after:
        return same
    if new.name in _FORMS or ("zerofill" in before.lower() and new.family == "text"):  # its zeros are written, too
        return None
    rule = _RULES.get((old.family, new.family))
    made = rule(old, new) if rule else None
    if made is None or not new.unsigned or old.unsigned or new.family not in ("decimal", "float"):
        return made
    positive = by_text(lambda text: text if float(text) >= 0 else instead_of_null(new) or text)
    return lambda texts: positive(made(texts))


def same_values(types: Retyped) -> bool:
    """Whether a change of type changes no value and no type in the snapshot."""
    try:
        old, new = parse_type(types.before), parse_type(types.after)
    except UnknownType:
        return False
    alike = old.spark == new.spark and old.time_digits == new.time_digits and types.charset is None
    return alike and conversion(types.before, types.after) is same


def may_refuse(types: Retyped) -> bool:
    """Whether what becomes of a column's values may depend on them in a way that isn't told."""
    try:
        old, new = parse_type(types.before), parse_type(types.after)
    except UnknownType:
        return False
    refuses = old.family == "text" and new.family in ("enum", "set")
    refuses |= old.family in ("text", "set") and new.name in _SIZES and old != new
    refuses |= types.charset is not None
    return refuses or (types.filled and instead_of_null(new) is None)


def retyped(of: ImageColumn, types: Retyped) -> pa.StringArray:
    """The texts of a column after a statement. Raises Refused. As they are where `conversion` knows nothing."""
    convert = conversion(types.before, types.after)
    if convert is None:
        return of.texts
    texts = convert(of.texts)
    if types.charset is not None:
        texts = _in_charset(texts, parse_type(types.after), types.charset)
    nulls = of.there & texts.is_null().to_numpy(zero_copy_only=False)
    if not (types.filled and nulls.any()):
        return texts
    text = instead_of_null(parse_type(types.after))
    if text is None:
        why = f"rows hold NULL from before it became {types.after} NOT NULL: what they hold since isn't told"
        raise Refused(why, nulls)
    return pc.if_else(pa.array(nulls), text, texts)


def _in_charset(texts: pa.StringArray, type_: MySqlType, charset: str) -> pa.StringArray:
    """A server that isn't strict writes `?` for characters that the charset lacks. Labels are texts of the type, which
    the statement doesn't show."""

    def made(text: str) -> str:
        found = with_question_marks(text, charset)
        if found is None or (found != text and type_.labels):
            raise RefusedText(f"{text[:50]!r} isn't text in {charset}: what the server made of it isn't told")
        return found

    return by_text(made)(texts)


# -- texts -----------------------------------------------------------------------------------------------------------

_SIZES = {
    f"{size}{kind}": n for size, n in (("tiny", 255), ("", 65_535), ("medium", 2**24 - 1)) for kind in ("text", "blob")
}
_OF_A_SIZE = frozenset(("text", "blob"))
_FORMS = frozenset(("inet4", "inet6", "uuid", "vector"))
"""Types whose values have a form of their own."""


def _longest(t: MySqlType) -> float:
    """Characters or bytes. TEXT(n) and BLOB(n) are the smallest of these types that may hold n; of more bytes for each
    character one is larger, so what is longer than that is refused, not cut."""
    if t.name in _OF_A_SIZE and t.args:
        return next((n for n in _SIZES.values() if t.args[0] <= n), float("inf"))
    return t.args[0] if t.args else _SIZES.get(t.name, float("inf"))


def _cut(old: MySqlType, new: MySqlType) -> Convert:
    """Any value as text: what is too long is cut off; CHAR has no blanks at its end."""
    longest, fixed = _longest(new), new.name == "char" and old.name != "char"
    known = old.family == "text" and _longest(old) <= longest
    if known and not fixed:
        return same

    def cut(text: str) -> str:
        if len(text) > longest and new.name in _SIZES:  # bytes of a charset that isn't told
            raise RefusedText(
                f"a text of {len(text)} characters doesn't fit into {new.name}: where it was cut isn't told"
            )
        text = text if len(text) <= longest else text[: int(longest)]
        return text.rstrip(" ") if fixed else text

    return by_text(cut) if fixed or longest < float("inf") else same


def _bytes(old: MySqlType, new: MySqlType) -> Convert | None:
    if "binary" in (old.name, new.name):
        return same if old == new else None
    longest = _longest(new)
    if _longest(old) <= longest:
        return same
    return by_text(lambda text: b2a_base64(a2b_base64(text)[: int(longest)], newline=False).decode())


def _with_digits(digits: Callable[[MySqlType], int]) -> Callable[[MySqlType, MySqlType], Convert]:
    """As text with all digits of the fraction that its type has: feeds leave zeros out."""

    def rule(old: MySqlType, new: MySqlType) -> Convert:
        cut, n = _cut(old, new), digits(old)

        def written(text: str) -> str:
            whole, _, fraction = text.partition(".")
            return f"{whole}.{fraction.ljust(n, '0')}" if n else text

        return lambda texts: cut(by_text(written)(texts))

    return rule


# -- labels ----------------------------------------------------------------------------------------------------------


def _enums(old: MySqlType, new: MySqlType) -> Convert | None:
    return same if set(old.labels) <= set(new.labels) else None


def _members(new: MySqlType) -> Convert:
    """Members of a SET stand in the order of its labels."""
    place = {label: i for i, label in enumerate(new.labels)}

    def ordered(text: str) -> str:
        members = set(text.split(",")) if text else set()
        if not members <= place.keys():
            raise RefusedText(f"{text[:50]!r} isn't made of its labels: what the server took it for isn't told")
        return ",".join(sorted(members, key=place.__getitem__))

    return by_text(ordered)


def _sets(old: MySqlType, new: MySqlType) -> Convert | None:
    if not set(old.labels) <= set(new.labels):
        return None
    return same if [x for x in new.labels if x in old.labels] == list(old.labels) else _members(new)


def _as_label(_old: MySqlType, new: MySqlType) -> Convert:
    """A server compares by the column's collation, and takes digits for a number of a label."""
    known = {*new.labels, ""}

    def label(text: str) -> str:
        if text not in known:
            raise RefusedText(f"{text[:50]!r} is none of its labels: which one the server took it for isn't told")
        return text

    return by_text(label)


# -- times -----------------------------------------------------------------------------------------------------------


def _fraction(t: MySqlType) -> int:
    return (*t.args, 0)[0]


def _fractions(old: MySqlType, new: MySqlType) -> Convert | None:
    return same if _fraction(new) >= _fraction(old) else None  # rounds, carrying over to the next day


def _day(old: MySqlType, _new: MySqlType) -> Convert | None:
    return (lambda v: pc.utf8_slice_codeunits(v, 0, 10)) if _fraction(old) == 0 else None


def _always(*_: MySqlType) -> Convert:
    return same


_RULES: dict[tuple[str, str], Callable[[MySqlType, MySqlType], Convert | None]] = {
    ("integer", "integer"): integers,
    ("integer", "decimal"): integer_as_decimal,
    ("integer", "text"): _cut,
    ("year", "integer"): year_as_integer,
    ("decimal", "decimal"): decimals,
    ("decimal", "text"): _with_digits(scale_of),
    ("float", "float"): floats,
    ("text", "text"): _cut,
    ("enum", "text"): _cut,
    ("set", "text"): _cut,
    ("text", "enum"): _as_label,
    ("text", "set"): lambda _, new: _members(new),
    ("enum", "enum"): _enums,
    ("set", "set"): _sets,
    ("binary", "binary"): _bytes,
    ("bit", "bit"): bits,
    ("date", "datetime"): lambda *_: lambda v: pc.binary_join_element_wise(v, " 00:00:00", ""),
    ("datetime", "date"): _day,
    ("datetime", "datetime"): _fractions,
    ("timestamp", "timestamp"): _fractions,
    ("time", "time"): _fractions,
    ("date", "text"): _cut,
    ("year", "text"): _cut,
    ("datetime", "text"): _with_digits(_fraction),  # a TIMESTAMP's zone is the session's, which isn't told
    ("time", "text"): _with_digits(_fraction),
    **{(family, family): _always for family in ("date", "json", "geometry", "year", "boolean")},
}
"""(family before, family after) → rule. A pair that isn't here isn't told by the feed."""
