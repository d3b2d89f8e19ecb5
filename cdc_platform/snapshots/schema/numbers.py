"""What a server makes of the numbers of a column whose type changes; one that isn't in strict mode takes the nearest
that fits. Held against MariaDB 10.11 by tests/oracle/test_conversions.py."""

import math
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np

from cdc_platform.mysql.types import MySqlType
from cdc_platform.mysql.values import integer_range
from cdc_platform.snapshots.schema.by_text import Convert, by_text, same

_DIGITS = Context(prec=80, rounding=ROUND_HALF_UP)


def _between(low: int, high: int) -> Convert:
    """A server that isn't strict takes the nearest number that fits."""
    return by_text(lambda text: str(min(max(int(text), low), high)))


def integers(old: MySqlType, new: MySqlType) -> Convert:
    (low, high), (least, greatest) = integer_range(old), integer_range(new)
    return same if least <= low and high <= greatest else _between(least, greatest)


def year_as_integer(_old: MySqlType, new: MySqlType) -> Convert:
    return _between(*integer_range(new))


def bits(old: MySqlType, new: MySqlType) -> Convert:
    width, wide = ((*t.args, 1)[0] for t in (new, old))
    return same if wide <= width else _between(0, 2**width - 1)


def scale_of(t: MySqlType) -> int:
    return (*t.args, 0, 0)[1]


def _whole(t: MySqlType) -> int:
    return (*t.args, 10)[0] - scale_of(t)


def _within(new: MySqlType, number: Decimal) -> Decimal:
    """The nearest number that the type can hold."""
    greatest = Decimal(10) ** _whole(new) - Decimal(1).scaleb(-scale_of(new))
    return min(max(number, -greatest), greatest)


def integer_as_decimal(old: MySqlType, new: MySqlType) -> Convert | None:
    if new.spark == "string":
        return None
    if max(len(str(abs(n))) for n in integer_range(old)) <= _whole(new):
        return same
    return by_text(lambda text: str(_within(new, Decimal(text))))


def decimals(old: MySqlType, new: MySqlType) -> Convert | None:
    if scale_of(new) >= scale_of(old) and _whole(new) >= _whole(old) and new.spark != "string":
        return same
    if (*old.args, 10)[0] > 38 or (*new.args, 10)[0] > 38:
        return None
    grain = Decimal(1).scaleb(-scale_of(new))

    def rounded(text: str) -> str:
        found = _within(new, _DIGITS.quantize(Decimal(text), grain))
        return f"{found if found else abs(found):f}"  # there is no negative zero

    return by_text(rounded)


_FLOAT = 3.4028234663852886e38
"""The greatest number of a FLOAT."""


def floats(old: MySqlType, new: MySqlType) -> Convert | None:
    if len(new.args) == 2 and old.args != new.args:
        return None  # FLOAT(M,D) rounds
    if old.spark == new.spark:
        return same
    if new.spark == "double":
        return by_text(lambda text: repr(float(np.float32(text))))
    return by_text(lambda text: text if abs(float(text)) <= _FLOAT else repr(math.copysign(_FLOAT, float(text))))
