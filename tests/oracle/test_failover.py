"""Two real servers, promoted and demoted: after each failover, and each restart of the capture, the snapshots are what
the primary says."""

import tempfile
from pathlib import Path

import pytest

from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.snapshots.target import Target
from tests.oracle import server
from tests.oracle.failover import DB, ENCODERS, KEYED, KEYLESS, TYPES, Change, Pair, Rows
from tests.oracle.lake import SOURCE, Lake

pytestmark = [pytest.mark.spark, pytest.mark.oracle, pytest.mark.thorough]

SEED, TURNS, STATEMENTS = 20261126, 4, 40


@pytest.fixture(scope="module")
def story() -> list[tuple[list[Change], Rows]]:
    """What the capture sends in each turn, and what the primary said then. In odd turns it is killed at the end, and
    sends some transactions once more before the failover."""
    if reason := server.missing():
        pytest.skip(reason)
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="a") as one,
        tempfile.TemporaryDirectory(prefix="b") as two,
        server.running(Path(one), server_id=1, log_slave_updates=1) as a,
        server.running(Path(two), server_id=2, log_slave_updates=1) as b,
    ):
        pair = Pair(a, b, SEED)
        for turn in range(TURNS):
            pair.write(STATEMENTS)
            found.append((pair.new_changes(), pair.rows()))
            if turn % 2:
                pair.write(STATEMENTS // 4)
                found.append((pair.new_changes(again=5), pair.rows()))
            pair.fail_over()
    return found


def test_the_story_is_one_of_two_servers(story: list[tuple[list[Change], Rows]]) -> None:
    places = [(c.file, c.pos) for changes, _ in story for c in changes]
    assert {c.server for changes, _ in story for c in changes} == {1, 2}
    assert places != sorted(places)
    assert all(rows[KEYED] and rows[KEYLESS] for _, rows in story)


@pytest.mark.parametrize("format", ENCODERS)
def test_snapshots_are_what_the_primary_says(format, story, spark, make_config) -> None:
    options = {"columns": {f"{DB}.{t}": columns for t, columns in TYPES.items()}} if format == "debezium" else {}
    lake = Lake(spark, make_config, format, options, include=[f"{DB}.*"])
    tables = (KEYED,) if format == "canal_json" else tuple(TYPES)  # its messages show no replay
    for changes, rows in story:
        lake.land(ENCODERS[format](changes))
        lake.catch_up()
        assert (lake.quarantined(), lake.stopped()) == ([], [])
        for table in tables:
            snapshot = read_snapshot(Target.of(lake.config, SOURCE, DB, table).snapshot.uri())
            found = snapshot.select(list(TYPES[table])).to_pylist()
            assert sorted(tuple(r.values()) for r in found) == rows[table], (format, table)
