"""Why a row isn't there: each answer by what really happened to it, and at other moments."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from cdc_platform import tables
from cdc_platform.cli.app import run
from cdc_platform.config import load_config
from cdc_platform.explain import events
from cdc_platform.explain.records import Address
from cdc_platform.lake import delta_table, stores, watermarks
from cdc_platform.units import when
from tests.changelog.feed import Feed, SourceTable, position

pytestmark = pytest.mark.spark

START = datetime(2026, 11, 20, 12, tzinfo=UTC)


def table(name: str, *columns: str, keys: tuple[str, ...] = ("id",)) -> SourceTable:
    return SourceTable("shop", name, [tuple(c.split(" ", 1)) for c in columns or ("id bigint", "a int")], keys)  # type: ignore[misc]


def ddl(sql: str, pos: int) -> dict[str, Any]:
    return {"kind": "ddl", "db": "shop", "ddl": sql, **position(1, pos), "source_time": at(pos)}


def at(pos: int) -> datetime:
    return START + timedelta(seconds=pos)


def row(**cells: Any) -> dict[str, Any]:
    return {k: None if v is None else str(v) for k, v in cells.items()}


T, TWO = table("t", "id bigint", "a int", "b varchar(20)"), table("two", "x bigint", "y varchar(9)", keys=("x", "y"))
EMPTIED, GONE, OLD, NEW = table("emptied"), table("gone"), table("old"), table("new")
SECRET, ODD, BAG = table("secret"), table("odd", "id bigint", "a frobnicate"), table("bag", "a int", "b int", keys=())
SHARD = SourceTable("shop_1", "orders", [("id", "bigint"), ("a", "int")])
SACK, LEFT, WORN = table("sack", "a int", "b frobnicate", keys=()), table("left"), table("worn")
TORN = {**T.insert((1, 70), row(id=77)), "kind": "error", "op": None, "after": None, "reason": "column 'a': no integer"}
LATER, AGAIN, BEFORE = (
    {**TORN, **position(1, pos), "key": [("id", n)], "reason": why}
    for pos, n, why in ((79, "6", "later"), (72, "5", "again"), (73, "4", "before"))
)
HELD = {**TORN, **position(1, 74), "key": [("id", "44")], "reason": "then", "source_time": at(40)}
MARKUP = "a'b\\\x1b[2J"

STORY = [
    *(t.stated() | {"lineage": "1"} for t in (T, TWO, EMPTIED, GONE, OLD, SECRET, ODD, BAG, SHARD)),
    *(T.insert((1, 10 + i), row(id=i, a=i, b="first"), source_time=at(10 + i)) for i in range(1, 6)),
    T.update((1, 20), row(id=1, a=1, b="first"), row(id=1, a=2, b=MARKUP), source_time=at(20)),
    T.delete((1, 21), row(id=2, a=2, b="first"), source_time=at(21)),
    T.update((1, 22), row(id=3, a=3, b="first"), row(id=30, a=3, b="first"), source_time=at(22)),
    TWO.insert((1, 23), row(x=1, y="a,b")),
    EMPTIED.insert((1, 24), row(id=1, a=1)),
    EMPTIED.change("truncate", (1, 25)),
    GONE.insert((1, 26), row(id=1, a=1)),
    ddl("DROP TABLE gone", 27),
    OLD.insert((1, 28), row(id=1, a=1)),
    ddl("ALTER TABLE old RENAME COLUMN a TO aa, ADD z INT DEFAULT 5", 29),
    ddl("RENAME TABLE old TO new", 30),
    SECRET.insert((1, 31), row(id=1, a=1)),
    ODD.insert((1, 32), row(id=1, a=1)),
    *(BAG.insert((1, 33 + i), row(a=1, b=i)) for i in (0, 0, 1)),
    BAG.delete((1, 37), row(a=1, b=0)),
    SHARD.insert((1, 38), row(id=1, a=1)),
    *(TORN, AGAIN, BEFORE),
    *(HELD, *(t.stated() for t in (SACK, LEFT, WORN))),
    *(SACK.insert((1, 74), row(a=1, b=1)), LEFT.insert((1, 74), row(id=1, a=1)), WORN.insert((1, 74), row(id=1, a=1))),
    T.update((1, 75), row(id=4, a=4, b="first"), row(id=4, a=5, b="first"), source_time=at(75)),
    T.insert((1, 76), row(id=6, a=6, b="first")),
    *(T.delete((1, 77), row(id=6, a=6, b="first")), LATER),
]  # fmt: skip
"""Offsets are their places."""


@pytest.fixture(scope="module")
def feed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Feed:
    folder = tmp_path_factory.mktemp("explain")
    tables = {"exclude": ["shop.secret"], "routes": {r"shop_[0-9]+\.orders": "shop.orders"}}
    source = {"name": "s", "format": "canal", "topics": ["t"], "tables": tables}
    (folder / "cdc.yaml").write_text(yaml.safe_dump({"lake": str(folder / "lake"), "sources": [source]}))
    found = Feed(spark, load_config(folder / "cdc.yaml"), "s")
    found.say(*STORY)
    found.catch_up()
    found.say(*(STORY[i] for i in range(9, 14)))  # sent again
    odd = table("worn", "id bigint", "a frobnicate")
    torn = {
        **BAG.insert((1, 80), row(a=1)),
        "kind": "error",
        "op": None,
        "after": None,
        "reason": "column 'b': no integer",
    }
    found.say(odd.stated(), odd.insert((1, 80), row(id=2, a=2)), torn)
    found.catch_up()
    found.say(T.insert((1, 81), row(id=8, a=8, b="x")))
    found.unify()
    found.say(T.insert((1, 90), row(id=9, a=9, b="x")))
    return found


@pytest.fixture
def cli(feed: Feed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command with --json: exit code and data; what people see has no control character in it."""
    monkeypatch.setenv("CDC_CONFIG", str(feed.config.file))

    def told(*args: str) -> tuple[int, Any]:
        code = run([*args])
        shown = capsys.readouterr()
        assert not {c for c in shown.out + shown.err if c < " " and c != "\n"}
        assert run([*args, "--json"]) == code
        return code, json.loads(capsys.readouterr().out)

    return told


def offset(story: int) -> str:
    return f"t/0/{story}"


CASES = {
    "deleted": ("shop.t", "2", "deleted", 15),
    "moved": ("shop.t", "3", "moved", 16),
    "truncated": ("shop.emptied", "1", "truncated", 19),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_took_it_away(cli: Any, case: str) -> None:
    name, key, kind, place = CASES[case]
    code, told = cli("explain", "s", name, key)
    assert (code, told["here"], told["agrees"], told["row"]) == (0, False, True, None)
    [why] = told["why"]
    assert (why["kind"], why["sure"]) == (kind, True)
    by = next(c for c in told["changes"] if c["change"] == why["change"])
    assert by["address"] == offset(place)


def test_what_is_held_of_a_row_that_is_there_or_was_deleted(cli: Any) -> None:
    """A delete that was applied is no answer where a later insert is held; an old change of a newer row is none."""
    why = cli("explain", "s", "shop.t", "6")[1]["why"]
    assert [(w["kind"], w["sure"]) for w in why] == [("deleted", True), ("quarantined", True)]
    assert why[1]["text"].endswith(": later")
    code, told = cli("explain", "s", "shop.t", "5")
    assert (code, told["here"], told["agrees"], told["row"]["a"]) == (0, True, True, 5)
    assert [(w["kind"], w["text"].rpartition(": ")[2]) for w in told["why"]] == [("quarantined", "again")]
    assert cli("explain", "s", "shop.t", "4")[1]["why"] == []


def test_a_row_that_moved_tells_where_to(cli: Any) -> None:
    assert cli("explain", "s", "shop.t", "3")[1]["why"][0]["to"] == {"id": "30"}
    code, told = cli("explain", "s", "shop.t", "30")
    assert (code, told["here"], told["agrees"]) == (0, True, True)
    assert [c["address"] for c in told["changes"]] == [offset(16)]


def test_ddl_took_the_table_or_its_name_away(cli: Any) -> None:
    [why] = cli("explain", "s", "shop.gone", "1")[1]["why"]
    assert (why["kind"], why["ddl"], why["address"]) == ("dropped", "DROP TABLE gone", offset(21))
    [why] = cli("explain", "s", "shop.old", "1")[1]["why"]
    assert (why["kind"], why["to"]) == ("renamed", "shop.new")


def test_a_row_from_before_ddl_has_todays_name_and_columns(cli: Any) -> None:
    code, told = cli("explain", "s", "shop.new", "1")
    assert (code, told["here"], told["agrees"]) == (0, True, True)
    cells = {c["column"]: (c["value"], c["change"], bool(c["ddl"])) for c in told["cells"]}
    assert cells == {"id": ("1", 1, False), "aa": ("1", 1, False), "z": ("5", 1, True)}
    assert [d["address"] for d in told["ddl"]] == [offset(23), offset(24)]
    [change] = told["changes"]
    assert (change["table"], change["after"]) == ("old", {"id": "1", "a": "1"})


def test_rules_quarantine_and_states(cli: Any) -> None:
    [why] = cli("explain", "s", "shop.secret", "1")[1]["why"]
    assert (why["kind"], why["sure"]) == ("filtered", True)
    assert "tables.exclude: 'shop.secret'" in why["text"]
    why = cli("explain", "s", "shop.t", "77")[1]["why"]
    assert [(w["kind"], w["address"]) for w in why if w["sure"]] == [("quarantined", offset(STORY.index(TORN)))]
    why = cli("explain", "s", "shop.odd", "1")[1]["why"]
    assert (why[0]["kind"], "frobnicate" in why[0]["text"]) == ("stopped", True)


def test_the_state_of_the_snapshot_is_told_where_the_row_is_there(cli: Any, feed: Feed) -> None:
    """Its exit code is that of a row that isn't as the changes have it."""
    code, told = cli("explain", "s", "shop.sack", "a=1")
    assert (code, told["added"], told["taken"], told["state"]) == (1, 1, 0, "stopped")
    assert [(w["kind"], w["sure"], "frobnicate" in w["text"]) for w in told["why"]] == [("stopped", True, True)]
    code, told = cli("explain", "s", "shop.worn", "1")
    assert (code, told["here"], told["agrees"], told["state"]) == (1, True, True, "stopped")
    assert [(w["kind"], w["sure"], "frobnicate" in w["text"]) for w in told["why"]] == [("stopped", True, True)]
    assert cli("explain", "s", "shop.worn", "1", "--at", "1")[0] == 0  # it was kept up then
    code, told = cli("explain", "s", "shop.bag", "a=1")
    assert (code, told["state"], [w["kind"] for w in told["why"]]) == (0, None, ["quarantined"])
    path = tables.TABLE_STATE.at(stores.lake(feed.config))
    for batch, (state, kind) in enumerate((("stale", "not applied"), ("left_out", "left out"), ("live", None)), 900):
        said = {"source": "s", "db": "shop", "table": "left", "batch": batch, "rebuild": 0, "state": state}
        delta_table.append_rows(path, [said])
        code, told = cli("explain", "s", "shop.left", "1")
        assert (code, told["here"], told["agrees"]) == (int(state != "live"), True, True)
        assert [w["kind"] for w in told["why"]] == [kind] * (state != "live")


def test_people_are_told_the_state_of_the_snapshot(cli: Any, feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    for name, key in (("shop.sack", "a=1"), ("shop.worn", "1")):
        assert run(["explain", "s", name, key]) == 1
        shown = capsys.readouterr().out
        assert "not kept up" in shown
        assert "the table is stopped" in shown


def test_what_is_on_its_way(cli: Any) -> None:
    code, told = cli("explain", "s", "shop.t", "8")
    assert (code, told["here"], [w["kind"] for w in told["why"]]) == (1, False, ["not applied"])
    code, told = cli("explain", "s", "shop.t", "9")
    assert (code, told["here"], told["why"][0]["kind"], told["why"][0]["sure"]) == (0, False, "not applied", True)
    code, told = cli("explain", "s", "shop.t", "12345")
    assert (code, told["here"], told["changes"]) == (0, False, [])
    assert "not landed" in [w["kind"] for w in told["why"]]  # there is no Kafka to ask


def test_the_last_writer_of_each_cell(cli: Any) -> None:
    code, told = cli("explain", "s", "shop.t", "id=1", "--sql")
    assert (code, told["here"], told["others"]) == (0, True, 1)
    assert {c["column"]: c["value"] for c in told["cells"]} == {"id": "1", "a": "2", "b": MARKUP}
    [change] = told["changes"]
    assert (change["address"], change["op"], change["decoder_version"]) == (offset(14), "update", "2")
    said = "UPDATE `shop`.`t` SET `id` = 1, `a` = 2, `b` = _utf8mb4 X'6127625C1B5B324A' WHERE `id` = 1;"
    assert change["sql"] == said
    told = cli("explain", "s", "shop.t", "1", "--all", "--column", "a")[1]
    assert [c["address"] for c in told["changes"]] == [offset(9), offset(14)]
    assert [c["column"] for c in told["cells"]] == ["a"]
    assert cli("explain", "s", "shop.t", "1", "--all", "--column", "A") == (0, told)


def test_at_a_time_and_at_a_cut(cli: Any, feed: Feed) -> None:
    told = cli("explain", "s", "shop.t", "1", "--at", at(15).isoformat())[1]
    assert (told["here"], told["row"]) == (True, row(id=1, a=1, b="first"))
    told = cli("explain", "s", "shop.t", "2", "--at", at(20).isoformat())[1]
    assert (told["here"], told["row"]["a"]) == (True, "2")
    assert [d.partition(":")[0] for d in told["doubts"]] == ["nothing tells up to when it is complete"]  # rows are held
    assert cli("explain", "s", "shop.emptied", "1", "--at", at(20).isoformat())[1]["doubts"] == []
    [doubt] = cli("explain", "s", "shop.emptied", "1", "--at", at(9_999).isoformat())[1]["doubts"]
    assert doubt.startswith("the table is complete up to ")
    assert doubt.endswith(f": changes of {when(at(9_999))} or before may still come")
    known = watermarks.complete(tables.WATERMARKS.at(stores.lake(feed.config)), "s")
    up_to = known and known.of(("shop", "emptied"))
    assert up_to
    assert len(cli("explain", "s", "shop.emptied", "1", "--at", up_to.isoformat())[1]["doubts"]) == 1
    before = (up_to - timedelta(milliseconds=1)).isoformat()
    assert cli("explain", "s", "shop.emptied", "1", "--at", before)[1]["doubts"] == []
    assert cli("explain", "s", "shop.secret", "1", "--at", at(9_999).isoformat())[1]["doubts"] == []  # it is left out
    assert cli("explain", "s", "shop.t", "2", "--at", at(30).isoformat())[1]["why"][0]["kind"] == "deleted"
    assert cli("explain", "s", "shop.t", "1", "--at", at(1).isoformat())[1]["why"][0]["kind"] == "never seen"
    told = cli("explain", "s", "shop.t", "1", "--at", "1")[1]
    assert (told["here"], told["agrees"], told["at"]["cut"]) == (True, True, 1)


def test_what_is_held_is_told_of_past_moments_by_when_it_could_have_been_there(cli: Any) -> None:
    held, story = "quarantined", STORY.index(HELD)
    for moment in (at(50).isoformat(), "1"):
        why = cli("explain", "s", "shop.t", "44", "--at", moment)[1]["why"]
        assert [(w["kind"], w["sure"], w["address"]) for w in why] == [(held, False, offset(story))]
    why = cli("explain", "s", "shop.t", "44", "--at", at(30).isoformat())[1]["why"]
    assert [(w["kind"], w["sure"]) for w in why] == [("never seen", True)]
    why = cli("explain", "s", "shop.t", "77", "--at", at(1).isoformat())[1]["why"]  # by when it was landed
    assert [(w["kind"], w["sure"], w["address"]) for w in why] == [(held, False, offset(STORY.index(TORN)))]
    told = cli("explain", "s", "shop.t", "5", "--at", at(50).isoformat())[1]
    assert (told["here"], [(w["kind"], w["sure"]) for w in told["why"]]) == (True, [(held, False)])


def test_keys_of_several_columns_and_none(cli: Any) -> None:
    code, told = cli("explain", "s", "shop.two", "x=1,y=a,b")
    assert (code, told["here"], told["key"]) == (0, True, {"x": "1", "y": "a,b"})
    code, told = cli("explain", "s", "shop.bag", "a=1,b=0")
    assert (code, told["added"], told["taken"], len(told["changes"])) == (0, 2, 1, 3)
    code, told = cli("explain", "s", "shop.bag", "a=1", "--sql")
    assert (told["added"], told["taken"]) == (3, 1)
    assert told["changes"][-1]["sql"] == "DELETE FROM `shop`.`bag` WHERE `a` = 1 AND `b` = 0 LIMIT 1;"
    assert [(w["kind"], w["sure"], w["text"].rpartition(": ")[2]) for w in told["why"]] == [
        ("quarantined", False, "no integer")
    ]
    code, told = cli("explain", "s", "shop.bag", "a=9")
    assert (code, told["added"], told["changes"]) == (0, 0, [])
    assert [(w["kind"], w["sure"]) for w in told["why"]] == [
        *(("quarantined", False), ("not decoded", False), ("not landed", False))
    ], "where no row is, what may be on its way is told, too"


def test_a_table_that_is_routed(cli: Any) -> None:
    code, told = cli("explain", "s", "shop_1.orders", "1")
    assert (code, told["here"], told["agrees"], told["snapshot"]) == (0, True, True, "shop.orders")
    assert told["origin"] == {"_cdc_db": "shop_1", "_cdc_table": "orders"}
    code, told = cli("explain", "s", "shop.orders", "1")
    assert (code, told["error"]["valid"]) == (2, ["shop_1.orders"])


@pytest.mark.parametrize(
    ("args", "key", "valid"),
    [
        (("nobody", "shop.t", "1"), "--source", "s"),
        (("s", "shop.tt", "1"), "DB.TABLE", "shop.t"),
        (("s", "shop.two", "1"), "KEY", "x=…,y=…"),
        (("s", "shop.two", "x=1"), "KEY", "x=…,y=…"),
        (("s", "shop.t", "name=1"), "KEY", None),
        (("s", "shop.t", "x"), "KEY", "id=7"),
        (("s", "shop.bag", "b=x"), "KEY", "b=7"),
        (("s", "shop.bag", "1"), "KEY", "a=…,b=…"),
        (("s", "shop.t", "1", "--at", "yesterday"), "--at", "2026-11-20T12:00:00Z"),
        (("s", "shop.t", "1", "--column", "c"), "--column", "a"),
    ],
)  # fmt: skip
def test_what_can_not_be_meant(cli: Any, args: tuple[str, ...], key: str, valid: str | None) -> None:
    code, told = cli("explain", *args)
    assert code == 2
    if key.startswith("--s"):
        assert str(valid) in str(told["error"])
        return
    assert told["error"]["key"] == key
    assert valid is None or valid in told["error"]["valid"]


def test_a_log_that_was_sent_again_repeats_stored_changes(feed: Feed) -> None:
    first = len(STORY)
    for n in range(5):
        message = Address("t", 0, first + n)
        [told] = events.outcomes(feed.config, feed.source, message, events.events_of(feed.config, feed.source, message))
        assert (told["outcome"], told["of"]) == ("duplicate", f"{offset(9 + n)} entry 0 row 0")


def test_records_that_were_lost_may_have_been_its(cli: Any, feed: Feed) -> None:
    """The last test of this lake: the ledger keeps what was lost, and it may have been any row's."""
    assert "lost" not in [w["kind"] for w in cli("explain", "s", "shop.t", "12345")[1]["why"]]
    path = tables.OFFSET_LEDGER.at(stores.lake(feed.config))
    lost = {"room": "landing", "batch": 9, "source": "s", "topic": "t", "partition": 0, "outcome": "lost"}
    delta_table.append_rows(path, [{**lost, "from_offset": 900, "to_offset": 902, "records": 3}])
    for moment in ((), ("--at", at(5).isoformat()), ("--at", "1")):  # when they were is not known
        why = cli("explain", "s", "shop.t", "12345", *moment)[1]["why"]
        assert [(w["sure"], w["text"]) for w in why if w["kind"] == "lost"] == [
            (False, "offsets of the source were lost before they were landed: t/0 900 to 902")
        ]
    assert "lost" in [w["kind"] for w in cli("explain", "s", "shop.bag", "a=1")[1]["why"]]
