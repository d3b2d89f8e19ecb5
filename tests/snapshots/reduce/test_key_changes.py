"""Key changes of which the feed tells the keys and what else changed, as with binlog_row_image=MINIMAL."""

import random
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.config import parse_config
from tests.changelog.feed import Feed, Image, SourceTable
from tests.snapshots.reduce.test_fold import PARTIAL, PartialOracle, in_order

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

COLUMNS = [("id", "int"), ("v", "varchar(9)"), ("n", "int")]
MOVED, UNKNOWN, EMPTIED, GROWN = (SourceTable("m", n, COLUMNS) for n in ("moved", "unknown", "emptied", "grown"))
GROWN_MORE = SourceTable("m", "grown", [*COLUMNS, ("more", "text")])
TABLES = (MOVED, UNKNOWN, EMPTIED, GROWN)


class MinimalOracle(PartialOracle):
    """Updates hold only what changed, deletes only the key; every fourth key change holds only the two keys."""

    def told_move(self, old: Image, new: Image) -> dict[str, Any]:
        if self.random.random() < 0.75:
            return super().told_move(old, new)
        keys = self.table.keys
        return self.table.update(self._at(), {k: old[k] for k in keys}, {k: new[k] for k in keys})


def whole(id_: int, v: str | None, n: int | None) -> dict[str, str | None]:
    return {"id": str(id_), "v": v, "n": None if n is None else str(n)}


def move(table: SourceTable, at: int, old: int, new: int, **changed: str | None) -> dict[str, Any]:
    return table.update((1, at), {"id": str(old)}, {"id": str(new), **changed})


def partly(table: SourceTable, at: int, id_: int, **changed: str | None) -> dict[str, Any]:
    return table.update((1, at), {"id": str(id_)}, changed)


def rows(feed: Feed, table: str) -> list[dict[str, Any]]:
    return sorted(feed.live("m", table), key=lambda r: r["id"])


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Feed:
    folder = tmp_path_factory.mktemp("moves")
    source = {"name": "m", "format": "canal", "topics": ["t"]}
    feed = Feed(spark, parse_config({"lake": str(folder / "lake"), "sources": [source]}, folder / "cdc.yaml"), "m")
    feed.say(
        *(t.stated() for t in TABLES),
        *(t.insert((1, 10), whole(9, "stays", 9)) for t in TABLES),
        *(MOVED.insert((1, 20 + i), whole(i, f"v{i}", i)) for i in (1, 2, 3, 4)),
        EMPTIED.insert((1, 20), whole(1, "v1", 1)),
        GROWN.insert((1, 20), whole(1, "v1", 1)),
    )
    feed.unify()
    feed.snapshot()
    return feed


def test_the_rest_of_the_row_is_what_it_held_under_its_old_key(world: Feed) -> None:
    world.say(
        partly(MOVED, 100, 1, v="new"),
        move(MOVED, 101, 1, 11),
        partly(MOVED, 102, 11, n=None),
        move(MOVED, 103, 11, 21, v=None),
        move(MOVED, 104, 21, 31, n="7"),
        # two rows exchange their keys through a third
        move(MOVED, 110, 2, 50),
        move(MOVED, 111, 3, 2),
        move(MOVED, 112, 50, 3, n="33"),
        # and one comes back to where it was
        move(MOVED, 120, 4, 44),
        move(MOVED, 121, 44, 4),
        move(EMPTIED, 122, 77, 78),
        EMPTIED.change("truncate", (1, 123)),
        EMPTIED.insert((1, 124), whole(5, "later", 5)),
        move(EMPTIED, 125, 5, 6),
        move(GROWN, 126, 1, 2),
        GROWN_MORE.stated(),
        GROWN_MORE.insert((1, 130), {**whole(3, "v3", 3), "more": "m"}),
        move(UNKNOWN, 140, 1, 2, v="?"),
    )
    world.unify()
    world.snapshot()
    assert rows(world, "moved") == [
        {"id": 2, "v": "v3", "n": 3},
        {"id": 3, "v": "v2", "n": 33},
        {"id": 4, "v": "v4", "n": 4},
        {"id": 9, "v": "stays", "n": 9},
        {"id": 31, "v": None, "n": 7},
    ]
    assert rows(world, "emptied") == [{"id": 6, "v": "later", "n": 5}]
    assert rows(world, "grown") == [
        {"id": 2, "v": "v1", "n": 1, "more": None},
        {"id": 3, "v": "v3", "n": 3, "more": "m"},
        {"id": 9, "v": "stays", "n": 9, "more": None},
    ]
    assert [world.state("m", t)[0] for t in ("moved", "emptied", "grown")] == ["live"] * 3


def test_a_row_that_no_earlier_change_tells_stops_its_table(world: Feed) -> None:
    state, reason = world.state("m", "unknown")
    assert state == "stopped"
    assert (
        reason
        and "1 changes change a key with a partial row image, and no earlier change tells the whole row" in reason
    )


def test_a_late_change_reaches_the_row_under_the_key_it_went_on_to(world: Feed) -> None:
    world.say(partly(MOVED, 105, 31, v="after"), {**partly(MOVED, 25, 2, v="late"), "partition": 1})
    world.unify()
    world.snapshot()
    now = {r["id"]: r for r in rows(world, "moved")}
    assert now[3] == {"id": 3, "v": "late", "n": 33}
    assert now[31] == {"id": 31, "v": "after", "n": 7}
    assert world.state("m", "moved") == ("live", None)


def test_snapshot_equals_changes_applied_in_order(spark: Any, tmp_path: Path) -> None:
    oracle = MinimalOracle(PARTIAL, 3)
    for _ in range(500):
        oracle.step()
    source = {"name": "m", "format": "debezium", "topics": ["t"], "max_bytes_per_batch": "1"}
    feed = Feed(spark, parse_config({"lake": str(tmp_path / "lake"), "sources": [source]}, tmp_path / "cdc.yaml"), "m")
    feed.say(PARTIAL.stated())
    for events in in_order(oracle.changes, random.Random(4)):
        feed.say(*events)
    feed.unify()
    feed.snapshot()
    assert feed.state("f", "partial") == ("live", None)
    assert oracle.by_key(feed.live("f", "partial")) == oracle.expected()
