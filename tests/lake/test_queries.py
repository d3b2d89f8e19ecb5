"""What the Delta tables tell without Spark: which snapshots there are or will be, which lack rows."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_platform import tables
from cdc_platform.cli.run import choose
from cdc_platform.config import Config, parse_config
from cdc_platform.errors import ConfigError
from cdc_platform.lake import commits, held_rows, queries
from cdc_platform.lake.store import Store
from tests.lake import test_commits
from tests.rows import add


@pytest.fixture
def config(tmp_path: Path) -> Config:
    rules = {"include": ["shop*.*"], "exclude": ["shop.gone"], "routes": {"shop_[0-9]+\\..*": "shop.orders"}}
    source = {"name": "s", "format": "canal", "topics": ["t"], "tables": rules}
    made = parse_config({"lake": str(tmp_path), "sources": [source]}, tmp_path / "cdc.yaml")
    stated = [("shop_1", "a"), ("shop_2", "b"), ("shop", "own"), ("shop", "gone"), ("other", "x")]
    history = [{"source": "s", "kind": "message", "db": db, "table": t} for db, t in stated]
    add(made.lake, tables.SCHEMA_HISTORY, *history)
    known = {"source": "s", "rebuild": 0, "batch": 0, "invalid_dates": 0, "at": NOW}
    states = [
        {**known, "db": "shop", "table": "orders", "state": "live", "reason": None},
        {**known, "db": "shop", "table": "gone", "state": "left_out", "reason": "tables.exclude"},
    ]
    add(made.lake, tables.TABLE_STATE, *states)
    return made


def test_merged_tables_are_known_by_their_snapshot_and_those_left_out_stay_visible(config: Config) -> None:
    assert [name for _, name in queries.known_tables(config)] == [
        ("shop", "gone"),
        ("shop", "orders"),
        ("shop", "own"),
    ]
    assert ("shop_2", "b") in queries.stated_tables(config, config.source("s"))


def test_a_merged_table_is_chosen_by_the_name_of_its_snapshot(config: Config) -> None:
    assert [s.name for s in choose(config, [], "shop.orders")] == ["s"]
    with pytest.raises(ConfigError, match=r"keep shop_1.a in another snapshot.*shop.orders"):
        choose(config, [], "shop_1.a")
    with pytest.raises(ConfigError, match=r"no chosen source keeps shop.gone"):
        choose(config, [], "shop.gone")


def _quarantine(config: Config, *rows: dict[str, Any], new: bool) -> None:
    """Rows of quarantine, in a table as it was made before it had `schema` (new: since)."""
    text = [(c, pa.string()) for c in ("source", "db", *(["schema"] if new else []), "table", "reason")]
    times = [(c, pa.timestamp("us", "UTC")) for c in ("quarantined_at", "resolved_at")]
    data = pa.Table.from_pylist(list(rows), pa.schema([*text, *times]))
    write_deltalake(tables.QUARANTINE.at(config.lake), data, partition_by=["source"])


NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize("new", [False, True])
def test_held_rows_are_told_by_snapshot_until_they_are_resolved(config: Config, new: bool) -> None:
    def row(db: str | None, table: str | None, reason: str, seconds: int, **more: Any) -> dict[str, Any]:
        at = NOW + timedelta(seconds=seconds)
        return {"source": "s", "db": db, "table": table, "reason": reason, "quarantined_at": at, **more}

    _quarantine(
        config,
        row("shop", "own", "old", 1),
        row("shop", "own", "new", 3),
        row("shop", "own", "healed", 4, resolved_at=NOW),
        row("shop", "healed", "healed", 4, resolved_at=NOW),
        row("shop_1", "a", "first", 1),
        row("shop_2", "b", "second", 2),  # both go to shop.orders
        row("shop", "gone", "left out", 5),
        row(None, None, "no JSON", 6),
        row("shop", "own", "another source's", 7, source="gone"),
        new=new,
    )
    told = [
        (r["db"], r["table"], r["rows"], r["oldest"] - NOW, r["reason"], r["source"], r["schema"])
        for r in held_rows.by_table(config)
    ]
    second = timedelta(seconds=1)
    assert told == [
        (None, None, 1, 6 * second, "no JSON", "s", None),
        ("shop", "orders", 2, second, "second", "s", None),
        ("shop", "own", 2, second, "new", "s", None),
    ]


def test_tables_of_one_name_in_two_schemas_are_held_apart(config: Config) -> None:
    each = {"source": "s", "db": "shop", "table": "own", "reason": "bad", "quarantined_at": NOW}
    _quarantine(config, {**each, "schema": "a"}, {**each, "schema": "b"}, {**each, "schema": "b"}, new=True)
    assert [(r["schema"], r["rows"]) for r in held_rows.by_table(config)] == [("a", 1), ("b", 2)]


def test_nothing_is_held_before_there_is_a_quarantine(config: Config) -> None:
    assert held_rows.by_table(config) == []


@pytest.mark.s3
@pytest.mark.parametrize("partition_by", [[], ["id"]])
def test_rows_are_counted_by_the_log(s3: Any, s3_store: Store, partition_by: list[str]) -> None:
    path = s3_store.at("t")
    assert queries.row_count(path) is None
    for n in range(3):
        rows = pa.table({"id": [0, 1], "n": [n, n]})
        write_deltalake(path.uri(), rows, mode="append", partition_by=partition_by, storage_options=path.options)
    assert queries.row_count(path) == 6
    DeltaTable(path.uri(), storage_options=path.options).delete("n = 1 AND id = 0")
    s3.reset()
    assert queries.row_count(path) == 5
    asked = [r for r in s3.reset() if ".parquet" in r]
    assert partition_by or not asked


@pytest.mark.s3
def test_rows_that_were_marked_are_not_counted(s3: Any, s3_store: Store) -> None:
    path = s3_store.at("t")
    test_commits.made(path)
    rows = test_commits.rows(*range(10))
    write_deltalake(path.uri(), rows, mode="append", storage_options=path.options)
    before = commits.live(path)
    assert before is not None
    marked = [test_commits.marked(path, before.adds[0], 3, 4)]
    assert commits.commit(path, before, [], marked, {"operation": "DELETE"})
    s3.reset()
    assert queries.row_count(path) == 8 == len(test_commits.there(path))


def test_the_newest_column_list_is_the_one_landed_last_and_then_the_last_of_the_log(config: Config) -> None:
    def stated(version: str, minute: int, landed: int, offset: int) -> dict[str, Any]:
        place = {"epoch": 0, "file": 1, "pos": landed, "event": 0, "row": 0, "landed": offset}
        of = {"source": "s", "kind": "message", "db": "shop", "table": "own", "offset": offset}
        return {**of, "schema_version": version, "columns": f'[{{"name": "{version}"}}]', "order_key": place} | {
            "landed_at": NOW + timedelta(minutes=minute)
        }

    rows = [stated("a", 1, 7, 9), stated("b", 1, 8, 3), stated("c", 0, 9, 10)]
    add(config.lake, tables.SCHEMA_HISTORY, *rows)
    [newest] = [r for r in queries.newest_columns(config, "s") if r["table"] == "own"]
    assert (newest["schema_version"], newest["columns"]) == ("b", '[{"name": "b"}]')
    assert queries.newest_columns(config, "nobody") == []
