from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.feeds.compare import compare, snapshot_types, time_text, truth_table
from cdc_platform.feeds.shop import CUSTOMERS, ITEMS, ORDERS, TABLES
from cdc_platform.feeds.workload import Workload
from cdc_platform.mysql.types import parse_type


@pytest.fixture(scope="module")
def shop():
    return Workload(seed=17, transactions=30)


def snapshot(path, table):
    write_deltalake(str(path), table, mode="overwrite", schema_mode="overwrite")
    return str(path)


def with_cell(table, column, row, value):
    values = table[column].to_pylist()
    values[row] = value
    at = table.column_names.index(column)
    return table.set_column(at, column, pa.array(values, table.schema.field(column).type))


@pytest.mark.parametrize("name", TABLES)
def test_the_truth_equals_itself(shop, tmp_path, name):
    table = truth_table(TABLES[name], shop.truth[name])
    table = table.append_column("_cdc_order", pa.array(range(table.num_rows)))
    shuffled = table.take(pa.array(range(table.num_rows - 1, -1, -1)))
    found = compare(TABLES[name], shop.truth[name], snapshot(tmp_path / "t", shuffled))
    assert found.equal and found.describe() == [] and found.compared == len(shop.truth[name])


CHANGES = {
    ("shop.customers", "visits"): 7, ("shop.customers", "score"): 1.25, ("shop.customers", "rating"): None,
    ("shop.customers", "flags"): Decimal(254), ("shop.customers", "active"): None,
    ("shop.customers", "email"): "x ", ("shop.customers", "avatar"): b"\x00",
    ("shop.customers", "birth_year"): 1999, ("shop.customers", "profile"): "{ }",
    ("shop.orders", "amount"): Decimal("0.02"), ("shop.orders", "transit"): "-00:00:01",
    ("shop.orders", "placed"): None, ("shop.orders", "changed"): None, ("shop.orders", "due"): None,
}  # fmt: skip


@pytest.mark.parametrize(("name", "column"), CHANGES)
def test_one_wrong_cell_is_found(shop, tmp_path, name, column):
    truth = shop.truth[name]
    row = next(i for i, r in enumerate(truth.values()) if r[column] is not None)
    planted = CHANGES[name, column]
    table = with_cell(truth_table(TABLES[name], truth), column, row, planted)
    found = compare(TABLES[name], truth, snapshot(tmp_path / "t", table))
    assert (found.cell_count, found.missing_count, found.extra_count) == (1, 0, 0)
    [cell] = found.cells
    assert (cell.key, cell.column, cell.actual) == (list(truth)[row], column, planted)
    assert not found.equal and len(found.describe()) == 2


def test_value_instead_of_null_is_found(shop, tmp_path):
    truth = shop.truth[ITEMS.full_name]
    row = next(i for i, r in enumerate(truth.values()) if r["remark"] is None)
    table = with_cell(truth_table(ITEMS, truth), "remark", row, "")
    assert compare(ITEMS, truth, snapshot(tmp_path / "t", table)).cell_count == 1


def test_negative_zero_is_not_zero(shop, tmp_path):
    truth = {(1, 1): {**next(iter(shop.truth[ITEMS.full_name].values())), "weight": 0.0}}
    table = with_cell(truth_table(ITEMS, truth), "weight", 0, -0.0)
    assert compare(ITEMS, truth, snapshot(tmp_path / "t", table)).cell_count == 1


def test_missing_extra_and_repeated_rows_are_found(shop, tmp_path):
    truth = dict(shop.truth[ORDERS.full_name])
    table = truth_table(ORDERS, truth)
    keys = list(truth)
    gone = truth.pop(keys[3])
    found = compare(ORDERS, truth, snapshot(tmp_path / "extra", table))
    assert (found.extra, found.extra_count, found.missing_count) == ([keys[3]], 1, 0)
    truth[keys[3]] = gone
    found = compare(ORDERS, truth, snapshot(tmp_path / "missing", table.slice(1)))
    assert (found.missing, found.missing_count, found.extra_count) == ([keys[0]], 1, 0)
    twice = pa.concat_tables([table, table.slice(0, 1)])
    found = compare(ORDERS, truth, snapshot(tmp_path / "twice", twice))
    assert "occur more than once" in found.problems[0]


def test_wrong_columns_and_types_are_found(shop, tmp_path):
    truth = shop.truth[ITEMS.full_name]
    table = truth_table(ITEMS, truth)
    order = [*table.column_names[:-2], "remark", "gift"]
    moved = compare(ITEMS, truth, snapshot(tmp_path / "order", table.select(order)))
    assert "columns are" in moved.problems[0] and moved.cell_count == 0
    fewer = compare(ITEMS, truth, snapshot(tmp_path / "fewer", table.drop_columns(["gift"])))
    assert len(fewer.problems) == 1 and fewer.cell_count == 0
    wide = table.set_column(4, "price", table["price"].cast(pa.decimal128(14, 2)))
    found = compare(ITEMS, truth, snapshot(tmp_path / "type", wide))
    assert found.problems == ["column 'price' is decimal128(14, 2), expected decimal128(12, 2)"]
    nokey = table.set_column(0, "order_id", table["order_id"].cast(pa.string()))
    found = compare(ITEMS, truth, snapshot(tmp_path / "key", nokey))
    assert "can't be matched" in found.problems[-1] and not found.equal


def test_tinyint_may_be_as_wide_as_debezium_sends_it(shop, tmp_path):
    truth = shop.truth[CUSTOMERS.full_name]
    table = truth_table(CUSTOMERS, truth)
    wide = table.set_column(4, "vip", table["vip"].cast(pa.int16()))
    assert compare(CUSTOMERS, truth, snapshot(tmp_path / "t", wide)).equal
    wrong = with_cell(wide, "vip", 0, 5)
    assert compare(CUSTOMERS, truth, snapshot(tmp_path / "w", wrong)).cell_count == 1


def test_absent_table_is_a_difference(shop, tmp_path):
    found = compare(ITEMS, shop.truth[ITEMS.full_name], str(tmp_path / "none"))
    assert not found.equal and "no snapshot" in found.problems[0]
    assert found.missing_count == len(shop.truth[ITEMS.full_name])


def test_lists_are_cut_and_counts_are_not(shop, tmp_path):
    truth = shop.truth[ITEMS.full_name]
    table = truth_table(ITEMS, truth)
    sku = pa.array(["wrong"] * table.num_rows)
    found = compare(ITEMS, truth, snapshot(tmp_path / "t", table.set_column(2, "sku", sku)), limit=5)
    assert len(found.cells) == 5 and found.cell_count == len(truth)


def test_times_in_canonical_text(shop):
    texts = {k: time_text(v["transit"]) for k, v in shop.truth[ORDERS.full_name].items() if v["transit"]}
    assert texts[(2**63 - 1,)] == "838:59:59"
    assert texts[(-(2**63),)] == "-838:59:59"
    assert texts[(0,)] == "-00:00:00.001"


ARROW = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"), "decimal(20,0)": pa.decimal128(20, 0),
    "decimal(12,2)": pa.decimal128(12, 2), "decimal(38,18)": pa.decimal128(38, 18),
}  # fmt: skip


@pytest.mark.parametrize("column", [c for t in TABLES.values() for c in t.columns], ids=lambda c: c.type)
def test_expected_types_agree_with_the_type_knowledge(column):
    assert snapshot_types(column)[0] == ARROW[parse_type(column.type).spark]
