from contextlib import suppress

import pytest

from cdc_platform.errors import UnknownType
from cdc_platform.mysql.types import MySqlType, lower_outside_quotes, parse_type


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("int(11)", MySqlType("int", "integer", (11,))),
        ("INT UNSIGNED", MySqlType("int", "integer", (), unsigned=True)),
        ("bigint(20) unsigned zerofill", MySqlType("bigint", "integer", (20,), unsigned=True)),
        ("bigint zerofill", MySqlType("bigint", "integer", (), unsigned=True)),
        ("integer", MySqlType("int", "integer")),
        ("bool", MySqlType("tinyint", "integer")),
        ("decimal(12,2)", MySqlType("decimal", "decimal", (12, 2))),
        ("numeric(5)", MySqlType("decimal", "decimal", (5,))),
        ("double precision", MySqlType("double", "float")),
        ("LONG", MySqlType("mediumtext", "text")),
        ("long varchar", MySqlType("mediumtext", "text")),
        ("long varbinary", MySqlType("mediumblob", "binary")),
        ("middleint unsigned", MySqlType("mediumint", "integer", unsigned=True)),
        ("nchar varchar(4)", MySqlType("varchar", "text", (4,))),
        ("national char varying(4)", MySqlType("varchar", "text", (4,))),
        ("char varying(4) binary", MySqlType("varchar", "text", (4,))),
        ("varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", MySqlType("varchar", "text", (20,))),
        ("longtext charset gbk", MySqlType("longtext", "text")),
        ("varbinary(16)", MySqlType("varbinary", "binary", (16,))),
        ("point", MySqlType("point", "geometry")),
        ("datetime(6)", MySqlType("datetime", "datetime", (6,))),
        ("json", MySqlType("json", "json")),
        ("datetime /* mariadb-5.3 */", MySqlType("datetime", "datetime")),
        ("timestamp(3) /* mariadb-5.3 */ ", MySqlType("timestamp", "timestamp", (3,))),
        ("enum('/* a */')", MySqlType("enum", "enum", labels=("/* a */",))),
        ("enum('a','b c')", MySqlType("enum", "enum", labels=("a", "b c"))),
        (r"enum('l\nf','b\\s','it''s')", MySqlType("enum", "enum", labels=("l\nf", "b\\s", "it's"))),
        (r"enum('b\s','it\'s')", MySqlType("enum", "enum", labels=("b\\s", "it's"))),
        ("enum('a', 'B') charset utf8", MySqlType("enum", "enum", labels=("a", "B"))),
        ("enum('a','b)", MySqlType("enum", "enum")),
        ("set('it''s','x,y','(z)')", MySqlType("set", "set", labels=("it's", "x,y", "(z)"))),
    ],
)
def test_type_text(text, wanted):
    assert parse_type(text) == wanted


@pytest.mark.parametrize("text", ["", "weird", "int(x)", "rowid", "varchar2(20)"])
def test_unknown_type_text_is_told(text):
    with pytest.raises(UnknownType) as caught:
        parse_type(text)
    assert caught.value.type_text == text


@pytest.mark.parametrize(
    ("text", "spark"),
    [
        ("tinyint(1)", "tinyint"),
        ("tinyint unsigned", "smallint"),
        ("smallint unsigned", "int"),
        ("mediumint", "int"),
        ("int unsigned", "bigint"),
        ("bigint", "bigint"),
        ("bigint unsigned", "decimal(20,0)"),
        ("float", "float"),
        ("float(24)", "float"),
        ("float(25)", "double"),
        ("float(7,4)", "float"),
        ("double", "double"),
        ("decimal", "decimal(10,0)"),
        ("decimal(38,10)", "decimal(38,10)"),
        ("decimal(65,30)", "string"),
        ("bit", "boolean"),
        ("bit(1)", "boolean"),
        ("bit(8)", "decimal(20,0)"),
        ("date", "date"),
        ("datetime(6)", "timestamp_ntz"),
        ("timestamp", "timestamp"),
        ("time", "string"),
        ("year", "smallint"),
        ("char(3)", "string"),
        ("enum('a')", "string"),
        ("blob", "binary"),
        ("geometry", "binary"),
        ("json", "string"),
        ("boolean", "boolean"),
    ],
)
def test_spark_type_of_the_snapshot_column(text, spark):
    assert parse_type(text).spark == spark


def test_only_words_are_lowered():
    text = r"ENUM('A','B''C','\'D', 'E) CHARSET UTF8"
    assert lower_outside_quotes(text) == r"enum('A','B''C','\'D', 'E) CHARSET UTF8"
    assert lower_outside_quotes("SET('X') CHARSET UTF8") == "set('X') charset utf8"


@pytest.mark.parametrize("text", ["enum('" + "\\'" * 200_000 + ")", "'" * 300_001, "enum(" + "'a'," * 100_000 + ")"])
def test_long_type_text_is_read_in_linear_time(text):
    lower_outside_quotes(text)
    with suppress(UnknownType):
        assert parse_type(text).labels == ()
