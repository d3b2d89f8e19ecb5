"""What DDL statements do to tables that hold rows."""

from dataclasses import replace

import pytest

from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.effects import Added, Effect, Retyped, effects, from_json, to_json

T = "create table t (id int primary key, a int, b varchar(9) not null default 'x', e enum('p','q'))"


def of(*sql, known=()):
    return effects([Statement("d", s, known) for s in sql])


@pytest.fixture(scope="module")
def said():
    """ALTER's clauses → what they do to table t; all read at once, each by a database of its own."""
    clauses = [*ADDED, *(c for c, _ in ALTERED), SWAP, NO_SWAP]
    sql = [(f"d{i}", s) for i, c in enumerate(clauses) for s in (T, f"alter table t {c}")]
    found = {(e.after[0], e.at % 2): e for e in effects([Statement(*s) for s in sql])}
    return {c: replace(found[f"d{i}", 1], at=1, before=("d", "t"), after=("d", "t")) for i, c in enumerate(clauses)}


ADDED = {
    "add x int": Added("x", "int", None, True),
    "add column x int not null first": Added("x", "int", "0", True),
    "add x int unsigned default 7 after a": Added("x", "int unsigned", "7", True),
    "add x varchar(9) default 'it''s'": Added("x", "varchar(9)", "it's", True),
    "add x varchar(9) not null": Added("x", "varchar(9)", "", True),
    "add x decimal(9,3) default 1.5": Added("x", "decimal(9,3)", "1.500", True),
    "add x double not null": Added("x", "double", "0.0", True),
    "add x enum('m','n') not null": Added("x", "enum('m','n')", "m", True),
    "add x enum('m','n') not null default 'n'": Added("x", "enum('m','n')", "n", True),
    "add x date not null": Added("x", "date", "0000-00-00", True),
    "add x datetime default '2020-01-02 03:04:05'": Added("x", "datetime", "2020-01-02 03:04:05", True),
    "add x bool not null default true": Added("x", "tinyint(1)", "1", True),
    "add x timestamp null default null": Added("x", "timestamp", None, True),
    "add x timestamp not null default current_timestamp": Added("x", "timestamp", None, False),
    "add x datetime(3) default now(3)": Added("x", "datetime(3)", None, False),
    "add x int as (a + 1)": Added("x", "int", None, False),
    "add x json not null": Added("x", "json", None, False),
    "add x varchar(40) default (uuid())": Added("x", "varchar(40)", None, False),
    "add x bit(1) not null default b'0'": Added("x", "bit(1)", "0", True),
    "add x int default b'101'": Added("x", "int", None, False),
    "add x int default 0x05": Added("x", "int", None, False),
    "add x decimal(9,2) default 1.005": Added("x", "decimal(9,2)", "1.01", True),
    "add x varchar(9) default _utf8mb4'a'": Added("x", "varchar(9)", None, False),
    "add x varchar(9) default 'a' 'b'": Added("x", "varchar(9)", None, False),
    "add x varchar(9) default 1e3": Added("x", "varchar(9)", None, False),
    "add x char(9) default 'a '": Added("x", "char(9)", None, False),
    "add x datetime default '2020-01-02 03:04:05.6'": Added("x", "datetime", None, False),
    "add x timestamp": Added("x", "timestamp", None, False),
    "add x timestamp null": Added("x", "timestamp", None, True),
    "add x int default 1 comment 'default 2', default charset utf8mb4": Added("x", "int", "1", True),
    "alter a set default 4, add x int /* default 5 */": Added("x", "int", None, True),
    "add x set('m','n') default 'n,m'": Added("x", "set('m','n')", "m,n", True),
    "add x set('m','n') default 'M'": Added("x", "set('m','n')", None, False),
    "add x float(7,3) default 1.23456": Added("x", "float(7,3)", "1.235", True),
    "add x double(7,1) default 0.25": Added("x", "double(7,1)", None, False),
    "add x decimal(9,2) default -.5": Added("x", "decimal(9,2)", "-0.50", True),
    "add x datetime default '2020-01-02 03:04:05' on update current_timestamp": Added(
        "x", "datetime", "2020-01-02 03:04:05", True
    ),
    "add x datetime on update now()": Added("x", "datetime", None, True),
    "add x datetime as (now())": Added("x", "datetime", None, False),
    "add column if not exists a varchar(3), add if not exists x int default 4": Added("x", "int", "4", True),
}


ALTERED = [
    ("drop a, drop column `b`", {"dropped": ("a", "b")}),
    ("change a c int", {"renamed": {"a": "c"}}),
    ("change a A int", {"renamed": {"a": "A"}}),
    ("drop b, change a b int", {"dropped": ("b",), "renamed": {"a": "b"}}),
    ("drop a, add a int",
     {"dropped": ("a",), "added": (Added("a", "int", None, True),)}),
    ("modify a bigint unsigned", {"retyped": {"a": Retyped("int", "bigint unsigned")}}),
    ("modify a int not null", {"retyped": {"a": Retyped("int", "int", filled=True)}}),
    ("change a c bigint not null default 3",
     {"renamed": {"a": "c"}, "retyped": {"c": Retyped("int", "bigint", filled=True)}}),
    ("modify a int after b", {"reordered": True}),
    (
        "change `a` `c` bigint comment 'change b d int', drop primary key, add primary key (id, b)",
        {"renamed": {"a": "c"}, "retyped": {"c": Retyped("int", "bigint")}, "key": ("id", "b")},
    ),
    ("modify e enum('p','q','r') -- drop a",
     {"retyped": {"e": Retyped("enum('p','q')", "enum('p','q','r')")}}),
    ("add index i (a), drop index j", {}),
    ("add column if not exists a varchar(3) default 'q' first", {}),
    ("add if not exists (a varchar(3), `b` int)", {}),
    ("modify column if exists nope int, change if exists nope n int, modify if exists a bigint",
     {"retyped": {"a": Retyped("int", "bigint")}}),
    ("change column if exists a c bigint, rename column if exists nope to n",
     {"renamed": {"a": "c"}, "retyped": {"c": Retyped("int", "bigint")}}),
    ("add column if not exists id bigint primary key", {}),
    ("comment 'add x int'", {}),
    ("add (x int default 1, y int not null, index (x), z int)",
     {"added": (Added("x", "int", "1", True), Added("y", "int", "0", True), Added("z", "int", None, True))}),
]  # fmt: skip
SWAP = "rename column a to b, rename column b to a"
NO_SWAP = "change a c int, change b a varchar(9)"


@pytest.mark.parametrize("clause", ADDED)
def test_a_new_column_in_rows_that_were_there_before(said, clause):
    found = said[clause]
    assert found.added == (ADDED[clause],)
    assert (found.renamed, found.dropped, found.retyped, found.key) == ({}, (), {}, None)


@pytest.mark.parametrize(("clauses", "expected"), ALTERED)
def test_columns_of_a_table_with_rows(said, clauses, expected):
    assert replace(said[clauses], columns=()) == Effect(1, ("d", "t"), ("d", "t"), **expected)


def test_an_index_or_comment_does_nothing():
    assert [e.nothing for e in of(T, "alter table t add index i (a)", "create index j on t (b)")] == [False, True]


def moves(*sql, **rest):
    return [(e.at, e.before and ".".join(e.before), e.after and ".".join(e.after)) for e in of(*sql, **rest)]


def test_tables_that_begin_end_and_move():
    assert moves(
        "create table t (id int)", "create table u like t", "rename table t to o.old, u to t", "drop table t, o.old",
        "create or replace table t (i int)", "create or replace table t (j int)",
        "create table if not exists t (k int)", "drop database d",
    ) == [
        (0, None, "d.t"), (1, None, "d.u"), (2, "d.t", "o.old"), (2, "d.u", "d.t"),
        (3, "d.t", None), (3, "o.old", None),
        (4, None, "d.t"), (5, "d.t", None), (5, None, "d.t"), (7, "d.t", None),
    ]  # fmt: skip


def test_a_table_that_is_there_is_not_made_if_it_is_asked_for_where_none_is():
    """MySQL writes the statement into its binlog all the same (manual, "Replication of CREATE … IF NOT EXISTS
    Statements")."""
    assert moves(
        "create table t (id int primary key, a int)", "create table u (z text)",
        "create table if not exists t like u", "create table if not exists `d`.`t` (like u)",
        "create table /*!32312 if not exists*/ t (k int)", "create table if not exists t frobnicate",
        "create table if not exists v like u",
    ) == [(0, None, "d.t"), (1, None, "d.u"), (6, None, "d.v")]  # fmt: skip
    [*_, found] = of(
        "create table t (id int primary key, a int)",
        "create table u (z text)",
        "create table if not exists t like u",
        "alter table t add b int",
    )
    assert [(c.name, c.key) for c in found.columns] == [("id", True), ("a", False), ("b", False)]


def test_the_default_character_set_of_a_table_is_of_columns_to_come():
    """(MySQL manual, "ALTER TABLE Statement", Changing the Character Set: CONVERT TO alone changes those that are
    there.)"""
    found = of(
        "create table t (id int primary key, a text, e enum('p'))",
        "alter table t default character set latin1",
        "alter table t add c text, collate utf8mb3_bin, comment 'c'",
        "alter table t default charset = binary",
        "alter table t modify a varchar(9) character set utf8mb4, default charset gbk",
        "alter table t modify e enum('p')",
        "alter table t convert to character set latin1",
        "alter table t charset binary, add d text",
    )
    told = [{n: (r.before, r.after, r.charset) for n, r in e.retyped.items()} for e in found]
    assert told[:4] == [{}] * 4 and all(e.nothing for e in (found[1], found[3]))
    assert [a.type for e in found for a in e.added] == ["text", "blob"]
    assert told[4:] == [
        {"a": ("text", "varchar(9)", None)},
        {"e": ("enum('p')", "enum('p')", "gbk")},
        {"a": ("varchar(9)", "varchar(9)", "latin1"), "e": ("enum('p')", "enum('p')", "latin1"),
         "c": ("text", "text", "latin1")},
        {},
    ]  # fmt: skip


def test_what_mariadb_writes_around_a_statement_about_tables():
    settings = "set statement max_statement_time=10, sql_mode='x for y' for"
    assert moves(
        "create table t (id int)", f"{settings} rename table t wait 5 to u",
        "rename table if exists u nowait to v, v to w",
        "alter table w rename = x", "drop tables x", f"/* a */ {settings} create table t (j int)",
    ) == [
        (0, None, "d.t"), (1, "d.t", "d.u"), (2, "d.u", "d.w"), (3, "d.w", "d.x"), (4, "d.x", None), (5, None, "d.t"),
    ]  # fmt: skip
    [_, found] = of(T, f"{settings} alter table t add x int default 7")
    assert found.added == (Added("x", "int", "7", True),)


def test_a_swap_by_way_of_a_third_name():
    first = ("create table a (i int)", "create table b (j int)")
    assert sorted(moves(*first, "rename table a to c, b to a, c to b")[2:]) == [(2, "d.a", "d.b"), (2, "d.b", "d.a")]


def test_an_alter_may_change_and_rename():
    [_, found] = of(T, "alter table t add x int default 1, drop a, rename to other.u")
    assert (found.before, found.after) == (("d", "t"), ("other", "u"))
    assert (found.dropped, found.added) == (("a",), (Added("x", "int", "1", True),))


def test_what_messages_told_of_a_table_stands_in_for_its_create():
    known = (("d", "t", "create table `t` (`id` bigint(20), `v` varchar(9), primary key (`id`))"),)
    [found] = of("alter table t change v w varchar(9)", known=known)
    assert replace(found, columns=()) == Effect(0, ("d", "t"), ("d", "t"), renamed={"v": "w"})
    assert [(c.name, c.type, c.key) for c in found.columns] == [("id", "bigint(20)", True), ("w", "varchar(9)", False)]


def test_columns_that_swap_names_in_one_statement(said):
    assert said[SWAP].renamed == {"a": "b", "b": "a"}
    assert (said[SWAP].retyped, said[SWAP].added, said[SWAP].dropped, said[SWAP].unknown) == ({}, (), (), None)
    assert [(c.name, c.type) for c in said[SWAP].columns[1:3]] == [("b", "int"), ("a", "varchar(9)")]
    assert said[NO_SWAP].renamed == {"a": "c", "b": "a"}
    [_, round_, placed] = of(
        T,
        "alter table t change b a varchar(20), change column a `c` bigint, rename column e to b -- all at once",
        "alter table t rename column a to c, change c a bigint after id",
    )
    assert round_.renamed == {"b": "a", "a": "c", "e": "b"}
    assert {n: r.after for n, r in round_.retyped.items()} == {"a": "varchar(20)", "c": "bigint"}
    assert placed.unknown


TANGLED = {
    "change b a varchar(9), drop column a": ("id, a", {"renamed": {"b": "a"}, "dropped": ("a",)}),
    "rename column `b` to a, comment 'x', drop a -- at last": ("id, a", {"renamed": {"b": "a"}, "dropped": ("a",)}),
    "add b int not null default 3 after id, drop b": (
        "id, b, a", {"dropped": ("b",), "added": (Added("b", "int", "3", True),)}
    ),
    "add (a bigint default 7, x int), change a a_old int": (
        "id, a_old, b, a, x",
        {"renamed": {"a": "a_old"}, "added": (Added("a", "bigint", "7", True), Added("x", "int", None, True))},
    ),
    "nowait change a b int not null, drop b, add a char(3) default 'n', add primary key (b), drop primary key": (
        "id, b, a",
        {"renamed": {"a": "b"}, "dropped": ("b",), "added": (Added("a", "char(3)", "n", True),),
         "retyped": {"b": Retyped("int", "int", filled=True)}, "key": ("b",)},
    ),
    "change a id int, drop id": ("id, b", {"renamed": {"a": "id"}, "dropped": ("id",), "key": ()}),
    "drop primary key, add primary key (a), drop a, change b a varchar(9) not null": (
        "id, a", {"renamed": {"b": "a"}, "dropped": ("a",), "key": ("a",)}
    ),
    "drop a, rename column b to a, add b int after id": (
        "id, b, a", {"renamed": {"b": "a"}, "dropped": ("a",), "added": (Added("b", "int", None, True),)},
    ),
    "add a int after b, rename column b to c, drop a": None,
    "modify id bigint first, add x int first, add a int, drop a": None,
    "rename column a to b, rename column b to a, alter a set default 4": None,
}  # fmt: skip


def test_a_name_that_one_column_gives_away_and_another_gets():
    """Drops and renames are of columns from before the statement, wherever they stand in it. Held against MariaDB by
    tests/oracle/test_alters.py."""
    made = "create table t (id int primary key, a int, b varchar(9) not null)"
    sql = [(f"d{i}", s) for i, c in enumerate(TANGLED) for s in (made, f"alter table t {c}")]
    found = {e.after[0]: e for e in effects([Statement(*s) for s in sql]) if e.at % 2}
    for i, (clauses, expected) in enumerate(TANGLED.items()):
        effect = replace(found[f"d{i}"], at=1, before=("d", "t"), after=("d", "t"))
        if expected is None:
            assert effect.unknown and not effect.columns, clauses
        else:
            columns, rest = expected
            assert ", ".join(c.name for c in effect.columns) == columns
            assert replace(effect, columns=()) == Effect(1, ("d", "t"), ("d", "t"), **rest), clauses


def test_what_cannot_be_read_is_unknown_and_ends_nothing():
    found = of(T, "alter table t frobnicate", "alter table unseen add x int")
    assert [(e.at, e.before, e.after, e.unknown is not None) for e in found[1:]] == [
        (1, ("d", "t"), ("d", "t"), True),
        (2, ("d", "unseen"), ("d", "unseen"), True),
    ]


INDEXES = {
    "create or replace unique index u on t (a)": ("no key", "id"),
    "create or replace index if not exists `u` using btree on `d` . `t` (b)": ("no key", "id"),
    "/* x */ create or replace unique index i on t (a) wait 5": ("no key", "id"),
    "create unique index i on t (frobnicate everything)": ("unknown", "id"),
    "drop index u on t frobnicate": ("unknown", "id"),
    "create or replace unique index i on p (a)": ("b", "id"),
    "create unique index i on p (frobnicate everything)": ("b", "id"),
    "create index i on t (frobnicate everything)": ("b", "id"),
    "create or replace unique index i on other.t (a)": ("b", "id"),
    "create unique index i on t (a)": ("b", "id"),
}


def test_an_index_by_which_rows_may_not_be_told_apart_any_more():
    """What is replaced, or can't be read, may be the table's key. One with a PRIMARY KEY keeps that."""
    made = (
        "create table t (a int not null, b int not null, unique u (b))",
        "create table p (id int primary key, a int)",
    )
    behind = ("alter table t add c int", "alter table p add c int")
    sql = [(f"d{i}", s.replace("`d`", f"`d{i}`")) for i, x in enumerate(INDEXES) for s in (*made, x, *behind)]
    found = {(e.after, e.at % 5): e for e in effects([Statement(*s) for s in sql])}
    for i, (x, expected) in enumerate(INDEXES.items()):
        ends = [found[(f"d{i}", table), at] for table, at in (("t", 3), ("p", 4))]
        told = ["unknown" if e.unknown else ", ".join(c.name for c in e.columns if c.key) or "no key" for e in ends]
        assert tuple(told) == expected, x
        changed = found.get(((f"d{i}", "t"), 2))
        assert (changed is None or changed.nothing) is (expected[0] == "b"), x


ROWS = {
    "drop partition p0": ["d.t"],
    "truncate partition all": ["d.t"],
    "exchange partition p0 with table u without validation": ["d.t", "d.u"],
    "exchange partition p0 with table `o`.`u 1`": ["d.t", "o.u 1"],
    "discard tablespace": ["d.t"],
    "import partition p0 tablespace": ["d.t"],
    "reorganize partition p0 into (partition n values less than (10))": [],
    "add partition (partition p9 values less than (10))": [],
    "remove partitioning": [],
    "comment 'drop partition p0'": [],
}


@pytest.mark.parametrize("clause", ROWS)
def test_statements_that_change_rows_without_messages(clause):
    found = [e for e in of(T, f"alter table t {clause}") if e.rows]
    assert [".".join(e.after) for e in found] == ROWS[clause]
    assert all(e.same_columns and not e.nothing for e in found)


def test_a_key_that_may_drop_rows():
    [_, found] = of(T, "alter ignore table t add primary key (a)")
    assert "ALTER IGNORE" in found.rows and not found.same_columns


def test_foreign_keys_by_which_rows_change_without_a_message():
    kid = "create table k (id int primary key, p int, constraint F foreign key (p) references t (id) on delete cascade)"
    made, added, dropped = of(
        kid,
        "alter table k add foreign key (p) references t (id) on update cascade",
        "alter table k drop foreign key f",
    )
    assert made.cascades == (("f", "p: ON DELETE CASCADE"),)
    assert added.cascades == (("", "p: ON UPDATE CASCADE"),) and added.nothing
    assert dropped.kept_no_more == ("f",) and dropped.nothing
    assert from_json(to_json([made, added, dropped])) == [made, added, dropped]


def test_backticks_within_names_are_the_names_own():
    [made, changed] = of(
        "create table `t``x` (`a``b` int primary key, c int)",
        "alter table `t``x` change `a``b` `d``e` int, add `f``` int",
    )
    assert [(c.name, c.key) for c in made.columns] == [("a`b", True), ("c", False)]
    assert (changed.before, changed.after, changed.unknown) == (("d", "t`x"), ("d", "t`x"), None)
    assert (changed.renamed, changed.added) == ({"a`b": "d`e"}, (Added("f`", "int", None, True),))
    assert changed.key is None
