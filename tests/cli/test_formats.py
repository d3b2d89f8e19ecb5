"""Every command that reads a lake, on a lake of each format, for people and as JSON."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable, QueryBuilder

from cdc_platform.cli.app import run
from cdc_platform.config import Config
from cdc_platform.feeds.canal import CanalEncoder
from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.feeds.dataworks import DataworksEncoder
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.feeds import FEEDS, Feed
from cdc_platform.feeds.tdsql import TdsqlEncoder
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.tables import SNAPSHOT_PATH
from tests.e2e.e2e_shop import Shop, run_stages
from tests.explain.agreement import of_every_row, outcomes

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ENCODERS: dict[str, Any] = {
    "tencent_dts": lambda topic: DtsEncoder(topic, partitions=1),
    "debezium": DebeziumEncoder,
    "canal_json": CanalJsonEncoder,
    "canal": CanalEncoder,
    "dataworks": DataworksEncoder,
    "tdsql": TdsqlEncoder,
}
BROKEN = b'{"torn": '


def _feed(format: str) -> Feed:
    """The demo's feed under a topic of these tests."""
    [known] = [feed for feed in FEEDS.values() if feed.format == format]
    topic = f"cli-{format.replace('_', '-')}"
    topics = {"topic_pattern": f"{topic}.*"} if format == "debezium" else {"topics": [topic]}
    return replace(known, encoder=lambda: ENCODERS[format](topic), topics=topics)


Lakes = Callable[[str], Config]
IN_SHORT = "tencent_dts"
"""The format of which the short tests look at a lake: it has parts of messages, and whole ones. tests/e2e/test_chain.py
follows Debezium."""


@pytest.fixture(scope="session")
def lakes(broker: Any, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    """`lakes(format)`: a lake with what one run makes of a small shop and of one message that can't be used."""

    @cache
    def of(format: str) -> Config:
        shop = Shop(broker.bootstrap_servers, "cli", 4, {format: _feed(format)})
        [source] = shop.sources()
        topic = source.get("topics", ["cli-debezium.broken"])[0]
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        if "topics" not in source:
            client = AdminClient(servers)
            client.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        producer = Producer(servers)
        producer.produce(topic, BROKEN)
        assert producer.flush(30) == 0
        config = shop.config(tmp_path_factory.mktemp(format), [source])
        run_stages(spark, config)
        return config

    return of


@pytest.fixture(params=[pytest.param(f, marks=() if f == IN_SHORT else pytest.mark.thorough) for f in sorted(ENCODERS)])
def lake(request: pytest.FixtureRequest, lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> Config:
    config = lakes(request.param)
    monkeypatch.setenv("CDC_CONFIG", str(config.file))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return config


def both(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, Any]:
    """A command's exit code and data; what people see of it fits and is no other."""
    code = run([*args, "--json"])
    data = json.loads(capsys.readouterr().out)
    assert run([*args]) == code
    out = capsys.readouterr().out
    assert all(len(line) <= 100 for line in out.splitlines() if " " in line.strip()), out
    assert not re.search(" $", out, re.M)
    assert not re.search(r"\d\.0\b", out), "a count is a whole number"
    assert not re.search(r"\d:\d\d:\d\d\.\d", out), "no one needs microseconds"
    return code, data


@pytest.mark.thorough
def test_what_reads_the_lake(lake, capsys):
    [source] = lake.sources
    code, status = both(capsys, "status")
    assert code == 1
    assert [f["kind"] for f in status["findings"] if f["kind"] != "feed"] == ["held"]
    assert (status["sources"][0]["lag"], status["sources"][0]["quarantined"]) == (0, 1)
    assert {t["state"] for t in status["tables"]} == {"live"}

    code, held = both(capsys, "quarantine", "list")
    assert (code, len(held)) == (0, 1)
    code, shown = both(capsys, "quarantine", "show", held[0]["address"])
    assert (code, shown["value"]["text"]) == (0, BROKEN.decode())

    code, cuts = both(capsys, "cut", "list")
    assert (code, [c["source"] for c in cuts]) == (0, [source.name])
    assert both(capsys, "cut", "list", source.name)[0] == 0

    topic = source.topics[0] if source.topics else "cli-debezium.shop.orders"
    code, told = both(capsys, "inspect", topic)
    assert (code, told["format"]) == (0, source.format)


def told_by(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, Any]:
    """A command's exit code and data; what people see holds users' values, which are laid out as they are."""
    code = run([*args, "--json"])
    data = json.loads(capsys.readouterr().out)
    assert run([*args]) == code
    assert not {c for c in capsys.readouterr().out if c < " " and c != "\n"}
    return code, data


@pytest.mark.thorough
@pytest.mark.parametrize("lake", sorted(ENCODERS), indirect=True)
def test_explain_and_show(lake, capsys):
    [source] = lake.sources
    explained, wrong = of_every_row(lake, source)
    assert (explained > 30, wrong) == (True, [])
    shown, counted = outcomes(lake, source)
    assert shown == counted

    code, told = told_by(capsys, "explain", source.name, "shop.orders", "9223372036854775807", "--sql", "--raw")
    assert (code, told["here"], told["agrees"]) == (0, True, True)
    change = told["changes"][-1]
    assert told["cells"][0] == {
        **{"column": "id", "value": "9223372036854775807", "ddl": None},
        **{"change": change["change"], "address": change["address"]},
    }
    assert change["sql"].startswith(
        ("INSERT INTO `shop`.`orders` (`id`, ", "UPDATE `shop`.`orders` SET `id` = 9223372036")
    )
    assert change["message"]["kind"] in ("JSON", "protobuf", "text")

    code, shown = told_by(capsys, "show", change["address"], "--sql")
    assert (code, shown["source"], shown["outcome"]) == (0, source.name, "joined" if change["parts"] else "applied")
    assert [str(a) for a in shown["message"]["parts"]] == (change["parts"] or [change["address"]])
    rows = [e for e in shown["events"] if e["kind"] == "row"]
    mine = [e for e in rows if all(e[c] == change[c] for c in ("entry_index", "row_index"))]
    assert [(e["outcome"], e["sql"]) for e in mine] == [("applied", change["sql"])]

    code, held = told_by(capsys, "quarantine", "list")
    code, shown = told_by(capsys, "show", held[0]["address"])
    assert (code, shown["outcome"], shown["why"]) == (0, "quarantined", held[0]["reason"])


@pytest.mark.thorough
def test_what_uses_spark(lake, spark, capsys, tmp_path):
    [source] = lake.sources
    code, data = both(capsys, "maintain")
    assert (code, data["sources"][0]["source"]) == (0, source.name)

    rows = read_snapshot(SNAPSHOT_PATH.at(lake.lake, source=source.name, db="shop", table="customers"))
    export = tmp_path / "customers.parquet"
    pq.write_table(rows.select([c for c in rows.column_names if not c.startswith("_cdc")]), export)
    code, data = both(capsys, "reconcile", source.name, "shop.customers", "--export", str(export))
    assert (code, data["equal"]) == (0, True), data


@pytest.mark.thorough
def test_a_table_as_of_its_cut_is_what_the_snapshot_was(lake, spark, capsys, tmp_path):
    [source] = lake.sources
    _, cuts = both(capsys, "cut", "list", source.name)
    [there] = [s for s in cuts[0]["snapshots"] if s["table"] == "orders"]
    code, told = told_by_once(capsys, "as-of", source.name, "shop.orders", str(cuts[0]["cut"]), "--to", tmp_path / "t")
    assert (code, told["complete"], told["then"]) == (1, False, "shop.orders")
    assert told["reason"].endswith("events are in quarantine")
    was = DeltaTable(f"{lake.lake}/{there['path']}", there["version"])
    found, wanted = (sorted(map(repr, rows_of(t))) for t in (DeltaTable(tmp_path / "t"), was))
    assert (found, told["rows"]) == (wanted, len(wanted))
    code, told = told_by_once(capsys, "as-of", source.name, "shop.orders", "2100-01-01", "--to", tmp_path / "later")
    assert (code, told["complete"], told["rows"]) == (1, False, len(wanted)), "nothing is complete up to then"
    for to in (tmp_path / "t", Path(lake.lake) / "own"):
        code, told = told_by_once(capsys, "as-of", source.name, "shop.orders", "1", "--to", to)
        assert (code, told["error"]["type"]) == (2, "ConfigError")
    code, told = told_by_once(capsys, "as-of", source.name, "shop.orders", "2000-01-01", "--to", tmp_path / "before")
    assert (code, told["error"]["type"]) == (2, "NotReadable")


def told_by_once(capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[int, Any]:
    code = run([*map(str, args), "--json"])
    return code, json.loads(capsys.readouterr().out)


def rows_of(table: DeltaTable) -> list[dict[str, Any]]:
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    return [{k: v for k, v in row.items() if not k.startswith("_cdc")} for row in found.to_pylist()]


@pytest.mark.thorough
def test_a_replay_makes_the_same_tables_and_put_in_place_they_tell_the_same(lake, spark, capsys):
    [source] = lake.sources
    code, found = told_by(capsys, "replay", source.name)
    wrong = [t for t in found["tables"] if not t["equal"]]
    assert (code, found["held"], wrong) == (0, {"in_use": 1, "replay": 1}, []), found
    assert all(t["rows"]["in_use"] == t["rows"]["replay"] > 0 for t in found["tables"])
    before = both(capsys, "status")[1]
    rows = {t["table"]: t["rows"] for t in before["tables"]}
    cut = told_by(capsys, "cut", "list", source.name)[1][0]["cut"]

    assert told_by_once(capsys, "replay", source.name, "--swap")[0] == 0
    run_stages(spark, lake)
    after = both(capsys, "status")[1]
    assert [f["kind"] for f in after["findings"]] == [f["kind"] for f in before["findings"]]
    assert {t["table"]: t["rows"] for t in after["tables"]} == rows
    assert told_by(capsys, "cut", "list", source.name)[1][0]["cut"] == cut + 1
    assert of_every_row(lake, source)[1] == []
    shown, counted = outcomes(lake, source)
    assert shown == counted
    assert told_by_once(capsys, "replay", source.name)[0] == 0
    assert told_by_once(capsys, "replay", source.name, "--discard")[1]["discarded"]


@pytest.mark.thorough
def test_a_process_of_its_own_says_nothing_but_its_own_words(lakes: Lakes, tmp_path: Path):
    """The JVM, its VACUUM and its log4j, Dagster's warnings: all in the log."""
    config = lakes("tencent_dts")
    program = "import sys; from cdc_platform.cli.app import main; main()"
    for args in (["maintain", "--json"], ["run", "--json", "--allow-held"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *args, "--config", str(config.file)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert json.loads(done.stdout)
        assert done.returncode == 0, done.stdout
        told = [re.sub(r"[\d.]+", "N", line) for line in done.stderr.splitlines()]
        known = r"Spark: local\[N\]|tencent_dts|\w+ tencent_dts: (started|N records in N s)"
        assert [line for line in told if not re.fullmatch(known, line)] == []
    assert "incubator modules" in (config.state_dir / "logs" / "cli.log").read_text()
