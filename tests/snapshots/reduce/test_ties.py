"""Changes of one key by several partitions at one source time, found by workers."""

from decimal import Decimal

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.changelog.full_images import full_image_table
from cdc_platform.changelog.order_key import PARTITIONS, TIMES_FROM
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.reduce import ties
from cdc_platform.tables import CHANGELOG

TABLES = [full_image_table(("d", t), [("a", parse_type("int"))], ("a",)) for t in ("t0", "t1", "t2")]
COLUMNS = CHANGELOG.arrow("db", "schema", "table", "key", "order_key")


def change(table: int, key: str, pos: int, partition: int, offset: int, file: int = -1) -> dict:
    event = offset * PARTITIONS + partition
    order = {"epoch": 0, "file": file, "pos": Decimal(pos), "event": event, "row": 0, "landed": offset}
    return {"db": "d", "schema": None, "table": f"t{table}", "key": [("a", key)], "order_key": order}


def tied(changes: list[dict], parts: int, rows_at_once: int) -> set[int]:
    hashed = []
    for i in range(0, len(changes), rows_at_once):
        rows = pa.RecordBatch.from_pylist(changes[i : i + rows_at_once], COLUMNS)
        for number, table in enumerate(TABLES):
            assert table is not None
            of_table = rows.filter(table.rows(rows))
            hashed += ties._parted(number, table, of_table, len(TABLES), parts) if of_table.num_rows else []
    of = {part: [b for b in hashed if b.column("part")[0].as_py() == part] for part in range(parts)}
    return {n for part in of.values() for b in ties._tied(len(TABLES), iter(part)) for n in b.column(0).to_pylist()}


_CHANGES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from("1234"),
        st.sampled_from([TIMES_FROM, TIMES_FROM + 1, TIMES_FROM + 1000, 7, 8]),
        st.sampled_from([0, 1, PARTITIONS - 1]),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(_CHANGES, st.integers(1, 4), st.integers(1, 5))
def test_a_table_is_tied_where_a_key_has_one_time_by_two_partitions(changes, parts, rows_at_once):
    by: dict[tuple, set[int]] = {}
    for table, key, pos, partition in changes:
        by.setdefault((table, key, pos if pos >= TIMES_FROM else 0), set()).add(partition)
    rows = [change(*c, offset=i) for i, c in enumerate(changes)]
    assert tied(rows, parts, rows_at_once) == {table for (table, *_), ps in by.items() if len(ps) > 1}


def test_changes_with_positions_need_no_source_time():
    assert tied([change(0, "1", TIMES_FROM, p, p, file=3) for p in (0, 1)], 2, 5) == set()
