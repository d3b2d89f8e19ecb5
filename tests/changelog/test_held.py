"""What can't be used says whose it is: from the bytes of a message to the questions about its table, on lakes of this
version and of the one before."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_platform import tables
from cdc_platform.changelog import run as changelog
from cdc_platform.changes import run as formats
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.lake import held_rows, stores
from cdc_platform.spark import delta_sql

pytestmark = pytest.mark.spark

LANDED = datetime(2026, 11, 20, tzinfo=UTC)
BEFORE = """source STRING, format STRING, decoder_version STRING, room STRING, topic STRING, `partition` INT,
  `offset` BIGINT, entry_index INT, row_index INT, db STRING, `table` STRING, reason STRING, landed_at TIMESTAMP,
  quarantined_at TIMESTAMP, resolved_at TIMESTAMP"""
"""Columns of quarantine in a lake of the version before."""


def change(table, *rows, **more):
    told = {"database": "shop", "table": table, "type": "INSERT", "pkNames": ["id"], "es": 1_764_892_805_000}
    return {**told, "mysqlType": {"id": "int", "v": "int"}, "data": list(rows), **more}


def row(key, value):
    return {"id": key, "v": value}


MESSAGES = [
    change("orders", row("1", "1")),
    change("orders", row("2", "x"), row("3", "3")),  # one column of one row
    change("orders", row("x", "4")),  # the key itself
    change("secrets", row("5", "x")),  # nobody wants this table,
    change("secrets", row("6", "6"), row("7", "x")),
    change("secrets", row("8", "8"), es="soon"),  # whatever is wrong with its messages
    change("orders_1", row("9", "x")),  # its rows go to orders
    "no message",
    {"database": "shop", "table": "orders", "type": "UPDATE", "sql": "UPDATE orders, secrets SET v = 1"},
    change("healed", row("1", "1")),
]


@pytest.fixture
def config(spark, make_config):
    rules = {"exclude": ["shop.secrets"], "routes": {"shop[.]orders_[0-9]": "shop.orders"}}
    made = make_config([{"name": "s", "format": "canal_json", "topics": ["t"], "tables": rules}])
    rows = [
        {"topic": "t", "partition": 0, "offset": i, "timestamp": LANDED, "landed_at": LANDED}
        | {"value": json.dumps(m).encode()}
        for i, m in enumerate(MESSAGES)
    ]
    write_deltalake(tables.LANDING.at(made.lake, source="s"), pa.Table.from_pylist(rows, MESSAGE))
    return made


def an_earlier_quarantine(spark, config):
    """With a row in it, whose message named a table that nobody noted."""
    path = tables.QUARANTINE.at(stores.lake(config))
    delta_sql.create(spark, path, BEFORE, tables.QUARANTINE.properties, tables.QUARANTINE.comment, ("source",))
    spark.sql(
        f"INSERT INTO {delta_sql.delta(path)} (source, topic, `partition`, `offset`, reason, quarantined_at) "
        "VALUES ('s', 'old', 0, 0, 'half a row', TIMESTAMP '2026-01-01 00:00:00')"
    )


def rows_of(config, table):
    return DeltaTable(table.at(config.lake)).to_pyarrow_table().to_pylist(maps_as_pydicts="strict")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "earlier", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["new lake", "earlier lake"]
)
def test_held_rows_say_whose_they_are_and_tables_left_out_hold_none(spark, config, earlier):
    if earlier:
        an_earlier_quarantine(spark, config)
    for room in (formats, changelog, formats, changelog):  # and again, with nothing new
        room.run(spark, config, config.source("s"))
    told = [
        (r["offset"], r["db"], r["table"], r["key"], r["column"])
        for r in sorted(rows_of(config, tables.QUARANTINE), key=lambda r: r["offset"])
        if r["topic"] == "t"
    ]
    assert told == [
        (1, "shop", "orders", {"id": "2"}, "v"),
        (2, "shop", "orders", None, "id"),
        (6, "shop", "orders_1", {"id": "9"}, "v"),
        (7, None, None, None, None),
        (8, None, None, None, None),  # a statement about two tables
    ]
    ledger = rows_of(config, tables.OFFSET_LEDGER)
    outcomes = {r["outcome"]: r["records"] for r in ledger}
    assert outcomes == {"applied": 2, "filtered": 3, "quarantined": 5}
    assert sum(outcomes.values()) == len(MESSAGES) and len(ledger) == len(outcomes)
    held = [(r["db"], r["table"], r["rows"]) for r in held_rows.by_table(config)]
    assert held == [(None, None, 2 + earlier), ("shop", "orders", 3)]
    assert held_rows.by_source(config) == {"s": 5 + earlier}
