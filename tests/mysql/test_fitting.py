"""Which values are of a column's type."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.mysql.fitting import decimals_fit
from cdc_platform.mysql.types import parse_type


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("999.99", True),
        ("-999.99", True),
        ("0000999.9900", True),
        ("1000", False),
        ("0.001", False),
        ("-1000.5", False),
    ],
)
def test_digits_on_either_side(text: str, fits: bool) -> None:
    assert decimals_fit(pa.array([text, None]), parse_type("decimal(5,2)")).tolist() == [fits, True]


@given(
    texts=st.lists(st.from_regex(r"-?[0-9]{1,6}(\.[0-9]{1,4})?", fullmatch=True), max_size=4),
    scale=st.integers(0, 3),
    whole=st.integers(0, 4),
)
def test_as_python_counts_digits(texts: list[str], scale: int, whole: int) -> None:
    type_ = parse_type(f"decimal({whole + scale or 1},{scale})")
    bound, step = Decimal(10) ** (type_.args[0] - scale), Decimal(10) ** -scale
    expected = [abs(Decimal(t)) < bound and Decimal(t) % step == 0 for t in texts]
    assert decimals_fit(pa.array(texts, pa.string()), type_).tolist() == expected
