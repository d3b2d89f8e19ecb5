"""A real database's workload through every format's encoder and decoder: the rows must be the database's own."""

import base64
from typing import Any

import numpy as np
import pytest

from cdc_platform.feeds.compare import time_text
from cdc_platform.feeds.shop import Column
from cdc_platform.feeds.workload import Transaction
from tests.oracle import server
from tests.oracle.decoded import problems
from tests.oracle.feeds import FEEDS
from tests.oracle.recorded import made
from tests.oracle.replay import Replay, segments, source_events
from tests.oracle.session import Told

pytestmark = pytest.mark.oracle

CHANGES, STATEMENTS = 2300, 110


@pytest.fixture(scope="module")
def workload() -> tuple[list[Transaction], Told]:
    if reason := server.missing():
        pytest.skip(reason)
    return made(seed=20261121, changes=CHANGES, ddl=STATEMENTS)


def _moment(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    return (text.rstrip("0") if "." in text else text) + ("Z" if value.tzinfo else "")


_TEXT = {
    "decimal": lambda v: f"{v:f}", "datetime": _moment, "timestamp": _moment, "time": time_text, "double": repr,
    "float": lambda v: repr(float(str(np.float32(v)))), "year": lambda v: f"{v:04d}",
}  # fmt: skip


def _canonical(column: Column, value: Any) -> str | None:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return None if value is None else _TEXT.get(column.base, str)(value)


@pytest.mark.thorough
def test_the_binlog_leads_to_what_the_database_says(workload):
    """The oracle's own two sides agree: the independent reader of the binlog, and SELECT."""
    source, told = workload
    assert sum(len(tx.events) for tx in source) >= 2000 and len(told.ddl) >= 100
    statements = {tx.ddl.kind for tx in source if tx.ddl}
    assert statements == {"CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX"}
    replay = Replay(lambda _, text: text)
    for part, known in segments(source, told):
        for tx in part:
            for name, before, after in source_events(tx, _canonical):
                replay.row(name, before, after, tx.gtid[-6:])
        replay.reached(known)
    assert replay.problems == []


@pytest.mark.parametrize("format", FEEDS)
def test_decoded_rows_are_the_database_s(workload, format):
    source, told = workload
    assert problems(format, source, told) == []
