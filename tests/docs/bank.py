"""The bank of docs/reading.md: two tables whose amounts add up to the same total after each transaction, as TDSQL sends
them."""

from collections.abc import Iterator

from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import Column, Connect, Table
from cdc_platform.feeds.tdsql import TdsqlEncoder
from cdc_platform.feeds.workload import FIRST_FILE, SERVER_UUID, START_MS, Ddl, RowChange, Transaction

TOTAL = 100
_COLUMNS = (
    Column("id", "bigint(20)", "INT64", Connect("int64"), key=True, nullable=False),
    Column("amount", "int(11)", "INT32", Connect("int32")),
)
ONE, TWO = Table("bank", "one", _COLUMNS), Table("bank", "two", _COLUMNS)


def records(topic: str) -> Iterator[Record]:
    """Both tables, both accounts, and three payments from one to the other."""
    return TdsqlEncoder(topic).encode(_transactions())


def _transactions() -> Iterator[Transaction]:
    position, number = 4, 0

    def committed(ddl: Ddl | None = None, *events: RowChange) -> Transaction:
        nonlocal position, number
        start, position, number = position, position + 1000, number + 1
        at = START_MS + number * 1000
        return Transaction(f"{SERVER_UUID}:{number}", FIRST_FILE, start, position, at, 7, events, ddl)

    for table in (ONE, TWO):
        yield committed(Ddl.creating(table))
    amounts = [60, 50, 10, 35]
    for before, after in zip([None, *amounts], amounts, strict=False):
        events = []
        for i, (table, old, new) in enumerate(
            ((ONE, before, after), (TWO, None if before is None else TOTAL - before, TOTAL - after))
        ):
            image = None if old is None else {"id": 1, "amount": old}
            op = "insert" if image is None else "update"
            events.append(RowChange(table, op, image, {"id": 1, "amount": new}, position + 100 * (i + 1), 1))
        yield committed(None, *events)
