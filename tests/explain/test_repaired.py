"""What `reconcile --repair` says of the rows that it put right, from the lake alone. Without Spark."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config
from cdc_platform.explain import repaired
from cdc_platform.formats.events import columns_json
from cdc_platform.lake import delta_table, new_tables, stores
from cdc_platform.landing.erased import key_digest
from cdc_platform.loading.repair import Repaired
from cdc_platform.reconcile.result import Difference, TableResult

AT, SALT = datetime(2026, 11, 20, 12, tzinfo=UTC), bytes(16)
OF = {"source": "s", "db": "shop", "table": "t"}


def lake(config: Config) -> None:
    """With one table, of which row 7 was erased, and a change of row 8."""
    place = {"topic": "t", "partition": 0, "offset": 0, "entry_index": 0, "row_index": 0}
    order: dict[str, int] = dict.fromkeys(tables.ORDER.names, 0)
    columns = columns_json([{"name": "id", "type": "int", "key": True}])
    change = {"op": "delete", "key": {"id": "8"}, "before": {"id": "8"}}
    erased = {"number": 3, "stage": "done", "salt": SALT.hex(), "key_digest": key_digest(SALT, {"id": "7"})}
    rows = {
        tables.SCHEMA_HISTORY.path: {**place, "kind": "message", "columns": columns, "order_key": order},
        tables.CHANGELOG.path: {**place, **change, "order_key": order},
        tables.ERASURES.path: erased,
    }
    for table in tables.ALL:
        if table.partition_by == ("source",):
            path = table.at(stores.lake(config))
            new_tables.create(path, table)
            if row := rows.get(table.path):
                delta_table.append_rows(path, [{**OF, **row}], at=AT)


def test_a_row_that_was_erased_is_told_as_such(make_config: Callable[..., Config]) -> None:
    config = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])
    lake(config)
    lacking = [Difference("missing", {"id": n}, 1, 0, []) for n in ("7", "8", "9")]
    done = Repaired("shop.t", TableResult("shop.t", missing=3, differences=lacking), rows=3)
    told = repaired.data(config, config.source("s"), [done])

    def of(name: str) -> list[Any]:
        return [row[name] for row in told[0]["differences"]]

    assert of("erased") == [{"number": 3, "at": AT}, None, None]
    assert [last and last["op"] for last in of("last_change")] == [None, "delete", None]
    assert [row["last change"] for row in repaired.rows(told)] == [
        "erasure 3 took it out (2026-11-20 12:00:00Z)",
        "delete at t/0/0 entry 0 row 0",
        "none",
    ]
