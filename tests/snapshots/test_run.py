"""Snapshots of whole runs: keys, deletes, schema changes, tables that can't be kept, names from the wire."""

import os
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.config import parse_config
from tests.changelog.feed import Feed, Image, SourceTable

pytestmark = pytest.mark.spark

HOSTILE_TABLES = [
    "../../x",
    "_delta_log",
    "a`; DROP TABLE t; -- ${env:HOME} $(id) %41 {x}*?.",
    "表" * 64,
    "n" * 255,
    "N" * 255,
    ".",
    "",
]
HOSTILE_COLUMNS = [
    "id",
    "a`b",
    "a'b\"c",
    "a; DROP TABLE t; --",
    "a.b",
    "with space",
    "名前🙂",
    "${env:HOME}",
    "c" * 255,
    "s",
    "t",
    "_v0",
    "_k0",
    "_deleted",
    "order_key",
    "a,b=(c){d}\t\n\\",
]

KEYS = SourceTable(
    "k",
    "keys",
    [
        ("v", "text"),
        ("a", "decimal(20,2)"),
        ("b", "varbinary(8)"),
        ("c", "datetime(6)"),
        ("d", "varchar(10)"),
    ],
    ("a", "b", "c", "d"),
)
CI = SourceTable("k", "ci", [("id", "varchar(9)"), ("v", "int")])
CONF = SourceTable("k", "conf", [("a", "int"), ("b", "int")], ())
NO_KEY = SourceTable("k", "nokey", [("a", "int")], ())
UNKNOWN = SourceTable("k", "unknown", [("id", "int"), ("p", "tsvector")])
MISFIT = SourceTable("k", "misfit", [("id", "int"), ("n", "smallint")])
ZERO_KEY = SourceTable("k", "zerokey", [("d", "date"), ("v", "int")], ("d",))
DATES = SourceTable("k", "dates", [("id", "int"), ("d", "date"), ("t", "datetime")])
GROWS = SourceTable("k", "grows", [("id", "int"), ("v", "int")])
GROWN = SourceTable("k", "grows", [("first", "date"), ("id", "int"), ("m`1", "text"), ("v", "int"), ("last", "bit(1)")])
RETYPED = SourceTable("k", "retyped", [("id", "int"), ("v", "int")])
RETYPED_TO = SourceTable("k", "retyped", [("id", "int"), ("v", "varchar(9)")])
FULL = SourceTable("k", "partly", [("id", "int"), ("a", "text"), ("b", "bigint")])
PARTLY = SourceTable("k", "partly", [("id", "int"), ("a", "text")])
CUT = SourceTable("k", "cut", [("id", "int"), ("v", "text")])
UNSTATED = SourceTable("k", "unstated", [("id", "int")])
TWIN = SourceTable("k", "twin", [("id", "int"), ("v", "text")])
HOSTILE = [SourceTable("h`.", name, [(c, "varchar(99)") for c in HOSTILE_COLUMNS]) for name in HOSTILE_TABLES]


def keyed(v: str | None, n: int, text: str = "k") -> Image:
    return {"v": v, "a": f"{n}.50", "b": "AP8=", "c": f"2026-11-20 00:00:00.{n}", "d": text}


def hostile_row(id_: str, value: str) -> Image:
    return {c: id_ if c == "id" else f"{value} {c}" for c in HOSTILE_COLUMNS}


def first_batch() -> list[dict[str, Any]]:
    listed = (
        KEYS,
        CI,
        CONF,
        NO_KEY,
        UNKNOWN,
        MISFIT,
        ZERO_KEY,
        DATES,
        GROWS,
        RETYPED,
        FULL,
        PARTLY,
        CUT,
        TWIN,
        *HOSTILE,
    )
    return [
        *(t.stated() for t in listed),
        *(KEYS.insert((1, n), keyed("old", n)) for n in range(1, 9)),
        CONF.insert((1, 1), {"a": "1", "b": "1"}),
        CONF.insert((1, 2), {"a": "1", "b": "2"}),
        NO_KEY.insert((1, 1), {"a": "1"}),
        NO_KEY.change("update", (1, 2), None, {"a": "2"}),
        *(CI.insert((1, n), {"id": k, "v": v}) for n, (k, v) in enumerate((("Ab", "1"), ("é", "2"), ("C", "3")), 1)),
        UNKNOWN.insert((1, 1), {"id": "1", "p": "x"}),
        UNSTATED.insert((1, 1), {"id": "1"}),
        MISFIT.insert((1, 1), {"id": "1", "n": "12x"}),
        ZERO_KEY.insert((1, 1), {"d": "0000-00-00", "v": "1"}),
        DATES.insert((1, 1), {"id": "1", "d": "2026-02-30", "t": "0000-00-00 00:00:00"}),
        DATES.insert((1, 2), {"id": "2", "d": "2026-02-28", "t": None}),
        GROWS.insert((1, 1), {"id": "1", "v": "1"}),
        RETYPED.insert((1, 1), {"id": "1", "v": "1"}),
        FULL.insert((1, 1), {"id": "1", "a": "x", "b": "7"}),
        FULL.insert((1, 2), {"id": "2", "a": "y", "b": "8"}),
        PARTLY.update((1, 3), {"id": "1"}, {"id": "1", "a": "z"}),
        *(CUT.insert((1, n), {"id": str(n), "v": "old"}) for n in (1, 2, 3)),
        TWIN.insert((1, 1), {"id": "1", "v": "first source"}),
        *(t.insert((1, 1), hostile_row("1", "v1")) for t in HOSTILE),
        *(t.insert((1, 2), hostile_row("2", "v1")) for t in HOSTILE[:2]),
    ]


def second_batch() -> list[dict[str, Any]]:
    return [
        KEYS.update((1, 10), keyed("old", 1), keyed("new", 1)),
        KEYS.delete((1, 20), keyed("old", 2)),
        KEYS.update((1, 30), keyed("old", 3), keyed("moved", 3, "other")),
        KEYS.delete((1, 40), keyed("never seen", 9)),
        *(KEYS.update((1, 10, n), keyed("old", n), keyed("new", n)) for n in (5, 6)),
        *(KEYS.delete((1, 20, n), keyed("old", n)) for n in (7, 8)),
        CONF.update((1, 10), {"a": "1", "b": "2"}, {"a": "5", "b": "3"}),
        CI.update((1, 10), {"id": "Ab", "v": "1"}, {"id": "aB", "v": "4"}),
        CI.delete((1, 11), {"id": "c", "v": "3"}),
        {**CUT.change("truncate", (1, 10)), "schema_version": None},
        *(t.update((1, 10), hostile_row("1", "v1"), hostile_row("1", "v2")) for t in HOSTILE[:2]),
        *(t.delete((1, 11), hostile_row("2", "v1")) for t in HOSTILE[:2]),
    ]


def third_batch() -> list[dict[str, Any]]:
    """Of a later run: changes older than what is there, and new schemas."""
    return [
        *(t.stated() for t in (GROWN, RETYPED_TO)),
        KEYS.insert((1, 15), keyed("late", 2)),
        KEYS.insert((1, 39), keyed("late", 9)),
        KEYS.update((1, 9), keyed("old", 1), keyed("late", 1)),
        KEYS.insert((1, 25), keyed("late", 3)),
        KEYS.insert((1, 41), keyed("after the delete", 9)),
        KEYS.delete((1, 3), keyed("late", 4)),
        # A snapshot read anew in mid stream: its rows tell a position, but no server.
        *(KEYS.change("read", (1, 30), None, keyed("read", n), lineage=None) for n in (5, 8)),
        KEYS.change("read", (1, 5), None, keyed("read", 6), lineage=None),
        KEYS.change("read", (1, 15), None, keyed("read", 7), lineage=None),
        CUT.insert((1, 9), {"id": "4", "v": "late"}),
        CI.insert((1, 5), {"id": "c", "v": "9"}),
        CI.update((1, 12), {"id": "E", "v": "2"}, {"id": "E", "v": "5"}),
        CUT.insert((1, 11), {"id": "1", "v": "new"}),
        GROWN.insert((1, 10), {"first": "2026-11-20", "id": "2", "m`1": "m", "v": "2", "last": "1"}),
        RETYPED_TO.insert((1, 10), {"id": "2", "v": "text"}),
        MISFIT.insert((1, 10), {"id": "2", "n": "2"}),
        DATES.update((1, 10), {"id": "2", "d": "2026-02-28", "t": None}, {"id": "2", "d": "0000-00-00", "t": None}),
    ]


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, Feed, list[Any], Path]:
    folder = tmp_path_factory.mktemp("snapshots")
    config = parse_config(
        {
            "lake": str(folder / "deep" / "lake"),
            "sources": [
                {
                    "name": "shop",
                    "format": "dataworks",  # its changes may come in any order
                    "topics": ["t"],
                    "max_bytes_per_batch": "1",
                    "tables": {"keys": {"k.conf": ["b"]}, "key_collation": {"k.ci": "UNICODE_CI"}},
                },
                {"name": "other", "format": "debezium", "topics": ["o"]},
            ],
        },
        folder / "cdc.yaml",
    )
    feed, other = Feed(spark, config, "shop"), Feed(spark, config, "other")
    feed.say(*first_batch())
    feed.say(*second_batch())
    other.say(
        TWIN.stated(),
        TWIN.insert((1, 1), {"id": "1", "v": "second source"}),
        TWIN.insert((1, 2), {"id": "2", "v": "two"}),
    )
    results = [feed.catch_up(), other.catch_up()]
    feed.say(*third_batch())
    results.append(feed.catch_up())
    return feed, other, results, folder


@pytest.mark.thorough
def test_composite_keys_of_any_type_and_late_changes(world: Any) -> None:
    rows = world[0].live("k", "keys")
    found = {(int(r["a"]), r["d"]): (r["v"], r["a"], r["b"], r["c"]) for r in rows}
    at = [datetime(2026, 11, 20, 0, 0, 0, n * 100_000) for n in range(10)]
    assert len(rows) == len(found)
    assert found == {
        (1, "k"): ("new", Decimal("1.50"), b"\x00\xff", at[1]),
        (3, "other"): ("moved", Decimal("3.50"), b"\x00\xff", at[3]),  # and no row under the old key
        (4, "k"): ("old", Decimal("4.50"), b"\x00\xff", at[4]),  # a delete older than the row
        (5, "k"): ("read", Decimal("5.50"), b"\x00\xff", at[5]),  # read after its update
        (6, "k"): ("new", Decimal("6.50"), b"\x00\xff", at[6]),  # read before its update
        (8, "k"): ("read", Decimal("8.50"), b"\x00\xff", at[8]),  # read after its delete; 7 was read before its own
        (9, "k"): ("after the delete", Decimal("9.50"), b"\x00\xff", at[9]),  # newer than its tombstone
    }


@pytest.mark.thorough
def test_tombstones_are_beside_the_snapshot(world: Any) -> None:
    assert not Path(world[0].target("k", "dates").tombstones.uri()).exists()  # nothing of it was deleted
    stones = world[0].tombstones("k", "keys")
    assert sorted((int(s["_k0"]), s["scope"], int(s["_cdc_order"]["pos"])) for s in stones) == [
        (2, "row", 20),
        (3, "row", 30),
        (4, "row", 3),
        (7, "row", 20),
        (8, "row", 20),
        (9, "row", 40),
    ]


def test_cells_that_only_older_changes_of_a_batch_tell_are_kept(world: Any) -> None:
    assert {r["id"]: (r["a"], r["b"]) for r in world[0].live("k", "partly")} == {1: ("z", 7), 2: ("y", 8)}


def test_configured_keys_of_tables_whose_messages_tell_none(world: Any) -> None:
    assert sorted(r["b"] for r in world[0].live("k", "conf")) == [1, 3]
    assert {r["b"]: r["a"] for r in world[0].live("k", "conf")} == {1: 1, 3: 5}


def test_text_keys_compare_as_configured(world: Any) -> None:
    """E isn't é; C is gone however it was spelled."""
    assert {r["id"]: r["v"] for r in world[0].live("k", "ci")} == {"aB": 4, "é": 2, "E": 5}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("nokey", "tables.keys: {'k.nokey': [...]}"),
        ("unknown", "column 'p': unknown MySQL type 'tsvector'"),
        ("misfit", "12x"),
        ("zerokey", "1 changes come without a key value"),
        ("unstated", "no column list is known"),
        ("retyped", "column 'v' is kept as int and now comes as string"),
    ],
)
def test_a_table_that_cant_be_kept_is_stopped_with_the_reason(world: Any, table: str, reason: str) -> None:
    feed, _, results, _ = world
    state, why = feed.state("k", table)
    assert state == "stopped"
    assert reason in (why or "")
    assert (results[0] if table != "retyped" else results[2]).tables[f"k.{table}"]["state"] == "stopped"


def test_other_tables_go_on_and_a_stopped_one_keeps_its_rows(world: Any) -> None:
    feed, _, results, _ = world
    assert feed.live("k", "retyped") == [{"id": 1, "v": 1}]
    assert results[0].metrics["stopped_tables"] == 5
    assert results[0].tables["k.keys"]["state"] == results[2].tables["k.keys"]["state"] == "live"


def test_new_columns_stand_in_the_sources_order_and_old_rows_hold_null(world: Any) -> None:
    rows = sorted(world[0].live("k", "grows"), key=lambda r: r["id"])
    assert list(rows[0]) == ["first", "id", "m`1", "v", "last"]
    assert rows == [
        {"first": None, "id": 1, "m`1": None, "v": 1, "last": None},
        {"first": date(2026, 11, 20), "id": 2, "m`1": "m", "v": 2, "last": True},
    ]


def test_dates_that_do_not_exist_are_null_and_counted(world: Any) -> None:
    feed, _, results, _ = world
    assert sorted(feed.live("k", "dates"), key=lambda r: r["id"]) == [
        {"id": 1, "d": None, "t": None},
        {"id": 2, "d": None, "t": None},
    ]
    counted = [r["invalid_dates"] for r in feed.rows(tables.TABLE_STATE) if r["table"] == "dates"]
    assert counted == [2, 1]
    assert results[0].tables["k.dates"]["invalid_dates"] == 2


def test_a_truncate_empties_the_table_and_stops_older_rows_that_come_later(world: Any) -> None:
    """The truncate was alone in its batch and told no schema version, as Debezium's does."""
    assert world[0].live("k", "cut") == [{"id": 1, "v": "new"}]


def test_tables_of_equal_name_in_two_sources_do_not_mix(world: Any) -> None:
    feed, other, results, _ = world
    assert [r["v"] for r in feed.live("k", "twin")] == ["first source"]
    assert sorted(r["v"] for r in other.live("k", "twin")) == ["second source", "two"]
    assert results[1].rows == 2, "changes of this source only"
    assert list(results[1].tables) == ["k.twin"]


@pytest.mark.parametrize("i", range(len(HOSTILE)))
def test_names_from_the_wire_are_data(world: Any, i: int) -> None:
    feed, _, _, folder = world
    table = HOSTILE[i]
    assert feed.state(table.db, table.name) == ("live", None)
    rows = feed.live(table.db, table.name)
    assert [list(r) for r in rows] == [HOSTILE_COLUMNS]
    assert rows == [hostile_row("1", "v2" if i < 2 else "v1")]
    path = Path(feed.target(table.db, table.name).snapshot.uri())
    assert path.parent.parent == folder / "deep" / "lake" / "snapshots" / "shop"
    assert path.resolve() == path
    assert len(os.fsencode(path.name)) <= 255


def test_no_name_left_the_lake_or_met_another(world: Any) -> None:
    _, _, _, folder = world
    assert sorted(p.name for p in folder.iterdir()) == ["deep"]
    assert [p.name for p in (folder / "deep").iterdir()] == ["lake"]
    made = list((folder / "deep" / "lake" / "snapshots" / "shop").glob("h*/*"))
    assert len(made) == len(HOSTILE)
    assert not any(str(Path.home()) in p.read_text() for p in made[0].parent.glob("*/_delta_log/*.json"))


@pytest.mark.thorough
def test_a_batch_done_again_changes_nothing(world: Any) -> None:
    feed, _, _, _ = world
    names = ["keys", "conf", "dates", "grows", "cut", "retyped"]
    before = feed.kept("k", names), feed.rows(tables.TABLE_STATE)
    assert feed.snapshot().batches == 0
    feed.forget_last_commit("snapshots")
    assert feed.snapshot().batches == 1
    assert (feed.kept("k", names), feed.rows(tables.TABLE_STATE)) == before
