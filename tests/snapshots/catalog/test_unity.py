"""Snapshots as tables of Unity Catalog. Tests with `server` run on a stand-in, and on the open server where
CDC_TEST_UNITY names a folder of its jars (unity_servers.py)."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema

from cdc_platform.config import Config, parse_config
from cdc_platform.setup.ports import free_port
from cdc_platform.snapshots.catalog import publish
from cdc_platform.snapshots.target import Target
from cdc_platform.tables import TABLE_STATE
from tests.changelog.feed import Feed, SourceTable, position
from tests.snapshots.catalog.unity_servers import StandIn, Unity, open_server, stand_in

SCHEMA = "s_shop"
ORDER = {
    "type": "struct",
    "fields": [
        {"name": "pos", "type": "decimal(20,0)", "nullable": True, "metadata": {}},
        {"name": "landed", "type": "long", "nullable": True, "metadata": {"comment": "Kafka offset"}},
    ],
}
LIVE, DROPPED = {"state": "live", "touched": True}, {"state": "dropped", "touched": True}
IDLE = {**LIVE, "touched": False}
_catalogs = count()


@pytest.fixture(scope="module", params=["stand-in", "open"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unity]:
    """A Unity Catalog with tokens."""
    if request.param == "stand-in":
        with stand_in(StandIn()) as found:
            yield found
        return
    if not (jars := os.environ.get("CDC_TEST_UNITY")):
        pytest.skip("CDC_TEST_UNITY names no folder with the jars of the open Unity Catalog server")
    with open_server(Path(jars), tmp_path_factory.mktemp("unity")) as found:
        yield found


@pytest.fixture
def held() -> StandIn:
    """What the `double` holds."""
    return StandIn(catalogs={"lake"}, schemas={f"lake.{SCHEMA}"})


@pytest.fixture
def double(held: StandIn) -> Iterator[Unity]:
    """The stand-in alone, for what the open server can't be made to do."""
    with stand_in(held) as found:
        yield found


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """`configured(server)`: a Config whose lake is registered in that server's catalog `lake`, or another."""
    monkeypatch.setenv("UNITY_TOKEN", "")

    def made(server: Unity, name: str = "lake", token: str | None = None) -> Config:
        monkeypatch.setenv("UNITY_TOKEN", server.token if token is None else token)
        catalog = {"kind": "unity", "uri": server.uri, "name": name, "token": "${UNITY_TOKEN}"}
        source = {"name": "s", "format": "debezium", "topics": ["t"]}
        settings = {"lake": str(tmp_path / "lake"), "sources": [source], "catalog": catalog}
        return parse_config(settings, tmp_path / "cdc.yaml")

    return made


@pytest.fixture
def config(server: Unity, configured: Callable[..., Config]) -> Config:
    """One with a catalog of the test's own on the server."""
    name = f"lake_{next(_catalogs)}"
    server.ask("POST", "/catalogs", {"name": name})
    return configured(server, name)


def create(path: str, columns: dict[str, Any], comment: str = "") -> None:
    """An empty Delta table; columns: name → type as the log writes it, or (type, comment)."""
    told = {n: c if isinstance(c, tuple) else (c, None) for n, c in columns.items()}
    fields = [
        {"name": n, "type": t, "nullable": True, "metadata": {"comment": c} if c else {}} for n, (t, c) in told.items()
    ]
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
    DeltaTable.create(path, schema, description=comment)


def snapshot(config: Config, table: str) -> str:
    return Target.of(config, "s", "shop", table).snapshot.uri()


def published(config: Config, **tables: dict[str, Any]) -> float:
    """Tables that are not as they should be, after these states of theirs were published."""
    states = {("shop", name): told for name, told in tables.items()}
    if not DeltaTable.is_deltatable(TABLE_STATE.at(config.lake)):
        create(TABLE_STATE.at(config.lake), {"source": "string"})  # as every run has made it by then
    spark: Any = None  # a lake that this process sees needs none
    return publish(spark, config, config.source("s"), states)["not_registered"]


def there(server: Unity, config: Config) -> dict[str, dict[str, Any]]:
    assert config.catalog
    return server.tables(config.catalog.name, SCHEMA)


def columns(table: dict[str, Any]) -> list[tuple[str, Any, str | None]]:
    """(name, type, comment) as Delta's log has them."""
    found = sorted(table["columns"], key=lambda c: c["position"])
    return [(c["name"], json.loads(c["type_json"])["type"], c.get("comment")) for c in found]


def test_a_snapshot_is_a_table_with_its_columns_and_comments(server: Unity, config: Config) -> None:
    path = snapshot(config, "T odd")
    create(
        path,
        {"id": ("long", "the key"), "Größe": "decimal(9,2)", "at": "timestamp_ntz", "_cdc_order": ORDER},
        "Live rows of shop.T odd",
    )
    assert published(config, **{"T odd": LIVE}) == 0
    ((name, table),) = there(server, config).items()
    assert name == "__54__20odd"
    assert columns(table) == [
        ("id", "long", "the key"),
        ("Größe", "decimal(9,2)", None),
        ("at", "timestamp_ntz", None),
        ("_cdc_order", ORDER, None),
    ]
    assert (table["table_type"], table["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert table["storage_location"] == "file://" + path and table["comment"] == "Live rows of shop.T odd"


def test_five_tables_are_each_registered_once(server: Unity, config: Config) -> None:
    states = {f"t{i}": LIVE for i in range(5)}
    for name in states:
        create(snapshot(config, name), {"id": "long", "_cdc_order": ORDER})
    assert published(config, **states) == 0
    first = there(server, config)
    assert sorted(first) == sorted(states)
    assert published(config, **states) == 0
    assert there(server, config) == first  # same ids and times: nothing was made or changed again


def test_new_columns_are_set_and_the_table_stays_the_same(server: Unity, config: Config) -> None:
    path = snapshot(config, "t")
    create(path, {"id": "long", "_cdc_order": ORDER})
    published(config, t=LIVE)
    before = there(server, config)["t"]
    DeltaTable(path).alter.add_columns([Field.from_json(json.dumps(
        {"name": "price", "type": "decimal(9,2)", "nullable": True, "metadata": {"comment": "in euros"}})
    )])  # fmt: skip
    assert published(config, t=LIVE) == 0
    after = there(server, config)["t"]
    assert columns(after) == [("id", "long", None), ("_cdc_order", ORDER, None), ("price", "decimal(9,2)", "in euros")]
    assert after["table_id"] == before["table_id"] and after["storage_location"] == before["storage_location"]
    assert published(config, t=LIVE) == 0
    assert there(server, config)["t"] == after


def test_what_failed_is_made_up_for_by_a_run_that_changes_nothing(
    server: Unity, config: Config, configured: Callable[..., Config]
) -> None:
    assert config.catalog
    path = snapshot(config, "t")
    create(path, {"id": "long"})
    published(config, t=LIVE)
    DeltaTable(path).alter.add_columns([Field("b", "string")])  # pyright: ignore[reportArgumentType]
    assert published(configured(server, config.catalog.name, "wrong"), t=LIVE) == 1
    assert [c[0] for c in columns(there(server, config)["t"])] == ["id"]
    assert published(config, t=IDLE) == 0
    assert [c[0] for c in columns(there(server, config)["t"])] == ["id", "b"]
    assert not list((config.state_dir / "catalog").iterdir())


def test_a_dropped_table_goes_and_its_files_stay(server: Unity, config: Config) -> None:
    path = snapshot(config, "t")
    create(path, {"id": "long"})
    published(config, t=LIVE)
    assert published(config, t=DROPPED) == 0
    assert there(server, config) == {} and DeltaTable.is_deltatable(path)
    assert published(config, t=DROPPED, never_made=LIVE) == 0


@pytest.mark.parametrize("state", [LIVE, DROPPED])
def test_somebody_elses_table_is_left_alone(
    server: Unity, config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture, state: dict[str, Any]
) -> None:
    assert config.catalog
    where = {"catalog_name": config.catalog.name, "schema_name": SCHEMA}
    server.ask("POST", "/schemas", {"catalog_name": config.catalog.name, "name": SCHEMA})
    theirs = {"name": "t", "table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": []}
    server.ask("POST", "/tables", {**where, **theirs, "storage_location": f"file://{tmp_path}/theirs"})
    before = there(server, config)
    create(snapshot(config, "t"), {"id": "long"})
    create(snapshot(config, "u"), {"id": "long"})
    assert published(config, t=state, u=LIVE) == (state is not DROPPED)
    assert published(config, t={**state, "touched": False}, u=IDLE) == (state is not DROPPED)
    assert there(server, config)["t"] == before["t"] and "u" in there(server, config)
    assert ("is a table at" in caplog.text and f"{tmp_path}/theirs" in caplog.text) is (state is not DROPPED)


@pytest.mark.parametrize(("token", "why"), [("eyJ-a-wrong-one", "refuses the token"), ("", "refuses requests without")])
def test_a_wrong_token_is_one_warning_and_not_shown(
    server: Unity,
    config: Config,
    configured: Callable[..., Config],
    caplog: pytest.LogCaptureFixture,
    token: str,
    why: str,
) -> None:
    assert config.catalog
    for name in ("t", "u"):
        create(snapshot(config, name), {"id": "long"})
    wrong = configured(server, config.catalog.name, token)
    assert published(wrong, t=LIVE, u=LIVE) == 2
    assert why in caplog.text and "catalog.token" in caplog.text and "not brought up to date: 2" in caplog.text
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1
    assert "eyJ" not in caplog.text


def test_a_catalog_that_is_not_there_is_a_warning(
    server: Unity, configured: Callable[..., Config], caplog: pytest.LogCaptureFixture
) -> None:
    config = configured(server, "nowhere")
    create(snapshot(config, "t"), {"id": "long"})
    assert published(config, t=LIVE) == 1
    assert "`nowhere`.`s_shop`" in caplog.text and "404" in caplog.text and "nowhere" in caplog.text


def test_a_server_that_does_not_answer_is_one_warning(
    configured: Callable[..., Config], caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    config = configured(Unity(f"http://127.0.0.1:{port}", "eyJ-secret"))
    for name in ("t", "u"):
        create(snapshot(config, name), {"id": "long"})
    assert published(config, t=LIVE, u=LIVE) == 2
    assert (
        f"http://127.0.0.1:{port} can't be reached: ConnectionError; tables that are not brought up to date: 2"
        in caplog.text
    )
    assert "eyJ" not in caplog.text


@pytest.mark.parametrize(
    ("status", "said"), [(502, "the server answered 502: Bad Gateway"), (200, "something else than JSON objects")]
)
def test_an_answer_of_something_else_is_a_warning(
    double: Unity,
    held: StandIn,
    configured: Callable[..., Config],
    caplog: pytest.LogCaptureFixture,
    status: int,
    said: str,
) -> None:
    config = configured(double)
    create(snapshot(config, "t"), {"id": "long"})
    held.broken = (status, f"<html>Bad Gateway {double.token}</html>")
    assert published(config, t=LIVE) == 1
    assert said in caplog.text and double.token not in caplog.text


def test_a_server_without_the_delta_api_keeps_the_old_columns_and_the_log_says_so(
    double: Unity, held: StandIn, configured: Callable[..., Config], caplog: pytest.LogCaptureFixture
) -> None:
    config, held.delta_api = configured(double), False
    create(snapshot(config, "t"), {"id": "long"})
    published(config, t=LIVE)
    before = there(double, config)
    DeltaTable(snapshot(config, "t")).alter.add_columns([Field("b", "string")])  # pyright: ignore[reportArgumentType]
    assert published(config, t=LIVE) == 1 and there(double, config) == before
    assert "keeps its old columns" in caplog.text


def test_tables_that_are_as_they_should_be_cost_one_request_a_page(
    double: Unity, held: StandIn, configured: Callable[..., Config]
) -> None:
    config = configured(double)
    states = {f"t{i}": LIVE for i in range(5)}
    for name in states:
        create(snapshot(config, name), {"id": "long"})
    published(config, **states)
    held.asked.clear()
    published(config, **states)
    assert held.asked == ["GET /tables"] * 3


@pytest.mark.spark
def test_a_sources_tables_are_made_follow_and_go(spark: Any, server: Unity, config: Config) -> None:
    feed = Feed(spark, config, "s")
    ddl = "ALTER TABLE t CHANGE a n INT, ADD b DECIMAL(9,2)"
    first = SourceTable("shop", "t", [("id", "bigint"), ("a", "int")])
    feed.say(first.stated(), first.insert((1, 10), {"id": "1", "a": "1"}))
    assert feed.catch_up().metrics["not_registered"] == 0
    table = there(server, config)["t"]
    assert [c[:2] for c in columns(table)][:2] == [("id", "long"), ("a", "integer")]
    assert table["comment"] == "Live rows of shop.t from source s"

    feed.say({"kind": "ddl", "db": "shop", "ddl": ddl, **position(1, 20)})
    now = SourceTable("shop", "t", [("id", "bigint"), ("n", "int"), ("b", "decimal(9,2)")])
    row = {"id": "1", "n": "1", "b": None}
    feed.say(now.stated(), now.update((1, 30), row, {**row, "n": "5", "b": "2.50"}))
    assert feed.catch_up().metrics["not_registered"] == 0
    after = there(server, config)["t"]
    told = [c[:2] for c in columns(after) if not c[0].startswith("_cdc_")]
    assert told == [("id", "long"), ("n", "integer"), ("b", "decimal(9,2)")] and after["table_id"] == table["table_id"]
    rows = spark.read.format("delta").load(after["storage_location"]).select("id", "n").collect()
    assert [tuple(r) for r in rows] == [(1, 5)]

    feed.say({"kind": "ddl", "db": "shop", "ddl": "DROP TABLE t", **position(1, 40)})
    assert feed.catch_up().metrics["not_registered"] == 0
    assert there(server, config) == {}
