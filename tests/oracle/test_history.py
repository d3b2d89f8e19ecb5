"""Histories of a real database's workload: at every position that the database was asked at, the versions of then are
the rows that it had."""

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_platform import tables
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.lake import delta_table, stores
from tests.oracle import server
from tests.oracle.feeds import FEEDS
from tests.oracle.lake import SOURCE, Lake, compared
from tests.oracle.recorded import made
from tests.oracle.test_snapshots import parts
from tests.oracle.workload import DML

pytestmark = [pytest.mark.spark, pytest.mark.oracle, pytest.mark.thorough]

SEED, CHANGES, POSITIONS = 20261126, 900, 5
Place = tuple[int, ...]


@pytest.fixture(scope="module")
def workload() -> Any:
    if reason := server.missing():
        pytest.skip(reason)
    return made(SEED, CHANGES, 0, checkpoints=POSITIONS, kinds=frozenset(DML))


def newest(lake: Lake) -> Place:
    """Place of the newest change."""
    path = tables.CHANGELOG.at(stores.lake(lake.config))
    found = delta_table.ask("SELECT max(order_key) AS place FROM {t}", t=path)[0]["place"]
    return tuple(int(v) for v in found.values())


def then(history: pa.Table, place: Place) -> pa.Table:
    """Versions that were so behind a change."""

    def was(begun: dict[str, Any], ended: dict[str, Any] | None) -> bool:
        begun, ended = (order and tuple(int(v) for v in order.values()) for order in (begun, ended))
        return begun <= place and (ended is None or ended > place)

    orders = zip(history["_cdc_order"].to_pylist(), history["_cdc_order_to"].to_pylist(), strict=True)
    return history.filter(pa.array([was(*both) for both in orders], pa.bool_()))


@pytest.mark.parametrize("format", ["tencent_dts", "debezium", "canal_json"])
def test_the_versions_of_then_are_what_the_database_said(
    format: str, workload: Any, spark: Any, make_config: Any
) -> None:
    (source, told), feed = workload, FEEDS[format]
    lake, encoder = Lake(spark, make_config, format, {}, history=["*"]), feed.encoder()
    places = []
    for transactions, checkpoint in parts(source, told):
        lake.land(encoder.encode(transactions))
        lake.catch_up()
        places.append((newest(lake), checkpoint))
    assert (lake.quarantined(), lake.stopped(), len(places)) == ([], [], len(told.checkpoints))
    found, looked = [], 0
    for place, checkpoint in places:
        for name, (table, rows) in checkpoint.tables.items():
            path = tables.HISTORY_PATH.of(lake.config.lake, SOURCE, (table.db, name))
            if DeltaTable.is_deltatable(path):
                history = then(read_snapshot(path), place)
                found += [f"{checkpoint.gtid} {name}: {x}" for x in compared(table, rows, history, feed.as_sent, True)]
                looked += len(rows)
    assert found == []
    assert looked > 200
