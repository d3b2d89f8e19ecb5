"""What rows that were there before hold in a column that ALTER TABLE adds: its default, as the statement writes it.

The parsers tell a default without its quotes, and some not at all: b'101' comes as 101, 0x05 and an expression as none.
So literals are read here, and what isn't plainly one value whatever the session is told as unknown.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

import pyarrow as pa

from cdc_platform.mysql import values
from cdc_platform.mysql.ddl import plain_name, unescaped
from cdc_platform.mysql.tokens import NO_COLUMN, Token, tokens, without_lists
from cdc_platform.mysql.types import MySqlType


class Literal(NamedTuple):
    """kind: null, text, number, bits, truth, or other: one that isn't read here. said: its value, or its text."""

    kind: str
    said: str


_NOT_OF_THE_COLUMN = frozenset(("COLUMN_FORMAT", "STORAGE", "SET"))
"""Words before a DEFAULT that isn't the column's."""
_OPERATORS = frozenset(("AND", "OR", "XOR", "DIV", "MOD", "IS", "LIKE", "IN", "BETWEEN", "REGEXP", "RLIKE"))
_TRUTH = {"TRUE": "1", "FALSE": "0"}
_END = Token(None, "")


def added(sql: str) -> dict[str, Literal]:
    """Column that the ALTER adds, in lower case → its default; a null, too, where NULL is said and no default. Others
    aren't there."""
    found = tokens(without_lists(sql))
    out: dict[str, Literal] = {}
    column: str | None = None
    depth = 0
    for at, token in enumerate(found):
        word = token.text.upper()
        if token.kind == "mark" and word in "()":
            depth += 1 if word == "(" else -1
        elif depth == 0 and token == Token("mark", ","):
            column = None
        elif depth == 0 and token.kind == "word":
            before = found[at - 1].text.upper()
            if column is None:
                column = _name(found, at) if word == "ADD" else None
            elif word == "DEFAULT" and before not in _NOT_OF_THE_COLUMN:
                out[column] = _literal([*found[at + 1 : at + 4], _END, _END, _END])
            elif word == "NULL" and before not in ("NOT", "DEFAULT", "SET"):
                out.setdefault(column, Literal("null", word))
    return out


def _name(found: Sequence[Token], at: int) -> str | None:
    """The column behind an ADD [COLUMN] [IF NOT EXISTS]."""
    at += 1
    for words in (("COLUMN",), ("IF", "NOT", "EXISTS")):
        if tuple(t.text.upper() for t in found[at : at + len(words)]) == words:
            at += len(words)
    token = found[at] if at < len(found) else _END
    if token.kind not in ("word", "quoted") or (token.kind == "word" and token.text.lower() in NO_COLUMN):
        return None
    return plain_name(token.text).lower()


def _literal(tokens: Sequence[Token]) -> Literal:
    """The literal that begins here; an expression, an introducer, hexadecimal digits, two texts in a row are other."""
    signed = tokens[0].kind == "mark" and tokens[0].text in "+-" and tokens[1].kind == "number"
    sign, (token, then) = (tokens[0].text, tokens[1:3]) if signed else ("", tokens[:2])
    goes_on = then.kind not in (None, "word") and then.text not in (",", ")", ";")
    if goes_on or then.text.upper() in _OPERATORS:
        return Literal("other", token.text)
    if token.kind == "word":
        word = token.text.upper()
        kind = "truth" if word in _TRUTH else "null" if word == "NULL" else "other"
        return Literal(kind, _TRUTH.get(word, word))
    if token.kind == "text":
        return Literal("text", unescaped(token.text[1:-1], token.text[0]))
    if token.kind == "bits":
        return Literal("bits", str(int(token.text[1:].strip("'b") or "0", 2)))
    return Literal("number", sign + token.text) if token.kind == "number" else Literal("other", token.text)


# -- what a column of a type holds for a literal; None: not told ------------------------------------------------------

_INTEGER, _DECIMAL = re.compile(r"[+-]?[0-9]+"), re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")


def _integer(given: Literal, _type: MySqlType) -> str | None:
    if given.kind == "truth":
        return given.said
    return str(int(given.said)) if given.kind in ("number", "text") and _INTEGER.fullmatch(given.said) else None


def _bit(given: Literal, _type: MySqlType) -> str | None:
    if given.kind == "number" and not given.said.isdecimal():
        return None
    # A text's bytes would be its bits.
    return str(int(given.said)) if given.kind in ("bits", "number", "truth") else None


def _decimal(given: Literal, type_: MySqlType) -> str | None:
    if given.kind not in ("number", "text", "truth") or not _DECIMAL.fullmatch(given.said):
        return None
    scale = (*type_.args, 0, 0)[1]
    return str(Decimal(given.said).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP))


def _float(given: Literal, type_: MySqlType) -> str | None:
    if given.kind not in ("number", "text", "truth"):
        return None
    if len(type_.args) != 2:
        return given.said
    rounded = _decimal(given, type_)  # FLOAT(M,D) rounds, in binary: what lies in the middle may go either way
    middle = rounded is not None and abs(Decimal(given.said) - Decimal(rounded)).scaleb(type_.args[1]) == Decimal("0.5")
    return None if middle else rounded


def _text(given: Literal, type_: MySqlType) -> str | None:
    if type_.name.endswith("char") and "var" not in type_.name and given.said.endswith(" "):
        return None  # the server takes spaces off, by its mode
    if given.kind == "number" and not re.fullmatch(r"(?:0|[1-9][0-9]*)", given.said):
        return None  # 007, 1e3: the server writes the number anew
    return given.said if given.kind in ("text", "number", "truth") else None


def _enum(given: Literal, type_: MySqlType) -> str | None:
    said = (given.said, given.said.rstrip(" "))  # the label has no blanks at its end, if it isn't one of bytes
    return next((s for s in said if s in type_.labels), None) if given.kind == "text" else None


def _set(given: Literal, type_: MySqlType) -> str | None:
    said = set(given.said.split(",")) if given.said else set()
    if given.kind != "text" or not said <= set(type_.labels):
        return None
    return ",".join(m for m in type_.labels if m in said)  # in the order that the server keeps


def _moment(given: Literal, type_: MySqlType) -> str | None:
    fraction = given.said.partition(".")[2]  # one too long is rounded or cut off, by the server's mode
    return given.said if given.kind == "text" and len(fraction) <= (*type_.args, 0)[0] else None


def _year(given: Literal, _type: MySqlType) -> str | None:
    return given.said if given.kind in ("text", "number") and re.fullmatch("[0-9]{4}", given.said) else None


_READ: Mapping[str, Callable[[Literal, MySqlType], str | None]] = {
    **{"integer": _integer, "bit": _bit, "decimal": _decimal, "float": _float, "text": _text, "enum": _enum},
    **{"set": _set, "date": _moment, "datetime": _moment, "time": _moment, "year": _year},
}
"""By type family. Others depend on the session (timestamp), or a literal isn't what is kept (binary, json)."""


def value(given: Literal, type_: MySqlType) -> str | None:
    """The text that a column of this type holds for a default; None: it isn't told."""
    said = _READ[type_.family](given, type_) if type_.family in _READ else None
    if said is None:
        return None
    text, fits = values.to_text(pa.array([said], pa.string()), type_, "UTC")
    return text[0].as_py() if fits[0] else None


# -- without a default ------------------------------------------------------------------------------------------------

_IMPLICIT = {
    **dict.fromkeys(("integer", "decimal", "bit", "boolean", "year"), "0"),
    **{"float": "0.0", "text": "", "set": "", "enum": ""},
    **{"date": "0000-00-00", "datetime": "0000-00-00 00:00:00", "time": "00:00:00"},
    **{"inet4": "0.0.0.0", "inet6": "::", "uuid": "00000000-0000-0000-0000-000000000000"},  # noqa: S104
}
"""By type family, or by type."""
_UNTOLD = frozenset(("vector", "json", "geometry", "timestamp"))
"""What these hold differs by server or by the moment: rows get the time of the statement in a TIMESTAMP."""


def instead_of_null(mysql_type: MySqlType) -> str | None:
    """What rows hold in a column that a statement makes NOT NULL where they had NULL, or nothing (MySQL manual, "Data
    Type Default Values"): the field emptied, so no label of an ENUM. None: it isn't told."""
    if not _UNTOLD.isdisjoint((mysql_type.name, mysql_type.family)):
        return None
    if mysql_type.family == "binary":
        zeros = b"\0" * (mysql_type.args or (1,))[0] if mysql_type.name == "binary" else b""
        return b64encode(zeros).decode()
    found = _IMPLICIT.get(mysql_type.name, _IMPLICIT.get(mysql_type.family))
    return f"{Decimal(0):.{(*mysql_type.args, 0, 0)[1]}f}" if mysql_type.family == "decimal" else found
