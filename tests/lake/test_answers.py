"""Rows of what delta-rs answers, as pyarrow gives them, and without pandas."""

import subprocess
import sys
from collections import OrderedDict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.config.storage import Storage
from cdc_platform.lake import answers, delta_table, stores

TIMES = [datetime(1969, 12, 31, 23, 59, 59, 999_999), None, datetime(9999, 12, 31, 1, 2, 3, 4), datetime(2026, 1, 1)]
PROGRAM = """
import sys
from deltalake import QueryBuilder
from cdc_platform.config.storage import Storage
from cdc_platform.lake import answers, delta_table, stores
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


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered from before, nor afterwards."""
    monkeypatch.setattr(answers, "_remembered", OrderedDict())


@pytest.mark.usefixtures("forgetful")
def test_an_answer_with_large_values_is_not_kept_in_memory(tmp_path: Path):
    path = stores.of(str(tmp_path / "t"), Storage())
    large, small = "x" * (3 << 20), "y" * (1 << 20)
    write_deltalake(path.uri(), pa.table({"v": [large, *[f"{small}{i}" for i in range(50)]], "n": range(51)}))

    def asked(n: int) -> bool:
        """Whether it is remembered."""
        sql = f"SELECT v FROM {{t}} WHERE n = {n}"
        told = delta_table.ask(sql, t=path)
        assert delta_table.ask(sql, t=path) == told
        return any(key[0] == sql for key in answers._remembered)

    assert not asked(0)
    assert all(asked(n) for n in range(1, 51))
    assert 20 < len(there := answers._remembered) < 32, "of all of them there is a limit, too"
    delta_table.append_rows(path, [{"v": "z", "n": 50}])
    assert asked(50)
    assert len(there) == len({key[0] for key in there}), "what was told before is forgotten"


def test_nobody_waits_for_pandas():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[{'at': datetime.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=datetime.timezone.utc)}]")
    assert done.stdout.strip().endswith("False")
