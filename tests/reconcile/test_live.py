"""Snapshots against a real MariaDB and against exports of it. The snapshots are written by hand: what the chain
should have made of these rows, and what it should not."""

import csv
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from cdc_platform.cli.app import run
from cdc_platform.config import Config, Tables, load_config
from cdc_platform.definitions import build
from cdc_platform.lake import stores
from cdc_platform.lake.store import Store
from cdc_platform.reconcile import live
from cdc_platform.reconcile.columns import pair
from cdc_platform.reconcile.result import TableResult
from cdc_platform.reconcile.run import against_export, against_server
from cdc_platform.reconcile.server import Dsn, Server, dsn_from
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import delta
from cdc_platform.tables import RECONCILIATIONS, SNAPSHOT_PATH, TABLE_STATE
from tests.reconcile import server as database
from tests.rows import add

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

D, UTCTIME = Decimal, {"tzinfo": UTC}
BIG = "12345678901234567890123456789012345.123456789012345678901234567890"
POINT = bytes.fromhex("E6100000" + "0101000000000000000000F03F0000000000000040")
ALL_TYPES: list[tuple[str, str, str, list[tuple[str, Any]]]] = [
    # column, MySQL type, Spark type, (SQL of a value, what a snapshot holds)
    ("id", "bigint unsigned", "decimal(20,0)", [("18446744073709551615", D(2**64 - 1)), ("1", D(1)), ("2", D(2))]),
    ("i8", "tinyint", "tinyint", [("-128", -128), ("0", 0), ("NULL", None)]),
    ("flag", "tinyint(1)", "boolean", [("1", True), ("0", False), ("NULL", None)]),
    ("z", "int(9) zerofill", "bigint", [("42", 42), ("0", 0), ("4294967295", 2**32 - 1)]),
    ("de", "decimal(12,4)", "decimal(12,4)", [("-1.5", D("-1.5")), ("0", D(0)), ("99999999.9999", D("99999999.9999"))]),
    ("dz", "decimal(8,2) zerofill", "decimal(8,2)", [("0.5", D("0.50")), ("0", D(0)), ("70", D(70))]),
    ("d65", "decimal(65,30)", "string", [(BIG, BIG), ("-0.5", "-0.5"), ("0", "0." + "0" * 30)]),
    (
        "f",
        "float",
        "float",
        [("0.1", 0.1), ("-3.4028234e38", -3.4028234663852886e38), ("1.4e-45", 1.401298464324817e-45)],
    ),
    ("db", "double", "double", [("1e23", 1e23), ("5e-324", 5e-324), ("-123456789012345680", -123456789012345680.0)]),
    ("b1", "bit(1)", "boolean", [("1", True), ("0", False), ("NULL", None)]),
    ("b64", "bit(64)", "decimal(20,0)", [("18446744073709551615", D(2**64 - 1)), ("0", D(0)), ("5", D(5))]),
    ("y", "year", "smallint", [("0", 0), ("2155", 2155), ("1901", 1901)]),
    (
        "dt",
        "date",
        "date",
        [("'0000-00-00'", None), ("'0001-01-01'", date(1, 1, 1)), ("'0000-05-05'", None)],
    ),
    (
        "dm",
        "datetime(6)",
        "timestamp_ntz",
        [
            ("'2026-02-30 01:02:03.5'", None),
            ("'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999)),
            ("'2024-02-29 00:00:00'", datetime(2024, 2, 29)),
        ],
    ),
    (
        "ts",
        "timestamp(3) null",
        "timestamp",
        [
            ("'0000-00-00 00:00:00'", None),
            ("'2026-01-01 00:00:00.12'", datetime(2026, 1, 1, 0, 0, 0, 120000, **UTCTIME)),
            ("'1970-01-01 00:00:01'", datetime(1970, 1, 1, 0, 0, 1, **UTCTIME)),
        ],
    ),
    ("tm", "time(6)", "string", [("'-838:59:59'", "-838:59:59"), ("'00:00:00.5'", "00:00:00.500000"), ("NULL", None)]),
    ("c", "char(5)", "string", [("'a,b '", "a,b"), ("''", ""), ("NULL", None)]),
    ("g", "text charset gbk", "string", [("'中文'", "中文"), ("'N'", "N"), ("NULL", None)]),
    ("l", "text charset latin1", "string", [("'é'", "é"), ("'!'", "!"), ("' '", " ")]),
    ("u", "mediumtext", "string", [("'🙂\\0\\n'", "🙂\0\n"), ("'\"\\\\'", '"\\'), ("'NULL'", "NULL")]),
    ("en", "enum('','a,b','c''d')", "string", [("'a,b'", "a,b"), ("'c''d'", "c'd"), ("''", "")]),
    ("se", "set('x','y z')", "string", [("'x,y z'", "x,y z"), ("''", ""), ("NULL", None)]),
    ("js", "json", "string", [("'{\"a\": 1.10}'", '{"a": 1.10}'), ("NULL", None), ("'[]'", "[]")]),
    ("bn", "binary(3)", "binary", [("X'00'", b"\0\0\0"), ("X'ff00ff'", b"\xff\0\xff"), ("NULL", None)]),
    ("bl", "longblob", "binary", [(f"X'{bytes(range(256)).hex()}'", bytes(range(256))), ("''", b""), ("NULL", None)]),
    ("ge", "geometry", "binary", [("ST_GeomFromText('POINT(1 2)', 4326)", POINT), ("NULL", None), ("NULL", None)]),
    ("ip", "inet6", "string", [("'::1'", "::1"), ("NULL", None), ("'ff::2'", "ff::2")]),
]
WRONG = "CREATE TABLE shop.wrong (name VARCHAR(20), n DECIMAL(6,2), `_k` INT, `a``b` TEXT, PRIMARY KEY (name, n))"
WRONG_SPARK = "name STRING, n DECIMAL(6,2), _k INT, `a``b` STRING"
AT_SOURCE = [("a", "1.00", 1, "same"), ("A'", "1.00", 2, "was"), ("é", "2.50", 3, ""), ("gone", "0.00", 4, None)]
IN_SNAPSHOT = [("a", D("1"), 1, "same"), ("A'", D("1"), 2, "is"), ("é", D("2.5"), 3, None), ("ghost", D("0"), 4, None)]


class World:
    """A lake, its configuration, a database."""

    def __init__(self, spark: Any, config: Config, db: database.Server, server: Server):
        self.spark, self.config, self.db, self.server = spark, config, db, server
        self.source = config.source("shop")

    def path(self, table: str) -> Store:
        return SNAPSHOT_PATH.at(stores.lake(self.config), source="shop", db="shop", table=table)

    def snapshot(self, table: str, columns: str, rows: list[tuple]) -> None:
        """Write a snapshot as its present rows; it counts as followed."""
        given = self.spark.createDataFrame([(*r, "order") for r in rows], f"{columns}, _cdc_order STRING")
        options = {"delta.columnMapping.mode": "name", "overwriteSchema": "true"}
        given.coalesce(1).write.format("delta").mode("overwrite").options(**options).save(self.path(table).uri())
        state = {"source": "shop", "db": "shop", "table": table, "batch": 0, "rebuild": 0, "state": "live"}
        add(self.config.lake, TABLE_STATE, state)

    def compare(self, table: str, **how: Any) -> TableResult:
        return against_server(self.spark, self.config, self.source, self.server, ("shop", table), **how)[0]


@pytest.fixture(scope="module")
def world(spark: Any, mariadb: database.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("reconcile")
    (folder / "cdc.yaml").write_text(
        "lake: ./lake\nkafka: {bootstrap.servers: 'h:1'}\nspark: {master: 'local[2]'}\nsources:\n"
        "  - {name: shop, format: debezium, topics: [a], tables: {include: ['shop.*'], exclude: ['*.lagging']},\n"
        "     reconcile: {dsn_env: SHOP_DSN, wait_s: 0}}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_DSN", mariadb.dsn)
        made = World(spark, load_config(folder / "cdc.yaml"), mariadb, Server(dsn_from("SHOP_DSN")))
        _fill(made)
        yield made


def _fill(world: World) -> None:
    types = ", ".join(f"{n} {t}" for n, t, _, _ in ALL_TYPES)
    values = ["(" + ", ".join(v[i][0] for *_, v in ALL_TYPES) + ")" for i in range(3)]
    world.db.run(
        "CREATE DATABASE shop",
        f"CREATE TABLE shop.all_types ({types}, PRIMARY KEY (id))",
        f"INSERT INTO shop.all_types VALUES {', '.join(values)}",
        WRONG,
        "CREATE TABLE shop.unseen (id INT PRIMARY KEY)",
        "CREATE TABLE shop.no_key (a INT, b TEXT, v INT AS (a + 1) VIRTUAL, newer INT)",
        "INSERT INTO shop.no_key (a, b) VALUES (1, 'x'), (1, 'x'), (2, 'y')",
    )
    for name, n, k, text in AT_SOURCE:
        world.db.run(f"INSERT INTO shop.wrong VALUES ({_sql(name)}, {n}, {k}, {_sql(text)})")
    spark_types = ", ".join(f"{n} {s}" for n, _, s, _ in ALL_TYPES)
    world.snapshot("all_types", spark_types, [tuple(v[i][1] for *_, v in ALL_TYPES) for i in range(3)])
    world.snapshot("wrong", WRONG_SPARK, IN_SNAPSHOT)
    world.snapshot("no_key", "a INT, b STRING, older INT", [(1, "x", None), (2, "y", None)])


def _sql(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def test_equal_values_of_all_types_are_equal(world: World) -> None:
    result = world.compare("all_types")
    wrong = [c for d in result.differences for c in d.cells if c.differs]
    assert (wrong, result.problems, result.equal) == ([], [], True)
    assert (result.expected_rows, result.actual_rows, result.null_dates) == (3, 3, 4)
    assert result.not_compared == {}
    assert result.position and result.position["exact"] and result.position["file"] == "mysql-bin.000001"
    assert result.position["gtid"].startswith("0-7-")


def test_one_changed_cell_of_any_type_is_found(world: World) -> None:
    """Every column in turn gets the value of another row: as many differences, each in its own column."""
    path = world.path("all_types")
    table = live.Table(
        world.server,
        "shop",
        "all_types",
        pair(world.server.columns("shop", "all_types"), dict(delta_sql.read(world.spark, path).dtypes)),
        lambda: (0, delta_sql.read(world.spark, path)),
    )
    names = [n for n, *_ in ALL_TYPES[1:]]
    right = delta_sql.read(world.spark, path).where("id = 1").first().asDict()
    other = delta_sql.read(world.spark, path).where("id <> 1").orderBy("id").collect()
    rows = [{**right, "id": D(i), n: next(o[n] for o in other if o[n] != right[n])} for i, n in enumerate(names, 10)]
    schema = delta_sql.read(world.spark, path).schema
    world.db.run(
        "CREATE TABLE shop.one_cell LIKE shop.all_types",
        *(
            f"INSERT INTO shop.one_cell SELECT {i}, {', '.join(names)} FROM shop.all_types WHERE id = 1"
            for i in range(10, 10 + len(names))
        ),
    )
    wrong = world.spark.createDataFrame([tuple(r[f.name] for f in schema.fields) for r in rows], schema)
    result = TableResult("shop.one_cell")
    table = live.Table(world.server, "shop", "one_cell", table.pairing, lambda: (0, wrong))
    live.compare(world.spark, table, result, 0, 100)
    found = {d.key["id"]: [c.column for c in d.cells if c.differs] for d in result.differences}
    assert found == {str(i): [n] for i, n in enumerate(names, 10)}
    assert (result.changed, result.missing, result.extra) == (len(names), 0, 0)
    world.db.run("DROP TABLE shop.one_cell")


def test_all_tables_by_the_command(world: World, capsys: Any) -> None:
    assert run(["reconcile", "shop", "--config", str(world.config.file), "--json"]) == 1
    out, err = capsys.readouterr()
    data = json.loads(out)
    tables = {t["table"]: t for t in data["tables"]}
    assert {n: t["equal"] for n, t in tables.items()} == {
        "shop.all_types": True,
        "shop.no_key": False,
        "shop.unseen": False,
        "shop.wrong": False,
    }
    assert not data["equal"]
    kept = {r["table"]: r for r in DeltaTable(RECONCILIATIONS.at(world.config.lake)).to_pyarrow_table().to_pylist()}
    assert {t: (r["equal"], r["rows"]) for t, r in kept.items() if t == "all_types"} == {"all_types": (True, 3)}
    assert (kept["all_types"]["binlog_file"], len(kept["all_types"]["digest"])) == ("mysql-bin.000001", 64)
    assert kept["wrong"]["differing"] > 0 and not kept["wrong"]["equal"]
    assert "unseen" not in kept, "it has no snapshot"
    assert tables["shop.unseen"]["problems"] == ["there is no snapshot of it"]
    wrong = tables["shop.wrong"]
    assert (wrong["missing"], wrong["extra"], wrong["changed"]) == (1, 1, 2)
    found = {d["key"]["name"]: d for d in wrong["differences"]}
    assert {n: (d["kind"], d["expected_rows"], d["actual_rows"]) for n, d in found.items()} == {
        "A'": ("changed", 1, 1),
        "é": ("changed", 1, 1),
        "gone": ("missing", 1, 0),
        "ghost": ("extra", 0, 1),
    }
    cells = {n: {c["column"]: (c["expected"], c["actual"], c["differs"]) for c in d["cells"]} for n, d in found.items()}
    assert cells["A'"]["a`b"] == ("was", "is", True)
    assert cells["A'"]["_k"] == ("2", "2", False)
    assert cells["é"]["a`b"] == ("", None, True)
    assert cells["gone"]["_k"] == ("4", None, True)
    assert cells["ghost"]["_k"] == (None, "4", True)
    assert all(secret not in out + err for secret in (world.db.dsn, database.PASSWORD, "p%40ss", database.USER))
    no_key = tables["shop.no_key"]
    assert no_key["problems"] == ["column 'newer' is not in the snapshot", "column 'older' is not at the source"]
    assert list(no_key["not_compared"]) == ["v"]
    assert [(d["kind"], d["expected_rows"], d["actual_rows"]) for d in no_key["differences"]] == [("repeated", 2, 1)]


@pytest.mark.thorough
def test_what_the_chain_catches_up_with_or_the_source_changed_since_is_no_difference(world: World) -> None:
    """Key 1 arrives late, 2 is changed at the source after the view, 3 stays wrong."""
    world.db.run("CREATE TABLE shop.lagging (id INT PRIMARY KEY, v TEXT)")
    world.db.run("INSERT INTO shop.lagging VALUES (1, 'a'), (2, 'a'), (3, 'a')")
    columns = {"id": "int", "v": "string"}
    states = [
        [],  # before the view
        [(2, "a2"), (3, "b")],
        [(1, "a"), (2, "a2"), (3, "b")],
    ]
    looks = iter(range(99))

    def snapshot() -> tuple[int, Any]:
        look = next(looks)
        if look == 1:  # the view is closed
            world.db.run("UPDATE shop.lagging SET v = 'a2' WHERE id = 2")
        return look, world.spark.createDataFrame(states[min(look, 2)], "id INT, v STRING")

    pairing = pair(world.server.columns("shop", "lagging"), columns)
    result = TableResult("shop.lagging")
    live.compare(world.spark, live.Table(world.server, "shop", "lagging", pairing, snapshot), result, 10, 20)
    assert (result.missing, result.extra, result.changed, result.moved) == (0, 0, 1, 0), (
        "the snapshot has what 2 is now"
    )
    assert [d.key for d in result.differences] == [{"id": "3"}]
    assert result.version is not None and result.version >= 2


@pytest.mark.thorough
def test_rows_that_the_server_changes_all_the_time_are_not_judged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of heartbeats whose feed is dead, and one whose feed is behind by one beat."""
    monkeypatch.setattr(live, "_PAUSE_S", 0)
    world.db.run("CREATE DATABASE beats", "CREATE TABLE beats.hot (id INT PRIMARY KEY, n INT)")
    world.db.run("INSERT INTO beats.hot VALUES (1, 0), (2, 0)")
    pairing = pair(world.server.columns("beats", "hot"), {"id": "int", "n": "int"})

    def compared(behind: int | None) -> TableResult:
        looks = iter(range(99))

        def snapshot() -> tuple[int, Any]:
            look = next(looks)
            if look:
                world.db.run("UPDATE beats.hot SET n = n + 1")
            [(n,)] = world.db.run("SELECT n FROM beats.hot WHERE id = 1")
            rows = [] if behind is None else [(1, n - behind), (2, n - behind)]
            return look, world.spark.createDataFrame(rows, "id INT, n INT")

        result = TableResult("beats.hot")
        live.compare(world.spark, live.Table(world.server, "beats", "hot", pairing, snapshot), result, 0, 20)
        return result

    dead = compared(None)
    assert (dead.missing, dead.changed, dead.moved) == (0, 0, 2)
    assert (dead.equal, dead.falls_short) == (True, ["2 rows changed while compared, and weren't judged"])
    late = compared(1)
    assert (late.equal, late.moved, late.falls_short) == (True, 0, []), "it has rows that the server was seen to have"
    world.db.run("DROP DATABASE beats")


@pytest.mark.thorough
def test_the_asset_check_tells_how_much_differs_and_no_values(world: World) -> None:
    only = world.source.model_copy(update={"tables": Tables(include=["shop.wrong"])})
    config = world.config.model_copy(update={"sources": [only]})
    config._file = world.config.file
    with dg.instance_for_test() as instance:
        found = build(config).resolve_job_def("reconcile").execute_in_process(instance=instance)
    checks = {tuple(c.asset_key.path): c for c in found.get_asset_check_evaluations()}
    for check in (checks["reconcile", "shop"], checks["snapshots", "shop", "shop", "wrong"]):
        assert (check.check_name, check.passed) == ("equals_source", False)
        assert check.description == "shop.wrong: 1 missing, 1 extra, 2 changed; `cdc-platform reconcile` shows the rows"
        assert check.metadata["rows"].value == 4


@pytest.mark.thorough
@pytest.mark.parametrize("later_too", [False, True])
def test_exports(world: World, tmp_path: Path, later_too: bool) -> None:
    def compare(path: Path, table: str, **how: Any) -> TableResult:
        return against_export(world.spark, world.config, world.source, str(path), ("shop", table), **how)

    plain = tmp_path / "wrong.csv"
    with open(plain, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["name", "n", "_k", "a`b"])
        writer.writerows([[*row[:3], "\\N" if row[3] is None else row[3]] for row in AT_SOURCE])
    result = compare(plain, "wrong", keys=["name", "n"])
    assert (result.missing, result.extra, result.changed) == (1, 1, 2)
    cells = {d.key["name"]: [(c.expected, c.actual) for c in d.cells if c.differs] for d in result.differences}
    assert (cells["A'"], cells["é"]) == ([("was", "is")], [("", None)])

    folder = tmp_path / "all_types"
    folder.mkdir()
    frame = delta_sql.read(world.spark, world.path("all_types")).drop("_cdc_order").toArrow()
    pq.write_table(frame, folder / "part-0.parquet")
    assert compare(folder, "all_types", keys=["id"]).equal
    if not later_too:
        return

    world.spark.sql(f"DELETE FROM {delta(world.path('wrong'))} WHERE name IN (\"A'\", 'é')")
    later = compare(plain, "wrong")
    assert (later.missing, later.extra, later.changed, later.actual_rows) == (3, 1, 0, 2), "no key: rows are counted"
    assert sorted((d.expected_rows, d.actual_rows) for d in later.differences) == [(0, 1), (1, 0), (1, 0), (1, 0)]
    earlier = compare(plain, "wrong", keys=["name", "n"], version=(later.version or 0) - 1)
    assert (earlier.missing, earlier.extra, earlier.changed, earlier.actual_rows) == (1, 1, 2, 4)


def test_a_server_that_doesnt_answer_or_refuses_is_told(
    world: World, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(dsn: str) -> str:
        monkeypatch.setenv("OTHER_DSN", dsn)
        assert run(["reconcile", "shop", "--config", str(world.config.file), "--dsn-env", "OTHER_DSN"]) == 1
        out, err = capsys.readouterr()
        assert "hunter2" not in out + err
        return err

    assert "error: source database 127.0.0.1:1: Can't connect" in told("mysql://me:hunter2@127.0.0.1:1")
    assert "Access denied" in told(f"mysql://me:hunter2@127.0.0.1:{world.db.port}")
    assert Dsn("h:1", {"password": "hunter2"}) and "hunter2" not in repr(Dsn("h:1", {"password": "hunter2"}))


@pytest.mark.thorough
def test_each_table_of_a_merged_snapshot_is_compared_with_its_own_rows(world: World) -> None:
    world.db.run(
        "CREATE DATABASE shop_1",
        "CREATE DATABASE shop_2",
        "CREATE TABLE shop_1.o (id INT PRIMARY KEY, a INT)",
        "CREATE TABLE shop_2.o (id BIGINT PRIMARY KEY)",
        "CREATE TABLE shop_2.empty (id INT PRIMARY KEY)",
        "INSERT INTO shop_1.o VALUES (1, 1), (2, 2)",
        "INSERT INTO shop_2.o VALUES (1)",
    )
    rules = {"include": ["shop_*.*"], "routes": {"shop_[0-9]\\..*": "shop.orders"}}
    source = world.source.model_copy(update={"tables": Tables.model_validate(rules)})
    rows = [(1, 1, "shop_1", "o"), (2, 9, "shop_1", "o"), (1, None, "shop_2", "o"), (7, None, "shop_2", "dropped")]
    world.snapshot("orders", "id BIGINT, a INT, _cdc_db STRING, _cdc_table STRING", rows)
    for table in (("shop", "orders"), None):
        results = against_server(world.spark, world.config, source, world.server, table)
        found = {r.table: (r.equal, r.changed, r.problems) for r in results}
        assert found == {
            "shop_1.o": (False, 1, []),
            "shop_2.dropped": (False, 0, ["the source has no such table, or its account may not read it"]),
            "shop_2.empty": (True, 0, []),
            "shop_2.o": (True, 0, []),
        }
    (one,) = against_server(world.spark, world.config, source, world.server, ("shop_2", "o"))
    assert one.equal and one.expected_rows == 1
    world.db.run("DROP DATABASE shop_1", "DROP DATABASE shop_2")
