"""DDL that Debezium's parsers can't read as it stands."""

import pytest

from cdc_platform.mysql.ddl import Statement, history, index_dropped_on, named_tables, truncated_table
from cdc_platform.mysql.readable import with_backticks

MADE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)"
READ = {
    "CREATE TABLE t (id INT PRIMARY KEY, a INET6 DEFAULT '::1', b inet4 NOT NULL)": "id int, a inet6, b inet4",
    "CREATE TABLE t (a UUID DEFAULT uuid(), b INET6, PRIMARY KEY (a))": "a uuid, b inet6",
    "CREATE TABLE t (a VECTOR(3) NOT NULL, VECTOR INDEX v (a) M=8 DISTANCE=cosine)": "a vector(3)",
    "CREATE TABLE t (a TEXT COMPRESSED, b BLOB COMPRESSED=zlib, c INT) ROW_FORMAT=COMPRESSED": "a text, b blob, c int",
    "CREATE TABLE t (a TEXT COLUMN_FORMAT COMPRESSED WITH COMPRESSION_DICTIONARY d)": "a text",
    "CREATE TABLE t (a POINT REF_SYSTEM_ID=1, b GEOMETRY SRID 4326, c INET6)": "a point, b geometry, c inet6",
    "CREATE TABLE t (a INT, s DATE, PERIOD FOR p(s, s), UNIQUE (a, p WITHOUT OVERLAPS))": "a int, s date",
    "CREATE TABLE t (a INT WITHOUT SYSTEM VERSIONING, b INT)": "a int, b int",
    "CREATE TABLE t (a INT ENGINE_ATTRIBUTE='{}') AUTOEXTEND_SIZE=4M": "a int",
    "CREATE TABLE t (a VARCHAR2(10), b NUMBER(10,2), c NUMBER, d CLOB, e RAW(9))": (
        "a varchar(10), b decimal(10,2), c double, d longtext, e varbinary(9)"
    ),
    "CREATE TABLE t (a BIGINT, k VARCHAR(9), INDEX i (k) LOCAL) dbpartition by hash(a)": "a bigint, k varchar(9)",
    "CREATE TABLE t (a INT CHECK (a <= 5 AND b->'$.x' <> 1), b JSON) new_option=1": "a int, b json",
    "CREATE TABLE t (a TEXT) new_option=1 CHARSET=binary": "a blob",
    "CREATE TABLE t (a FOO(3,'it''s') UNIQUE)": "a foo(3,'it''s')",
    "CREATE TABLE t (a VARCHAR(9) COLLATE utf8mb4_bin NOT NULL, b ENUM('x') COLLATE latin1_bin DEFAULT 'x')": (
        "a varchar(9), b enum('x')"
    ),
    "CREATE TABLE t (a CHAR(3) COLLATE binary, b TEXT COLLATE utf8_bin) COLLATE=utf8mb4_bin": "a binary(3), b text",
    "ALTER TABLE t MODIFY a VARCHAR(9) COLLATE utf8mb4_0900_as_cs FIRST": "a varchar(9), id int, b int",
    "/*!50100 CREATE TABLE t (a INT, b INT) */": "a int, b int",
    "/*M!100100 ALTER TABLE t ADD x INT */": "id int, a int, b int, x int",
    "ALTER TABLE t /*!50100 ADD COLUMN x INT */": "id int, a int, b int, x int",
    "ALTER TABLE t /*M! DROP a*/, /*! CHANGE b c BIGINT */": "id int, c bigint",
    "ALTER TABLE t ADD x /*!50100 bigint */ /*!80000 unsigned */ COMMENT '/*!50100 , ADD y int */'": (
        "id int, a int, b int, x bigint unsigned"
    ),
    "ALTER TABLE t /*!50100 MODIFY a /* wide */ BIGINT */, COMMENT 'a */ b'": "id int, a bigint, b int",
    "ALTER TABLE t ADD x INT, NOWAIT": "id int, a int, b int, x int",
    "ALTER TABLE t WAIT 5 MODIFY COLUMN IF EXISTS a INET4": "id int, a inet4, b int",
    "ALTER TABLE t CHANGE a `a b` INET6 FIRST": "a b inet6, id int, b int",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS (x INET6, y INT)": "id int, a int, b int, x inet6, y int",
    "ALTER TABLE t ADD s DATE, ADD e DATE, ADD PERIOD FOR p(s, e)": "id int, a int, b int, s date, e date",
    "ALTER TABLE t DROP SYSTEM VERSIONING, DROP COLUMN b": "id int, a int",
    'CREATE TABLE "t" ("id" INT, "a""`b" VARCHAR(9) COMMENT \'x\', PRIMARY KEY ("id"))': 'id int, a"`b varchar(9)',
    'ALTER TABLE "t" ADD "c" INET6 AFTER "a"': "id int, a int, c inet6, b int",
    'CREATE TABLE t (a VARCHAR(9) DEFAULT "x" COMMENT "y", e ENUM("p","q"))': "a varchar(9), e enum('p','q')",
}


BYTES = {
    ("CREATE TABLE t (a VARCHAR(9) ASCII NOT NULL, b CHAR BYTE, c TEXT BYTE DEFAULT NULL, d CHAR(2) BINARY ASCII)",): (
        "a varchar(9), b binary(1), c blob, d char(2)"
    ),
    ("CREATE TABLE t (byte INT, text CHAR(2) ASCII BINARY, e ENUM('byte') UNICODE COLLATE ucs2_bin)",): (
        "byte int, text char(2), e enum('byte')"
    ),
    (
        "CREATE TABLE t (text VARCHAR(3), b INT) CHARSET binary",
        "ALTER TABLE t CHANGE text byte VARCHAR(9) ASCII, ADD COLUMN c VARCHAR(5) BYTE AFTER b, MODIFY b LONGTEXT BYTE",
    ): "byte varchar(9), b longblob, c varbinary(5)",
    ("CREATE TABLE t (a CHAR(3), b VARCHAR(3), c TEXT, d ENUM('a')) COLLATE=binary",): (
        "a binary(3), b varbinary(3), c blob, d enum('a')"
    ),
    ("CREATE TABLE t (a CHAR(3)) ENGINE=InnoDB DEFAULT COLLATE binary COMMENT='x'",): "a binary(3)",
    (
        "CREATE TABLE t (a VARCHAR(3) NOT NULL COLLATE utf8mb4_bin, b CHAR(2) CHARACTER SET latin1, c LONG VARCHAR)"
        " CHARACTER SET binary",
    ): "a varchar(3), b char(2), c mediumblob",
    ("CREATE TABLE t (a VARCHAR(3) NOT NULL DEFAULT 'a' COLLATE binary)",): "a varbinary(3)",
    ("CREATE TABLE t (a CHAR(3) DEFAULT 'x' CHECK (a COLLATE utf8mb4_bin <= 'y'))",): "a char(3)",
    ("CREATE TABLE t (a VARCHAR(3)) CHARSET utf8mb4", "ALTER TABLE t CHARSET binary, ADD b VARCHAR(3)"): (
        "a varchar(3), b varbinary(3)"
    ),
    (
        "CREATE TABLE t (a VARCHAR(3)) CHARSET utf8mb4",
        "ALTER TABLE t DEFAULT COLLATE = binary, COMMENT 'x'",
        "ALTER TABLE t ADD b TEXT, MODIFY a VARCHAR(9)",
    ): "a varbinary(9), b blob",
    ("CREATE TABLE t (a CHAR(3) BINARY)", "ALTER TABLE t CONVERT TO CHARACTER SET binary"): "a binary(3)",
    (
        "CREATE TABLE t (a VARCHAR(3), b TEXT) CHARSET binary",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, ADD c TEXT",
        "ALTER TABLE t ADD d TEXT",
    ): "a varbinary(3), b blob, c text, d text",
    ("CREATE TABLE u (a CHAR(3)) COLLATE binary", "CREATE TABLE t LIKE u"): "a binary(3)",
    ("CREATE DATABASE D COLLATE = binary", "CREATE TABLE t (a CHAR(3))"): "a binary(3)",
    ("ALTER DATABASE D CHARACTER SET binary", "CREATE TABLE t (a CHAR(3), b VARCHAR(3) COLLATE latin1_bin)"): (
        "a binary(3), b varchar(3)"
    ),
}
"""Statements → columns of table t, as MariaDB 10.11 shows them. D: their database."""


def test_columns_of_the_character_set_binary():
    told = [(f"d{i}", sql.replace("DATABASE D", f"DATABASE d{i}")) for i, of in enumerate(BYTES) for sql in of]
    after = {c.db: c for c in history(tuple(Statement(*t) for t in told)) if c.table == "t"}
    assert [", ".join(f"{c.name} {c.type}" for c in after[f"d{i}"].columns) for i in range(len(BYTES))] == [
        *BYTES.values()
    ]


@pytest.fixture(scope="module")
def columns():
    """Statement → columns of table t after it; all read at once, each in a database of its own."""
    told = [(f"d{i}", s) for i, sql in enumerate(READ) for s in ([MADE, sql] if "ALTER" in sql else [sql])]
    after = {c.db: c for c in history(tuple(Statement(*t) for t in told))}
    return {sql: after[f"d{i}"] for i, sql in enumerate(READ)}


@pytest.mark.parametrize("sql", READ)
def test_columns_of_what_the_parsers_lack(columns, sql):
    change = columns[sql]
    assert change.reason is None
    assert ", ".join(f"{c.name} {c.type}" for c in change.columns) == READ[sql]


def test_keys_and_defaults_stay(columns):
    first = next(iter(READ))
    assert [(c.key, c.nullable, c.default) for c in columns[first].columns] == [
        (True, False, None),
        (False, True, "::1"),
        (False, False, None),
    ]
    assert [c.key for c in columns[next(s for s in READ if "UUID" in s)].columns] == [True, False]


def test_the_reason_is_that_of_the_parser_that_got_furthest():
    [change] = history((Statement("d", "CREATE TABLE t (a uuid DEFAULT uuid(), b INT NONSENSE)"),))
    assert "NONSENSE" in change.reason


@pytest.mark.parametrize(
    "sql",
    [
        'CREATE TABLE t (a VARCHAR(9) DEFAULT "a", b INT COMMENT "from")',
        'ALTER TABLE t COMMENT "x", ADD a VARCHAR(9) DEFAULT "to" AFTER b',
        "CREATE TABLE t (a VARCHAR(9) COMMENT '\"x\"')",
    ],
)
def test_text_in_double_quotes_stays_text(sql):
    assert with_backticks(sql) == sql


def test_names_in_double_quotes_are_found():
    assert named_tables(Statement("s", 'RENAME TABLE "a" TO "d"."b c"')) == [("s", "a"), ("d", "b c")]
    assert truncated_table(Statement("s", 'TRUNCATE TABLE "D"."t"')) == ("D", "t")
    assert index_dropped_on(Statement("s", 'DROP INDEX "i" ON "t"')) == [("s", "t")]
