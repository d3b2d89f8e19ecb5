"""Typed changes of a real database: at every position that it was asked at, they come to its rows."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.snapshots.schema import features
from tests.oracle import server
from tests.oracle.feeds import FEEDS
from tests.oracle.lake import SOURCE, Lake, compared
from tests.oracle.recorded import made
from tests.oracle.test_snapshots import FEWER, parts
from tests.oracle.workload import DDL, DML

pytestmark = [pytest.mark.spark, pytest.mark.oracle, pytest.mark.thorough]

SEED, CHANGES, STATEMENTS, POSITIONS = 20261127, 700, 25, 3


@pytest.fixture(scope="module")
def workload() -> Any:
    if reason := server.missing():
        pytest.skip(reason)
    return made(SEED, CHANGES, STATEMENTS, checkpoints=POSITIONS, kinds=frozenset((*DML, *DDL)) - FEWER)


def folded(found: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The rows that typed changes come to, each told whole."""
    rows: dict[str, dict[str, Any]] = {}
    times: Counter[str] = Counter()

    def of(image: dict[str, Any]) -> str:
        return repr({k: image[k] for k in keys} if keys else image)

    changes = sorted(found.to_pylist(), key=lambda c: [int(v) for v in c["_cdc_order"].values()])
    for c in changes:
        assert (c["_cdc_missing_before"], c["_cdc_missing_after"]) == ([], []), c
        assert (c["before"] is not None) == (c["_cdc_op"] in ("update", "delete"))
        assert (c["after"] is not None) == (c["_cdc_op"] in ("insert", "read", "update"))
        if c["_cdc_op"] == "truncate":
            times.clear()
        if c["before"] is not None:
            times[of(c["before"])] -= 1
        if c["after"] is not None:
            rows[of(c["after"])] = c["after"]
            times[of(c["after"])] = 1 if keys else times[of(c["after"])] + 1
    left = [rows[k] for k, n in times.items() for _ in range(n)]
    return pa.Table.from_pylist(left, pa.schema(list(found.schema.field("after").type)))


@pytest.mark.parametrize("format", ["tencent_dts", "debezium", "canal_json"])
def test_they_come_to_what_the_database_said(
    format: str, workload: Any, spark: Any, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "SMALL", 0)
    (source, told), feed = workload, FEEDS[format]
    lake, encoder = Lake(spark, make_config, format, {}, typed_changes=["*"]), feed.encoder()
    found, looked = [], 0
    for transactions, checkpoint in parts(source, told):
        lake.land(encoder.encode(transactions))
        lake.catch_up()
        for name, (table, rows) in checkpoint.tables.items():
            path = tables.TYPED_CHANGES_PATH.of(lake.config.lake, SOURCE, (table.db, name))
            if not DeltaTable.is_deltatable(path):
                assert rows == []
                continue
            now = folded(read_snapshot(path), tuple(table.key))
            found += [f"{checkpoint.gtid} {name}: {x}" for x in compared(table, rows, now, feed.as_sent, True)]
            looked += len(rows)
    assert (lake.quarantined(), lake.stopped(), found) == ([], [], [])
    assert looked > 100
