"""Texts of values, SQL and DSNs: what needs neither a server nor Spark."""

import math
import ssl
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.errors import ConfigError
from cdc_platform.mysql.types import FAMILIES
from cdc_platform.reconcile import live, statements
from cdc_platform.reconcile.columns import SourceColumn, pair
from cdc_platform.reconcile.server import dsn_from
from cdc_platform.reconcile.texts import NOT_COMPARED, TEXTS, float_text, key_literal


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_floats_text_is_its_exact_value_in_one_form(value: float):
    text = float_text(value)
    assert float(text) == value
    assert not value or text.partition("e")[0].strip("-") == str(int(text.partition("e")[0].strip("-"))).rstrip("0")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_of_32_bits_has_the_text_of_its_double(value: float):
    assert struct.pack("<f", float(float_text(value))) == struct.pack("<f", value) or value == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "1e-1"), (-1e23, "-1e23"), (5e-324, "5e-324"), (100.0, "1e2"), (-0.0, "0"), (1.5, "15e-1")],
)
def test_float_texts(value: float, text: str):
    assert float_text(value) == text
    assert math.isclose(Decimal(text), value)


def test_every_family_is_compared_or_named_as_not_compared():
    assert set(TEXTS) | set(NOT_COMPARED) == set(FAMILIES.values())
    assert not set(TEXTS) & set(NOT_COMPARED)


def test_columns_are_paired_by_name_and_what_is_left_over_is_told():
    source = [
        SourceColumn("ID", "int(11)", True),
        SourceColumn("doc", "json", False),
        SourceColumn("v", "int", False, virtual=True),
        SourceColumn("gone", "int", False),
        SourceColumn("odd", "tsvector", False),
    ]
    there = {"id": "int", "doc": "string", "odd": "string", "more": "int", "_cdc_order": "struct<>"}
    found = pair(source, there)
    assert [(p.name, p.snapshot, p.key) for p in found.pairs] == [("ID", "id", True)]
    assert found.problems == ("column 'gone' is not in the snapshot", "column 'more' is not at the source")
    assert list(found.not_compared) == ["doc", "v", "odd"]
    assert "unknown MySQL type 'tsvector'" in found.not_compared["odd"]


def test_a_key_that_cant_be_compared_is_a_problem():
    found = pair([SourceColumn("doc", "json", True), SourceColumn("a", "int", False)], {"doc": "string", "a": "int"})
    assert "key column 'doc' can't be compared" in found.problems[0]


def test_names_are_quoted_and_null_is_no_text():
    found = pair(
        [SourceColumn("a`b", "varchar(9)", True), SourceColumn("d", "date", False)], {"a`b": "string", "d": "date"}
    )
    sql = statements.sums("`x`.`y`", found, 16)
    assert "`a``b` IS NULL, 'N', COALESCE(MD5(CONVERT(`a``b` USING utf8mb4)), '!')" in sql
    assert "MONTH(`d`) = 0" in sql
    assert "CRC32(k) % 16" in sql


@pytest.mark.parametrize(
    ("type_text", "text", "sql"),
    [
        ("int", "-12", "`k` = -12"),
        ("decimal(9,2)", "1.5", "`k` = 1.5"),
        ("double", "15e-1", "`k` = 15e-1"),
        ("varchar(9)", "27", "`k` = _utf8mb4 X'27'"),
        ("varchar(9)", "", "`k` = _utf8mb4 X''"),
        ("binary(2)", "00FF", "`k` = X'00FF'"),
        ("datetime(6)", "2026-11-20 01:02:03.5", "`k` = '2026-11-20 01:02:03.5'"),
    ],
)
def test_a_row_is_found_by_its_key(type_text: str, text: str, sql: str):
    found = pair([SourceColumn("k", type_text, True)], {"k": "string"})
    assert statements.by_key(found, [text]) == sql


@pytest.mark.parametrize("text", ["1 OR 1=1", "1; DROP TABLE x", "'", "0x41", "1e5e5", "１", "N", None])
def test_nothing_but_a_keys_text_comes_into_sql(text: str | None):
    assert [key_literal(TEXTS[f].key, text) for f in ("integer", "float", "binary", "datetime")] == [None] * 4
    found = pair([SourceColumn("k", "int", True), SourceColumn("l", "int", True)], {"k": "int", "l": "int"})
    assert statements.by_key(found, ["1", text]) is None


def test_rows_of_a_table_without_key_are_found_by_digest():
    found = pair([SourceColumn("a", "int", False)], {"a": "int"})
    assert statements.by_digest(found, ["ab" * 16]).endswith(f" IN ('{'ab' * 16}')")
    with pytest.raises(ValueError, match="non-hexadecimal"):
        statements.by_digest(found, ["' OR 1=1 --"])


@pytest.mark.parametrize(("rows", "buckets"), [(0, 16), (4_000, 32), (1_000_000, 4096), (10**12, 65_536)])
def test_buckets_hold_a_few_hundred_rows(rows: int, buckets: int):
    assert live.bucket_count(rows) == buckets


def test_at_least_one_bucket_is_looked_into():
    big = dict.fromkeys(range(4), (150000, 1, 1))
    assert live.first_buckets([0, 1, 2], big, big) == [0]
    small = dict.fromkeys(range(4), (90000, 1, 1))
    assert live.first_buckets([0, 1, 2], small, {}) == [0, 1]
    assert live.differing({1: (1, 2, 3), 2: (1, 2, 3)}, {2: (1, 2, 4), 3: (1, 0, 0)}) == [1, 2, 3]


SECRET = "s3cr%40t%2F"


def test_a_dsn_is_read_and_never_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_DSN", f"mysql://me:{SECRET}@db.example.com:3307/?connect_timeout=3&ssl=true")
    found = dsn_from("SHOP_DSN")
    assert found.server == "db.example.com:3307"
    assert (found.arguments["password"], found.arguments["connect_timeout"]) == (b"s3cr@t/", 3)
    assert found.arguments["ssl"].verify_mode == ssl.CERT_REQUIRED
    assert found.arguments["ssl"].check_hostname
    assert "s3cr" not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"postgres://me:{SECRET}@h",
        f"mysql://me:{SECRET}@",
        f"mysql://:{SECRET}@h",
        f"mysql://me:{SECRET}@h:x",
        f"mysql://me:{SECRET}@h/?nonsense=1",
        f"mysql://me:{SECRET}@h/?connect_timeout=0",
        f"mysql://me:{SECRET}@h/?ssl_ca=/no/such/file.pem",
        f"{SECRET}",
    ],
)
def test_a_bad_dsn_is_an_error_without_the_dsn(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_DSN", text)
    with pytest.raises(ConfigError, match="SHOP_DSN: ") as caught:
        dsn_from("SHOP_DSN")
    assert "s3cr" not in str(caught.value)
    assert "mysql://user:password@host" in str(caught.value)
