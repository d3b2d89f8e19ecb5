"""A failover as TDSQL's messages show it: `localip` and `localport` change, and aren't needed. Numbers that go back to
places where nothing of that content is stored begin a newer log (changelog/epochs.py)."""

import json
from collections.abc import Mapping

import pytest

from cdc_platform.changelog.decide import decided
from cdc_platform.changelog.epochs import Log, Run, Segment, Unknown
from cdc_platform.formats import FORMATS
from tests.formats.json_fixtures import decoder, messages

GTIDS = {
    "MariaDB, whose domain's numbers begin again": ("0-100-{}", "0-200-{}"),
    "MySQL, whose new server has numbers of its own": (
        "aaaaaaaa-0d19-11e7-ab7a-a0423f32c225:{}",
        "bbbbbbbb-0d19-11e7-ab7a-a0423f32c225:{}",
    ),
}
DDL = "create table t (id int primary key, v int)"


def message(gtid: str, server: str, row: int, sql: str | None = None) -> bytes:
    what = (
        {"eventtypestr": "query", "eventtype": 2, "sql": sql}
        if sql
        else {"eventtypestr": "insert", "eventtype": 23, "where": [], "field": [str(row), "1"]}
    )
    return json.dumps(
        {
            **{"logtype": "mysqlbinlog", "db": "shop", "table": "t", "begintime": 1_700_000_000 + row, "gtid": gtid},
            **{"localip": server, "localport": 4001, "event_index": "2", **what},
        }
    ).encode()


@pytest.mark.parametrize("gtids", GTIDS.values(), ids=GTIDS)
def test_a_failover_begins_a_newer_log_without_localip(gtids: tuple[str, str]) -> None:
    before, after = gtids
    values = [message(before.format(100), "10.0.0.1", 0, DDL)]
    values += [message(before.format(101 + i), "10.0.0.1", 1 + i) for i in range(3)]
    values += [message(after.format(5 + i), "10.0.0.2", 10 + i) for i in range(3)]
    batch = messages(values)
    options = FORMATS["tdsql"].options.model_validate({"order": "gtid"})
    rows = [e for e in decoder("tdsql", batch, options)(batch).to_pylist() if e["kind"] == "row"]
    assert [e["offset"] for e in rows] == [1, 2, 3, 4, 5, 6]
    log = Log()
    segments = decided(log, map(run_of, rows), all_new, list)
    epochs = {offset: s.epoch for s in segments for offset in range(s.first, s.last + 1)}
    assert [epochs[offset] for offset in range(1, 7)] == [0, 0, 0, 1, 1, 1]
    assert not any(s.replay for s in segments)


def run_of(event: dict) -> Run:
    """A run of one event."""
    place = (int(event["file_no"]), int(event["binlog_pos"]))
    return Run(("t", 0), event["offset"], event["offset"], place, place, frozenset((event["lineage"],)))


def all_new(candidates: Mapping[Run, tuple[int, int]], _: list[Segment]) -> dict[Run, Unknown | None]:
    """Nothing of it is stored."""
    return {run: Unknown(run.first, run.low, None) for run in candidates}
