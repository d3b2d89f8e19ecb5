"""Snapshots that a connector took again: which of them replace a table, and what is said of the others. No Spark."""

from typing import Any

import pytest

from cdc_platform.changelog.loads import loads
from cdc_platform.changelog.order_key import RECORD
from cdc_platform.changelog.schema import LOADED_AGAIN, TAKEN_AGAIN
from cdc_platform.changelog.schema_steps import schema_history
from cdc_platform.mysql.ddl import Statement
from cdc_platform.snapshots.schema.then import AtCut

COLUMNS = '[{"name": "id", "type": "int", "key": true}]'
NAME = ("shop", "t")
FIRST, SECOND = (1, 157), (9, 157)


def shape(place: tuple[int, int], at: str | None, end: str | None = None, table: str = "t", **more: Any) -> dict:
    """A column list of rows at a place, of a snapshot that was taken there or of the log (at None)."""
    info = [] if at is None else [("load", at), *([("load_end", end)] if end else [])]
    told = {"kind": "message", "db": "shop", "schema": None, "table": table, "columns": COLUMNS, "ddl": None}
    return {**told, "info": info, "order": (0, *place, 5, 0, 5), "address": (table, 0, place[0], 0), **more}


def made_up(sql: str, place: tuple[int, int], offset: int = 0) -> dict[str, Any]:
    told = {"kind": "ddl", "db": "shop", "ddl": sql, "info": [("snapshot", "true")]}
    where = {"binlog_file": f"b.{place[0]}", "binlog_pos": place[1]}
    return {**told, **where, "order": (0, *place, offset, 0, offset), "address": ("d", 0, offset, 0)}


def whole(place: tuple[int, int]) -> list[dict[str, Any]]:
    """Statements of a connector's own snapshot."""
    sql = ("DROP TABLE IF EXISTS `shop`.`t`", "DROP DATABASE IF EXISTS `shop`", "CREATE TABLE `t` (id int primary key)")
    return [made_up(text, place, i) for i, text in enumerate(sql)]


AGAIN = [shape(FIRST, "b.1:157"), shape((1, 300), None), shape(SECOND, "b.9:157"), shape(SECOND, "b.9:157", "table")]


@pytest.mark.parametrize(
    ("rows", "statements", "says_whole", "replaced", "said"),
    [
        (AGAIN[:2], whole(FIRST), False, False, None),
        (AGAIN, [*whole(FIRST), *whole(SECOND)], False, True, None),
        (AGAIN, whole(FIRST), False, False, "taken again (at b.9:157)"),  # the topic of schema changes isn't read
        (AGAIN, [*whole(FIRST), *whole(SECOND)[::2]], False, False, "taken again (at b.9:157)"),  # ad hoc
        (AGAIN, [], True, True, None),
        (AGAIN[:3], [], True, False, "taken again"),  # its last row hasn't come
        ([*AGAIN[:3], shape(SECOND, "b.9:157", "all", "u")], [], True, True, None),
        (AGAIN[:2], [*whole(FIRST), *whole(SECOND)], False, False, "sent no row of this one"),
        ([shape((1, 100), None), *AGAIN[2:]], [], False, False, "taken again"),  # rows of the log alone before it
        ([AGAIN[0], shape(FIRST, "b.1:157", "all")], whole(FIRST), False, False, None),
        (
            [shape((-1, 5), ""), shape((2, 4), None)],
            [made_up("CREATE TABLE t (id int)", (-1, 5))],
            True,
            False,
            "nothing",
        ),
    ],
)
def test_what_a_snapshot_does_to_the_table(rows, statements, says_whole, replaced, said) -> None:
    found = loads(rows, statements, whole=says_whole)
    assert [(s.order, s.ddl) for s in found.replaced] == replaced * 2 * [((0, *SECOND, -1, 0, 0), TAKEN_AGAIN)]
    texts = " ".join(found.said.get(("shop", "t"), []))
    assert said in texts if said else not texts


def test_rows_of_an_earlier_load_at_the_same_place_are_gone() -> None:
    """Each load's rows stand behind its columns, and before those of the next."""
    rows = [own(FIRST, "0.0", end=True), own(FIRST, "0.1", end=True, row=RECORD + 1)]
    history = schema_history(rows, lambda *_: [], loads=loads(rows, [], whole=False))
    steps = [(0, *FIRST, -1, row, 0) for row in (0, RECORD)]
    assert [c.until for c in history.upcasts(NAME)] == [*steps, None]
    assert [c.today for c in history.upcasts(NAME)] == [None, None, NAME]
    assert history.columns(NAME) == COLUMNS


def test_rows_from_before_a_snapshot_that_replaces_the_table_are_gone() -> None:
    found = loads(AGAIN, [*whole(FIRST), *whole(SECOND)], whole=False)
    history = schema_history(AGAIN, lambda *_: [], loads=found)
    assert [(c.until, c.today) for c in history.upcasts(("shop", "t"))][-2:] == [
        ((0, *SECOND, -1, 0, 0), None),
        (None, ("shop", "t")),
    ]
    assert history.exists(("shop", "t")) and history.columns(("shop", "t")) == COLUMNS


def own(place: tuple[int, int], number: str, *, end: bool = False, row: int = 1) -> dict[str, Any]:
    """A column list of a load of the platform's own."""
    info = [("load", f"b.1:157 (load {number})"), ("load_whole", "true")]
    info += [("load_end", "table")] if end else []
    order = (0, *place, -1, row, 0)
    return {**shape(place, None), "info": info, "order": order, "address": (":load", 0, place[0] + row - 1, 0)}


@pytest.mark.parametrize(
    ("rows", "replaced", "said"),
    [
        ([shape((1, 300), None), own(FIRST, "0.0"), own(SECOND, "0.0", end=True)], [FIRST], None),
        ([own(FIRST, "0.0"), own(SECOND, "0.0", end=True)], [FIRST], None),  # rows from before it may come yet
        ([shape((1, 100), None), own(FIRST, "0.0")], [], "`cdc-platform load` goes on"),
        ([own(FIRST, "0.0"), own(SECOND, "0.4", end=True)], [SECOND], None),  # a later one made it whole
    ],
)
def test_a_load_says_itself_that_it_is_whole(rows, replaced, said) -> None:
    found = loads(rows, [], whole=False)
    steps = [((0, *place, -1, 0, 0), LOADED_AGAIN) for place in replaced for _ in range(2)]
    assert [(s.order, s.ddl) for s in found.replaced] == steps
    assert all(s.order < r["order"] for s in found.replaced for r in rows if r["order"][1:3] in replaced and r["info"])
    texts = " ".join(found.said.get(("shop", "t"), []))
    assert said in texts if said else not texts


LAST = (0, *SECOND, -1, 1, 0)
"""Where the last rows of a load stand that began at FIRST."""


@pytest.mark.parametrize(
    ("place", "replaced"),
    [
        ((0, 1, 156, 9, 9, 9), False),
        ((0, *FIRST, -1, 1, 0), False),
        ((0, 5, 4, 0, 0, 0), False),
        ((0, *SECOND, -1, 0, 0, 0), False),
        (LAST, True),
        ((0, *SECOND, 0, 0, 0), True),
    ],
)
def test_a_load_takes_no_rows_away_until_its_last_ones_have_come(place, replaced) -> None:
    """As of a moment between its chunks it has brought some of the table's rows only."""
    rows = [shape((1, 100), None), own(FIRST, "0.0"), own(SECOND, "0.0", end=True)]
    history = schema_history(rows, lambda *_: [], loads=loads(rows, [], whole=False))
    then = history.until(place)
    gone = [c.until for c in then.upcasts(("shop", "t")) if c.today is None]
    assert gone == replaced * [(0, *FIRST, -1, 0, 0)]
    assert then.exists(("shop", "t")) and history.named_at(("shop", "t"), place) == ("shop", "t")


@pytest.mark.parametrize(("offset", "replaced"), [(8, False), (9, True)])
def test_at_a_cut_a_load_is_whole_when_its_last_record_had_come(offset, replaced) -> None:
    """Wherever the feed was in the log by then."""
    rows = [shape((1, 100), None), own(FIRST, "0.0"), own(SECOND, "0.0", end=True)]
    history = schema_history(rows, lambda *_: [], loads=loads(rows, [], whole=False))
    cut = AtCut({":load/0": offset, "t/0": 99}, (0, 99, 0, 0, 0, 0))
    assert bool(history.until(cut.rows, cut.came).steps) == replaced


def test_so_does_a_snapshot_that_a_connector_took_again() -> None:
    end = {"order": (0, *SECOND, 9, 0, 9)}
    rows = [*AGAIN[:3], AGAIN[3] | end]
    history = schema_history(rows, lambda *_: [], loads=loads(rows, [], whole=True))
    assert [bool(history.until((0, *SECOND, event, 0, 9)).steps) for event in (5, 8, 9)] == [False, False, True]


CASCADE = "create table t (id int, p int, constraint fk foreign key (p) references q (id) on delete cascade)"


@pytest.mark.parametrize("at", [(1, 100), (9, 400)], ids=["before the load", "behind it"])
@pytest.mark.parametrize("dropped", [None, "alter table t drop foreign key fk", "drop table t"])
def test_a_load_leaves_the_foreign_keys_of_its_table(at: tuple[int, int], dropped: str | None) -> None:
    rows = [shape((1, 90), None), own(SECOND, "0.0", end=True)]
    told = [made_up(CASCADE, (1, 80)), *([made_up(dropped, at)] if dropped else [])]
    every = sorted([*rows, *told], key=lambda r: r["order"])
    history = schema_history(every, loads=loads(rows, [], whole=False))
    assert bool(history.untold_rows(NAME)) == (dropped is None)
    beside = schema_history(rows, lambda *_: [], loads=loads(rows, [], whole=False))
    assert beside.untold_rows(NAME, [Statement("shop", CASCADE)]), "a connector told it in its snapshot"
