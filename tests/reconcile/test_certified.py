"""What `reconcile` finds is what `certify` goes by. The server is a stand-in, and no rows are read."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_platform.cli.app import run
from cdc_platform.config import Config, load_config
from cdc_platform.lake.comparisons import NOT_CARRIED
from cdc_platform.reconcile import notes
from cdc_platform.reconcile.columns import SourceColumn
from cdc_platform.reconcile.errors import SourceUnreachable
from cdc_platform.reconcile.live import Table
from cdc_platform.reconcile.result import TableResult
from cdc_platform.tables import OFFSET_LEDGER, RECONCILIATIONS, SCHEMA_CHANGES
from tests.automation.conftest import complete, ledger, schema_history, snapshot, table_state
from tests.rows import add

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
YAML = """
lake: ./lake
kafka: {bootstrap.servers: "127.0.0.1:1"}
sources:
  - {name: shop, format: tencent_dts, topics: [dts], reconcile: {dsn_env: SHOP_DSN}}
"""


@dataclass
class AtSource:
    """What the server has. columns: table → its columns; differing: table → rows that differ; meanwhile: what happens
    while a table is compared; snapshot: the snapshots' rows, if they aren't ids alone."""

    columns_of: dict[str, list[SourceColumn]] = field(default_factory=dict)
    differing: dict[str, int] = field(default_factory=dict)
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)
    snapshot: Any = None
    moved: dict[str, int] = field(default_factory=dict)
    behind: str | None = None

    def columns(self, db: str, table: str) -> list[SourceColumn]:
        return self.columns_of.get(table, [])

    def compare_export(self, given: Any, snapshot: Any, keys: Any, result: TableResult, limit: int) -> None:
        result.changed = self.differing.get("orders", 0)

    def tables(self, databases: list[str]) -> list[tuple[str, str]]:
        return [("shop", t) for t in self.columns_of]

    def compare(self, spark: Any, table: Table, result: TableResult, wait_s: float, limit: int) -> None:
        result.version, result.changed = 0, self.differing.get(table.name, 0)
        result.moved = self.moved.get(table.name, 0)
        if then := self.meanwhile.get(table.name):
            then()


ID = SourceColumn("id", "bigint", True)


@pytest.fixture
def at_source(monkeypatch: pytest.MonkeyPatch) -> AtSource:
    found = AtSource({"orders": [ID], "items": [ID]})
    monkeypatch.setenv("SHOP_DSN", "mysql://me@127.0.0.1:1")
    monkeypatch.setattr("cdc_platform.reconcile.server.Server", lambda dsn: found)
    monkeypatch.setattr("cdc_platform.reconcile.binlog.risks_of", lambda server, source: [])
    monkeypatch.setattr("cdc_platform.spark.session.open_session", lambda config: None)
    monkeypatch.setattr("cdc_platform.reconcile.live.compare", found.compare)
    monkeypatch.setattr("cdc_platform.reconcile.reached.lacking", lambda server, newest: found.behind)
    rows = SimpleNamespace(dtypes=[("id", "bigint")])
    monkeypatch.setattr("cdc_platform.reconcile.run.delta_sql.read", lambda spark, path: found.snapshot or rows)
    monkeypatch.setattr("cdc_platform.reconcile.export.read", lambda spark, path: SimpleNamespace(columns=["id"]))
    monkeypatch.setattr("cdc_platform.reconcile.run._at_version", lambda spark, path, version: (version, rows))
    monkeypatch.setattr("cdc_platform.reconcile.export.compare", found.compare_export)
    return found


@pytest.fixture
def config(tmp_path: Path, at_source: AtSource) -> Config:
    (tmp_path / "cdc.yaml").write_text(YAML)
    made = load_config(tmp_path / "cdc.yaml")
    for table in ("orders", "items"):
        schema_history(made, ("shop", "shop", table))
        snapshot(made, "shop", f"shop.{table}", 2)
    ledger(made, ("shop", "dts", 0, 0, 9, "landed", 10), ("shop", "dts", 0, 0, 9, "applied", 10))
    complete(made, "shop", 0, NOON)
    return made


@pytest.fixture
def told(config: Config, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command; what it says, as data."""

    def call(*command: str) -> Any:
        run([*command, "--config", str(config.file), "--json"])
        return json.loads(capsys.readouterr().out)

    return call


def verdicts(told: Callable[..., Any]) -> dict[str, tuple[str, list[str]]]:
    return {t["table"]: (t["verdict"], t["reasons"]) for t in told("certify", "shop")["tables"]}


def test_a_table_that_the_source_has_no_more_is_broken(at_source: AtSource, told: Callable[..., Any]):
    assert told("reconcile", "shop")["equal"]
    assert verdicts(told) == {"shop.items": ("proven", []), "shop.orders": ("proven", [])}
    del at_source.columns_of["orders"]
    assert not told("reconcile", "shop")["equal"]
    verdict, [reason] = verdicts(told)["shop.orders"]
    assert verdict == "broken"
    assert "differs from the source: the source has no such table, or its account may not read it at" in reason
    assert verdicts(told)["shop.items"] == ("proven", [])


def test_a_table_that_the_feed_told_was_dropped_is_compared_no_more(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    del at_source.columns_of["orders"]
    table_state(config, "shop", "shop.orders", "dropped", "dropped at the source", rebuild=1)
    assert [(t["table"], t["equal"]) for t in told("reconcile", "shop")["tables"]] == [("shop.items", True)]


def test_a_comparison_of_all_tables_is_kept_table_by_table(at_source: AtSource, told: Callable[..., Any]):
    """orders is found equal by another comparison while the long one, which began before, is at items."""

    def meanwhile() -> None:
        at_source.meanwhile.clear()
        assert told("reconcile", "shop", "shop.orders")["equal"]
        at_source.differing["orders"] = 500

    at_source.meanwhile["items"] = meanwhile
    assert not told("reconcile", "shop")["equal"]
    verdict, [reason] = verdicts(told)["shop.orders"]
    assert (verdict, "500 rows" in reason) == ("broken", True)


def test_what_a_comparison_found_stays_when_it_is_ended_by_a_later_table(
    at_source: AtSource, told: Callable[..., Any], config: Config, capsys: pytest.CaptureFixture[str]
):
    def refused() -> None:
        raise SourceUnreachable("127.0.0.1:1", "it went away")

    at_source.differing["items"], at_source.meanwhile["orders"] = 3, refused
    assert run(["reconcile", "shop", "--config", str(config.file)]) == 1
    assert "it went away" in capsys.readouterr().err
    assert verdicts(told)["shop.items"][0] == "broken"


def lose(config: Config, at: datetime, first: int = 10) -> None:
    row = {"source": "shop", "batch": -1, "room": "landing", "topic": "dts", "partition": 0, "outcome": "lost"}
    add(config.lake, OFFSET_LEDGER, {**row, "from_offset": first, "to_offset": first + 4, "records": 5, "lost_at": at})


def test_an_export_mends_what_was_lost_before_it_was_made(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    def export(*more: str) -> tuple[str, list[str]]:
        assert told("reconcile", "shop", "shop.orders", "--export", "orders.csv", "--key", "id", *more)["equal"]
        return verdicts(told)["shop.orders"]

    of_unknown_age = (
        "shop.orders equals an export of which nobody said when it was made (`reconcile --export … --at TIME`)"
    )
    assert export() == ("consistent", [of_unknown_age])
    assert export("--at", "2026-11-20T10:00:00Z") == ("proven", [])
    lost = ("broken", ["5 offsets of the source were lost before they were landed"])
    lose(config, datetime(2026, 11, 20, 11, tzinfo=UTC))
    assert verdicts(told)["shop.orders"] == lost
    assert export("--at", "2026-11-20 18:59:59+08:00") == lost, "it lacks the same changes"
    assert export() == lost
    assert export("--at", "2026-11-20 11:00:01") == ("proven", [])
    assert told("reconcile", "shop", "shop.orders", "--export", "orders.csv", "--key", "id")["equal"]
    assert verdicts(told)["shop.orders"] == ("proven", []), "one that may be older says nothing else"


def test_an_older_export_hides_no_difference(config: Config, at_source: AtSource, told: Callable[..., Any]):
    at_source.differing["orders"] = 3
    told("reconcile", "shop", "shop.orders")
    at_source.differing.clear()
    for made in ([], ["--at", (datetime.now(UTC) - timedelta(hours=1)).isoformat()]):
        command = ["reconcile", "shop", "shop.orders", "--export", "orders.csv", "--key", "id", *made]
        assert told(*command)["equal"]
        assert verdicts(told)["shop.orders"][0] == "broken"
    told("reconcile", "shop", "shop.orders")
    assert verdicts(told)["shop.orders"] == ("proven", [])


def test_a_column_that_is_not_compared_is_not_proven_and_mends_nothing(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    at_source.snapshot = SimpleNamespace(dtypes=[("id", "bigint"), ("doc", "string")])
    at_source.columns_of["orders"] = [ID, SourceColumn("doc", "json", False), SourceColumn("v", "int", False, True)]
    at_source.columns_of["items"] = [ID, SourceColumn("doc", "text", False), SourceColumn("v", "int", False, True)]
    assert told("reconcile", "shop")["equal"]
    verdict, [reason] = verdicts(told)["shop.orders"]
    assert (verdict, reason.split(":")[0]) == (
        "consistent",
        "column doc of shop.orders can't be compared with the source",
    )
    assert verdicts(told)["shop.items"] == ("proven", []), "of v, which it hasn't, nothing can be wrong"
    lose(config, datetime.now(UTC))
    assert told("reconcile", "shop")["equal"]
    lost = ("broken", ["5 offsets of the source were lost before they were landed"])
    assert verdicts(told) == {"shop.orders": lost, "shop.items": ("proven", [])}
    source = config.source("shop")
    notes.note_load(config, source, ("shop", "orders"), 2, notes.seen(config, source, ("shop", "orders")))
    assert verdicts(told)["shop.orders"] == ("consistent", [reason]), "all of it was read from the source since"
    assert told("reconcile", "shop")["equal"]
    assert verdicts(told)["shop.orders"] == ("consistent", [reason])
    at_source.differing["orders"] = 1
    told("reconcile", "shop")
    assert verdicts(told)["shop.orders"][0] == "broken"
    at_source.differing.clear()
    told("reconcile", "shop")
    lose(config, datetime.now(UTC), 20)
    assert verdicts(told)["shop.orders"][0] == "broken", "what is lost after it isn't mended by it"


def test_rows_that_werent_judged_prove_nothing_and_mend_nothing(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    told("reconcile", "shop")
    lose(config, datetime.now(UTC))
    at_source.moved["orders"] = 3
    assert told("reconcile", "shop")["equal"]
    found = verdicts(told)
    assert found["shop.items"] == ("proven", [])
    assert found["shop.orders"] == ("broken", ["5 offsets of the source were lost before they were landed"])
    at_source.moved.clear()
    told("reconcile", "shop")
    at_source.moved["orders"] = 3
    told("reconcile", "shop")
    reason = "shop.orders: 3 rows changed while compared, and weren't judged"
    assert verdicts(told)["shop.orders"] == ("consistent", [reason]), "the loss was mended before"
    at_source.differing["orders"] = 1
    told("reconcile", "shop")
    assert verdicts(told)["shop.orders"][0] == "broken"


def test_a_server_that_is_behind_proves_nothing(config: Config, at_source: AtSource, told: Callable[..., Any]):
    lose(config, datetime.now(UTC))
    at_source.behind = "the server is a replica that is 21,600 s behind"
    told("reconcile", "shop")
    assert verdicts(told)["shop.orders"] == ("broken", ["5 offsets of the source were lost before they were landed"])
    at_source.behind = None
    told("reconcile", "shop")
    assert verdicts(told)["shop.orders"] == ("proven", [])


@pytest.mark.parametrize("anew", [False, True])
def test_a_loss_stays_mended_when_a_column_comes_that_is_not_compared(
    config: Config, at_source: AtSource, told: Callable[..., Any], anew: bool
):
    lose(config, datetime.now(UTC))
    assert told("reconcile", "shop")["equal"]
    at_source.snapshot = SimpleNamespace(dtypes=[("id", "bigint"), ("doc", "string")])
    at_source.columns_of["orders"] = [ID, SourceColumn("doc", "json", False)]
    at_source.columns_of["items"] = [ID, SourceColumn("doc", "text", False)]
    if anew:
        made_anew(config, "orders")
    assert told("reconcile", "shop")["equal"]
    verdict, [reason] = verdicts(told)["shop.orders"]
    assert (verdict, "column doc of shop.orders can't be compared" in reason) == ("consistent", True)
    at_source.differing["orders"] = 1
    told("reconcile", "shop")
    assert verdicts(told)["shop.orders"][0] == "broken"
    at_source.differing.clear()
    told("reconcile", "shop")
    assert verdicts(told)["shop.orders"] == ("consistent", [reason])
    lose(config, datetime.now(UTC), 20)
    assert told("reconcile", "shop")["equal"]
    lost = ("broken", ["5 offsets of the source were lost before they were landed"])
    assert verdicts(told)["shop.orders"] == lost, "those alone that no whole comparison saw"


def test_a_virtual_column_that_an_earlier_version_noted_takes_no_proof(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    told("reconcile", "shop")
    rows = DeltaTable(RECONCILIATIONS.at(config.lake)).to_pyarrow_table().to_pylist()
    [orders] = [dict(r) for r in rows if r["table"] == "orders"]
    orders |= {"not_compared": {"g": NOT_CARRIED}, "at": datetime.now(UTC)}
    add(config.lake, RECONCILIATIONS, orders)
    assert verdicts(told) == {"shop.orders": ("proven", []), "shop.items": ("proven", [])}


_PLACES = count()


def statement(config: Config, *effects: tuple[str | None, str | None], **more: Any) -> None:
    """One that did this to tables: name before and after; its snapshots are made anew."""
    place = {"epoch": 0, "file": 1, "pos": next(_PLACES), "event": 0, "row": 0, "landed": 0}
    told = {"source": "shop", "ddl": "a statement", "decision": "rebuilt", "order_key": place, "at": datetime.now(UTC)}
    for before, after in effects:
        names = {"db_before": before and "shop", "table_before": before, "db_after": after and "shop"}
        add(config.lake, SCHEMA_CHANGES, {**told, **names, "table_after": after, **more})


def made_anew(config: Config, table: str, state: str = "live", rebuild: int = 1) -> None:
    if state == "live":
        snapshot(config, "shop", f"shop.{table}", 2)
    table_state(config, "shop", f"shop.{table}", state, rebuild=rebuild)


ANEW = ("consistent", ["shop.orders was compared before its rows were made anew"])
NEVER = ("consistent", ["it wasn't compared with the source so far (`cdc-platform reconcile`)"])


def test_a_table_made_anew_is_proven_by_its_next_comparison(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    lose(config, datetime.now(UTC))
    told("reconcile", "shop")
    assert verdicts(told) == {"shop.orders": ("proven", []), "shop.items": ("proven", [])}
    made_anew(config, "orders")
    assert verdicts(told) == {"shop.orders": ANEW, "shop.items": ("proven", [])}, "what was lost it doesn't lack"
    told("reconcile", "shop", "shop.orders")
    assert verdicts(told)["shop.orders"] == ("proven", [])
    at_source.differing["orders"] = 3
    told("reconcile", "shop", "shop.orders")
    made_anew(config, "orders", rebuild=2)
    assert verdicts(told)["shop.orders"][0] == "broken", "nothing says that it doesn't differ any more"


def test_a_table_that_takes_another_ones_name_is_not_proven_by_its_comparison(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    """As gh-ost does it."""
    lose(config, datetime.now(UTC))
    told("reconcile", "shop", "shop.orders")
    statement(config, ("orders", "orders_old"), ("items", "orders"))
    made_anew(config, "orders")
    made_anew(config, "orders_old")
    made_anew(config, "items", "dropped")
    found = verdicts(told)
    lost = "5 offsets of the source were lost before they were landed"
    assert found["shop.orders"] == ("broken", [lost]), "of items, which wasn't compared"
    assert found["shop.orders_old"] == (
        "consistent",
        ["shop.orders_old was compared before its rows were made anew"],
    )


def test_a_difference_goes_with_its_table(config: Config, at_source: AtSource, told: Callable[..., Any]):
    at_source.differing["items"] = 1000
    told("reconcile", "shop")
    statement(config, ("orders", "orders_old"), ("items", "orders"))
    made_anew(config, "orders")
    made_anew(config, "orders_old")
    made_anew(config, "items", "dropped")
    found = verdicts(told)
    assert found["shop.orders"][0] == "broken"
    assert "1,000 rows" in found["shop.orders"][1][0]
    assert found["shop.orders_old"][0] == "consistent"
    statement(config, ("orders", None))
    statement(config, (None, "orders"))
    made_anew(config, "orders", rebuild=2)
    assert verdicts(told)["shop.orders"] == NEVER, "it ends with its table"


def test_that_a_name_is_gone_is_not_said_of_the_table_that_a_late_feed_then_renames(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    assert told("reconcile", "shop")["equal"]
    at_source.columns_of["orders_old"] = at_source.columns_of.pop("orders")
    assert not told("reconcile", "shop", "shop.orders")["equal"]
    assert verdicts(told)["shop.orders"][0] == "broken"
    statement(config, ("orders", "orders_old"))
    made_anew(config, "orders_old")
    made_anew(config, "orders", "dropped")
    why = "shop.orders_old was compared before its rows were made anew"
    assert verdicts(told)["shop.orders_old"] == ("consistent", [why]), "what was found of it before counts"


def test_a_statement_that_is_carried_with_a_reserve_ends_the_proof(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    told("reconcile", "shop")
    statement(config, ("orders", "orders"), decision="applied")
    assert verdicts(told)["shop.orders"] == ("proven", [])
    statement(config, ("orders", "orders"), decision="applied", reason="at: isn't told")
    why = "shop.orders was compared before a statement whose effect on its rows isn't told in full: at: isn't told"
    assert verdicts(told) == {"shop.orders": ("consistent", [why]), "shop.items": ("proven", [])}


def test_comparisons_of_earlier_versions_count_where_the_table_was_never_made_anew(
    config: Config, at_source: AtSource, told: Callable[..., Any]
):
    told("reconcile", "shop")
    made_anew(config, "orders")
    path = RECONCILIATIONS.at(config.lake)
    rows = DeltaTable(path).to_pyarrow_table().drop_columns(["made_at", "rebuild", "falls_short"])
    shutil.rmtree(path)
    write_deltalake(path, rows, partition_by=["source"])
    assert verdicts(told) == {"shop.orders": ANEW, "shop.items": ("proven", [])}
