"""Checks find what is wrong in real Delta tables, and pass when it is right."""

import pytest

from cdc_platform.automation import checks, keys
from tests.automation.conftest import landing, ledger

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

    def state(batch: int, state: str, reason: str | None) -> None:
        row = {
            "source": "s",
            "db": "shop",
            "table": "audit",
            "batch": batch,
            "state": state,
            "reason": reason,
        }
        schema = pa.schema([(k, pa.int64() if k == "batch" else pa.string()) for k in row])
        write_deltalake(TABLE_STATE.at(config.lake), pa.Table.from_pylist([row], schema), mode="append")

    def check() -> tuple[bool, str | None]:
        found = {e.check_name: e for e in run_job(keys.SNAPSHOTS).get_asset_check_evaluations()}
        return found["no_table_is_stopped"].passed, found["no_table_is_stopped"].description

    state(0, "stopped", "no key")
    assert check() == (False, "s shop.audit: no key")
    state(1, "live", None)
    assert check() == (True, "no table is stopped")
