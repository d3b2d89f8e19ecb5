"""Certificates: a verdict of each table, by all that the lake knows of it, and what `certify` says and keeps."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from cdc_platform import certificate, tables
from cdc_platform.automation import table_events, table_status
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.reporting import snapshots_now
from cdc_platform.certificate import Certificate
from cdc_platform.cli.app import run
from cdc_platform.config import Config, load_config
from cdc_platform.config.shadow import Shadow
from cdc_platform.formats import FORMATS
from cdc_platform.lake import lease, new_tables, sequences, stores
from cdc_platform.results import StageResult
from tests.automation.conftest import complete, held, ledger, resolve, schema_history, snapshot, table_state
from tests.rows import add

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SOURCE, OTHER, ORDERS, ITEMS = "shop-dts", "crm", ("shop", "orders"), ("shop", "items")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    raw = {
        "lake": "./lake",
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "sources": [{"name": SOURCE, "format": "tencent_dts", "topics": ["dts"]}],
    }
    (tmp_path / "cdc.yaml").write_text(json.dumps(raw))
    made = load_config(tmp_path / "cdc.yaml")
    for table in ("orders", "items"):
        schema_history(made, (SOURCE, "shop", table))
        snapshot(made, SOURCE, f"shop.{table}", 2)
    ledger(made, (SOURCE, "dts", 0, 0, 9, "landed", 10), (SOURCE, "dts", 0, 0, 9, "applied", 10))
    complete(made, SOURCE, 0, NOON, {"binlog_file": "b.1", "binlog_pos": Decimal(4), "gtid": "u:1-7"})
    return made


def compared(config: Config, table: str, *, equal: bool = True, at: datetime = NOON, **more: Any) -> None:
    row = {"source": SOURCE, "db": "shop", "table": table, "against": "server", "equal": equal, "version": 0, "rows": 2}
    add(config.lake, tables.RECONCILIATIONS, {**row, "differing": 0, "lost": 0, "at": at, **more})


def now(config: Config) -> dict[tuple[str, ...], Certificate]:
    return dict(certificate.of_source(config, config.sources[0]))


def verdicts(config: Config) -> tuple[str, str]:
    found = now(config)
    return found[ORDERS].text, found[ITEMS].text


BESIDE = {"source": SOURCE, "kind": "typed_changes", "number": 0, "db": "shop", "table": "orders"}
NEVER = "consistent: it wasn't compared with the source so far (`cdc-platform reconcile`)"


def test_a_table_is_proven_by_a_comparison(config: Config):
    assert verdicts(config) == (NEVER, NEVER)
    compared(config, "orders")
    assert verdicts(config) == ("proven", NEVER)
    one = now(config)[ORDERS]
    assert one.complete_up_to == NOON
    assert (one.facts["position"], one.facts["gtids"]) == ("b.1:4", "u:1-7")
    assert (one.facts["landed"], one.facts["accounted"], one.facts["lost"]) == (10, 10, 0)
    assert [c["table"] for c in one.facts["compared"]] == ["shop.orders"]
    compared(config, "orders", equal=False, differing=3, at=NOON + timedelta(hours=1))
    assert verdicts(config)[0] == (
        "broken: shop.orders differs from the source: 3 rows at 2026-11-20 13:00:00Z"
    )  # the newest counts
    compared(config, "orders", at=NOON + timedelta(hours=2))
    assert verdicts(config)[0] == "proven"


def test_what_quarantine_holds_breaks_its_table_and_what_names_none_breaks_all(config: Config):
    compared(config, "orders")
    held(config, SOURCE, "shop.items")
    assert verdicts(config) == ("proven", "broken: quarantine holds 1 row of it")
    resolve(config, SOURCE)
    held(config, SOURCE, None)
    why = "broken: quarantine holds 1 message of the source that names no table"
    assert verdicts(config) == (why, why)


def test_what_quarantine_holds_of_no_table_ends_with_a_comparison_after_it(config: Config):
    held(config, SOURCE, None)
    for name in ("was_called_so", "was_never_used"):
        held(config, SOURCE, f"shop.{name}")
    for n, (before, after) in enumerate((("was_called_so", "then_so"), ("then_so", "orders"), ("orders", None))):
        place = {"epoch": 0, "file": 1, "pos": n, "event": 0, "row": 0, "landed": n}
        step = {"source": SOURCE, "db_before": "shop", "table_before": before, "order_key": place}
        add(config.lake, tables.SCHEMA_CHANGES, {**step, "db_after": after and "shop", "table_after": after})
    of_no_table = "broken: quarantine holds 1 message of the source that names no table"
    renamed = f"{of_no_table}; quarantine holds 1 row of it under the name shop.was_called_so"
    assert verdicts(config) == (renamed, of_no_table)
    compared(config, "orders", at=datetime.now(UTC) - timedelta(hours=1))
    assert verdicts(config) == (renamed, of_no_table), "what was compared before says nothing of them"
    compared(config, "orders", at=datetime.now(UTC) + timedelta(minutes=1))
    assert verdicts(config) == ("proven", of_no_table)
    held(config, SOURCE, "shop.orders")
    assert verdicts(config)[0] == "broken: quarantine holds 1 row of it", "what names the table holds on"
    assert now(config)[ORDERS].facts["held_unnamed"] == 1


def test_a_row_under_a_name_that_two_tables_had_breaks_both(config: Config):
    for table in ("orders", "items"):
        compared(config, table)
    place = {"epoch": 0, "file": 1, "pos": 0, "event": 0, "row": 0, "landed": 0}
    step = {"source": SOURCE, "db_before": "shop", "table_before": "orders", "order_key": place}
    add(config.lake, tables.SCHEMA_CHANGES, {**step, "db_after": "shop", "table_after": "items"})
    held(config, SOURCE, "shop.orders")
    of_orders = "broken: quarantine holds 1 row of it"
    assert verdicts(config) == (of_orders, f"{of_orders} under the name shop.orders")


def erasure(config: Config, number: int, stage: str, at: datetime, *records: int, left: int | None = None) -> None:
    """A row of ERASURES, of a row of orders."""
    told = [{"topic": "dts", "partition": 0, "offset": n, "digest": "d", "shared": False} for n in records]
    row = {"source": SOURCE, "number": number, "stage": stage, "db": "shop", "table": "orders", "records": told}
    proof = None if left is None else json.dumps({"left": left})
    add(config.lake, tables.ERASURES, {**row, "proof": proof, "at": at})


def test_after_an_erasure_a_table_is_proven_by_a_comparison_after_it(config: Config):
    hour = timedelta(hours=1)
    compared(config, "orders")
    compared(config, "items")
    erasure(config, 1, "begun", NOON + hour, 3)
    assert verdicts(config) == ("consistent: erasure 1 of a row isn't finished", "proven")
    erasure(config, 1, "done", NOON + hour, 3, left=0)
    before = "it was compared before erasure 1 took a row out of it"
    assert verdicts(config) == (f"consistent: {before}", "proven")
    compared(config, "orders", at=NOON + 2 * hour)
    assert verdicts(config) == ("proven", "proven")
    erasure(config, 1, "again", NOON + 3 * hour, 5)
    assert verdicts(config)[0] == "consistent: messages of erasure 1 were sent again: 1"
    erasure(config, 2, "begun", NOON + 4 * hour, 5)
    erasure(config, 2, "done", NOON + 4 * hour, 5, left=2)
    compared(config, "orders", at=NOON + 5 * hour)
    assert verdicts(config)[0] == "consistent: erasure 2 left something in 2 places"
    assert "name" not in now(config)[ORDERS].facts["erasures"][0]
    compared(config, "orders", equal=False, differing=1, at=NOON + 6 * hour)
    assert verdicts(config)[0].startswith("broken: shop.orders differs"), "what is wrong is told first"


def test_an_erasure_goes_with_the_table_through_a_rename(config: Config):
    compared(config, "items")
    place = {"epoch": 0, "file": 1, "pos": 0, "event": 0, "row": 0, "landed": 0}
    step = {"source": SOURCE, "db_before": "shop", "table_before": "orders", "order_key": place}
    add(config.lake, tables.SCHEMA_CHANGES, {**step, "db_after": "shop", "table_after": "items"})
    for stage, left in (("begun", None), ("done", 0)):
        erasure(config, 1, stage, NOON + timedelta(hours=1), left=left)
    assert verdicts(config)[1] == "consistent: it was compared before erasure 1 took a row out of it"


def test_a_stopped_table_is_broken_and_a_dropped_one_has_none(config: Config):
    table_state(config, SOURCE, "shop.orders", "stopped", "no key", rebuild=1)
    table_state(config, SOURCE, "shop.items", "dropped", rebuild=1)
    assert {n: c.text for n, c in now(config).items()} == {ORDERS: "broken: it is stopped: no key"}


def test_what_is_kept_beside_a_table_is_shown_and_breaks_nothing(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(config.sources[0].tables.__dict__, "typed_changes", ["shop.orders"])
    monkeypatch.setattr("cdc_platform.cli.certify.load_config", lambda _: config)
    [waiting] = now(config)[ORDERS].beside
    assert (waiting.state, waiting.reason, now(config)[ITEMS].beside) == ("waiting", "the next run makes it", ())
    add(config.lake, tables.BESIDE_STATE, BESIDE | {"state": "lacking", "reason": "no room"})
    assert run(["certify", SOURCE]) == 0
    assert re.search("shop.orders +typed_changes +lacking +no room", capsys.readouterr().out)
    table_state(config, SOURCE, "shop.orders", "stopped", "no key", rebuild=1)
    run(["certify", SOURCE, "shop.orders", "--json"])
    [told] = json.loads(capsys.readouterr().out)["tables"]
    [one] = told["beside"]
    assert (told["verdict"], one["state"], one["reason"]) == ("broken", "stopped", "its table is stopped")


def differs(config: Config, table: str, kind: str, number: int = 0, **more: Any) -> None:
    row = {"source": SOURCE, "by": OTHER, "number": number, "db": "shop", "table": table, "key": "1", "kind": kind}
    add(config.lake, tables.SHADOW_DIFFERENCES, {**row, "rows": 1, "first_seen": NOON, "at": NOON, **more})


def test_open_differences_from_another_feed_break_both_tables(config: Config, monkeypatch: pytest.MonkeyPatch):
    other = config.sources[0].model_copy(update={"name": OTHER})
    monkeypatch.setitem(config.__dict__, "sources", [config.sources[0], other])
    monkeypatch.setitem(config.__dict__, "shadow", [Shadow(of=SOURCE, by=OTHER)])
    for table in ("orders", "items"):
        table_state(config, SOURCE, f"shop.{table}", "live")
    for table in ("Orders", "items"):  # the other server tells another case
        schema_history(config, (OTHER, "shop", table))
        snapshot(config, OTHER, f"shop.{table}", 2)
        table_state(config, OTHER, f"shop.{table}", "live")

    def others() -> str:
        return certificate.of_source(config, other)["shop", "Orders"].text

    complete(config, OTHER, 0, NOON)
    assert (*verdicts(config), others()) == (NEVER, NEVER, NEVER)
    differs(config, "orders", "only_of")
    differs(config, "orders", "differs", key="2")
    rows = (
        f"1 row lacking in crm, 1 row with other values at 2026-11-20 12:00:00Z (`cdc-platform shadow status {SOURCE}`)"
    )
    assert verdicts(config) == (f"broken: it differs from that of crm: {rows}", NEVER)
    assert others() == f"broken: it differs from that of {SOURCE}: {rows}"
    compared(config, "orders", at=NOON + timedelta(hours=1))  # so the other feed is wrong
    assert verdicts(config)[0] == "proven"
    assert others().startswith("broken")
    for key in ("1", "2"):
        differs(config, "orders", "differs", 1, key=key, closed_at=NOON)
    assert others() == NEVER


def test_offsets_without_an_outcome_break_all(config: Config):
    ledger(config, (SOURCE, "dts", 0, 10, 11, "landed", 2))
    assert verdicts(config)[0] == "broken: dts/0: 12 records landed, 10 of them accounted for"


def test_offsets_that_a_run_on_another_machine_is_about_to_account_for_break_nothing(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    before = verdicts(config)
    ledger(config, (SOURCE, "dts", 0, 10, 11, "landed", 2))
    lake, source = stores.lake(config), config.source(SOURCE)
    with lease.held(lake, SOURCE, source.slug, 0):  # no lock file: it is another machine's
        assert verdicts(config) == before
    assert verdicts(config)[0].startswith("broken: dts/0: 12 records landed")

    def ended(*_: object) -> bool:
        """The run ended after the ledger was read."""
        ledger(config, (SOURCE, "dts", 0, 10, 11, "applied", 2))
        return False

    monkeypatch.setattr(certificate, "is_held", ended)
    assert verdicts(config) == before


def test_lost_offsets_break_until_a_comparison_after_them(config: Config):
    compared(config, "orders")
    ledger(config, (SOURCE, "dts", 0, 10, 14, "lost", 5))
    why = "broken: 5 offsets of the source were lost before they were landed"
    assert verdicts(config) == (why, why)
    compared(config, "orders", lost=5, at=NOON + timedelta(hours=1))
    assert verdicts(config) == ("proven", why)


def test_a_table_that_routes_merge_is_proven_by_a_comparison_of_each_that_goes_into_it(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(config.sources[0].tables.__dict__, "routes", {r"shop_\d+.orders": "shop.orders"})
    schema_history(config, (SOURCE, "shop_1", "orders"), (SOURCE, "shop_2", "orders"))
    ledger(config, (SOURCE, "dts", 0, 10, 14, "lost", 5))
    for db in ("shop", "shop_1"):
        compared(config, "orders", db=db, lost=5)
    assert now(config)[ORDERS].verdict == "broken", "what was lost may have been of shop_2.orders"
    assert ORDERS in sequences.lost_of_tables(config, config.sources[0], [ORDERS]), "complete to no later time"
    compared(config, "orders", db="shop_2", lost=5)
    assert now(config)[ORDERS].text == "proven"
    assert sequences.lost_of_tables(config, config.sources[0], [ORDERS]) == {}


def test_of_a_merged_table_that_was_compared_in_part_it_is_said(config: Config, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(config.sources[0].tables.__dict__, "routes", {r"shop_\d+.orders": "shop.orders"})
    schema_history(config, *((SOURCE, f"shop_{i}", "orders") for i in (1, 2, 3)))
    for db in ("shop", "shop_1"):
        compared(config, "orders", db=db)
    why = "shop_2.orders and 1 more that go into it weren't compared with the source so far"
    assert now(config)[ORDERS].text == f"consistent: {why} (`cdc-platform reconcile`)"


def test_one_that_was_dropped_need_not_be_compared(config: Config, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(config.sources[0].tables.__dict__, "routes", {r"shop_\d+.orders": "shop.orders"})
    schema_history(config, (SOURCE, "shop_1", "orders"), (SOURCE, "shop_2", "orders"))
    place = {"epoch": 0, "file": 1, "pos": 0, "event": 0, "row": 0, "landed": 0}
    dropped = {"source": SOURCE, "db_before": "shop_2", "table_before": "orders", "order_key": place, "at": NOON}
    add(config.lake, tables.SCHEMA_CHANGES, dropped)
    for db in ("shop", "shop_1"):
        compared(config, "orders", db=db, at=NOON + timedelta(hours=1))
    assert now(config)[ORDERS].text == "proven"


def test_a_table_all_of_whose_rows_are_held_is_broken(config: Config, capsys: pytest.CaptureFixture[str]):
    at = ["--config", str(config.file), "--json"]
    for name in ("fresh", "renamed", "empty"):
        schema_history(config, (SOURCE, "shop", name))
    for name in ("fresh", "renamed"):
        held(config, SOURCE, f"shop.{name}")
    place = {"epoch": 0, "file": 1, "pos": 0, "event": 0, "row": 0, "landed": 0}
    step = {"source": SOURCE, "db_before": "shop", "table_before": "renamed", "order_key": place}
    add(config.lake, tables.SCHEMA_CHANGES, {**step, "db_after": "shop", "table_after": "items"})
    assert run(["certify", SOURCE, *at]) == 1
    found = {t["table"]: (t["verdict"], t["reasons"]) for t in json.loads(capsys.readouterr().out)["tables"]}
    assert found == {
        "shop.fresh": ("broken", ["quarantine holds 1 row of it"]),
        "shop.items": ("broken", ["quarantine holds 1 row of it under the name shop.renamed"]),
        "shop.orders": ("consistent", [NEVER.removeprefix("consistent: ")]),
    }
    status = {s.name: s for s in table_status.statuses(config, config.sources[0])}
    key = Naming(config).table(config.sources[0], "shop", "fresh").key
    passed = {r.check_name: r.passed for r in table_events.check_results(status["shop.fresh"], key)}
    assert (status["shop.fresh"].state, passed["certified"]) == ("waiting", False)


def test_a_table_that_only_quarantine_names_is_broken(config: Config):
    """All of its rows are held, its columns' message among them."""
    held(config, SOURCE, "shop.new")
    assert now(config)["shop", "new"].text == "broken: quarantine holds 1 row of it"
    resolve(config, SOURCE)
    assert ("shop", "new") not in now(config)


def test_a_table_that_is_complete_to_no_time_is_not_proven(config: Config):
    compared(config, "orders")
    complete(config, SOURCE, 1, NOON, orders="quarantine held it")
    assert verdicts(config)[0] == "consistent: up to when it is complete isn't told"


@pytest.mark.thorough
def test_where_there_is_no_time_none_is_proven(config: Config, capsys: pytest.CaptureFixture[str]):
    def told(*command: str) -> dict[str, Any]:
        run([*command, "--config", str(config.file), "--json"])
        return json.loads(capsys.readouterr().out)

    def in_status() -> tuple[bool | None, dict[str, bool | None]]:
        found = told("status")
        return found["sources"][0]["complete_proven"], {t["table"]: t["complete_proven"] for t in found["tables"]}

    complete(config, SOURCE, 1, NOON, orders="quarantine held it")
    proven = {"shop.orders": None, "shop.items": True}
    assert in_status() == (True, proven)
    assert {c["table"]: c["facts"]["complete_up_to_proven"] for c in told("certify", SOURCE)["tables"]} == proven
    complete(config, SOURCE, 2, None)
    assert in_status() == (None, dict.fromkeys(proven))


def test_what_changes_is_kept(config: Config):
    def kept() -> list[tuple[int, str, str]]:
        rows = DeltaTable(tables.CERTIFICATES.at(config.lake)).to_pyarrow_table().to_pylist()
        return sorted((r["number"], r["table"], r["verdict"]) for r in rows)

    def issue() -> None:
        certificate.issue(config, now(config).values())

    issue()
    issue()
    assert kept() == [(0, "items", "consistent"), (0, "orders", "consistent")]
    compared(config, "orders")
    issue()
    complete(config, SOURCE, 1, NOON + timedelta(hours=23))
    issue()
    assert kept()[2:] == [(1, "orders", "proven")]
    complete(config, SOURCE, 2, NOON + timedelta(hours=24))
    issue()
    assert kept()[3:] == [(2, "items", "consistent"), (2, "orders", "proven")]


def rows_kept(config: Config, table: str = "orders") -> list[dict[str, Any]]:
    """Of one table, the oldest first."""
    rows = DeltaTable(tables.CERTIFICATES.at(config.lake)).to_pyarrow_table().to_pylist()
    return sorted((r for r in rows if r["table"] == table), key=lambda r: r["number"])


def test_a_tables_page_shows_what_its_certificate_was_made_from(config: Config):
    def shown() -> dict[str, Any]:
        status = {s.name: s for s in table_status.statuses(config, config.sources[0])}["shop.orders"]
        found = table_events.metadata(status)
        return {k: v.value if isinstance(v, dg.MetadataValue) else v for k, v in found.items()}

    found = shown()
    assert (found["source_landed"], found["source_accounted"]) == (10, 10)
    assert found["decoder_versions"] == FORMATS["tencent_dts"].version
    assert not [k for k in found if k.startswith("compared") or k == "missing_records"]
    told = {"binlog_file": "b.1", "binlog_pos": 4, "digest": "d", "differing": 0}
    compared(config, "orders", **told)
    compared(config, "orders", **{**told, "at": NOON + timedelta(hours=1), "differing": 3, "equal": False})
    found = {k: v for k, v in shown().items() if k.startswith("compared")}
    assert found.pop("compared_at") == (NOON + timedelta(hours=1)).timestamp()
    assert found == {
        "compared_with": "shop.orders: server",
        "compared_position": "b.1:4",
        "compared_rows": 2,
        "compared_digest": "d",
        "compared_differing": 3,
    }


def test_a_tables_page_shows_few_of_many_gaps(config: Config):
    gaps = [f"gap {n}" for n in range(9)]
    facts = {**now(config)[ORDERS].facts, "gaps": gaps}
    status = {s.name: s for s in table_status.statuses(config, config.sources[0])}["shop.orders"]
    many = replace(status, certificate=replace(now(config)[ORDERS], facts=facts))
    assert table_events.metadata(many)["missing_records"] == "gap 0; gap 1; gap 2; 6 gaps more"


def test_a_new_comparison_is_kept_at_once_and_each_once(config: Config):
    """Also of a table that is complete up to no time."""
    complete(config, SOURCE, 1, NOON, orders="quarantine held it")
    for hour in (0, 1):
        compared(config, "orders", at=NOON + timedelta(hours=hour), binlog_file="b.1", binlog_pos=4, digest=f"d{hour}")
        for _ in range(3):
            certificate.issue(config, now(config).values())
    found = [(r["compared_at"].hour, json.loads(r["facts"])["compared"][0]["digest"]) for r in rows_kept(config)]
    assert found == [(12, "d0"), (13, "d1")]
    assert [r["compared_at"] for r in rows_kept(config, "items")] == [None]


def cut(config: Config, number: int) -> None:
    row = {"source": SOURCE, "cut": number, "kind": "position", "source_time": None, "versions": [], "work": 0}
    add(config.lake, tables.CUTS, row)


def test_a_newer_cut_is_kept_once_a_day_also_where_there_is_no_time(config: Config, monkeypatch: pytest.MonkeyPatch):
    complete(config, SOURCE, 1, NOON, orders="quarantine held it")
    for number in range(3):
        cut(config, number)
        certificate.issue(config, now(config).values())
    assert [r["cut"] for r in rows_kept(config)] == [0]
    monkeypatch.setattr(certificate, "_AGAIN", timedelta(0))
    certificate.issue(config, now(config).values())
    certificate.issue(config, now(config).values())
    assert [r["cut"] for r in rows_kept(config)][:2] == [0, 2]
    assert len(rows_kept(config)) == 2


def test_what_the_feed_cannot_tell_is_kept(config: Config, capsys: pytest.CaptureFixture[str]):
    limits = {"note": ["no time zone"], "*": ["no deletes"]}
    path = DeltaTable(f"{config.lake}/snapshots/{SOURCE}/shop/orders")
    path.alter.set_table_properties({"cdc.limits": json.dumps(limits)}, raise_if_not_exists=False)
    certificate.issue(config, now(config).values())
    assert run(["certify", SOURCE, "--config", str(config.file)]) == 0
    assert "no time zone" in capsys.readouterr().out
    [kept] = rows_kept(config)
    assert json.loads(kept["facts"])["not_told"] == limits
    assert [json.loads(r["facts"])["not_told"] for r in rows_kept(config, "items")] == [{}]


def test_two_at_once_share_no_number(config: Config, monkeypatch: pytest.MonkeyPatch):
    """Another process keeps certificates between this one's look and its commit."""
    newest = certificate.queries.newest_of_tables
    others = iter([True, False])

    def looked(*args: Any, **of: Any) -> dict[Any, Any]:
        found = newest(*args, **of)
        if next(others, False):
            certificate.issue(config, [now(config)[ITEMS]])
        return found

    monkeypatch.setattr(certificate.queries, "newest_of_tables", looked)
    certificate.issue(config, [now(config)[ORDERS]])
    assert [(t, r["number"]) for t in ("items", "orders") for r in rows_kept(config, t)] == [
        ("items", 0),
        ("orders", 1),
    ]


def test_a_table_of_an_earlier_version_gets_the_columns_and_keeps_its_rows(config: Config):
    path = tables.CERTIFICATES.at(config.lake)
    before = [c for c in tables.CERTIFICATES.columns if c.name not in tables.CERTIFICATES.added]
    earlier = replace(tables.CERTIFICATES, columns=tuple(before), added=())
    new_tables.create(stores.of(path, config.storage), earlier)
    row = {"source": SOURCE, "number": 4, "db": "shop", "table": "orders", "verdict": "consistent"}
    add(config.lake, earlier, {**row, "reasons": [NEVER.removeprefix("consistent: ")], "complete_up_to": NOON})
    certificate.issue(config, now(config).values())
    assert [r["number"] for r in rows_kept(config)] == [4]
    compared(config, "orders")
    certificate.issue(config, now(config).values())
    assert [(r["number"], r["compared_at"]) for r in rows_kept(config)] == [(4, None), (6, NOON)]


def test_a_run_keeps_them(config: Config):
    naming, result = Naming(config), StageResult("snapshots", SOURCE, 0, 0, 0.0)

    def kept() -> list[tuple[str, str]]:
        snapshots_now(naming, config.sources[0], result)
        rows = DeltaTable(tables.CERTIFICATES.at(config.lake)).to_pyarrow_table().to_pylist()
        return sorted((r["table"], r["verdict"]) for r in rows)

    first = [("items", "consistent"), ("orders", "consistent")]
    assert kept() == kept() == first
    held(config, SOURCE, "shop.items")
    assert kept() == [("items", "broken"), *first]


def test_what_the_feed_cant_tell_is_part_of_it(config: Config, capsys: pytest.CaptureFixture[str]):
    path, told = (
        tables.SNAPSHOT_PATH.at(config.lake, source=SOURCE, db="shop", table="items"),
        {"*": ["x"], "id": ["y"]},
    )
    DeltaTable(path).alter.set_table_properties({"cdc.limits": json.dumps(told)}, raise_if_not_exists=False)
    assert run(["certify", SOURCE, "--config", str(config.file), "--json"]) == 0
    said = {t["table"]: t["facts"]["not_told"] for t in json.loads(capsys.readouterr().out)["tables"]}
    assert said == {"shop.items": told, "shop.orders": {}}
    run(["certify", SOURCE, "--config", str(config.file)])
    assert re.search(r"shop.items +\(whole rows\) +x", capsys.readouterr().out)


def test_position_and_gtids_are_shown_by_certify_and_status(config: Config, capsys: pytest.CaptureFixture[str]):
    at = ["--config", str(config.file)]
    why = "no position: its 2 partitions have positions of their own"
    complete(config, SOURCE, 1, NOON, {"gtid": "u:1-8", "position_reason": why}, orders="quarantine held it")
    run(["certify", SOURCE, *at])
    assert "u:1-8" in capsys.readouterr().out
    run(["status", *at, "--json"])
    found = json.loads(capsys.readouterr().out)
    [source] = found["sources"]
    assert [source[f"complete_{k}"] for k in ("position", "gtids", "position_reason")] == [None, "u:1-8", why]
    assert {t["table"]: t["complete_gtids"] for t in found["tables"]} == {"shop.orders": None, "shop.items": "u:1-8"}


def test_the_command(config: Config, capsys: pytest.CaptureFixture[str]):
    at = ["--config", str(config.file)]
    compared(config, "orders")
    assert run(["certify", SOURCE, *at, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [(t["table"], t["verdict"]) for t in data["tables"]] == [
        ("shop.items", "consistent"),
        ("shop.orders", "proven"),
    ]
    held(config, SOURCE, "shop.items")
    assert run(["certify", SOURCE, "shop.orders", *at]) == 0
    text = capsys.readouterr().out
    assert "proven" in text and "2026-11-20 12:00:00Z" in text and "items" not in text
    assert run(["certify", SOURCE, *at]) == 1
    assert "quarantine holds 1 row of it" in capsys.readouterr().out
    assert run(["certify", SOURCE, "shop.order", *at]) == 2
    assert "shop.orders" in capsys.readouterr().err


def test_the_check_blocks_what_lies_downstream(config: Config, monkeypatch: pytest.MonkeyPatch):
    from cdc_platform.definitions import build
    from tests.automation.conftest import NoSpark

    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    held(config, SOURCE, "shop.items")
    statuses = {s.id: s for s in table_status.statuses(config, config.sources[0])}
    naming = Naming(config)

    def result(name: tuple[str, str]) -> dg.AssetCheckResult:
        found = table_events.check_results(statuses[name], naming.table(config.sources[0], *name).key)
        return next(r for r in found if r.check_name == table_events.CERTIFIED)

    assert (result(ORDERS).passed, result(ITEMS).passed) == (True, False)
    assert result(ITEMS).description == "broken: quarantine holds 1 row of it"
    graph = build(config).resolve_asset_graph()
    spec = graph.get_check_spec(dg.AssetCheckKey(naming.table(config.sources[0], *ITEMS).key, "certified"))
    assert spec.blocking


def test_an_asset_downstream_waits_for_the_certificate(config: Config, monkeypatch: pytest.MonkeyPatch):
    from cdc_platform.definitions import build
    from tests.automation.conftest import NoSpark

    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: NoSpark())
    key = Naming(config).table(config.sources[0], *ORDERS).key
    waits = dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()

    @dg.asset(deps=[key], automation_condition=waits)
    def report() -> None: ...

    defs = dg.Definitions.merge(build(config), dg.Definitions(assets=[report]))

    def requested(*, passed: bool) -> int:
        with dg.instance_for_test() as instance:
            first = dg.evaluate_automation_conditions(defs=defs, instance=instance)
            instance.report_runless_asset_event(dg.AssetMaterialization(key))
            check = dg.AssetCheckEvaluation(asset_key=key, check_name=table_events.CERTIFIED, passed=passed)
            instance.report_runless_asset_event(check)
            found = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=first.cursor)
            return found.get_num_requested(report.key)

    assert (requested(passed=False), requested(passed=True)) == (0, 1)


@pytest.mark.thorough
def test_status_says_that_a_table_differed_until_a_comparison_finds_it_equal(config: Config, capfd: Any):
    def said() -> tuple[int, str]:
        code = run(["status", "--config", str(config.file), "--json"])
        found = json.loads(capfd.readouterr().out)["findings"]
        return code, " ".join(f["text"] for f in found if f["kind"] == "differs")

    compared(config, "orders", equal=False, differing=3)
    code, text = said()
    assert (code, text) == (1, "shop.orders differs from the source: 3 rows at 2026-11-20 12:00:00Z")
    compared(config, "orders", at=NOON + timedelta(hours=1))
    assert said()[1] == ""
