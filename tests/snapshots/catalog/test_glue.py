"""Snapshots of a lake in a bucket as tables of AWS Glue, as moto's server has it."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from deltalake import DeltaTable, Field, Schema
from moto.server import ThreadedMotoServer

from cdc_platform.config import Config, parse_config
from cdc_platform.setup.ports import free_port
from cdc_platform.snapshots.catalog import publish
from cdc_platform.snapshots.target import Target
from cdc_platform.tables import TABLE_STATE
from tests.lakes import forget_all

pytestmark = pytest.mark.s3
DATABASE = "s_shop"
LIVE, DROPPED = {"state": "live", "touched": True}, {"state": "dropped", "touched": True}
ORDER = {
    "type": "struct",
    "fields": [{"name": "pos", "type": "decimal(20,0)", "nullable": True, "metadata": {}}],
}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Glue of the test's own; credentials are where boto3 looks."""
    for name, value in {"ID": "k", "KEY": "s"}.items():
        monkeypatch.setenv(f"AWS_{'ACCESS_KEY_ID' if name == 'ID' else 'SECRET_ACCESS_KEY'}", value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port())
    server.start()
    host, port = server.get_host_and_port()
    requests.post(f"http://{host}:{port}/moto-api/reset", timeout=10).raise_for_status()  # it is one per process
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def config(tmp_path: Path, on_s3: Any, endpoint: str) -> Config:
    source = {"name": "s", "format": "debezium", "topics": ["t"]}
    catalog = {"kind": "glue", "region": "eu-central-1", "endpoint": endpoint}
    settings = {"lake": str(tmp_path / "lake"), "sources": [source], "catalog": catalog}
    return on_s3(parse_config(settings, tmp_path / "cdc.yaml"))


@pytest.fixture
def glue(config: Config) -> Any:
    """Another client of the same service."""
    assert config.catalog
    return boto3.client("glue", region_name="eu-central-1", endpoint_url=config.catalog.endpoint)


def create(config: Config, table: str, columns: dict[str, Any], comment: str = "") -> None:
    """An empty snapshot; columns: name → (type as the log writes it, comment)."""
    fields = [
        {"name": n, "type": t, "nullable": True, "metadata": {"comment": c} if c else {}}
        for n, (t, c) in columns.items()
    ]
    path = Target.of(config, "s", "shop", table).snapshot
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
    DeltaTable.create(path.uri(), schema, description=comment, storage_options=path.options)


def add(config: Config, table: str, field: dict[str, Any]) -> None:
    path = Target.of(config, "s", "shop", table).snapshot
    DeltaTable(path.uri(), storage_options=path.options).alter.add_columns([Field.from_json(json.dumps(field))])
    forget_all()  # another process's commit


def published(config: Config, **tables: dict[str, Any]) -> float:
    """Tables that are not as they should be, after these states of theirs were published."""
    from cdc_platform.lake import stores

    state = TABLE_STATE.at(stores.lake(config))
    if not DeltaTable.is_deltatable(state.uri(), storage_options=state.options):
        told = [{"name": "source", "type": "string", "nullable": True, "metadata": {}}]
        schema = Schema.from_json(json.dumps({"type": "struct", "fields": told}))
        DeltaTable.create(state.uri(), schema, storage_options=state.options)
    spark: Any = None
    return publish(spark, config, config.source("s"), {("shop", n): told for n, told in tables.items()})[
        "not_registered"
    ]


def test_a_snapshot_is_made_altered_and_dropped_with_its_table(config: Config, glue: Any) -> None:
    columns = {
        "id": ("long", "the key"),
        "price": ("decimal(9,2)", None),
        "at": ("timestamp_ntz", None),
        "seen": ("timestamp", None),
        "_cdc_order": (ORDER, None),
    }
    create(config, "T odd", columns, "Live rows of shop.T odd")
    create(config, "other", {"id": ("integer", None)})
    assert published(config, **{"T odd": LIVE, "other": LIVE}) == 0
    found = {t["Name"]: t for t in glue.get_tables(DatabaseName=DATABASE)["TableList"]}
    table = found["__54__20odd"]
    assert sorted(found) == ["__54__20odd", "other"]
    storage = table["StorageDescriptor"]
    place = Target.of(config, "s", "shop", "T odd").snapshot.uri().replace("s3a://", "s3://")
    assert storage["Location"] == storage["SerdeInfo"]["Parameters"]["path"] == place
    assert place.startswith("s3://")
    assert [(c["Name"], c["Type"], c.get("Comment")) for c in storage["Columns"]] == [
        ("id", "bigint", "the key"),
        ("price", "decimal(9,2)", None),
        ("at", "timestamp", None),
        ("seen", "timestamp", None),
        ("_cdc_order", "struct<pos:decimal(20,0)>", None),
    ]
    assert (table["TableType"], table["Description"]) == ("EXTERNAL_TABLE", "Live rows of shop.T odd")
    assert table["Parameters"]["table_type"] == "DELTA"
    assert table["Parameters"]["spark.sql.sources.provider"] == "delta"

    kept = {"Name": "other", "StorageDescriptor": found["other"]["StorageDescriptor"]}
    glue.update_table(DatabaseName=DATABASE, TableInput={**kept, "Parameters": {"team": "finance"}})
    add(config, "other", {"name": "note", "type": "string", "nullable": True, "metadata": {"comment": "words"}})
    assert published(config, other=LIVE, **{"T odd": DROPPED}) == 0
    (other,) = glue.get_tables(DatabaseName=DATABASE)["TableList"]
    assert [(c["Name"], c["Type"], c.get("Comment")) for c in other["StorageDescriptor"]["Columns"]] == [
        ("id", "int", None),
        ("note", "string", "words"),
    ]
    assert other["Parameters"]["team"] == "finance" and other["Parameters"]["table_type"] == "DELTA"


def test_what_has_not_changed_is_not_written(config: Config, glue: Any) -> None:
    for i in range(5):
        create(config, f"t{i}", {"id": ("long", None), "_cdc_order": (ORDER, None)})
    states = {f"t{i}": LIVE for i in range(5)}
    assert published(config, **states) == 0
    before = glue.get_tables(DatabaseName=DATABASE)["TableList"]
    assert published(config, **states) == 0
    assert glue.get_tables(DatabaseName=DATABASE)["TableList"] == before and len(before) == 5


def test_a_table_that_lies_elsewhere_is_never_changed(
    config: Config, glue: Any, caplog: pytest.LogCaptureFixture
) -> None:
    create(config, "t", {"id": ("long", None)})
    glue.create_database(DatabaseInput={"Name": DATABASE})
    theirs = {"Name": "t", "StorageDescriptor": {"Location": "s3://theirs/t", "Columns": []}}
    glue.create_table(DatabaseName=DATABASE, TableInput=theirs)
    with caplog.at_level(logging.WARNING):
        assert published(config, t=LIVE) == 1
    assert "s3a://theirs/t, not the snapshot" in caplog.text
    assert published(config, t=DROPPED) == 0
    assert glue.get_table(DatabaseName=DATABASE, Name="t")["Table"]["StorageDescriptor"]["Location"] == "s3://theirs/t"


def test_a_service_that_answers_nothing_fails_no_run_and_is_tried_again(
    config: Config, glue: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert config.catalog
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    create(config, "t", {"id": ("long", None)})
    away = config.model_copy(update={"catalog": config.catalog.model_copy(update={"endpoint": "http://127.0.0.1:1"})})
    with caplog.at_level(logging.WARNING):
        assert published(away, t=LIVE) == 1
    assert "Could not connect to the endpoint" in caplog.text
    with caplog.at_level(logging.WARNING):
        nowhere = config.catalog.model_copy(update={"endpoint": None, "region": None})
        assert published(config.model_copy(update={"catalog": nowhere}), t=LIVE) == 1
    assert "region" in caplog.text
    assert published(config, t={**LIVE, "touched": False}) == 0
    assert [t["Name"] for t in glue.get_tables(DatabaseName=DATABASE)["TableList"]] == ["t"]
