"""`cdc-platform metrics`, on a lake and a broker: what Prometheus would read."""

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from cdc_platform import tables
from cdc_platform.cli import attention
from cdc_platform.cli.app import run as command
from cdc_platform.config import load_config
from cdc_platform.lake import beside
from cdc_platform.metrics import METRICS, STATES
from cdc_platform.setup.ports import free_port
from tests.automation.conftest import (
    changelog,
    complete,
    cut,
    held,
    ledger,
    make_config,
    new_topic,
    schema_history,
    send,
    servers,  # noqa: F401
    table_state,
)
from tests.rows import add

parser = pytest.importorskip("prometheus_client.parser")
NOBODY = "127.0.0.1:1"
AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def read(text: str) -> dict[tuple[str, ...], float]:
    """(metric, label values…) → value, by Prometheus' own parser."""
    return {
        (s.name, *(s.labels[label] for label in METRICS[s.name][0])): s.value
        for family in parser.text_string_to_metric_families(text)
        for s in family.samples
    }


def beside_in_need(file: Path) -> list[str]:
    """What `status` says of histories and typed changes."""
    config = load_config(file)
    return [f.text for f in attention.of_lake(config, config.sources) if f.kind == "beside"]


@pytest.fixture
def shop(tmp_path: Path, request: Any) -> Path:
    """cdc.yaml of two sources: one on a broker, where the test asks for one, and one whose Kafka isn't there."""
    address = request.getfixturevalue("servers") if request.node.get_closest_marker("broker") else NOBODY
    config = make_config(tmp_path, address)
    topic = new_topic(address) if address != NOBODY else "t"
    raw = {
        "lake": "./lake",
        "sources": [
            {"name": "shop-dts", "format": "tencent_dts", "topics": [topic], "kafka": {"bootstrap.servers": address}},
            {
                "name": "shop_debezium",
                "format": "debezium",
                "topics": ["x"],
                "kafka": {"bootstrap.servers": "127.0.0.1:1"},
            },
        ],
    }
    (tmp_path / "cdc.yaml").write_text(json.dumps(raw))
    if address != NOBODY:
        for _ in range(3):
            send(address, topic)
    ledger(config, ("shop-dts", topic, 0, 0, 0, "landed", 1), ("shop-dts", topic, 0, 0, 0, "applied", 1))
    ledger(config, ("shop_debezium", "x", 0, 0, 4, "landed", 5), ("shop_debezium", "x", 0, 0, 2, "applied", 3))
    schema_history(config, ("shop-dts", "shop", "orders"), ("shop-dts", "shop", 'we"ird\\\n'))
    table_state(config, "shop-dts", "shop.orders")
    table_state(config, "shop-dts", 'shop.we"ird\\\n', "stopped", "no key")
    for table in ("shop.orders", "shop.orders", None):
        held(config, "shop-dts", table)
    changelog(config, "shop-dts", AT)
    cut(config, "shop-dts", 7, AT - timedelta(seconds=9))
    complete(config, "shop-dts", 0, AT - timedelta(seconds=5))
    return tmp_path / "cdc.yaml"


@pytest.mark.broker
def test_metrics_of_sources_and_tables(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 2)
    before = time.time()
    assert command(["metrics", "--config", str(shop)]) == 0
    found = read(capsys.readouterr().out)
    newest = found.pop(("cdc_source_newest_record_timestamp_seconds", "shop-dts"))
    assert abs(newest - before) < 60
    updated = [
        found.pop(("cdc_table_updated_timestamp_seconds", "shop-dts", "shop", t)) for t in ("orders", 'we"ird\\\n')
    ]
    assert all(abs(at - before) < 60 for at in updated)
    of = {state: float(state == "quiet") for state in STATES}
    assert found == {
        **{("cdc_source_state", "shop-dts", s): v for s, v in of.items()},
        **{("cdc_source_state", "shop_debezium", s): float(s == "unreachable") for s in of},
        ("cdc_source_lag_records", "shop-dts"): 2,
        ("cdc_source_newest_change_timestamp_seconds", "shop-dts"): AT.timestamp(),
        ("cdc_source_complete_timestamp_seconds", "shop-dts"): AT.timestamp() - 5,
        ("cdc_table_complete_timestamp_seconds", "shop-dts", "shop", "orders"): AT.timestamp() - 5,
        ("cdc_table_complete_timestamp_seconds", "shop-dts", "shop", 'we"ird\\\n'): AT.timestamp() - 5,
        ("cdc_source_tables_behind", "shop-dts"): 0,
        ("cdc_source_tables_behind", "shop_debezium"): 0,
        ("cdc_source_cut", "shop-dts"): 7,
        ("cdc_source_missing_records", "shop-dts"): 0,
        ("cdc_source_missing_records", "shop_debezium"): 0,
        ("cdc_source_unaccounted_records", "shop-dts"): 0,
        ("cdc_source_unaccounted_records", "shop_debezium"): 2,
        ("cdc_source_held_rows", "shop-dts"): 3,
        ("cdc_source_held_rows", "shop_debezium"): 0,
        ("cdc_table_held_rows", "shop-dts", "shop", "orders"): 2,
        ("cdc_table_held_rows", "shop-dts", "shop", 'we"ird\\\n'): 0,
        ("cdc_table_stopped", "shop-dts", "shop", "orders"): 0,
        ("cdc_table_stopped", "shop-dts", "shop", 'we"ird\\\n'): 1,
        ("cdc_table_broken", "shop-dts", "shop", "orders"): 1,
        ("cdc_table_broken", "shop-dts", "shop", 'we"ird\\\n'): 1,
        ("cdc_table_invalid_dates", "shop-dts", "shop", "orders"): 0,
        ("cdc_table_invalid_dates", "shop-dts", "shop", 'we"ird\\\n'): 0,
    }


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    monkeypatch.setattr("cdc_platform.kafka.offsets.TIMEOUT_S", 0.3)


@pytest.mark.usefixtures("impatient")
def test_a_file_for_node_exporter(shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cdc.prom"
    assert command(["metrics", "--config", str(shop), "--textfile", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert read(file.read_text())["cdc_table_held_rows", "shop-dts", "shop", "orders"] == 2
    assert "# HELP cdc_source_lag_records Offsets in Kafka that have not landed" in file.read_text()


@pytest.mark.usefixtures("impatient")
def test_what_lacks_changes_and_what_differs_from_another_feed(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = json.loads(shop.read_text()) | {"shadow": {"of": "shop-dts", "by": "shop_debezium"}}
    raw["sources"][0]["tables"] = {"history": ["shop.*"], "typed_changes": ["shop.orders"]}
    shop.write_text(json.dumps(raw))
    lake, row = shop.parent / "lake", {"source": "shop-dts", "db": "shop", "table": "orders", "number": 0}
    add(lake, tables.BESIDE_STATE, {**row, "kind": "history", "state": "kept"})
    add(lake, tables.BESIDE_STATE, {**row, "kind": "typed_changes", "state": "lacking", "reason": "no room"})
    different = {"by": "shop_debezium", "state": "different", "only_of": 2, "only_by": 0, "differing": 1}
    add(lake, tables.SHADOW_COMPARISONS, {**row, **different})
    assert command(["metrics", "--config", str(shop)]) == 0
    found = read(capsys.readouterr().out)
    assert {k[3:]: v for k, v in found.items() if k[0] == "cdc_beside_lacking"} == {
        ("orders", "history"): 0,
        ("orders", "typed_changes"): 1,
        ('we"ird\\\n', "history"): 1,  # stopped with its table
    }
    assert beside_in_need(shop) == ["typed_changes of shop.orders lacks changes: no room"]
    monkeypatch.setattr(beside, "_behind", lambda *_: "a run was ended before its end")
    assert command(["metrics", "--config", str(shop)]) == 0
    ended = read(capsys.readouterr().out)
    assert ended["cdc_beside_lacking", "shop-dts", "shop", "orders", "history"] == 1
    assert "history of shop.orders lacks changes: a run was ended before its end" in beside_in_need(shop)
    assert {k[1:]: v for k, v in found.items() if k[0] == "cdc_shadow_differences"} == {
        ("shop-dts", "shop_debezium", "only_of"): 2,
        ("shop-dts", "shop_debezium", "only_by"): 0,
        ("shop-dts", "shop_debezium", "differing"): 1,
    }


def test_the_page_lists_all_of_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring-metrics.md").read_text()
    listed = re.findall(r"^\| `(cdc_\w+)` \| (`[^|]*`) \|", page, re.M)
    assert [(n, tuple(re.findall(r"`(\w+)`", labels))) for n, labels in listed] == [
        (name, labels) for name, (labels, _) in METRICS.items()
    ]


@pytest.mark.usefixtures("impatient")
def test_json(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["metrics", "--config", str(shop), "--json"]) == 0
    stopped = [m for m in json.loads(capsys.readouterr().out) if m["metric"] == "cdc_table_stopped"]
    assert {
        "metric": "cdc_table_stopped",
        "source": "shop-dts",
        "db": "shop",
        "table": "orders",
        "value": 0.0,
    } in stopped


@pytest.mark.usefixtures("impatient")
def test_a_missing_package_is_told(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert command(["metrics", "--config", str(shop)]) == 2
    assert "pip install 'cdc-platform[metrics]'" in capsys.readouterr().err


@pytest.mark.thorough
def test_served_on_the_loopback_until_stopped(shop: Path) -> None:
    port = free_port()
    code = "import sys; from cdc_platform.cli.app import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "metrics", "--config", str(shop), "--serve", str(port)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        assert process.stderr is not None
        assert f"metrics at http://127.0.0.1:{port}/metrics" in process.stderr.readline()
        for _ in range(2):
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                found = read(answer.read().decode())
            assert found["cdc_source_held_rows", "shop-dts"] == 3
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
