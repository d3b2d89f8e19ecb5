"""Rows of what delta-rs answers, as pyarrow gives them, and without pandas."""

import subprocess
import sys
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from cdc_platform.lake import answers

TIMES = [datetime(1969, 12, 31, 23, 59, 59, 999_999), None, datetime(9999, 12, 31, 1, 2, 3, 4), datetime(2026, 1, 1)]
PROGRAM = """
import sys
from deltalake import QueryBuilder
from cdc_platform.lake import answers
one = "arrow_cast(1, 'Timestamp(Microsecond, Some(\\"UTC\\"))') AS at"
found = answers.table(QueryBuilder().execute(f"SELECT {one}").read_all())
print(answers.rows(found), "pandas" in sys.modules)
"""


def found() -> pa.Table:
    columns: dict[str, Any] = {
        "utc": pa.array(TIMES, pa.timestamp("us", "UTC")),
        "local": pa.array(TIMES, pa.timestamp("us")),
        "nanos": pa.array([None, None, None, None], pa.timestamp("ns")),
        "n": pa.array([1, None, 3, 4]),
        "map": pa.array([[("a", 1)], [], None, [("b", None)]], pa.map_(pa.string(), pa.int64())),
    }
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def test_rows_are_those_of_pyarrow():
    rows, theirs = answers.rows(answers.table(found())), found().to_pylist()
    assert rows == theirs
    assert all((r["utc"] is None) or r["utc"].utcoffset() == timedelta(0) for r in rows)
    assert all((r["local"] is None) or r["local"].tzinfo is None for r in rows)
    assert answers.rows(found().slice(0, 0)) == []


def test_nobody_waits_for_pandas():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[{'at': datetime.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=datetime.timezone.utc)}]")
    assert done.stdout.strip().endswith("False")
