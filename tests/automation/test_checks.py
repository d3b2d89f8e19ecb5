"""Checks find what is wrong in real Delta tables, and pass when it is right."""

from pathlib import Path

import pytest

from cdc_platform.automation import checks, keys
from cdc_platform.definitions import build
from cdc_platform.reconcile.binlog import Risk
from cdc_platform.reconcile.result import TableResult
from tests.automation.conftest import landing, ledger, make_config

LANDED = ("shop-dts", "dts-shop", 0, 0, 9, "landed", 10)


def outcome(name: str, records: int) -> tuple:
    return ("shop-dts", "dts-shop", 0, 0, 9, name, records)


@pytest.mark.parametrize(
    "rows",
    [
        [LANDED, outcome("applied", 7), outcome("control", 2), outcome("filtered", 1)],
        [LANDED, outcome("duplicate", 1), outcome("quarantined", 1), outcome("waiting", 8)],
        [LANDED, outcome("waiting", 8), outcome("waiting", -8), outcome("applied", 10)],
        [LANDED, outcome("applied", 10), ("shop-dts", "dts-shop", 0, 20, 29, "lost", 10)],
        [LANDED, outcome("applied", 10), ("shop_debezium", "t", 0, 0, 4, "landed", 5)],
    ],
    ids=["sorted", "all outcomes", "waited, then applied", "lost is beside", "another source is mid-run"],
)
def test_accounted(config, rows):
    ledger(config, *rows)
    landing(config, "shop-dts", 10)
    result = checks.ledger_result(config, [config.source("shop-dts")])
    assert result.passed, result.description


@pytest.mark.parametrize(
    ("rows", "records", "told"),
    [
        ([LANDED, outcome("applied", 9)], 10, "shop-dts dts-shop[0]: landed 10, accounted 9"),
        ([LANDED, outcome("applied", 10), outcome("duplicate", 1)], 10, "accounted 11"),
        ([LANDED, outcome("applied", 10)], 11, "landing holds 11 records, the ledger counts 10"),
        ([LANDED, outcome("applied", 10)], 0, "landing holds 0 records"),
    ],
    ids=["a hole", "counted twice", "landed unseen", "landing gone"],
)
def test_holes_fail(config, rows, records, told):
    ledger(config, *rows)
    if records:
        landing(config, "shop-dts", records)
    result = checks.ledger_result(config, [config.source("shop-dts")])
    assert not result.passed
    assert told in str(result.description)


def test_quarantine_warns_of_new_rows_once(config, run_job):
    import pyarrow as pa
    from deltalake import write_deltalake

    from cdc_platform.tables import QUARANTINE

    def check() -> tuple[bool, str]:
        (found,) = run_job(keys.QUARANTINE).get_asset_check_evaluations()
        return found.passed, found.severity.value

    assert check() == (True, "WARN")
    row = {"source": ["shop-dts"], "reason": ["torn"], "resolved_at": pa.array([None], pa.timestamp("us", "UTC"))}
    write_deltalake(QUARANTINE.at(config.lake), pa.table(row))
    assert check() == (False, "WARN")
    assert check() == (True, "WARN")


def test_a_stopped_table_fails_until_it_lives_again(config, run_job):
    import pyarrow as pa
    from deltalake import write_deltalake

    from cdc_platform.tables import TABLE_STATE

    def state(batch: int, state: str, reason: str | None, rebuild: int = 0) -> None:
        row = {
            "source": "s",
            "db": "shop",
            "table": "audit",
            "batch": batch,
            "rebuild": rebuild,
            "state": state,
            "reason": reason,
        }
        schema = pa.schema([(k, pa.int64() if k in ("batch", "rebuild") else pa.string()) for k in row])
        write_deltalake(TABLE_STATE.at(config.lake), pa.Table.from_pylist([row], schema), mode="append")

    def check() -> tuple[bool, str | None]:
        found = {e.check_name: e for e in run_job(keys.SNAPSHOTS).get_asset_check_evaluations()}
        return found["no_table_is_stopped"].passed, found["no_table_is_stopped"].description

    state(0, "stopped", "no key")
    assert check() == (False, "s shop.audit: no key")
    state(0, "live", None, rebuild=1)
    assert check() == (True, "no table is stopped")


def test_reconcile_is_a_check_of_its_own_job(tmp_path, instance, monkeypatch):
    """A catch-up run doesn't read the source's database; without its DSN nothing is proven."""
    monkeypatch.delenv("SHOP_DSN", raising=False)
    defs = build(make_config(tmp_path, reconcile={"dsn_env": "SHOP_DSN"}))
    checks_of = {
        job: {k.name for k in defs.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys}
        for job in ("catch_up", "reconcile")
    }
    assert checks_of["reconcile"] == {"equals_source_shop_dts", "equals_source_shop_debezium"}
    assert checks_of["catch_up"] >= {"heartbeat", "no_table_is_stopped"}
    assert not checks_of["catch_up"] & checks_of["reconcile"]
    found = defs.resolve_job_def("reconcile").execute_in_process(instance=instance).get_asset_check_evaluations()
    assert {(c.check_name, c.passed) for c in found} == {(name, False) for name in checks_of["reconcile"]}
    assert all("not compared: SHOP_DSN" in str(c.description) for c in found)


def test_what_a_comparison_found_passes_only_when_all_is_equal():
    equal = TableResult("a.b", expected_rows=5, actual_rows=5, not_compared={"doc": "json"})
    source = make_config(Path("x")).sources[0]
    passed = checks.reconcile_result(source, [equal])
    assert (passed.passed, passed.description) == (True, "1 tables equal their source; 1 columns not compared")
    for wrong in ({"missing": 1}, {"extra": 1}, {"changed": 1}, {"not_looked_into": 1}, {"problems": ["gone"]}):
        failed = checks.reconcile_result(source, [equal, TableResult("a.c", **wrong)])
        assert not failed.passed
        assert str(failed.description).startswith("a.c: ")
    assert not checks.reconcile_result(source, []).passed
    risky = checks.reconcile_result(source, [equal], [Risk("binlog_format", "MIXED", "statements may stand there")])
    assert risky.passed
    assert str(risky.description).endswith("; changes may be missing: binlog_format is MIXED")
