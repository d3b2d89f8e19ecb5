"""DDL and its effect on snapshots: however rows and statements are taken up, the snapshot holds what the table
would. Columns are followed from the messages and from the statements."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.snapshots import as_of
from cdc_platform.snapshots import run as snapshots
from tests.changelog.feed import Feed, SourceTable, position, read
from tests.explain.agreement import of_every_row
from tests.lakes import store_at

pytestmark = pytest.mark.spark


def ddl(sql: str, pos: int, db: str = "shop", **rest: Any) -> dict[str, Any]:
    return {"kind": "ddl", "db": db, "ddl": sql, **position(1, pos), **rest}


def versions(*columns: str, name: str = "t", keys: tuple[str, ...] = ("id",)) -> SourceTable:
    """A state of a table: `name type` each."""
    return SourceTable("shop", name, [tuple(c.split(" ", 1)) for c in columns], keys)  # type: ignore[misc]


OLD = versions("id bigint", "a int", "b varchar(9)")
FIRST = OLD.insert((1, 10), {"id": "1", "a": "1", "b": "x"})
SECOND = OLD.insert((1, 11), {"id": "2", "a": "2", "b": "y"})


STORIES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "rename, drop, add, and rows on both sides": (
        [
            OLD, FIRST, SECOND,
            ddl("ALTER TABLE t CHANGE a aa INT, DROP b, ADD c DECIMAL(9,2) NOT NULL DEFAULT 1.5 FIRST", 20),
            (new := versions("c decimal(9,2)", "id bigint", "aa int")),
            new.update((1, 30), {"c": "1.50", "id": "2", "aa": "2"}, {"c": None, "id": "2", "aa": "7"}),
            new.insert((1, 31), {"c": "9.00", "id": "3", "aa": "3"}),
        ],
        {"t": [["1.50", 1, 1], [None, 2, 7], ["9.00", 3, 3]]},
    ),
    "a statement alone changes the columns": (
        [OLD, FIRST, ddl("alter table t rename column b to bb, add n int, modify a int after bb", 20)],
        {"t": [[1, "x", 1, None]]},
    ),
    "a type changes": (
        [
            OLD, FIRST, ddl("ALTER TABLE t MODIFY a BIGINT UNSIGNED", 20),
            (wide := versions("id bigint", "a bigint unsigned", "b varchar(9)")),
            wide.insert((1, 30), {"id": "2", "a": str(2**64 - 1), "b": "y"}),
        ],
        {"t": [[1, "1", "x"], [2, str(2**64 - 1), "y"]]},
    ),
    "a ghost table takes the table's place": (
        [
            OLD, FIRST, SECOND,
            ddl("CREATE TABLE _t_gho LIKE t", 12), ddl("ALTER TABLE _t_gho ADD c INT", 13),
            (gho := versions("id bigint", "a int", "b varchar(9)", "c int", name="_t_gho")),
            gho.insert((1, 20), {"id": "1", "a": "1", "b": "x", "c": None}),
            OLD.delete((1, 21), {"id": "2", "a": "2", "b": "y"}),
            gho.insert((1, 22), {"id": "3", "a": "3", "b": "z", "c": None}),
            OLD.insert((1, 23), {"id": "3", "a": "3", "b": "z"}),
            ddl("RENAME TABLE t TO _t_del, _t_gho TO t", 30), ddl("DROP TABLE _t_del", 31),
            (now := versions("id bigint", "a int", "b varchar(9)", "c int")),
            now.update((1, 40), {"id": "3", "a": "3", "b": "z", "c": None}, {"id": "3", "a": "3", "b": "z", "c": "5"}),
        ],
        {"t": [[1, 1, "x", None], [3, 3, "z", 5]], "_t_gho": [], "_t_del": []},
    ),
    "dropped and made again": (
        [
            OLD, FIRST, ddl("drop table t", 20),
            ddl("create table t (id varchar(5) primary key, z int)", 21), (again := versions("id varchar(5)", "z int")),
            again.insert((1, 30), {"id": "k", "z": "1"}),
        ],
        {"t": [["k", 1]]},
    ),
    "another key": (
        [
            OLD, FIRST, SECOND,
            ddl("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)", 20),
            (keyed := versions("id bigint", "a int", "b varchar(9)", keys=("b",))),
            keyed.insert((1, 30), {"id": "1", "a": "3", "b": "z"}),
            keyed.delete((1, 31), {"id": "2", "a": "2", "b": "y"}),
        ],
        {"t": [[1, 1, "x"], [1, 3, "z"]]},
    ),
    "a unique key's index goes, and rows come twice": (
        [
            (unique := versions("id int", "v int")),
            unique.insert((1, 10), {"id": "1", "v": "1"}), unique.insert((1, 11), {"id": "2", "v": "2"}),
            ddl("alter table t drop index id", 20),
            (keyless := versions("id int", "v int", keys=())),
            keyless.insert((1, 30), {"id": "1", "v": "5"}), keyless.insert((1, 31), {"id": "2", "v": "2"}),
            keyless.delete((1, 32), {"id": "1", "v": "1"}), keyless.insert((1, 33), {"id": "1", "v": "5"}),
        ],
        {"t": [[1, 5], [1, 5], [2, 2], [2, 2]]},
    ),
    "NULLs of columns that are NOT NULL since": (
        [
            OLD, OLD.insert((1, 10), {"id": "1", "a": None, "b": None}), SECOND,
            ddl("ALTER TABLE t MODIFY a INT NOT NULL DEFAULT 5, MODIFY b VARCHAR(9) NOT NULL", 20),
            OLD.insert((1, 30), {"id": "3", "a": "5", "b": "z"}),
        ],
        {"t": [[1, 0, ""], [2, 2, "y"], [3, 5, "z"]]},
    ),
    "values that the server writes anew": (
        [
            (bent := versions("id int", "t time", "c varchar(9)", "s set('a','b')", "d decimal(9,2)", "i int")),
            bent.insert((1, 10), {"id": "1", "t": "-01:00:00", "c": "x ", "s": "a,b", "d": "1.5", "i": "300"}),
            bent.insert((1, 11), {"id": "2", "t": None, "c": None, "s": None, "d": None, "i": None}),
            ddl(
                "ALTER TABLE t /*!50100 MODIFY t TIME(3), CHANGE c cc CHAR(9)*/, MODIFY s SET('b','a') NOT NULL,"
                " MODIFY d VARCHAR(9), MODIFY i TINYINT UNSIGNED", 20,
            ),
            (straight := versions(
                "id int", "t time(3)", "cc char(9)", "s set('b','a')", "d varchar(9)", "i tinyint unsigned",
            )),
            straight.insert((1, 30), {"id": "3", "t": "01:00:00.5", "cc": "y", "s": "b", "d": "2", "i": "1"}),
        ],
        {"t": [
            [1, "-01:00:00.000", "x", "b,a", "1.50", 255],
            [2, None, None, "", None, None],
            [3, "01:00:00.500", "y", "b", "2", 1],
        ]},
    ),
    "a TIME as key gets digits": (
        [
            (timed := versions("k time", "v int", keys=("k",))),
            timed.insert((1, 10), {"k": "10:00:00", "v": "1"}), timed.insert((1, 11), {"k": "11:00:00", "v": "1"}),
            ddl("ALTER TABLE t MODIFY k TIME(2) NOT NULL", 20),
            (finer := versions("k time(2)", "v int", keys=("k",))),
            finer.update((1, 30), {"k": "10:00:00", "v": "1"}, {"k": "10:00:00", "v": "2"}),
            finer.delete((1, 31), {"k": "11:00:00", "v": "1"}),
            finer.insert((1, 32), {"k": "10:00:00.5", "v": "3"}),
        ],
        {"t": [["10:00:00.00", 2], ["10:00:00.50", 3]]},
    ),
}  # fmt: skip


def live_after(feed: Feed, story: str) -> list[str]:
    """A story told, each event with a run of its own; the tables that are live in the end."""
    events, tables_ = STORIES[story]
    stated: list[Any] = []
    for event in events:
        if not isinstance(event, dict):
            stated.append(event.stated() | {"lineage": "1"})
            continue
        feed.say(*stated, event)
        stated.clear()
        feed.catch_up()
    return [t for t in tables_ if feed.has("shop", t) and feed.state("shop", t)[0] == "live"]


def of_shop(number: int, story: list[Any]) -> list[dict[str, Any]]:
    """The events of a story, in a database and a binlog file of its own."""
    db = f"shop{number}"
    shapes = {e.version: replace(e, db=db) for e in story if isinstance(e, SourceTable)}
    events: list[dict[str, Any]] = []
    for e in story:
        if isinstance(e, SourceTable):
            events.append(shapes[e.version].stated() | {"lineage": "1"})
        else:
            known = {"schema_version": shapes[e["schema_version"]].version} if "schema_version" in e else {}
            events.append({**e, **known, "db": db, **position(number, e["binlog_pos"])})
    return events


def text(value: Any) -> Any:
    return str(value) if type(value).__name__ == "Decimal" else value


def told(feed: Feed) -> dict[str, dict[str, list[list[Any]]]]:
    """Per story and table: the rows of its snapshot."""
    found: dict[str, dict[str, list[list[Any]]]] = {}
    for number, (name, (_, expected)) in enumerate(STORIES.items(), 1):
        found[name] = {}
        for table in expected:
            rows = feed.live(f"shop{number}", table) if feed.has(f"shop{number}", table) else []
            found[name][table] = sorted([[text(v) for v in r.values()] for r in rows], key=repr)
    return found


def expected() -> dict[str, dict[str, list[list[Any]]]]:
    return {n: {t: sorted(rows, key=repr) for t, rows in e.items()} for n, (_, e) in STORIES.items()}


@pytest.mark.thorough
def test_with_all_events_in_one_run_the_snapshots_are_as_told(spark: Any, make_config: Any) -> None:
    feed = Feed(spark, make_config([{"name": "whole", "format": "canal", "topics": ["t"]}]), "whole")
    for number, (story, _) in enumerate(STORIES.values(), 1):
        feed.say(*of_shop(number, story))
    feed.catch_up()
    assert told(feed) == expected()
    explained, wrong = of_every_row(feed.config, feed.source)
    assert (explained > 10, wrong) == (True, [])


@pytest.mark.thorough
def test_step_by_step_the_snapshots_are_as_told(spark: Any, make_config: Any) -> None:
    """The rows before the first statement of every story, that statement and the rest in a run each."""
    config = make_config([{"name": "parts", "format": "canal", "topics": ["t"]}])
    parts = Feed(spark, config, "parts")
    stages: list[list[dict[str, Any]]] = [[], [], []]
    for number, (story, _) in enumerate(STORIES.values(), 1):
        events = of_shop(number, story)
        middle = next(i for i, e in enumerate(events) if e["kind"] == "ddl")
        for stage, some in zip(
            stages, (events[:middle], events[middle : middle + 1], events[middle + 1 :]), strict=True
        ):
            stage.extend(some)
    for some in stages:
        parts.say(*some)
        parts.catch_up()
    assert told(parts) == expected()
    decisions = {r["decision"] for r in parts.rows(tables.SCHEMA_CHANGES)}
    assert decisions <= {"no effect", "applied", "rebuilt", "emptied"}
    shutil.rmtree(tables.SCHEMA_CHANGES.at(config.lake))  # as if every run had been killed before its note
    parts.snapshot()
    assert told(parts) == expected()


@pytest.mark.thorough
def test_a_rebuild_before_the_first_batch_hides_none_of_its_outcomes(spark: Any, make_config: Any) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    old, other = versions("id bigint", name="old"), versions("id bigint", name="other")
    feed.say(old.stated() | {"lineage": "1"}, old.insert((1, 10), {"id": "1"}), ddl("RENAME TABLE old TO new", 20))
    feed.say(other.stated() | {"lineage": "1"}, other.insert((1, 30), {"id": "1"}))
    feed.unify()
    snapshots.rebuild(feed.spark, feed.config, feed.source, "shop", "new")
    result = feed.snapshot()
    noted = {(r["table"], r["batch"], r["rebuild"], r["state"]) for r in feed.rows(tables.TABLE_STATE)}
    assert noted == {("new", -1, 1, "live"), ("new", 0, 1, "live"), ("other", 0, 0, "live")}
    assert [list(r.values()) for r in feed.live("shop", "new")] == [[1]]
    assert sorted(result.tables) == ["shop.new", "shop.other"]


@pytest.mark.thorough
@pytest.mark.parametrize("in_batches", [False, True])
def test_a_value_that_only_the_row_before_tells_stops_a_table_that_holds_it(
    spark: Any, make_config: Any, in_batches: bool
) -> None:
    """What a server made of a text that is no label isn't told, be the text in the row after, or unchanged and
    left out of it. Rows that were gone by then stop nothing, and others are as the server made them."""
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    shapes = [
        versions("s varchar(9)", "a int", name="held", keys=("s",)),
        versions("s varchar(9)", "a int", name="unchanged", keys=()),
        versions("s varchar(9)", "a int", name="gone", keys=("s",)),
        versions("s varchar(9)", "a int", name="none", keys=()),
    ]
    held, unchanged, gone, none = shapes
    stated = [t.stated() | {"lineage": "1"} for t in shapes]
    changes = [
        held.update((1, 10), {"s": "none"}, {"a": "2"}),
        unchanged.update((1, 11), {"s": "none", "a": "1"}, {"a": "2"}),
        *(t.insert((1, 12 + i), {"s": "b,a", "a": "1"}) for i, t in enumerate((gone, none))),
        *(t.insert((1, 14 + i), {"s": "b", "a": "2"}) for i, t in enumerate((gone, none))),
        *(t.delete((1, 16 + i), {"s": "b,a", "a": "1"}) for i, t in enumerate((gone, none))),
        *(t.delete((1, 18 + i), {"s": "none", "a": "1"}) for i, t in enumerate((gone, none))),
    ]
    statements = [ddl(f"ALTER TABLE {t.name} MODIFY s SET('a','b')", 20 + i) for i, t in enumerate(shapes)]
    if in_batches:  # the statement was decided before any row of the table came
        feed.say(*stated, *statements)
        feed.catch_up()
        feed.say(*(c | {"partition": 1} for c in changes))
    else:
        feed.say(*stated, *changes)
        feed.catch_up()
        feed.say(*statements)
    feed.catch_up()
    for name in ("held", "unchanged"):
        state, why = feed.state("shop", name)
        assert (state, "'none' isn't made of its labels" in str(why)) == ("stopped", True), (name, why)
    assert [feed.live("shop", t) for t in ("gone", "none")] == [[{"s": "b", "a": 2}]] * 2


@pytest.mark.thorough
def test_rows_that_go_without_a_message_stay_and_it_is_told(spark: Any, make_config: Any) -> None:
    policy = {"ddl": {"shop.strict": "add_only"}}
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"], "tables": policy}]), "s")
    shapes = [versions("id bigint", name=n, keys=k) for n, k in (("days", ("id",)), ("log", ()), ("strict", ("id",)))]
    for i, shape in enumerate(shapes):
        feed.say(shape.stated() | {"lineage": "1"}, shape.insert((1, 10 + i), {"id": "1"}))
    feed.catch_up()
    feed.say(ddl("alter table days drop partition p0", 20), ddl("alter table strict truncate partition p0", 21))
    feed.say(ddl("alter table days exchange partition p1 with table log", 22))
    feed.say(shapes[0].insert((1, 30), {"id": "2"}), shapes[1].insert((1, 31), {"id": "2"}))
    result = feed.catch_up()
    dropped, exchanged = "a partition was dropped", "a partition and a table were exchanged"
    assert [sorted(r["id"] for r in feed.live("shop", t)) for t in ("days", "log")] == [[1, 2], [1, 2]]
    found = [(r["table_after"], r["decision"], str(r["reason"])) for r in feed.rows(tables.SCHEMA_CHANGES)]
    assert [(t, d) for t, d, _ in found] == [
        *(("days", "applied"), ("strict", "stopped"), ("days", "applied"), ("log", "applied")),
    ]
    assert dropped in found[0][2] and exchanged in found[0][2] and exchanged in found[3][2]
    assert feed.state("shop", "strict")[0] == "stopped"
    limits = {t: str(result.tables[f"shop.{t}"].get("limits")) for t in ("days", "log")}
    assert limits["days"].startswith(f"*: {dropped}") and exchanged in limits["days"] and dropped not in limits["log"]
    feed.say(ddl("drop table days", 40), ddl("create table days (id bigint primary key)", 41))
    feed.say(shapes[0].insert((1, 50), {"id": "3"}))
    assert "limits" not in feed.catch_up().tables["shop.days"]
    feed.say(ddl("drop database shop", 60))
    feed.catch_up()
    assert [feed.state("shop", t)[0] for t in ("days", "log", "strict")] == ["dropped", "dropped", "stopped"]
    assert feed.live("shop", "log") == []


def test_a_policy_or_an_unreadable_statement_stops_only_its_table(spark: Any, make_config: Any) -> None:
    policy = {"ddl": {"shop.kept": "stop", "shop.grows": "add_only"}}
    config = make_config([{"name": "s", "format": "canal", "topics": ["t"], "tables": policy}])
    feed = Feed(spark, config, "s")
    columns = ("id bigint", "a int")
    shapes = [versions(*columns, name=n) for n in ("kept", "grows", "odd", "free")]
    for i, shape in enumerate(shapes):
        feed.say(shape.stated() | {"lineage": "1"}, shape.insert((1, 10 + i), {"id": "1", "a": "1"}))
    feed.catch_up()
    feed.say(*(ddl(f"alter table {t} add b int", 20 + i) for i, t in enumerate(("kept", "grows", "free"))))
    feed.say(ddl("alter table odd frobnicate", 30), shapes[2].insert((1, 40), {"id": "2", "a": "2"}))
    feed.catch_up()
    assert {t: feed.state("shop", t)[0] for t in ("kept", "grows", "odd", "free")} == {
        "kept": "stopped", "grows": "live", "odd": "stopped", "free": "live"
    }  # fmt: skip
    assert "tables.ddl is stop: alter table kept add b int" in str(feed.state("shop", "kept")[1])
    assert "frobnicate" in str(feed.state("shop", "odd")[1])
    assert [list(r.values()) for r in feed.live("shop", "free")] == [[1, 1, None]]
    feed.say(ddl("alter table grows drop a", 50))
    feed.catch_up()
    assert feed.state("shop", "grows")[0] == "stopped"
    assert [list(r) for r in feed.live("shop", "grows")] == [["id", "a", "b"]]
    found = [(r["ddl"], r["decision"]) for r in feed.rows(tables.SCHEMA_CHANGES)]
    assert found == [
        ("alter table kept add b int", "stopped"),
        ("alter table grows add b int", "applied"),
        ("alter table free add b int", "applied"),
        ("alter table odd frobnicate", "stopped"),
        ("alter table grows drop a", "stopped"),
    ]


@pytest.mark.thorough
def test_a_rename_that_took_one_of_two_tables_stops_both_until_it_shows_which(spark: Any, make_config: Any) -> None:
    """canal's JSON has the database of the new name in place of the session's."""
    config = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])
    feed = Feed(spark, config, "s")
    for at, db in enumerate(("crm", "shop")):
        table = SourceTable(db, "orders", [("id", "bigint")], ("id",))
        feed.say(table.stated() | {"lineage": "1"}, table.insert((1, 10 + at), {"id": str(at)}))
    feed.catch_up()
    feed.say(ddl("ALTER TABLE orders RENAME TO arch.orders_2026", 20, db="arch"))
    feed.catch_up()
    feed.say(ddl("RENAME TABLE orders_2026 TO old_orders", 21, db="arch"))
    feed.catch_up()
    for name in (("crm", "orders"), ("shop", "orders"), ("arch", "old_orders")):
        state, reason, *_ = feed.state(*name)
        assert (state, "which one's it was isn't told" in str(reason)) == ("stopped", True)
    feed.say(ddl("CREATE TABLE orders (id BIGINT PRIMARY KEY)", 30))
    feed.catch_up()
    assert (feed.state("crm", "orders")[0], feed.live("crm", "orders")) == ("live", [{"id": 0}])
    assert feed.live("shop", "orders") == []
    assert feed.live("arch", "old_orders") == [{"id": 1}]


@pytest.mark.thorough
def test_a_rename_that_is_told_late_brings_back_rows_that_were_taken_for_a_dropped_tables(
    spark: Any, make_config: Any
) -> None:
    sources = [{"name": n, "format": "canal", "topics": [n]} for n in ("late", "once")]
    config = make_config(sources)
    late, once = (Feed(spark, config, s["name"]) for s in sources)
    a, other = versions("id bigint", name="a"), versions("id bigint", name="other")
    rows = [a.stated() | {"lineage": "1"}, a.insert((1, 10), {"id": "1"})]
    rows += [other.stated() | {"lineage": "1"}, other.insert((1, 11), {"id": "1"}), ddl("DROP TABLE a", 30)]
    rename = ddl("RENAME TABLE a TO b", 20, partition=1)
    late.say(*rows)
    late.catch_up()
    late.say(rename)
    late.catch_up()
    once.say(*rows, rename)
    once.catch_up()
    assert once.has("shop", "b") and [list(r.values()) for r in once.live("shop", "b")] == [[1]]
    assert late.has("shop", "b") and late.live("shop", "b") == once.live("shop", "b")


@pytest.mark.thorough
def test_ddl_of_a_table_that_is_still_to_be_made_again_fails_no_run(
    spark: Any, make_config: Any, monkeypatch: Any
) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    moved = OLD.update((1, 12), {"id": "1"}, {"id": "3"})  # a part of the row, under another key
    feed.say(OLD.stated() | {"lineage": "1"}, FIRST, SECOND, moved)

    def stop(*_: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as killed, pytest.raises(ZeroDivisionError):
        killed.setattr(snapshots, "refreshed", stop)
        feed.catch_up()
    assert feed.state("shop", "t")[0] == "stale" and not feed.has("shop", "t")
    feed.say(ddl("ALTER TABLE t ADD COLUMN n int", 20))
    feed.catch_up()
    assert feed.state("shop", "t") == ("live", None)
    assert sorted((r["id"], r["a"], r["n"]) for r in feed.live("shop", "t")) == [(2, 2, None), (3, 1, None)]


def truncate(name: str, pos: int) -> list[dict[str, Any]]:
    """Statement and row change of a TRUNCATE, as decoders give them."""
    emptied = {"kind": "row", "op": "truncate", "db": "shop", "table": name, "key": None, "schema_version": None}
    return [ddl(f"TRUNCATE TABLE {name}", pos), {**emptied, **position(1, pos), "entry_index": 1}]


@pytest.mark.parametrize("other", [False, True], ids=["the same table", "another table"])
def test_a_truncate_in_other_letters_reaches_a_table_that_is_named_without_wildcards(
    spark: Any, make_config: Any, other: bool
) -> None:
    """lower_case_table_names 1 or 2: rows say `t`, the statement what someone typed. Where both are tables, `T` is left
    out."""
    tables_ = {"include": ["shop.t"]}
    feed = Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"], "tables": tables_}]), "s")
    made = [ddl("CREATE TABLE t (id INT PRIMARY KEY)", 1), ddl("CREATE TABLE T (id INT PRIMARY KEY)", 2)]
    feed.say(*made if other else (), OLD.stated(), FIRST)
    feed.catch_up()
    feed.say(*truncate("T", 20), OLD.insert((1, 30), {"id": "3", "a": "3", "b": "z"}))
    feed.catch_up()
    assert sorted(r["id"] for r in feed.live("shop", "t")) == ([1, 3] if other else [3])
    assert {r["table"] for r in feed.rows(tables.TABLE_STATE)} == {"t"}


def taken(table: SourceTable, place: tuple[int, int], ids: str, last: bool = True) -> list[dict[str, Any]]:
    """A snapshot of a table, as Debezium's decoder gives it."""
    at = f"mysql-bin.{place[0]:06d}:{place[1]}"
    version = {"schema_version": f"{table.version}{place[1]}"}
    ends = [("load_end", "all")] if last else []
    stated = {**table.stated(), **version, "info": [("load", at), *ends], **position(*place, None)}
    rows = [table.change("read", place, None, {"id": i, "a": i, "b": at[-1]}, **version, lineage=None) for i in ids]
    return [
        {**stated, "offset": 1000 * place[0]},
        *({**r, "offset": 1000 * place[0] + i + 1} for i, r in enumerate(rows)),
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("parted", [False, True], ids=["one run", "run by run"])
def test_a_snapshot_taken_again_replaces_the_table_or_says_that_it_tells_no_deletes(
    spark: Any, make_config: Any, tmp_path: Path, parted: bool
) -> None:
    sources = [
        {"name": n, "format": "debezium", "topics": [n], "options": {"whole_snapshots": n == "whole"}}
        for n in ("whole", "said")
    ]
    config = make_config(sources)
    for source in sources:
        feed = Feed(spark, config, source["name"])
        log = OLD.insert((1, 300), {"id": "4", "a": "4", "b": "x"}, offset=1500)
        parts = [taken(OLD, (1, 157), "123"), [OLD.stated(), log], taken(OLD, (9, 158), "13")]
        then: dict[int, list[int]] = {}
        for part in parts if parted else [[event for some in parts for event in some]]:
            feed.say(*part)
            result = feed.catch_up()
            then[max(c["cut"] for c in feed.rows(tables.CUTS))] = sorted(r["id"] for r in feed.live("shop", "t"))
        told = str(result.tables["shop.t"].get("limits"))
        if source["name"] == "whole":
            assert sorted((r["id"], r["b"]) for r in feed.live("shop", "t")) == [(1, "8"), (3, "8")]
            assert told == "None"
            assert of_every_row(feed.config, feed.source)[1] == []
            for cut in feed.rows(tables.CUTS):  # and as it was, with and without the snapshot
                to = tmp_path / str(cut["cut"])
                as_of.make(spark, feed.config, feed.source, ("shop", "t"), cut["cut"], store_at(to))
                assert sorted(read(str(to))["id"].to_pylist()) == then[cut["cut"]]
        else:
            assert sorted(r["id"] for r in feed.live("shop", "t")) == [1, 2, 3, 4]
            assert "a snapshot was taken again (at mysql-bin.000009:158), which tells no deletes" in told
