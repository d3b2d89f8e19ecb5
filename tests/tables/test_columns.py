"""Types of columns in Spark's SQL and in Arrow."""

import pyarrow as pa
import pytest

from cdc_platform.tables.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    INT,
    STRING,
    TIMESTAMP,
    UNSIGNED_BIGINT,
    Array,
    Column,
    Map,
    Struct,
    arrow,
    shown,
    sql,
)

NESTED = Array(Struct((("row", BIGINT), ("of", Map(STRING, UNSIGNED_BIGINT)))))


@pytest.mark.parametrize(
    ("type_", "in_sql", "in_arrow"),
    [
        (STRING, "STRING", pa.string()),
        (INT, "INT", pa.int32()),
        (BIGINT, "BIGINT", pa.int64()),
        (BOOLEAN, "BOOLEAN", pa.bool_()),
        (BINARY, "BINARY", pa.binary()),
        (TIMESTAMP, "TIMESTAMP", pa.timestamp("us", "UTC")),
        (UNSIGNED_BIGINT, "DECIMAL(20,0)", pa.decimal128(20, 0)),
        (
            NESTED,
            "ARRAY<STRUCT<`row`: BIGINT, `of`: MAP<STRING, DECIMAL(20,0)>>>",
            pa.list_(pa.struct([("row", pa.int64()), ("of", pa.map_(pa.string(), pa.decimal128(20, 0)))])),
        ),
    ],
    ids=str,
)
def test_a_type_is_the_same_in_sql_and_arrow(type_, in_sql, in_arrow):
    assert (sql(type_), arrow(type_)) == (in_sql, in_arrow)


def test_people_read_types_without_quotes():
    assert shown(NESTED) == "array<struct<row: bigint, of: map<string, decimal(20,0)>>>"


def test_names_and_comments_are_quoted_in_ddl():
    assert Column("a`b", INT, r"it's a \\ here").ddl == r"`a``b` INT COMMENT 'it\'s a \\\\ here'"
    assert Column("plain", INT, about="not in the table").ddl == "`plain` INT"
