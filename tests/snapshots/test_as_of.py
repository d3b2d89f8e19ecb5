"""A table as it was: what is made at a cut is what the snapshot held then, in the columns and under the name it had;
at a time, what the log had come to."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.errors import NotReadable
from cdc_platform.explain import describe, row
from cdc_platform.explain.table import find, parse_key
from cdc_platform.formats import loaded
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.launch import log_followed
from cdc_platform.reading import moments
from cdc_platform.snapshots import as_of
from cdc_platform.snapshots.apply import staging
from cdc_platform.tables import Name
from tests.changelog.feed import Feed, position, read
from tests.lakes import store_at
from tests.snapshots.test_ddl import FIRST, OLD, SECOND, STORIES, ddl, truncate, versions

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
Rows = tuple[list[str], list[list[str]]]
"""Names of the columns, and the rows."""


def rows_at(path: str) -> Rows:
    table = read(path)
    names = [n for n in table.column_names if not n.startswith("_cdc_")]
    return names, sorted([repr(r[n]) for n in names] for r in table.to_pylist())


def as_it_was(feed: Feed, name: str, at: datetime | int | str, to: Path) -> tuple[Name, Rows]:
    named, made = as_of.make(feed.spark, feed.config, feed.source, ("shop", name), at, store_at(to))
    assert made.state == "live"
    return named, rows_at(str(to))


def kept(feed: Feed) -> dict[str, Rows]:
    states = {r["table"]: r["state"] for r in sorted(feed.rows(tables.TABLE_STATE), key=lambda r: r["batch"])}
    live = [t for t in states if feed.state("shop", t)[0] == "live"]
    return {t: rows_at(feed.target("shop", t).snapshot.uri()) for t in live}


@pytest.mark.thorough
@pytest.mark.parametrize("story", STORIES)
def test_at_each_cut_a_table_is_what_its_snapshot_was(spark: Any, make_config: Any, tmp_path: Path, story: str) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    at_cut: dict[int, dict[str, Rows]] = {}
    stated: list[Any] = []
    for event in STORIES[story][0]:
        if not isinstance(event, dict):  # the columns come with the first row that has them
            stated.append(event.stated() | {"lineage": "1"})
            continue
        feed.say(*stated, event)
        stated.clear()
        feed.catch_up()
        at_cut[max((c["cut"] for c in feed.rows(tables.CUTS)), default=0)] = kept(feed)
    compared = 0
    for cut, then in at_cut.items():
        for today in kept(feed):
            to = tmp_path / f"{cut} {today}"
            try:
                named, found = as_it_was(feed, today, cut, to)
            except NotReadable:
                assert cut == 0 or not then
                continue
            if named[-1] in then:
                assert found == then[named[-1]], (cut, today, named)
                compared += 1
    assert compared >= len(at_cut) // 2
    assert not list(Path(feed.config.lake, "_as_of").rglob("*.parquet"))


@pytest.mark.thorough
def test_at_a_time_a_table_is_what_the_log_had_come_to(spark: Any, make_config: Any, tmp_path: Path) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    of = lambda hour: {"source_time": NOON + timedelta(hours=hour)}  # noqa: E731
    new = versions("id bigint", "a int", "b varchar(9)", "c int")
    feed.say(
        OLD.stated() | {"lineage": "1"},
        FIRST | of(0),
        SECOND | of(1),
        OLD.update((1, 12), {"id": "1", "a": "1", "b": "x"}, {"id": "3", "a": "1", "b": "x"}, **of(2)),
        OLD.delete((1, 13), {"id": "2", "a": "2", "b": "y"}, **of(3)),
        ddl("ALTER TABLE t ADD c INT DEFAULT 5", 14, **of(4)),
        new.stated() | {"lineage": "1"},
        new.insert((1, 15), {"id": "4", "a": "4", "b": "z", "c": "6"}, **of(5)),
        *(e | of(6) for e in truncate("t", 16)),
        new.insert((1, 17), {"id": "9", "a": "9", "b": "z", "c": "9"}, **of(7)),
    )
    feed.catch_up()
    one, two, moved = ["1", "1", "'x'"], ["2", "2", "'y'"], ["3", "1", "'x'"]
    four, nine = ["4", "4", "'z'", "6"], ["9", "9", "'z'", "9"]
    expected = [[one], [one, two], [two, moved], [moved], [[*moved, "5"]], [[*moved, "5"], four], [], [nine]]
    for hour, rows in enumerate(expected):
        at = NOON + timedelta(hours=hour, minutes=hour * 7)
        _, (names, found) = as_it_was(feed, "t", at, tmp_path / f"{hour}")
        assert (names, found) == (["id", "a", "b", "c"][: 3 if hour < 4 else 4], sorted(rows)), at
    with pytest.raises(NotReadable, match="had nothing at 2026-11-20 11:59"):
        as_it_was(feed, "t", NOON - timedelta(minutes=1), tmp_path / "before")
    assert feed.live("shop", "t") == [{"id": 9, "a": 9, "b": "z", "c": 9}]


def test_behind_a_transaction_a_table_is_what_it_made(spark: Any, make_config: Any, tmp_path: Path) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    uuid = "3E11FA47-71CA-11E1-9E33-C80AA9429562"
    feed.say(
        OLD.stated() | {"lineage": "1"},
        FIRST | {"gtid": f"{uuid.lower()}:1", "source_time": NOON},
        OLD.update((1, 11), {"id": "1", "a": "1", "b": "x"}, {"id": "1", "a": "2", "b": "x"}, gtid=f"{uuid}:2"),
        SECOND | position(1, 12) | {"gtid": f"{uuid}:2"},
        OLD.delete((1, 13), {"id": "1", "a": "2", "b": "x"}, gtid=f"{uuid}:3"),
    )
    feed.catch_up()
    one, two = ["1", "1", "'x'"], ["2", "2", "'y'"]
    expected = [[one], [["1", "2", "'x'"], two], [two]]
    for number, rows in enumerate(expected, 1):
        gtid = moments.parse(feed.config, "s", f"{uuid}:{number}", "TIME|GTID|CUT", gtids=True).point
        assert as_it_was(feed, "t", gtid, tmp_path / f"{number}")[1][1] == rows
    lines: list[str] = []
    with log_followed(lines.append):
        as_it_was(feed, "t", gtid, tmp_path / "told")
    steps = ["looking which changes had come by then", "it is made from the changelog"]
    assert lines == [f"shop.t: {step}" for step in steps]
    with pytest.raises(NotReadable, match=f"no change of a transaction {uuid}:9"):
        moments.parse(feed.config, "s", f"{uuid}:9", "TIME|GTID|CUT", gtids=True)


@pytest.mark.thorough
def test_a_cut_has_the_ddl_that_came_by_a_topic_of_its_own(spark: Any, make_config: Any, tmp_path: Path) -> None:
    """Also what stands behind its newest row, and what came in an earlier batch than another cut's."""
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    alone = {"topic": "ddl", "partition": 0, "lineage": "1"}
    then: list[Rows] = []

    def catch_up() -> None:
        feed.catch_up()
        then.append(kept(feed)["t"])

    feed.say(OLD.stated() | {"lineage": "1"}, FIRST)
    catch_up()
    feed.say(ddl("alter table t add c int default 3", 20, offset=0, **alone))
    catch_up()
    feed.say(OLD.delete((1, 30), {"id": "1", "a": "1", "b": "x"}), SECOND | position(1, 31))
    catch_up()
    feed.say(ddl("alter table t drop column b", 40, offset=1, **alone))
    catch_up()
    assert [names for names, _ in then] == [["id", "a", "b"], *[["id", "a", "b", "c"]] * 2, ["id", "a", "c"]]
    for cut, rows in enumerate(then, 1):
        assert as_it_was(feed, "t", cut, tmp_path / f"{cut}")[1] == rows
    cuts = sorted(feed.rows(tables.CUTS), key=lambda c: c["cut"])
    assert [list(c["offsets"]) for c in cuts] == [["t/0"]] * 4  # by these alone transactions are counted
    assert [c["ddl_offsets"] for c in cuts] == [{}, {"ddl/0": 0}, {"ddl/0": 0}, {"ddl/0": 1}]


@pytest.mark.thorough
def test_a_table_without_a_key_and_partial_images(spark: Any, make_config: Any, tmp_path: Path) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    bag = versions("a int", "b varchar(9)", name="bag", keys=())
    feed.say(
        OLD.stated() | {"lineage": "1"}, bag.stated() | {"lineage": "1"}, FIRST,
        *(bag.insert((1, 11, n), {"a": "1", "b": "x"}) for n in range(3)),
    )  # fmt: skip
    feed.catch_up()
    feed.say(
        OLD.update((1, 20), {"id": "1"}, {"a": "7"}), OLD.update((1, 21), {"id": "1"}, {"b": "w"}),
        bag.delete((1, 22), {"a": "1", "b": "x"}),
    )  # fmt: skip
    feed.catch_up()
    feed.say(OLD.delete((1, 30), {"id": "1"}), bag.update((1, 31), {"a": "1", "b": "x"}, {"a": "2", "b": "x"}))
    feed.catch_up()
    cuts = sorted(c["cut"] for c in feed.rows(tables.CUTS))
    found = [[as_it_was(feed, t, cut, tmp_path / f"{cut}{t}")[1][1] for t in ("t", "bag")] for cut in cuts]
    assert found == [
        [[["1", "1", "'x'"]], [["1", "'x'"]] * 3],
        [[["1", "7", "'w'"]], [["1", "'x'"]] * 2],
        [[], [["1", "'x'"], ["2", "'x'"]]],
    ]


class Killed(BaseException):
    """No code catches it."""


@pytest.mark.thorough
def test_what_is_killed_or_refused_leaves_no_table(
    spark: Any, make_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    feed.say(OLD.stated() | {"lineage": "1"}, FIRST, SECOND)
    feed.catch_up()
    to = tmp_path / "then"

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as kill, pytest.raises(Killed):
        kill.setattr(staging, "discard", lambda *_: None)  # the process is gone
        kill.setattr(staging, "_put", killed)
        as_it_was(feed, "t", 1, to)
    assert list(to.glob("rebuild-*/*.parquet"))
    assert not DeltaTable.is_deltatable(str(to)), "nobody takes it for a table without rows"
    _, (_, rows) = as_it_was(feed, "t", 1, to)
    assert len(rows) == 2
    assert not list(to.glob("rebuild-*/_delta_log/*.json")), "what the killed one left"


def loaded_in_chunks() -> list[dict[str, Any]]:
    """Events of two chunks of a whole load of OLD's table, read an hour and two hours after NOON at positions 1000 and
    2000: rows 1 and 2, then 3."""
    columns = [loaded.Column(n, t, n in OLD.keys) for n, t in OLD.columns]
    of = {"load": "0.0", "kind": "whole", "server": {"id": "1"}, "db": OLD.db, "table": OLD.name, "columns": columns}
    records = []
    for hour, rows in ((1, [["1", "1", "x"], ["2", "7", "y"]]), (2, [["3", "3", "z"]])):
        at = loaded.LogPosition("mysql-bin.000001", 1000 * hour)
        time = int((NOON + timedelta(hours=hour)).timestamp()) * 1_000_000
        more = {"begin": "mysql-bin.000001:1000", "after": "t/0/1/0", "chunk": hour - 1, "last": hour == 2}
        records.append(loaded.encoded(loaded.Record(**of, **more, at=at, time_us=time, rows=rows)))
    messages = [
        {**dict.fromkeys(MESSAGE.names), "topic": tables.LOADED, "partition": 0, "offset": i, "value": r}
        for i, r in enumerate(records)
    ]
    events = loaded.decode(pa.RecordBatch.from_pylist(messages, MESSAGE)).to_pylist(maps_as_pydicts="strict")
    return [{k: v for k, v in e.items() if k not in ("headers", "landed_at")} for e in events]


@pytest.mark.thorough
def test_while_a_load_is_under_way_a_table_has_the_rows_from_before_it(
    spark: Any, make_config: Any, tmp_path: Path
) -> None:
    """Of a row that went while nobody read the log (9) and of one that no chunk had come to yet (3), too."""
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    first, second = ([e for e in loaded_in_chunks() if e["offset"] == i] for i in range(2))
    rows = [{"id": i, "a": i, "b": b} for i, b in (("1", "x"), ("2", "y"), ("3", "z"), ("9", "w"))]
    feed.say(OLD.stated(), *(OLD.insert((1, 10 + n), r, source_time=NOON) for n, r in enumerate(rows)))
    feed.catch_up()
    feed.say(*first)
    half = timedelta(hours=1, minutes=30)
    feed.say(
        OLD.update((1, 1500), {"id": "3", "a": "3", "b": "z"}, {"id": "3", "a": "4", "b": "z"}, source_time=NOON + half)
    )
    feed.catch_up()
    at_cut = {max(c["cut"] for c in feed.rows(tables.CUTS)): kept(feed)["t"]}
    feed.say(*second)
    feed.catch_up()
    at_cut[max(c["cut"] for c in feed.rows(tables.CUTS))] = kept(feed)["t"]
    one, two, three, nine = ["1", "1", "'x'"], ["2", "7", "'y'"], ["3", "3", "'z'"], ["9", "9", "'w'"]
    expected = {
        NOON: [one, ["2", "2", "'y'"], three, nine],
        NOON + timedelta(hours=1): [one, two, three, nine],
        NOON + half: [one, two, ["3", "4", "'z'"], nine],
        NOON + timedelta(hours=2): [one, two, three],
    }
    found = {at: as_it_was(feed, "t", at, tmp_path / f"{n}")[1][1] for n, at in enumerate(expected)}
    assert found == expected
    assert len(at_cut) == 2
    assert {cut: as_it_was(feed, "t", cut, tmp_path / f"cut {cut}")[1] for cut in at_cut} == at_cut


@pytest.mark.thorough
def test_before_an_online_schema_change_a_table_is_the_one_that_its_copy_replaced(
    spark: Any, make_config: Any, tmp_path: Path
) -> None:
    """As gh-ost and pt-osc do it: a copy beside the table, filled over hours, that takes its name at the end."""
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    of = lambda hour: {"source_time": NOON + timedelta(hours=hour)}  # noqa: E731
    columns = "id bigint", "a int", "b varchar(9)", "c int"
    ghost, new = versions(*columns, name="_t_gho"), versions(*columns)
    one, two = {"id": "1", "a": "1", "b": "x"}, {"id": "2", "a": "2", "b": "y"}
    feed.say(OLD.stated() | {"lineage": "1"}, FIRST | of(0), SECOND | of(1))
    feed.say(
        ddl("CREATE TABLE _t_gho LIKE t", 12, **of(3)),
        ddl("ALTER TABLE _t_gho ADD c INT", 13, **of(3)),
        ghost.stated() | {"lineage": "1"},
        ghost.insert((1, 20), {**one, "c": None}, **of(4)),
        ghost.insert((1, 22), {**two, "c": None}, **of(5)),
        ddl("RENAME TABLE t TO _t_del, _t_gho TO t", 30, **of(6)),
        ddl("DROP TABLE _t_del", 31, **of(6)),
        new.stated() | {"lineage": "1"},
        new.update((1, 40), {**one, "c": None}, {**one, "c": "5"}, **of(7)),
    )
    feed.catch_up()
    before = [["1", "1", "'x'"], ["2", "2", "'y'"]]
    for hour in (2, 4, 5):
        at = NOON + timedelta(hours=hour, minutes=1)
        named, (names, rows) = as_it_was(feed, "t", at, tmp_path / f"{hour}")
        assert (named, names, rows) == (("shop", "t"), ["id", "a", "b"], before)
        found = find(feed.config, feed.source, "shop.t")
        told = row.explain(feed.config, found, parse_key(found, "2", today=False), moments.Moment(time=at))
        assert describe.explained(feed.config, told, [], every=False, sql=False)["here"] is True
    after = [["1", "1", "'x'", "5"], ["2", "2", "'y'", "None"]]
    assert as_it_was(feed, "t", NOON + timedelta(hours=8), tmp_path / "8")[1] == (["id", "a", "b", "c"], after)
