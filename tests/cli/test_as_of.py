"""What `as-of` says of the table that it makes."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cdc_platform import chain, tables
from cdc_platform.cli import as_of
from cdc_platform.cli.app import run
from cdc_platform.snapshots.cuts.publish import _left_out
from cdc_platform.spark import session
from tests.rows import add

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
GTID = "0aafdea0-31bf-11ef-a1b4-0242ac110002:7"
NEXT = GTID[:-1] + "8"
TABLE = {"source": "s", "db": "shop", "table": "orders"}


@pytest.mark.parametrize(
    ("missing", "complete"),
    [({"quarantined": 2}, False), ({"lost": 1}, False), ({"never came": 1}, False), ({}, True)],
)
def test_a_table_as_of_a_cut_is_complete_where_nothing_was_left_out(missing: dict[str, int], complete: bool):
    verdict = _left_out({"quarantined": 0, "lost": 0, "never came": 0, "waiting": 0, **missing})
    at: Any = SimpleNamespace(cut=SimpleNamespace(reason=verdict.reason if verdict else "no transactions are told"))
    nothing: Any = None
    found = as_of._complete(nothing, nothing, ("shop", "orders"), at)
    assert found == (complete, None, at.cut.reason), "a cut is one of offsets: there is nothing to assume"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """What the command prints of a moment, but for the table itself. Its source is complete up to noon."""
    lake, file = tmp_path / "lake", tmp_path / "cdc.yaml"
    feed = {"name": "s", "format": "canal", "topics": ["t"]}
    kafka = {"bootstrap_servers": "nowhere:1"}
    file.write_text(yaml.safe_dump({"lake": str(lake), "kafka": kafka, "sources": [feed]}))
    add(lake, tables.TABLE_STATE, {**TABLE, "batch": 0, "state": "live", "at": NOON})
    complete = {"source": "s", "scope": "source", "batch": 0, "source_time": NOON, "proven": True, "at": NOON}
    add(lake, tables.WATERMARKS, complete)
    add(lake, tables.CHANGELOG, *(change(GTID, pos, NOON - timedelta(seconds=9)) for pos in (10, 11)))
    add(lake, tables.CONTROL_EVENTS, overwrite=True)
    made = SimpleNamespace(rows=1, changes=1)
    monkeypatch.setattr(session, "open_session", lambda *_: None)
    monkeypatch.setattr(chain, "as_of", lambda *_: (("shop", "orders"), made))

    def asked(moment: str) -> tuple[int, bool, str | None]:
        to = ("--to", str(tmp_path / "to"), "--config", str(file), "--json")
        code = run(["as-of", "s", "shop.orders", moment, *to])
        found = json.loads(capsys.readouterr().out)
        asked.proven = found["proven"]  # type: ignore[attr-defined]
        return code, found["complete"], found["reason"]

    asked.lake, asked.to, asked.config = lake, tmp_path / "to", file  # type: ignore[attr-defined]
    return asked


def change(gtid: str, pos: int, at: datetime) -> dict[str, Any]:
    order = {"epoch": 0, "file": 1, "pos": pos, "event": 0, "row": 0, "landed": pos}
    return {**TABLE, "topic": "t", "op": "insert", "gtid": gtid, "source_time": at, "order_key": order}


def test_a_table_as_of_a_time_is_complete_where_a_later_one_was_told(told: Any):
    """What was committed at noon itself may still come."""
    assert told((NOON - timedelta(seconds=1)).isoformat()) == (0, True, None)
    code, complete, reason = told(NOON.isoformat())
    assert (code, complete) == (1, False) and reason.startswith("the table is complete up to 2026-11-20 12:00")


def test_whether_it_is_proven_or_assumed_is_told(told: Any, capsys: Any):
    """Of partitions to which nothing comes it is assumed that their producer hasn't failed."""
    before = (NOON - timedelta(seconds=1)).isoformat()
    assert (told(before), told.proven) == ((0, True, None), True)
    idle = {"source": "s", "scope": "source", "batch": 1, "source_time": NOON, "proven": False, "at": NOON}
    add(told.lake, tables.WATERMARKS, {**idle, "reason": "nothing that tells a time comes by t/1"})
    assert told(before) == (0, True, "assumed: nothing that tells a time comes by t/1")
    assert told.proven is False
    assert (told(NOON.isoformat())[:2], told.proven) == ((1, False), None)
    run(["as-of", "s", "shop.orders", before, "--to", str(told.to), "--config", str(told.config)])
    assert ["proven", "no"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_while_it_is_made_it_says_so(told: Any, capsys: Any):
    run(["as-of", "s", "shop.orders", NOON.isoformat(), "--to", str(told.to), "--config", str(told.config)])
    assert capsys.readouterr().err.splitlines() == ["Spark: local[*]", "making shop.orders as it was"]


def test_a_table_as_of_a_transaction_is_complete_where_its_end_has_come(told: Any):
    assert told(GTID) == (1, False, f"neither the end of {GTID} nor a change behind it has come")
    end = {"source": "s", "kind": "commit", "gtid": GTID, "source_time": NOON}
    add(told.lake, tables.CONTROL_EVENTS, end)
    assert told(GTID)[:2] == (1, False), "it was committed at noon"
    add(told.lake, tables.CONTROL_EVENTS, {**end, "source_time": NOON - timedelta(seconds=1)}, overwrite=True)
    assert told(GTID) == (0, True, None)


def test_a_table_as_of_a_transaction_is_complete_where_a_change_behind_it_has_come(told: Any):
    add(told.lake, tables.CHANGELOG, change(NEXT, 12, NOON - timedelta(seconds=9)))
    assert told(GTID) == (0, True, None)
    assert told(NEXT)[:2] == (1, False)
