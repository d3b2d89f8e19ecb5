"""Literals of TDSQL's messages → canonical text."""

import pyarrow as pa
import pytest

from cdc_platform.formats.tdsql.literals import to_text
from cdc_platform.mysql.types import parse_type

ONE = "x'00000000000000000000000000000001'"


@pytest.mark.parametrize(
    ("type_", "literal", "text"),
    [
        ("vector(2)", "'[1,2.5]'", "[1,2.5]"),
        ("vector(2)", "0x0000803F00002040", "[1.0,2.5]"),
        ("vector", "x'00000040'", "[2.0]"),  # bytes that are text, too
        ("vector", "'\\0\\0\\0@'", "[2.0]"),
        ("vector(2)", "x'00000040'", None),
        ("vector", "x'0000C07F'", None),  # no number
        ("inet6", "'::1'", "::1"),
        ("inet6", ONE, "::1"),
        ("inet6", "0x00000000000000000000FFFF01020304", "::ffff:1.2.3.4"),
        ("inet6", "0x00000000000000000000000001020304", "::1.2.3.4"),
        ("inet6", "0x00c300d8ffff0000ffffffff005f003d", "c3:d8:ffff::ffff:ffff:5f:3d"),
        ("inet6", "0x00000000000000000000000000000304", "::304"),
        ("inet4", "'1.2.3.4'", "1.2.3.4"),
        ("inet4", "0x31323334", "49.50.51.52"),
        ("inet4", ONE, None),
        ("uuid", "'123e4567-e89b-12d3-a456-426614174000'", "123e4567-e89b-12d3-a456-426614174000"),
        ("uuid", ONE, None),
        ("bit(64)", "0xFFFFFFFFFFFFFFFF", "18446744073709551615"),
        ("bit(8)", "x'05'", "5"),
        ("bit(3)", "0xFF", None),
    ],
)
def test_bytes_of_types_that_have_a_form_never_pass_for_text(type_: str, literal: str, text: str | None) -> None:
    texts, ok = to_text(pa.array([literal, None], pa.string()), parse_type(type_), "UTC", "backslash")
    assert (ok[0], ok[1], texts[1].as_py()) == (text is not None, True, None)
    assert text is None or texts[0].as_py() == text
