"""The messages that hold a subject, by what landing and `changes` have of them. Without Spark."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.config import Config
from cdc_platform.erasing import messages
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.erasing.subject import Subject
from cdc_platform.explain.table import Table
from cdc_platform.tables import CHANGES, LANDING

LANDED = datetime(2026, 11, 20, tzinfo=UTC)
NAME = ("d", "a")


class Lake:
    """Of one source, of which a test writes the tables itself."""

    def __init__(self, make_config: Callable[..., Config]):
        self.config = make_config([{"name": "s", "format": "debezium", "topics": ["t"]}])
        self.source = self.config.source("s")
        self.commits = 0

    def _write(self, rows: list[dict[str, Any]], schema: pa.Schema, path: str) -> None:
        self.commits += 1
        at = {"topic": "t", "partition": 0, "landed_at": LANDED + timedelta(hours=self.commits)}
        write_deltalake(path, pa.Table.from_pylist([{**at, **row} for row in rows], schema), mode="append")

    def land(self, *rows: dict[str, Any]) -> None:
        """One commit of records."""
        self._write(list(rows), LANDING.arrow(), LANDING.at(self.config.lake, source="s"))

    def decode(self, *rows: dict[str, Any]) -> None:
        """One commit of events."""
        path = CHANGES.at(self.config.lake, format="debezium", source="s")
        self._write(list(rows), CHANGES.arrow(), path)

    def of(self, *events: dict[str, Any]) -> list[messages.Message]:
        """The messages of a subject with these events."""
        at = {"topic": "t", "partition": 0, "kind": "row", "key": None, "before": None, "after": None, "reason": None}
        table = Table(self.source, NAME, NAME, None)
        return messages.of(self.config, Subject(table, ({"id": "7"},), [{**at, **e} for e in events]))


@pytest.fixture
def lake(make_config: Callable[..., Config]) -> Lake:
    return Lake(make_config)


def row(offset: int, entry: int, id_: int, **more: Any) -> dict[str, Any]:
    """An event, as `changes` has it."""
    event = {"offset": offset, "entry_index": entry, "row_index": 0, "kind": "row", "op": "insert"}
    return {**event, "db": "d", "table": "a", "key": [("id", str(id_))], "after": [("id", str(id_))], **more}


def mine(offset: int, entry: int) -> dict[str, Any]:
    """The place of one of the subject's events."""
    return {"offset": offset, "entry_index": entry, "row_index": 0}


def test_where_a_topic_was_made_again_others_stand_at_the_address(lake: Lake):
    """Offsets begin again: nothing is erased by an address that two records share."""
    lake.land({"offset": 0, "value": b"created"}, {"offset": 1, "value": b"seven"}, {"offset": 2, "value": b"eight"})
    lake.decode(row(1, 0, 7), row(2, 0, 8))
    assert [m.address.offset for m in lake.of(mine(1, 0))] == [1]
    lake.land({"offset": 0, "value": b"twenty"}, {"offset": 1, "value": b"twenty-one"})
    lake.decode(row(0, 0, 20), row(1, 0, 21))
    with pytest.raises(EraseRefused, match=r"two records were landed as t/0/1: the offsets of t/0 began again"):
        lake.of(mine(1, 0))
    assert [m.address.offset for m in lake.of(mine(2, 0))] == [2], "an address that only one has"


def test_a_record_that_was_landed_twice_is_one(lake: Lake):
    lake.land({"offset": 1, "value": b"seven"})
    lake.land({"offset": 1, "value": b"seven"})
    lake.decode(row(1, 0, 7))
    assert [m.address.offset for m in lake.of(mine(1, 0))] == [1]
