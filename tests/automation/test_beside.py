"""What Dagster is told of a history: by the history's log, without its rows."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.automation import beside, table_status
from cdc_platform.automation.naming import Naming
from cdc_platform.config import Config
from cdc_platform.lake import delta_table, new_tables, stores
from cdc_platform.lake.beside import KINDS, States
from cdc_platform.tables import BESIDE_STATE, CHANGELOG, SCHEMA_HISTORY, TABLE_STATE


@pytest.mark.s3
def test_a_history_is_counted_by_its_log(
    make_config: Callable[..., Config], on_s3: Any, s3: Any, instance: dg.DagsterInstance
) -> None:
    source = {"name": "s", "format": "canal", "topics": ["t"], "tables": {"history": ["d.*"]}}
    config = on_s3(make_config([source]))
    lake, name = stores.lake(config), ("d", "one")
    for table in (BESIDE_STATE, CHANGELOG):
        new_tables.create(table.at(lake), table)
    tables = [{"source": "s", "db": "d", "table": t} for t in ("one", "two")]
    states = [{**t, "state": "live", "batch": 0, "rebuild": 0, "invalid_dates": 0} for t in tables]
    for table, rows in ((SCHEMA_HISTORY, [{**t, "kind": "message"} for t in tables]), (TABLE_STATE, states)):
        new_tables.create(table.at(lake), table)
        delta_table.append_rows(table.at(lake), rows)
    path = KINDS["history"].path.of(lake, "s", name)
    for n in range(4):
        write_deltalake(path.uri(), pa.table({"id": [n, n]}), mode="append", storage_options=lake.options)
    States(config, config.source("s"), "history").note({name: ("kept", None), ("d", "two"): ("lacking", "no room")})
    one, two = table_status.statuses(config, config.source("s"))
    s3.reset()
    [made, _] = beside.events(instance, Naming(config), one)
    asked = [r for r in s3.reset() if "/history/" in r or "history%2F" in r]
    assert isinstance(made, dg.AssetMaterialization)
    assert (made.metadata["dagster/row_count"].value, made.metadata["delta_version"].value) == (8, 3)
    assert made.tags["dagster/data_version"] == "3"
    assert len(asked) <= 2 + 4 and not [r for r in asked if ".parquet" in r], asked
    [seen, _] = beside.events(instance, Naming(config), two)
    assert isinstance(seen, dg.AssetObservation) and "dagster/row_count" not in seen.metadata, "it was never made"
