"""Tables loaded from a real MariaDB into a lake that a real broker feeds: equal to SELECT, whatever the feed lacks."""

import tempfile
from pathlib import Path

import pytest

from cdc_platform import tables
from cdc_platform.cli.app import run as command
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.loading import run
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.run import load
from tests.loading.world import DSN_ENV, NAME, Database
from tests.oracle import server
from tests.oracle.tables import TABLES

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(600)]

KINDS = (
    "(k enum('z','a','m%') NOT NULL, s set('x','y') NOT NULL, c varchar(8) COLLATE utf8mb4_general_ci NOT NULL, n int, "
    "PRIMARY KEY (k, c, s))"
)
FLOATS = "(f float NOT NULL, b bit(9) NOT NULL, t timestamp(3) NOT NULL DEFAULT '2026-01-01', PRIMARY KEY (f, b, t))"
ITEMS = "(id int NOT NULL PRIMARY KEY, name varchar(40), price decimal(10,2), at datetime(3))"


@pytest.mark.thorough
@pytest.mark.parametrize("format", ["debezium", "canal", "tencent_dts"])
def test_a_topic_that_began_late(world, format):
    w = world(format)
    name = f"late_{format}"
    w.db.create(name, ITEMS)
    w.db.run(*(f"INSERT INTO {name} VALUES ({i}, 'n{i}', {i}.50, '2026-01-01 00:00:00.5')" for i in range(40)))
    w.skip()
    w.db.run(f"UPDATE {name} SET name = 'new' WHERE id < 5", f"DELETE FROM {name} WHERE id = 7")
    w.publish()
    w.catch_up()
    assert w.problems(name)
    [done] = load(w.spark, w.config, w.source, w.server, [("oracle", name)], chunk_rows=10)
    assert (done.rows, done.chunks, done.state) == (39, 4, "live")
    assert w.problems(name) == []
    assert all(row["unaccounted"] == 0 for row in w.ledger())
    w.db.run(f"UPDATE {name} SET price = 1 WHERE id = 30", f"INSERT INTO {name} VALUES (100, 'x', 0, NULL)")
    w.publish()
    w.catch_up()
    assert w.problems(name) == []


@pytest.mark.parametrize("format", ["debezium", pytest.param("canal", marks=pytest.mark.thorough)])
def test_changes_that_pass_meanwhile_win(world, format, monkeypatch):
    """A writer between the views of the chunks; what it does comes before the load, after it, or never."""
    w = world(format)
    name = f"busy_{format}"
    w.db.create(name, ITEMS)
    w.db.run(*(f"INSERT INTO {name} VALUES ({i}, 'n{i}', {i}, NULL)" for i in range(60)))
    w.publish(lambda tx: any(c.table.name == name and c.after and c.after["id"] % 7 == 3 for c in tx.events))
    w.db.run(f"DELETE FROM {name} WHERE id IN (20, 41)")
    w.publish(lambda tx: bool(tx.events))  # lost deletes
    w.catch_up()
    turns = iter(range(100))

    def writes(view, sql, read=run.read):
        n = next(turns)
        w.db.run(
            f"UPDATE {name} SET price = price + 1000 WHERE id % 5 = {n % 5}",
            f"DELETE FROM {name} WHERE id IN ({n}, {59 - n})",
            f"INSERT INTO {name} VALUES ({200 + n}, 'late', 1, NULL), ({-1 - n}, 'early', 2, NULL)",
            f"UPDATE {name} SET id = id + 1000 WHERE id = {30 + n}",
        )
        if n == 2:
            w.publish()  # the feed is ahead of some chunks, and behind of others
        return read(view, sql)

    monkeypatch.setattr(run, "read", writes)
    load(w.spark, w.config, w.source, w.server, [("oracle", name)], chunk_rows=9)
    path = tables.RECONCILIATIONS.at(stores.lake(w.config))
    assert delta_table.ask('SELECT "table", against FROM {t}', t=path) == [{"table": name, "against": "load"}]
    w.publish()
    w.catch_up()
    assert w.problems(name) == []
    assert all(row["unaccounted"] == 0 for row in w.ledger())


@pytest.mark.thorough
def test_a_table_that_was_never_loaded_and_a_lost_delete(world):
    """Of a table that the feed never told of, and one of which it lost a delete and an insert; every type."""
    w = world("tencent_dts")
    w.db.create("seen", ITEMS)
    w.db.run(*(f"INSERT INTO seen VALUES ({i}, 'n{i}', {i}, NULL)" for i in range(5)))
    w.publish()
    for name, definition in {**TABLES, "kinds": KINDS, "float_keys": FLOATS}.items():
        w.db.create(name, definition)
        for _ in range(12):
            w.db.insert_random(name)
    names = [*TABLES, "kinds", "float_keys"]
    w.skip()
    w.db.run("DELETE FROM seen WHERE id = 3", "INSERT INTO seen VALUES (9, 'lost', 1, NULL)")
    w.skip()
    w.catch_up()
    assert w.problems("seen") != []
    done = load(w.spark, w.config, w.source, w.server, [("oracle", n) for n in ["seen", *names]], chunk_rows=3)
    assert [one.warning is None for one in done] == [True, *[False] * len(names)]
    assert w.problems("seen", *names) == []
    w.db.run("UPDATE numbers SET t = 1 LIMIT 3", "UPDATE texts SET c = 'x' LIMIT 2", "DELETE FROM bytes LIMIT 1")
    w.publish()
    w.catch_up()
    assert w.problems("seen", *names) == []


def test_a_log_that_tells_a_part_of_rows_is_refused(world):
    w = world("canal")
    w.db.create("in_parts", ITEMS)
    w.db.run("INSERT INTO in_parts VALUES (1, 'a', 1, NULL)", "SET GLOBAL binlog_row_image = 'MINIMAL'")
    w.publish()
    try:
        with pytest.raises(LoadRefused, match="binlog_row_image is MINIMAL"):
            load(w.spark, w.config, w.source, w.server, [("oracle", "in_parts")])
    finally:
        w.db.run("SET GLOBAL binlog_row_image = 'FULL'")
    assert [row for row in w.ledger() if row["topic"] == tables.LOADED] == []
    [done] = load(w.spark, w.config, w.source, w.server, [("oracle", "in_parts")])
    assert (done.rows, w.problems("in_parts")) == (1, [])


def test_a_feed_without_places_is_refused(world):
    w = world("canal_json")
    w.db.create("bare_feed", ITEMS)
    w.db.run("INSERT INTO bare_feed VALUES (1, 'a', 1, NULL)")
    w.publish()
    w.catch_up()
    with pytest.raises(LoadRefused, match="tell no place in the server's log") as refused:
        load(w.spark, w.config, w.source, w.server, [("oracle", "bare_feed")])
    assert refused.value.choices
    assert w.problems("bare_feed") == []


def test_a_misspelled_table_is_refused_before_spark_is_started(world, monkeypatch, capsys):
    def started(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("cdc_platform.spark.session.open_session", started)
    w = world("tencent_dts")
    w.db.create("spelled", ITEMS)
    for asked, said in (
        ("oracle.speled", "oracle.spelled"),
        ("orcale.spelled", "doesn't follow it"),
        ("spelled", "db.table"),
    ):
        assert command(["load", NAME, "oracle.spelled", asked, "--config", str(w.file)]) != 0
        assert said in (told := capsys.readouterr().err)
        assert "Spark was started" not in told


def test_of_several_tables_none_lands_where_one_is_refused(world):
    w = world("tencent_dts")
    w.db.create("with_key", ITEMS)
    w.db.create("keyless", "(id int, name varchar(9)) ENGINE=Aria")
    w.db.create("unique_only", "(id int NOT NULL UNIQUE, name varchar(9))")
    w.db.run("INSERT INTO with_key VALUES (1, 'a', 1, NULL)")
    w.publish()
    w.catch_up()
    before = w.ledger()
    with pytest.raises(LoadRefused, match=r"keyless has no primary key, .* of Aria no view can be had"):
        load(w.spark, w.config, w.source, w.server, [("oracle", "with_key"), ("oracle", "keyless")])
    with pytest.raises(LoadRefused, match="unique_only has no primary key, and a unique index"):
        load(w.spark, w.config, w.source, w.server, [("oracle", "with_key"), ("oracle", "unique_only")])
    assert w.ledger() == before
    w.catch_up()
    assert w.ledger() == before, "nor was anything landed that the next run accounts for"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("format", "again"),
    [
        ("canal", False),
        *(pytest.param(f, True, marks=pytest.mark.thorough) for f in ("canal", "debezium", "tencent_dts")),
    ],
)
def test_a_table_without_a_key_is_read_in_one_view(world, format, again, monkeypatch):
    """A writer beside the view: what it does while rows are read is in none of them, and comes by the feed; so does
    what the feed hadn't come to before. again: and loaded twice more."""
    w = world(format)
    name = f"bag_{format}_{again}"
    w.db.create(name, "(a int, b varchar(9), d decimal(6,2))")
    w.db.run(*(f"INSERT INTO {name} VALUES ({i % 4}, 'n{i % 2}', 1.5), (NULL, NULL, NULL)" for i in range(12)))
    w.publish(lambda tx: any(c.table.name == name and c.after and c.after["a"] == 3 for c in tx.events))
    w.db.run(f"DELETE FROM {name} WHERE a = 2 LIMIT 1")
    w.publish(lambda tx: bool(tx.events))  # a lost delete
    w.catch_up()
    assert w.problems(name)
    w.db.run(f"INSERT INTO {name} VALUES (7, 'behind', 1)", f"DELETE FROM {name} WHERE a = 1 LIMIT 1")

    def writes(view, sql, rows, pieces_of=run.pieces_of):
        for n, piece in enumerate(pieces_of(view, sql, rows)):
            w.db.run(
                f"INSERT INTO {name} VALUES (0, 'n0', 1.5), ({100 + n}, 'late', 2)",
                f"DELETE FROM {name} WHERE a IS NULL LIMIT 1",
                f"UPDATE {name} SET d = d + 1 WHERE a = 0 LIMIT 1",
            )
            if n == 1:
                w.publish()  # the feed is ahead of the view
            yield piece

    with monkeypatch.context() as patched:
        patched.setattr(run, "pieces_of", writes)
        [done] = load(w.spark, w.config, w.source, w.server, [("oracle", name)], chunk_rows=5)
    assert (done.rows, done.chunks, done.state) == (23, 5, "live")
    w.publish()
    w.catch_up()
    assert w.problems(name) == []
    assert all(row["unaccounted"] == 0 for row in w.ledger())
    if not again:
        return
    [done] = load(w.spark, w.config, w.source, w.server, [("oracle", name)], chunk_rows=1000)
    assert (done.chunks, w.problems(name)) == (1, [])
    w.db.run("SET sql_log_bin = 0", f"DELETE FROM {name} WHERE a = 7", "SET sql_log_bin = 1")
    [third] = load(w.spark, w.config, w.source, w.server, [("oracle", name)], chunk_rows=1000)
    assert third.first == done.first, "nothing stands in the log since"
    assert third.load != done.load
    assert w.problems(name) == []


@pytest.mark.thorough
def test_of_a_table_without_a_key_an_interrupted_load_landed_nothing(world, monkeypatch):
    w = world("canal")
    w.db.create("bag_cut", "(a int, b varchar(9))")
    w.db.run(*(f"INSERT INTO bag_cut VALUES ({i % 3}, 'x')" for i in range(9)))
    w.publish()
    w.catch_up()

    def ends(view, sql, rows, pieces_of=run.pieces_of):
        yield next(pieces_of(view, sql, rows))
        raise KeyboardInterrupt

    before = w.ledger()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(run, "pieces_of", ends)
        load(w.spark, w.config, w.source, w.server, [("oracle", "bag_cut")], chunk_rows=4)
    w.catch_up()
    assert (w.ledger(), w.problems("bag_cut")) == (before, [])
    [done] = load(w.spark, w.config, w.source, w.server, [("oracle", "bag_cut")], chunk_rows=4)
    assert (done.rows, done.resumed, w.problems("bag_cut")) == (9, False, [])


@pytest.mark.thorough
def test_before_the_first_change_nothing_tells_the_log(world):
    w = world("canal")
    w.db.create("nothing_yet", ITEMS)
    w.skip()
    with pytest.raises(LoadRefused, match="no change has come") as refused:
        load(w.spark, w.config, w.source, w.server, [("oracle", "nothing_yet")])
    assert refused.value.retriable


@pytest.mark.thorough
def test_another_server_is_refused(world, tmp_path_factory, monkeypatch):
    w = world("debezium")
    w.db.create("elsewhere_too", ITEMS)
    w.db.run("INSERT INTO elsewhere_too VALUES (1, 'a', 1, NULL)")
    w.publish()
    with tempfile.TemporaryDirectory(prefix="other") as folder, server.running(Path(folder)) as running:
        other = Database(running)
        other.create("elsewhere_too", ITEMS)
        other.run(*(f"INSERT INTO elsewhere_too VALUES ({i}, 'n{i}', {i}, NULL)" for i in range(300)))
        monkeypatch.setenv(DSN_ENV, other.dsn)
        with pytest.raises(LoadRefused, match="it has another log"):
            load(w.spark, w.config, w.source, w.server, [("oracle", "elsewhere_too")])
    assert w.problems("elsewhere_too") == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("within_s", "resumed"), [(run._GOES_ON_S, True), pytest.param(0, False, marks=pytest.mark.thorough)]
)
def test_an_interrupted_load_goes_on(world, monkeypatch, within_s, resumed):
    monkeypatch.setattr(run, "_GOES_ON_S", within_s)
    w = world("canal")
    name = f"cut_off_{resumed}"
    w.db.create(name, ITEMS)
    w.db.run(*(f"INSERT INTO {name} VALUES ({i}, 'n{i}', {i}, NULL)" for i in range(30)))
    w.publish()
    w.catch_up()
    w.db.run(f"DELETE FROM {name} WHERE id IN (2, 25)", f"UPDATE {name} SET price = 7 WHERE id IN (3, 26)")
    w.skip()
    turns = iter(range(100))

    def dies(view, sql, read=run.read):
        if next(turns) == 2:
            raise KeyboardInterrupt
        return read(view, sql)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run, "read", dies)
        load(w.spark, w.config, w.source, w.server, [("oracle", name)], chunk_rows=8)
    w.catch_up()
    told = w.problems(name)
    assert len(told) == 3, told  # the rows it came to are right, and none was taken away
    [done] = load(w.spark, w.config, w.source, w.server, [("oracle", name)], chunk_rows=8)
    assert (done.resumed, done.rows) == (resumed, 28)
    kept = queries.query("SELECT against FROM t", t=tables.RECONCILIATIONS.at(stores.lake(w.config)))
    assert len(kept or []) == int(not resumed), "some rows of one that went on had been read earlier"
    assert w.problems(name) == []
