from datetime import timedelta
from decimal import Decimal

import pytest

from cdc_platform.feeds.shop import CUSTOMERS, ITEMS, ORDERS, TABLES
from cdc_platform.feeds.workload import BIG_NOTE_BYTES, Workload, row_events


@pytest.fixture(scope="module")
def shop() -> Workload:
    return Workload(seed=7, transactions=150)


def replay(transactions):
    """The plainest reading of row changes: a delete takes the old key away, an insert puts the new one."""
    tables = {name: {} for name in TABLES}
    for tx in transactions:
        for change in tx.events:
            live = tables[change.table.full_name]
            if change.before is not None:
                assert live.pop(change.table.key_of(change.before)) == change.before
            if change.after is not None:
                assert change.table.key_of(change.after) not in live
                live[change.table.key_of(change.after)] = change.after
    return tables


def test_truth_is_what_the_changes_lead_to(shop):
    assert replay(shop.transactions) == shop.truth
    assert all(shop.truth.values())


def test_increment_continues_the_backlog():
    shop = Workload(seed=3, transactions=20)
    before = len(shop.transactions)
    added = shop.advance(30)
    assert shop.transactions[before:] == added
    assert 0 < len(added) <= 30
    assert replay(shop.transactions) == shop.truth


def test_equal_seeds_give_equal_work():
    one, two, other = Workload(5, 40), Workload(5, 40), Workload(6, 40)
    assert one.transactions == two.transactions and one.truth == two.truth
    assert one.transactions != other.transactions


def test_positions_grow_as_numbers_but_not_as_text(shop):
    at = [(int(tx.file.removeprefix("mysql-bin.")), c.pos, c.row) for tx in shop.transactions for c in tx.events]
    assert at == sorted(set(at))
    files = list(dict.fromkeys(tx.file for tx in shop.transactions))
    assert files != sorted(files)
    for tx in shop.transactions:
        assert all(tx.pos < c.pos < tx.end_pos for c in tx.events)
    gtids = [int(tx.gtid.split(":")[1]) for tx in shop.transactions]
    assert gtids == list(range(9, 9 + len(gtids)))


def test_statements_of_several_rows_share_a_position(shop):
    events = [rows for tx in shop.transactions for rows in row_events(tx)]
    assert max(len(rows) for rows in events) > 2
    for rows in events:
        assert [c.row for c in rows] == list(range(len(rows)))
        assert len({(c.table.full_name, c.op) for c in rows}) == 1
    assert any(len({c.table.full_name for c in tx.events}) > 1 for tx in shop.transactions)


def test_hard_values_are_in_the_truth(shop):
    customers, orders = shop.truth[CUSTOMERS.full_name].values(), shop.truth[ORDERS.full_name].values()
    items = shop.truth[ITEMS.full_name]
    assert {2**64 - 1, 2**63, 0} <= {c["id"] for c in customers}
    assert any("😀" in c["email"] for c in customers)
    assert any(c["avatar"] == bytes(range(256)) for c in customers)
    assert any(c["name"] is None for c in customers) and any(c["name"] == "" for c in customers)
    assert any(len((o["note"] or "").encode()) >= BIG_NOTE_BYTES for o in orders)
    assert {Decimal("-0.01"), Decimal("-9999999999.99")} <= {o["amount"] for o in orders}
    assert any(o["transit"] and o["transit"] > timedelta(hours=24) for o in orders)
    assert any(o["transit"] and o["transit"] < timedelta(0) for o in orders)
    assert items[(9_000_000, 1)]["remark"] == "again"
    assert (9_000_000, 2) in items and (9_000_000, 3) not in items and (9_000_000, 9) not in items


def test_a_statement_that_breaks_a_key_is_refused():
    shop = Workload(1, 0)
    row = next(iter(shop.truth[ITEMS.full_name].values()))
    with pytest.raises(ValueError, match="duplicate key"):
        shop.insert(ITEMS, row)
