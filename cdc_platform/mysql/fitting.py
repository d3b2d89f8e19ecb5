"""Whether values can be of their column's type. Those that can't are the sign of columns that don't fit the row, as
after DDL that a capture missed: nothing else in a message would show it.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.mysql.types import MySqlType

_OF_CHARACTERS = frozenset(("char", "varchar"))
_OF_BYTES = frozenset(("binary", "varbinary"))


def longest_text(mysql_type: MySqlType) -> int | None:
    """Characters of a text column, at most; None: no bound that a message could pass."""
    return mysql_type.args[0] if mysql_type.name in _OF_CHARACTERS and mysql_type.args else None


def longest_bytes(mysql_type: MySqlType) -> int | None:
    """Bytes of a binary column, at most."""
    return mysql_type.args[0] if mysql_type.name in _OF_BYTES and mysql_type.args else None


def padded_to(mysql_type: MySqlType) -> int:
    """Bytes that a BINARY(n) always holds, whose zeros at the end a binlog leaves out; 0: it is another type."""
    return min(mysql_type.args[0], 255) if mysql_type.name == "binary" and mysql_type.args else 0


def texts_fit(texts: pa.StringArray, mysql_type: MySqlType) -> np.ndarray:
    """Which texts are no longer than CHAR(n) or VARCHAR(n)."""
    longest = longest_text(mysql_type)
    if longest is None or not len(texts):
        return np.ones(len(texts), bool)
    sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    if sizes.max() <= longest:  # bytes are no fewer than characters
        return np.ones(len(texts), bool)
    return pc.fill_null(pc.less_equal(pc.utf8_length(texts), longest), True).to_numpy(zero_copy_only=False)


def decimals_fit(texts: pa.StringArray, mysql_type: MySqlType) -> np.ndarray:
    """Which plain decimal texts have no more digits than DECIMAL(precision, scale); zeros at either end don't count."""
    pattern = _digits(mysql_type.args)
    if pattern is None or _are_short(texts, *mysql_type.args):
        return np.ones(len(texts), bool)
    return pc.fill_null(pc.match_substring_regex(texts, pattern), True).to_numpy(zero_copy_only=False)


def _are_short(texts: pa.StringArray, precision: int, scale: int) -> bool:
    """Whether no number has more digits than a DECIMAL(precision, scale) on either side, all zeros counted. What nearly
    all are, many times faster told than by a pattern."""
    sizes, dots = pc.binary_length(texts), pc.find_substring(texts, ".")
    whole = pc.if_else(pc.less(dots, 0), sizes, dots)
    most_whole, most_after = pc.max(whole).as_py() or 0, pc.max(pc.subtract(pc.subtract(sizes, whole), 1)).as_py() or 0
    return most_whole <= precision - scale and most_after <= scale


@lru_cache(maxsize=256)
def _digits(args: tuple[int, ...]) -> str | None:
    """Regular expression of the numbers of a DECIMAL(precision, scale); None: the scale isn't known."""
    if len(args) != 2:
        return None
    precision, scale = args
    return rf"^-?0*[0-9]{{0,{max(precision - scale, 0)}}}(?:\.[0-9]{{0,{scale}}}0*)?$"


def fractions_fit(texts: pa.StringArray, digits: int) -> np.ndarray:
    """Which times in canonical text have no more digits of a second than their column, zeros at the end aside."""
    sizes, dots = pc.binary_length(texts), pc.find_substring(texts, ".")
    if (pc.max(pc.subtract(sizes, dots)).as_py() or 0) <= digits + 1 or (pc.max(dots).as_py() or -1) < 0:
        return np.ones(len(texts), bool)
    beyond = pc.match_substring_regex(texts, rf"\.[0-9]{{{digits}}}[0-9]*[1-9]")
    return ~pc.fill_null(beyond, False).to_numpy(zero_copy_only=False)


def labels_fit(texts: pa.StringArray, mysql_type: MySqlType) -> np.ndarray:
    """Which texts are labels of an ENUM, or of a SET, joined by commas. The empty text is MySQL's for a value that it
    refused, and a SET's without members."""
    known = {*mysql_type.labels, ""}
    if not mysql_type.labels:
        return np.ones(len(texts), bool)
    codes = texts.dictionary_encode()
    words = codes.dictionary.to_pylist()
    fits = [w in known or (mysql_type.family == "set" and {*w.split(",")} <= known) for w in words]
    return pc.fill_null(pa.array(fits, pa.bool_()).take(codes.indices), True).to_numpy(zero_copy_only=False)
