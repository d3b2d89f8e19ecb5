"""DDL statements → columns, by Debezium's parsers in their own JVM."""

import pytest

from cdc_platform.mysql.ddl import (
    Statement,
    history,
    named_table,
    split_statements,
    tables_there_before,
    truncated_table,
    without_tdsql_extras,
)
from cdc_platform.mysql.types import parse_type

CASES = [
    ("a.t",
     "CREATE TABLE t (id BIGINT(20) UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, `Na me` varchar(9) charset gbk)",
     {"id": "bigint(20) unsigned KEY", "Na me": "varchar(9)"}),
    ("a.t", "alter table t add column (x decimal(12,2), y int unsigned zerofill) , add column z bool first",
     {"z": "tinyint(1)", "id": "bigint(20) unsigned KEY", "Na me": "varchar(9)", "x": "decimal(12,2)",
      "y": "int unsigned zerofill"}),
    ("a.t", "/* c */ ALTER TABLE `a`.`t` DROP COLUMN z, DROP x, DROP y, CHANGE `Na me` n char(4) character set binary",
     {"id": "bigint(20) unsigned KEY", "n": "binary(4)"}),
    ("a.t", "alter table t frobnicate everything", "input"),
    ("b.e", r"""create table b.e (e enum('a','it''s',"q""u'o",'x\\y','t\tb'), s set('m','n'), b bit, f double precision,
      d datetime(6), j json, l long varchar, p point, bb varchar(5) binary,
      bi binary, lo long, lb long varbinary, nc nchar varchar(4), cb char character set binary)""",
     {"e": "enum('a','it''s','q\"u''o','x\\\\y','t\tb')", "s": "set('m','n')", "b": "bit(1)", "f": "double precision",
      "d": "datetime(6)", "j": "json", "l": "long varchar", "p": "point", "bb": "varchar(5)",
      "bi": "binary(1)", "lo": "long", "lb": "long varbinary", "nc": "nchar varchar(4)", "cb": "binary(1)"}),
    ("b.k", r"""create table b.k (e enum('tr  ',' q','50\%','\_x ',' ','a\\%'), s set("x ",'y'),
      b enum('a ','b') character set binary)""",
     {"e": r"enum('tr',' q','50\\%','\\_x','','a\\%')", "s": "set('x','y')", "b": "enum('a ','b')"}),
    ("a.s",
     "create table s (id int not null, n varchar(5) default ', shardkey=n', unique key(id)) engine=innodb, shardkey=id",
     {"id": "int KEY", "n": "varchar(5)"}),
    ("a.l", "create table l like s", {"id": "int KEY", "n": "varchar(5)"}),
    ("a.s", "drop table if exists s", "dropped"),
    ("c.r", "rename table a.l to c.r", {"id": "int KEY", "n": "varchar(5)"}),
    ("a.m", "create or replace table m (u uuid primary key)", {"u": "uuid KEY"}),
    ("c.r", "drop database `c`", "database was dropped"),
]  # fmt: skip


@pytest.fixture(scope="module")
def changes():
    return history(tuple(Statement("a", sql) for _, sql, _ in CASES))


@pytest.mark.parametrize("at", range(len(CASES)))
def test_a_statement_makes_of_its_table(changes, at):
    name, _, expected = CASES[at]
    [found] = [c for c in changes if c.at == at and f"{c.db}.{c.table}" == name]
    if isinstance(expected, str):
        assert found.columns is None
        assert expected in found.reason
    else:
        assert {c.name: c.type + " KEY" * c.key for c in found.columns} == expected
        for column in found.columns:
            parse_type(column.type)


def test_an_unreadable_statement_stops_only_its_table():
    sql = ["create table x (i int)", "create table y (i int)", "alter table x nonsense", "alter table x add j int",
           "alter table y add j int", "create table x (k int)"]  # fmt: skip
    found = history(tuple(Statement("d", s) for s in sql))
    assert [(c.at, c.table, c.columns and [k.name for k in c.columns]) for c in found] == [
        (0, "x", ["i"]), (1, "y", ["i"]), (2, "x", None), (3, "x", None), (4, "y", ["i", "j"]), (5, "x", ["k"])
    ]  # fmt: skip


def test_what_is_no_ddl_of_tables_needs_no_java(monkeypatch):
    monkeypatch.setenv("CDC_JARS", "/nowhere")
    assert history((Statement("d", "BEGIN"), Statement(None, "grant all on *.* to x"))) == ()


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("CREATE TABLE IF NOT EXISTS `a b`.`c``d` (x int)", ("a b", "c`d")),
        ("/* hint */ alter online table t add x int", ("d", "t")),
        ("drop table if exists x . y", ("x", "y")),
        ("drop temporary table if exists x . y", None),
        ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`", None),
        ("create or replace temporary table t (i int)", None),
        ("/*!50000 create table t (i int) */", ("d", "t")),
        ("alter ignore table t add unique (i)", ("d", "t")),
        ("create table`t`(i int)", ("d", "t")),
        ("create trigger r before insert on u for each row begin drop table x; end", None),
        ("create event e on schedule every 1 day do alter table u drop partition p", None),
        ("create index i on t(x)", None),
        ("create view v as select 'a table b'", None),
    ],
)
def test_the_table_that_a_statement_names(sql, table):
    assert named_table(Statement("d", sql)) == table


def test_clauses_of_tdsql_go_and_quoted_text_stays():
    assert without_tdsql_extras("create table t (a int comment 'shardkey=a') shardkey=`a`") == (
        "create table t (a int comment 'shardkey=a')"
    )


def test_a_script_is_split_at_its_semicolons():
    script = "-- a; b\nCREATE TABLE t (a varchar(3) default ';', `b;` int); /* ; */ use `x`;\n\n"
    assert [s.split("\n")[-1] for s in split_statements(script)] == [
        "CREATE TABLE t (a varchar(3) default ';', `b;` int)", "/* ; */ use `x`"
    ]  # fmt: skip


def test_a_drop_or_alter_of_an_unknown_table_is_told():
    sql = ["drop table if exists a, x.b", "alter table c add i int", "rename table d to e, f to g"]
    found = history(tuple(Statement("d", s) for s in sql))
    assert [(c.at, c.db, c.table) for c in found] == [
        (0, "d", "a"), (0, "x", "b"), (1, "d", "c"), (2, "d", "d"), (2, "d", "e"), (2, "d", "f"), (2, "d", "g")
    ]  # fmt: skip
    assert {c.columns for c in found} == {None}


@pytest.mark.parametrize(
    "sql", ["drop schema if exists `d`", "create or replace database d", "/*!50000 drop database d */"]
)
def test_a_database_goes_with_all_its_tables_known_from_elsewhere_too(sql):
    known = (("d", "k", "create table k (i int)"), ("d", "l", "create table l (i int)"))
    found = history((Statement("d", "create table t (i int)"), Statement("x", sql, known)))
    assert [(c.table, c.gone) for c in found if c.at] == [("t", True), ("k", True), ("l", True)]


def test_a_temporary_table_is_another_one():
    sql = ["create table t (i int)", "CREATE TEMPORARY TABLE t (x int)", "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS t",
           "drop temporary table t", "alter table t add j int"]  # fmt: skip
    found = history(tuple(Statement("d", s) for s in sql))
    assert [(c.at, [k.name for k in c.columns or ()]) for c in found] == [(0, ["i"]), (4, ["i", "j"])]


def test_names_without_case():
    found = history((Statement("D", "create table T (i int)"), Statement("d", "alter table D.T add j int")), fold=True)
    assert [(c.db, c.table, len(c.columns or ())) for c in found] == [("d", "t", 1), ("d", "t", 2)]


TRUNCATES = {
    "truncate t": ("d", "t"),
    "/* c */ TRUNCATE\tTABLE `a``b`.`c d` ;": ("a`b", "c d"),
    "-- truncate x\nTruncate Table /* table y */ t # all": ("d", "t"),
    "TRUNCATE`t`": ("d", "t"),
    "truncate a . 表": ("a", "表"),
    "/*!40000 truncate table t */;": ("d", "t"),
    "truncate table if exists t nowait": ("d", "t"),
    "truncate t wait 5": ("d", "t"),
    "alter table t truncate partition p": None,
    "/* truncate t */ drop table t": None,
    "truncated t": None,
}


@pytest.mark.parametrize("sql", TRUNCATES)
def test_a_truncate_names_its_table(sql):
    assert truncated_table(Statement("d", sql)) == TRUNCATES[sql]


@pytest.mark.parametrize(
    ("db", "sql"),
    [("d", "truncate table"), ("d", "truncate (x)"), ("d", "truncate t, u"), ("d", "truncate t u"),
     (None, "truncate t"), ("", "truncate t"), ("d", "truncate a.b.c"),
     ("d", "truncate t /* " * 20_000)],
)  # fmt: skip
def test_a_truncate_that_names_no_table_is_refused(db, sql):
    with pytest.raises(ValueError, match="which table is truncated isn't told"):
        truncated_table(Statement(db, sql))


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("alter table t add x int", [("d", "t")]),
        ("rename table a to b", [("d", "a"), ("d", "b")]),
        ("create table t (i int comment 'like x')", []),
        ("create table if not exists `a`.`b` like c", [("d", "c")]),
        ("CREATE TABLE t (LIKE `x y`.z)", [("x y", "z")]),
        ("create index i on t (x)", []),
    ],
)
def test_the_tables_that_a_statement_takes_for_granted(sql, tables):
    assert tables_there_before(Statement("d", sql)) == tables


KEYS = [
    ("t", "create table t (a int unique, b int not null, c int, unique (b))", []),  # nor b, though it could be
    ("t", "alter table t drop index a, add e int", []),
    ("t", "alter table t add unique u (b)", ["b"]),
    ("t", "alter table t drop index b, drop index u", []),
    ("t", "alter table t modify a int not null, add unique (a)", ["a"]),
    ("t", "drop index `a` on t", []),
    ("t", "create unique index i on t (c)", []),  # takes NULL
    ("t", "alter table t add primary key (b)", ["b"]),
    ("t", "alter table t add primary key if not exists (a), add f int", ["b"]),
    ("t", "alter table t add constraint `p q` primary key if not exists (a)", ["b"]),
    ("t", "alter table t modify b bigint, drop key i", ["b"]),
    ("u", "create table u like t", ["b"]),
    ("v", "rename table u to v, t to u", ["b"]),
    ("v", "drop index x on v", ["b"]),
    ("w", "alter table v rename to w, modify b int", ["b"]),
    ("w", "alter table w modify b int not null, drop primary key, add unique (b)", ["b"]),
    ("w", "alter table w drop constraint b", []),
    ("u", "alter table u modify b int comment 'drop primary key'", ["b"]),
    ("u", "create or replace table u (b int, unique (b))", []),
    ("u", "create or replace table u (b int not null, unique (b))", ["b"]),
    ("u", "alter table u modify b int", []),
    ("u", "alter table u add constraint c primary key if not exists (b), add d int", ["b"]),
    ("u", "drop index `PRIMARY` on u", []),
    ("u", "alter table u add e int", []),
    ("u", "alter table u add primary key (d)", ["d"]),
    ("u", "drop index u on u", ["d"]),
    ("u", "alter table u drop key `Primary`, add unique v (b)", []),
    ("u", "alter table u add primary key (d)", ["d"]),
    ("u", "alter table u drop constraint if exists `PRIMARY`, add primary key (b)", ["b"]),
    ("u", 'alter table u drop index "PRIMARY"', []),
    ("n", "create table n (a int primary key)", ["a"]),
    ("n", "alter table n drop constraint `primary`", []),
]


def test_a_unique_key_tells_rows_apart_while_it_is_there_and_without_nulls():
    """(MySQL manual, "CREATE TABLE": any number of NULLs in a unique index.) No key is always right."""
    changes = history(tuple(Statement("d", sql) for _, sql, _ in KEYS))
    for at, (table, sql, expected) in enumerate(KEYS):
        columns = [c.columns for c in changes if c.at <= at and c.table == table][-1]
        assert [c.name for c in columns if c.key] == expected, sql
        assert not any(c.nullable for c in columns if c.key), sql


def test_each_column_of_a_list_has_its_own_attributes():
    sql = "alter table t add (a int not null default 3, b int, c int not null, n int auto_increment, index (n)), drop i"
    [_, found] = history((Statement("d", "create table t (i int)"), Statement("d", sql)))
    told = [(c.name, c.nullable, c.default, c.computed) for c in found.columns]
    assert told == [
        ("a", False, "3", False),
        ("b", True, None, False),
        ("c", False, None, False),
        ("n", True, None, True),
    ]


VERSIONS = [
    ("v", "create table v (a int primary key, b int) with system versioning", None),
    ("v", "alter table v add c int", None),
    ("l", "create table l like v", None),
    ("o", "create table o (a int without system versioning)", ["a"]),
    ("w", "rename table v to w", None),
    ("w", "alter table w drop system versioning, drop c", ["a", "b"]),
    ("w", "alter table w add d int comment 'with system versioning'", ["a", "b", "d"]),
    ("w", "alter table w add system versioning", None),
    ("w", "create or replace table w (a int)", ["a"]),
    ("c", "create table c (a int, b int /*M!100301 with system versioning */)", None),
    ("p", """create table p (a int, s timestamp(6) generated always as row start, e timestamp(6) generated always as row
     end, period for system_time (s, e)) with system versioning""", None),
]  # fmt: skip


def test_a_table_with_system_versioning_is_none_whose_rows_can_be_told():
    changes = history(tuple(Statement("d", sql) for _, sql, _ in VERSIONS))
    for at, (table, sql, expected) in enumerate(VERSIONS):
        [found] = [c for c in changes if c.at == at and c.table == table]
        assert (found.columns and [c.name for c in found.columns]) == expected, sql
        if expected is None:
            assert found.reason and f"d.{table} has SYSTEM VERSIONING" in found.reason
            assert "tables.exclude" in found.reason
