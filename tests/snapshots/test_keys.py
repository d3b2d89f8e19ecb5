"""Keys of tables that change: with a statement that tells it, before the rows or after them, and with none."""

from typing import Any

import pytest

from cdc_platform.lake import looks, metadata_commits
from cdc_platform.tables import HISTORY_PATH, KEY, TABLE_STATE
from tests.changelog.feed import Feed, SourceTable, position, read
from tests.explain.agreement import of_every_row

pytestmark = pytest.mark.spark

COLUMNS = [("id", "int"), ("ref", "int"), ("v", "int")]


def table(name: str, *keys: str, columns: Any = COLUMNS) -> SourceTable:
    return SourceTable("d", name, columns, keys)


def row(*cells: int, names: tuple[str, ...] = ("id", "ref", "v")) -> dict[str, str | None]:
    return dict(zip(names, map(str, cells), strict=True))


def ddl(sql: str, pos: int, **rest: Any) -> dict[str, Any]:
    return {"kind": "ddl", "db": "d", "ddl": sql, **position(1, pos), **rest}


def feed_of(spark: Any, make_config: Any, **rules: Any) -> Feed:
    told = {"format": "canal", "topics": ["t"], "tables": {"include": ["d.*"], **rules}}
    return Feed(spark, make_config([{"name": "s", **told}]), "s")


def rows_of(feed: Feed, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in feed.live("d", name))


def key_of(feed: Feed, name: str) -> str | None:
    look = looks.look(feed.target("d", name).snapshot)
    assert look is not None
    return look.properties.get(KEY)


def made_anew(feed: Feed, name: str) -> bool:
    return any(r["rebuild"] for r in feed.rows(TABLE_STATE) if r["table"] == name)


def test_another_key_that_no_statement_tells_makes_the_table_anew(spark: Any, make_config: Any) -> None:
    """Rows and tombstones of the two keys never mix, and nothing else waits."""
    feed = feed_of(spark, make_config)
    grown, moved, lost, other = (table(n, "id") for n in ("grown", "moved", "lost", "other"))
    feed.say(
        *(t.stated() for t in (grown, moved, lost, other)),
        *(grown.insert((1, 100 + i), row(i, 10 * i, 1)) for i in (1, 2, 3)),
        grown.delete((1, 110), row(3, 30, 1)),
        moved.insert((1, 111), row(7, 70, 1)),
        moved.insert((1, 112), row(1, 10, 1)),
        moved.delete((1, 130), row(7, 70, 1)),
        *(lost.insert((1, 130 + i), row(i, 10 * i, 1)) for i in (1, 2, 3)),
        other.insert((1, 140), row(1, 1, 1)),
    )
    feed.catch_up()
    assert (rows_of(feed, "grown"), key_of(feed, "grown")) == ([(1, 10, 1), (2, 20, 1)], '["id"]')
    uid = ("uid", "id", "ref", "v")
    grown_by, moved_to = table("grown", "id", "ref"), table("moved", "ref")
    lost_to = table("lost", "uid", columns=[("uid", "int"), *COLUMNS])
    both, both_now = table("both", "id"), table("both", "ref")
    feed.say(
        *(t.stated() for t in (grown_by, moved_to, lost_to, both, both_now)),
        grown_by.insert((1, 200), row(4, 40, 1)),
        grown_by.delete((1, 201), row(2, 20, 1)),
        moved_to.update((1, 202), row(1, 10, 1), row(2, 10, 2)),
        moved_to.insert((1, 120), row(8, 7, 1), partition=1),  # it was held: a row with 7 in the other key was deleted
        lost_to.update((1, 203), row(2, 2, 20, 1, names=uid), row(2, 2, 20, 2, names=uid)),
        both.insert((1, 204), row(1, 10, 1)),
        both_now.update((1, 205), row(1, 10, 1), row(2, 10, 2)),
        other.update((1, 206), row(1, 1, 1), row(1, 1, 2)),
    )
    feed.catch_up()
    assert rows_of(feed, "grown") == [(1, 10, 1), (4, 40, 1)]
    assert rows_of(feed, "moved") == [(2, 10, 2), (8, 7, 1)]
    assert rows_of(feed, "both") == [(2, 10, 2)]
    assert rows_of(feed, "other") == [(1, 1, 2)]
    assert feed.state("d", "lost") == ("stopped", "3 changes come without a key value")
    assert [key_of(feed, n) for n in ("grown", "moved", "other")] == ['["id", "ref"]', '["ref"]', '["id"]']
    assert [made_anew(feed, n) for n in ("grown", "moved", "both", "other")] == [True, True, False, False]
    feed.say(
        grown.insert((1, 115), row(5, 50, 1), partition=1),  # held, and told by the earlier key
        grown_by.delete((1, 210), row(4, 40, 1)),
        both_now.delete((1, 211), row(2, 10, 2)),
    )
    feed.catch_up()
    assert (rows_of(feed, "grown"), rows_of(feed, "both")) == ([(1, 10, 1), (5, 50, 1)], [])
    assert [feed.state("d", n)[0] for n in ("grown", "moved", "both", "other")] == ["live"] * 4
    explained, wrong = of_every_row(feed.config, feed.source)
    assert (explained > 3, wrong) == (True, [])


def test_a_statement_that_comes_after_the_rows_tells_what_they_lacked(spark: Any, make_config: Any) -> None:
    feed = feed_of(spark, make_config)
    before, now = table("t", "id"), table("t", "id", "place", columns=[*COLUMNS, ("place", "int")])
    late, named = table("late"), table("late", "id")
    names = ("id", "ref", "v", "place")
    feed.say(
        before.stated(), before.insert((1, 100), row(1, 10, 1)), late.stated(), late.insert((1, 101), row(1, 1, 1))
    )
    feed.catch_up()
    feed.say(
        now.stated(),
        now.insert((1, 200), row(1, 10, 1, 6, names=names)),
        named.stated(),
        named.update((1, 201), row(1, 1, 1), row(1, 1, 2)),
    )
    feed.catch_up()
    assert feed.state("d", "t") == ("stopped", "1 changes come without a key value")
    assert (feed.state("d", "late")[0], rows_of(feed, "late")) == ("live", [(1, 1, 2)])
    feed.say(
        ddl(
            "ALTER TABLE t ADD place INT NOT NULL DEFAULT 5, DROP PRIMARY KEY, ADD PRIMARY KEY (id, place)",
            150,
            partition=1,
        ),
        ddl("ALTER TABLE late ADD PRIMARY KEY (id)", 151, partition=1),
    )
    feed.catch_up()
    assert (feed.state("d", "t")[0], rows_of(feed, "t")) == ("live", [(1, 10, 1, 5), (1, 10, 1, 6)])
    assert (feed.state("d", "late")[0], rows_of(feed, "late")) == ("live", [(1, 1, 2)])


def test_tables_that_keep_their_key_are_not_made_anew(spark: Any, make_config: Any) -> None:
    """Whether the key has got another name, the snapshot is of an earlier version, or its columns come in any case."""
    feed = feed_of(spark, make_config)
    named, old, bare = table("named", "id"), table("old", "id"), table("bare")
    feed.say(
        *(t.stated() for t in (named, old, bare)),
        *(t.insert((1, 100 + i), row(1, 1, 1)) for i, t in enumerate((named, old, bare))),
        *(t.insert((1, 110 + i), row(2, 2, 2)) for i, t in enumerate((named, old, bare))),
        *(t.delete((1, 120 + i), row(2, 2, 2)) for i, t in enumerate((named, old))),
    )
    feed.catch_up()
    for name in ("old", "bare"):
        assert metadata_commits.configure(feed.target("d", name).snapshot, {KEY: None})
    feed.say(ddl("ALTER TABLE named RENAME COLUMN id TO number", 200))
    feed.catch_up()
    columns = [("number", "int"), *COLUMNS[1:]]
    renamed, names = table("named", "number", columns=columns), ("number", "ref", "v")
    feed.say(
        renamed.stated(),
        renamed.update((1, 210), row(1, 1, 1, names=names), row(1, 1, 5, names=names)),
        *(t.insert((1, 211 + i), row(3, 3, 3)) for i, t in enumerate((old, bare))),
    )
    feed.catch_up()
    assert [key_of(feed, n) for n in ("named", "old", "bare")] == ['["number"]', '["id"]', "[]"]
    assert rows_of(feed, "named") == [(1, 1, 5)]
    assert rows_of(feed, "old") == [(1, 1, 1), (3, 3, 3)]
    assert rows_of(feed, "bare") == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    assert not any(made_anew(feed, n) for n in ("named", "old", "bare"))


@pytest.mark.thorough
def test_a_key_that_comes_back_without_a_statement_is_the_tables_again(spark: Any, make_config: Any) -> None:
    """Also where each of several tables is, and of a source that has statements of others; one that tells the key
    behind the rows holds."""
    feed = feed_of(spark, make_config)
    names = ("one", "two", "told")
    before, meanwhile = ({n: table(n, key) for n in names} for key in ("id", "ref"))
    feed.say(
        ddl("CREATE TABLE other (id INT PRIMARY KEY)", 90),
        *(t.stated() for t in before.values()),
        *(t.insert((1, 100 + i), row(1, 10, 1)) for i, t in enumerate(before.values())),
    )
    feed.catch_up()
    feed.say(
        *(t.stated() for t in meanwhile.values()),
        *(t.insert((1, 200 + i), row(2, 20, 1)) for i, t in enumerate(meanwhile.values())),
    )
    feed.catch_up()
    assert [key_of(feed, n) for n in names] == ['["ref"]'] * 3
    feed.say(
        *(t.insert((1, 300 + i), row(3, 20, 1)) for i, t in enumerate(before.values())),
        ddl("ALTER TABLE told DROP PRIMARY KEY, ADD PRIMARY KEY (ref, v)", 400, partition=1),
    )
    feed.catch_up()
    assert [rows_of(feed, n) for n in ("one", "two")] == [[(1, 10, 1), (2, 20, 1), (3, 20, 1)]] * 2
    assert [key_of(feed, n) for n in names] == ['["id"]', '["id"]', '["ref", "v"]']
    made = [r["rebuild"] for r in feed.rows(TABLE_STATE) if r["table"] == "one"]
    feed.say(*(before[n].insert((1, 500 + i), row(4, 20, 1)) for i, n in enumerate(("one", "two"))))
    feed.catch_up()
    assert [rows_of(feed, n)[-1] for n in ("one", "two")] == [(4, 20, 1)] * 2
    assert max(r["rebuild"] for r in feed.rows(TABLE_STATE) if r["table"] == "one") == max(made), "it is made no more"


@pytest.mark.thorough
def test_a_snapshot_of_an_earlier_version_shows_its_key_by_its_tombstones(spark: Any, make_config: Any) -> None:
    feed = feed_of(spark, make_config)
    before, now = table("t", "id"), table("t", "id", "ref")
    feed.say(before.stated(), before.insert((1, 100), row(1, 10, 1)), before.delete((1, 110), row(1, 10, 1)))
    feed.catch_up()
    assert metadata_commits.configure(feed.target("d", "t").snapshot, {KEY: None})
    feed.say(now.stated(), now.insert((1, 200), row(1, 10, 2)), now.delete((1, 210), row(2, 20, 2)))
    feed.catch_up()
    assert (feed.state("d", "t"), rows_of(feed, "t")) == (("live", None), [(1, 10, 2)])
    assert (made_anew(feed, "t"), key_of(feed, "t")) == (True, '["id", "ref"]')


@pytest.mark.thorough
def test_a_key_that_the_configuration_gives_from_now_on(spark: Any, make_config: Any) -> None:
    feed = feed_of(spark, make_config)
    told = table("t", "id")
    feed.say(told.stated(), *(told.insert((1, 100 + i), row(i, 10 * i, 1)) for i in (1, 2, 3)))
    feed.catch_up()
    feed.config = feed_of(spark, make_config, keys={"d.t": ["ref"]}).config
    feed.say(told.update((1, 200), row(1, 10, 1), row(1, 10, 2)), told.delete((1, 201), row(3, 30, 1)))
    feed.catch_up()
    assert (feed.state("d", "t"), rows_of(feed, "t")) == (("live", None), [(1, 10, 2), (2, 20, 1)])
    assert key_of(feed, "t") == '["ref"]'


@pytest.mark.thorough
def test_the_zeros_of_a_key_that_is_a_float_are_one_row(spark: Any, make_config: Any) -> None:
    """An update from one to the other moves no row, and the row is as the source spells it."""
    feed = feed_of(spark, make_config, history=["d.whole"])
    columns = [("k", "double"), ("v", "int"), ("w", "int")]
    whole, part = table("whole", "k", columns=columns), table("part", "k", columns=columns)
    feed.say(
        whole.stated(),
        part.stated(),
        whole.insert((1, 100), {"k": "0.0", "v": "1", "w": "1"}),
        whole.insert((1, 101), {"k": "1.5", "v": "1", "w": "1"}),
        part.insert((1, 102), {"k": "-0.0", "v": "1", "w": "1"}),
    )
    feed.catch_up()
    feed.say(
        whole.update((1, 200), {"k": "0.0", "v": "1", "w": "1"}, {"k": "-0.0", "v": "2", "w": "1"}),
        whole.update((1, 201), {"k": "1.5", "v": "1", "w": "1"}, {"k": "2.5", "v": "1", "w": "1"}),
        part.update((1, 202), {"k": "-0.0"}, {"k": "0.0", "v": "2"}),
    )
    feed.catch_up()
    assert [feed.state("d", n)[0] for n in ("whole", "part")] == ["live", "live"]
    assert list(map(repr, rows_of(feed, "whole"))) == ["(-0.0, 2, 1)", "(2.5, 1, 1)"]
    assert list(map(repr, rows_of(feed, "part"))) == ["(0.0, 2, 1)"]
    versions = read(HISTORY_PATH.of(feed.config.lake, "s", ("d", "whole"))).to_pylist()
    ends = sorted((str(r["k"]), r["v"], r["_cdc_order_to"] is None) for r in versions)
    assert ends == [("-0.0", 2, True), ("0.0", 1, False), ("1.5", 1, False), ("2.5", 1, True)]
    assert of_every_row(feed.config, feed.source) == (3, [])
