"""Many tables of a batch brought up to date by one job: each gets what it would get by itself."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform.errors import StorageError
from cdc_platform.lake import commits, delta_table, metadata_commits, queries
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots import together as ways
from cdc_platform.snapshots.apply import prepare
from cdc_platform.snapshots.schema import features
from cdc_platform.snapshots.target import LOST
from tests.changelog.feed import LANDED, Feed, SourceTable, position

pytestmark = pytest.mark.spark

COLUMNS = [("id", "bigint"), ("note", "text"), ("price", "decimal(9,2)"), ("at", "datetime(3)")]
NAMES = [f"t{i}" for i in range(6)]
TABLES = {n: SourceTable("shop", n, COLUMNS) for n in NAMES}
THREE = NAMES[:3]
TABLES["t4"] = SourceTable("shop", "t4", COLUMNS, ("id", "note"))
TABLES["t5"] = SourceTable("shop", "t5", [("id", "varchar(9)"), *COLUMNS[1:]])


def row(key: int, n: int) -> dict[str, Any]:
    at = f"2026-01-0{1 + n % 9} 01:02:03"
    return {"id": str(key), "note": f"note {key % 3}", "price": f"{n}.50", "at": at}


@pytest.fixture
def feed(spark, make_config):
    return Feed(spark, make_config([{"name": "s", "format": "debezium", "topics": ["t"]}]), "s")


def first(names: list[str] = NAMES) -> list[dict[str, Any]]:
    return [e for n in names for e in (TABLES[n].stated(), *(TABLES[n].insert((1, i), row(i, i)) for i in range(9)))]


def updates(names: list[str]) -> list[dict[str, Any]]:
    """One row of each table becomes 7.50."""
    return [e for n in names for e in (TABLES[n].stated(), TABLES[n].update((2, 0), row(1, 1), row(1, 7)))]


def notes(feed: Feed, name: str) -> dict[Any, str]:
    return {r["id"]: str(r["price"]) for r in feed.live("shop", name)}


def truncate(table: SourceTable, at: tuple) -> dict[str, Any]:
    """As feeds tell it: no key, and no columns."""
    return {**table.change("truncate", at), "key": None, "schema_version": None}


def rounds(seed: int, truncates: float = 0.0) -> Iterator[list[dict[str, Any]]]:
    """Batches of inserts, updates, deletes and inserts of deleted keys, and TRUNCATEs (their share)."""
    made = random.Random(seed)
    live: dict[str, dict[int, dict[str, Any]]] = {n: {} for n in NAMES}
    for number in range(1, 5):
        events = [TABLES[n].stated() for n in NAMES]
        for at in range(90):
            table, key = TABLES[made.choice(NAMES)], made.randrange(12)
            rows, place, new = live[table.name], (number, at), row(key, at)
            if made.random() < truncates:
                events.append(truncate(table, place))
                rows.clear()
                continue
            if key not in rows:
                events.append(table.insert(place, new))
            elif made.random() < 0.4:
                events.append(table.delete(place, rows.pop(key)))
                continue
            else:
                events.append(table.update(place, rows[key], new))
            rows[key] = new
        yield events


def both_ways(
    events: list[dict[str, Any]],
    ours: Feed,
    alone: Feed,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str] = NAMES,
) -> None:
    """A batch of one feed's tables together, and of the other's one by one: what is kept is the same."""
    for feed in (ours, alone):
        feed.say(*events)
        feed.unify()
    ours.snapshot()
    with monkeypatch.context() as by_itself:
        by_itself.setattr(ways, "_FEW", 0)
        alone.snapshot()
    assert ours.kept("shop", names) == alone.kept("shop", names)


def test_where_all_tables_go_together_spark_reads_none_of_their_changes(spark, make_config, monkeypatch):
    feed = Feed(spark, make_config([{"name": "ours", "format": "debezium", "topics": ["ours"]}]), "ours")
    feed.say(*next(rounds(0)))
    feed.unify()
    monkeypatch.setattr("cdc_platform.spark.delta_sql.rows_of", lambda *_, **__: pytest.fail("a frame was made"))
    feed.snapshot()
    assert {feed.state("shop", name) for name in NAMES} == {("live", None)}


@pytest.mark.parametrize("small", [0, pytest.param(features.SMALL, marks=pytest.mark.thorough)])
def test_tables_together_get_what_each_gets_alone(spark, make_config, monkeypatch, together, small):
    monkeypatch.setattr(prepare.features, "SMALL", small)
    sources = [{"name": n, "format": "debezium", "topics": [n]} for n in ("ours", "alone")]
    config = make_config(sources)
    ours, alone = (Feed(spark, config, s["name"]) for s in sources)
    for events in rounds(small):
        both_ways(events, ours, alone, monkeypatch)
    assert together[::2] and together[0] == set(NAMES)
    assert together[2] == (set(NAMES) if small else set())  # a first vector is for Spark to allow
    assert together[-2] == set(NAMES)
    for name in NAMES:
        assert ours.state("shop", name) == alone.state("shop", name) == ("live", None)
    for told in queries.table_states(config):
        feed = ours if told["source"] == "ours" else alone
        assert told["rows"] == len(feed.live("shop", told["table"]))


@pytest.mark.thorough
def test_tables_that_were_truncated_get_together_what_each_gets_alone(spark, make_config, monkeypatch, together):
    sources = [{"name": n, "format": "debezium", "topics": [n]} for n in ("ours", "alone")]
    config = make_config(sources)
    ours, alone = (Feed(spark, config, s["name"]) for s in sources)
    late = [TABLES["t0"].stated(), TABLES["t0"].insert((1, 0), row(77, 1))]
    late += [e for n in NAMES[1:] for e in (TABLES[n].stated(), TABLES[n].insert((9, 1), row(77, 2)))]
    batches = [*rounds(7, truncates=0.1), [truncate(TABLES["t3"], (8, 0))], late]
    for events in batches:
        both_ways(events, ours, alone, monkeypatch)
    emptied = [{e["table"] for e in events if e.get("op") == "truncate"} for events in batches]
    assert all(some <= went for some, went in zip(emptied[:4], together[:8:2], strict=True))
    assert sum(map(len, emptied[:4])) >= 12
    assert not any(together[1::2])
    for name in NAMES:
        assert ours.state("shop", name) == alone.state("shop", name) == ("live", None)
        rows_of = {t["source"]: t["rows"] for t in queries.table_states(config) if t["table"] == name}
        assert rows_of["ours"] == rows_of["alone"] == len(ours.live("shop", name))


PARTITIONS = 3


def unplaced(seed: int) -> Iterator[list[dict[str, Any]]]:
    """Batches of changes without a position by several partitions, each key's by one but for some of t1; some batches
    begin in the second that the one before ended in."""
    made = random.Random(seed)
    live: dict[tuple[str, int], dict[str, Any]] = {}
    offsets, second = [0] * PARTITIONS, 0
    for number in range(5):
        events = [TABLES[n].stated() for n in NAMES]
        for i in range(60):
            name, key = made.choice(NAMES), made.randrange(9)
            old, new = live.get((name, key)), row(key, i)
            gone = old is not None and made.random() < 0.4
            if gone:
                change = TABLES[name].delete((None, None), live.pop((name, key)))
            else:
                live[name, key] = new
                change = TABLES[name].update((None, None), old, new) if old else TABLES[name].insert((None, None), new)
            strays = name == "t1" and number == 3 and made.random() < 0.5
            partition = (key + strays) % PARTITIONS
            offsets[partition] += 1
            second += made.random() < 0.1
            time = LANDED + timedelta(seconds=second)
            place = {"partition": partition, "offset": offsets[partition], "source_time": time}
            events.append({**change, **position(None, None, None), **place})
        second += number % 2
        yield events


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tables_by_several_partitions_get_together_what_each_gets_alone(
    spark, make_config, monkeypatch, together, seed
):
    sources = [{"name": n, "format": "canal_json", "topics": [n]} for n in ("ours", "alone")]
    config = make_config(sources)
    ours, alone = (Feed(spark, config, s["name"]) for s in sources)
    for events in unplaced(seed):
        both_ways(events, ours, alone, monkeypatch)
    others = set(NAMES) - {"t1"}
    assert together[0] == set(NAMES) and all(others <= done for done in together[2::2])
    for name in NAMES:
        assert ours.state("shop", name) == alone.state("shop", name)
        assert (ours.state("shop", name)[0] == "live") == (name in others)


@pytest.mark.parametrize(
    ("gone", "partition", "state"),
    [
        pytest.param(False, 0, "live", id="row"),
        pytest.param(True, 1, "stopped", id="tombstone, another partition"),
        pytest.param(True, 0, "live", id="tombstone", marks=pytest.mark.thorough),
        pytest.param(False, 1, "stopped", id="row, another partition", marks=pytest.mark.thorough),
    ],
)
def test_a_change_in_the_second_of_what_is_there(spark, make_config, together, gone, partition, state):
    feed = Feed(spark, make_config([{"name": "s", "format": "canal_json", "topics": ["t"]}]), "s")

    def say(*changes: dict[str, Any], partition: int, offset: int) -> None:
        for i, change in enumerate(changes):
            place = {"partition": partition, "offset": offset + i, "source_time": LANDED}
            feed.say({**change, **position(None, None, None), **place})

    table, at = TABLES["t0"], (None, None)
    say(table.stated(), table.insert(at, row(1, 1)), partition=0, offset=50)
    say(table.insert(at, row(2, 2)), partition=1, offset=0)
    if gone:
        say(table.delete(at, row(1, 1)), partition=0, offset=60)
    feed.catch_up()
    say(table.insert(at, row(1, 7)) if gone else table.update(at, row(1, 1), row(1, 7)), partition=partition, offset=70)
    feed.catch_up()
    assert feed.state("shop", "t0")[0] == state
    assert together == [{"t0"}, {"t0"} if state == "live" else set()]
    assert notes(feed, "t0").get(1) == ("7.50" if state == "live" else None if gone else "1.50")


@pytest.mark.thorough
def test_a_batch_is_one_commit_of_each_table_and_a_small_table_stays_one_file(feed, together):
    feed.say(*first(THREE))
    feed.catch_up()
    some = [TABLES[n] for n in THREE]
    for n in range(2, 6):
        feed.say(*(e for t in some for e in (t.stated(), t.update((n, 0), row(1, 1), row(1, n)))))
        feed.catch_up()
    assert together == [set(THREE)] * 5
    for name in THREE:
        table = DeltaTable(feed.target("shop", name).snapshot.uri())
        assert (table.version(), len(table.file_uris())) == (6, 1)  # one is what the feed cannot tell


@pytest.mark.thorough
def test_many_files_of_inserts_are_put_together_with_the_next_rows(feed, together, monkeypatch):
    monkeypatch.setattr(prepare, "MANY_FILES", 4)
    for n in range(1, 7):
        feed.say(TABLES["t0"].stated(), TABLES["t0"].insert((n, 0), row(n, n)))
        feed.catch_up()
        assert len(DeltaTable(feed.target("shop", "t0").snapshot.uri()).file_uris()) <= 4
    assert together == [{"t0"}] * 6
    assert notes(feed, "t0") == {n: f"{n}.50" for n in range(1, 7)}


@pytest.mark.thorough
def test_a_value_that_does_not_fit_stops_its_table_alone(feed, together):
    feed.say(*first(THREE))
    feed.catch_up()
    feed.say(*updates(THREE))
    feed.say(TABLES["t2"].stated(), TABLES["t2"].update((2, 1), row(2, 2), {**row(2, 2), "price": "12345678901.5"}))
    feed.catch_up()
    assert together[-1] == set(THREE) - {"t2"}
    assert feed.state("shop", "t2")[0] == "stopped"
    for name in together[-1]:
        assert feed.state("shop", name) == ("live", None)
        assert "7.50" in notes(feed, name).values()


@pytest.mark.thorough
def test_a_table_that_is_lost_is_stopped_alone_and_made_again_by_a_rebuild(feed, together):
    feed.say(*first())
    feed.catch_up()
    for name in ("t1", "t2"):
        shutil.rmtree(feed.target("shop", name).snapshot.uri())
    feed.say(*(e for n in ("t0", "t2") for e in (TABLES[n].stated(), TABLES[n].update((2, 0), row(1, 1), row(1, 7)))))
    feed.catch_up()
    assert [feed.state("shop", n) for n in ("t1", "t2")] == [("stopped", LOST)] * 2
    assert (feed.state("shop", "t0"), notes(feed, "t0")[1]) == (("live", None), "7.50")
    assert not delta_table.exists(feed.target("shop", "t2").snapshot), "its new rows alone would be a wrong table"
    assert feed.in_newest_cut() == [n for n in NAMES if n not in ("t1", "t2")]
    snapshots.rebuild(feed.spark, feed.config, feed.source, "shop", "t2")
    assert (feed.state("shop", "t2"), len(notes(feed, "t2")), notes(feed, "t2")[1]) == (("live", None), 9, "7.50")
    feed.catch_up()
    assert feed.in_newest_cut() == [n for n in NAMES if n != "t1"]


@pytest.mark.thorough
def test_a_file_that_cannot_be_written_is_its_tables_alone(feed, together, monkeypatch):
    feed.say(*first(THREE))
    feed.catch_up()
    kept = ways._prepared

    def prepared(work: Any, asked: Any) -> Any:
        found = kept(work, asked)
        if asked.touched.name[-1] == "t1" and found is not None:
            broken = [f._replace(file=type(f.file)(f.file.store, "gone.parquet")) for f in found.piece.files]
            return found._replace(piece=replace(found.piece, files=tuple(broken)))
        return found

    monkeypatch.setattr(ways, "_prepared", prepared)
    feed.say(*updates(THREE))
    feed.catch_up()
    assert together[-1] == set(THREE) - {"t1"}
    assert all(feed.state("shop", n) == ("live", None) and "7.50" in notes(feed, n).values() for n in THREE)


@pytest.mark.thorough
def test_a_run_killed_between_two_tables_of_a_batch_does_the_rest(feed, monkeypatch):
    feed.say(*first(THREE))
    feed.catch_up()
    some = [TABLES[n] for n in THREE]
    feed.say(*(e for t in some for e in (t.stated(), t.delete((2, 0), row(1, 1)), t.insert((2, 1), row(20, 20)))))
    feed.unify()
    kept, made = commits.commit, []

    def commit(*a: Any) -> bool:
        if len(made) == 2:
            raise StorageError("lake", "killed", retriable=True)
        made.append(a)
        return kept(*a)

    with monkeypatch.context() as killed, pytest.raises(StorageError):
        killed.setattr(commits, "commit", commit)
        feed.snapshot()
    assert {len(notes(feed, n)) for n in THREE} == {9}
    assert sorted("20.50" in notes(feed, n).values() for n in THREE) == [False] + [True] * 2
    feed.snapshot()
    for name in THREE:
        assert len(notes(feed, name)) == 9
        assert "20.50" in notes(feed, name).values()
        assert len(feed.tombstones("shop", name)) == 1


@pytest.mark.thorough
def test_another_commit_in_between_leaves_the_table_to_its_own_way(feed, together, monkeypatch):
    feed.say(*first(["t0", "t1"]))
    feed.catch_up()
    kept = ways._committed

    def committed(work: Any, prepared: Any, told: Any) -> Any:
        if prepared.asked.touched.name[-1] == "t0":
            metadata_commits.configure(feed.target("shop", "t0").snapshot, {"somebody": "was here"})
        return kept(work, prepared, told)

    monkeypatch.setattr(ways, "_committed", committed)
    feed.say(*(e for n in ("t0", "t1") for e in (TABLES[n].stated(), TABLES[n].update((2, 0), row(1, 1), row(1, 7)))))
    feed.catch_up()
    assert together[-1] == {"t1"}
    assert "7.50" in notes(feed, "t0").values()


@pytest.mark.thorough
def test_what_was_older_than_what_is_there_and_new_columns_go_their_own_way(feed, together):
    feed.say(*first(["t0", "t1", "t2"]))
    feed.catch_up()
    more = SourceTable("shop", "t1", [*COLUMNS, ("more", "int")])
    late = TABLES["t0"].update((0, 5), row(1, 1), row(1, 7))
    feed.say(TABLES["t0"].stated(), late, TABLES["t2"].stated(), TABLES["t2"].update((2, 0), row(1, 1), row(1, 7)))
    feed.say(more.stated(), more.update((2, 1), {**row(1, 1), "more": None}, {**row(1, 7), "more": "3"}))
    feed.catch_up()
    assert "t1" not in together[-1]
    assert "t2" in together[-1]
    assert [r["more"] for r in feed.live("shop", "t1") if r["id"] == 1] == [3]


@pytest.mark.thorough
def test_a_table_whose_vectors_somebody_forbade_goes_on(feed, spark, together, monkeypatch):
    monkeypatch.setattr(features, "SMALL", 0)
    feed.say(*first(["t0", "t1"]))
    feed.catch_up()
    for n in (2, 3):
        feed.say(
            *(e for t in ("t0", "t1") for e in (TABLES[t].stated(), TABLES[t].update((n, 0), row(n, n), row(n, 7))))
        )
        feed.catch_up()
    path = feed.target("shop", "t0").snapshot.uri()
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    feed.say(*(e for t in ("t0", "t1") for e in (TABLES[t].stated(), TABLES[t].update((4, 0), row(4, 4), row(4, 7)))))
    feed.catch_up()
    assert together[-1] == {"t1"}
    for name in ("t0", "t1"):
        assert sorted(k for k, price in notes(feed, name).items() if price == "7.50") == [2, 3, 4, 7]
