"""A real database's workload through the stages: at every position the snapshots are what the database said there."""

import pytest

from cdc_platform.feeds.workload import Transaction
from cdc_platform.snapshots.schema import features
from tests.oracle import server
from tests.oracle.feeds import FEEDS
from tests.oracle.lake import Lake
from tests.oracle.recorded import made
from tests.oracle.replay import segments
from tests.oracle.session import Checkpoint, Told
from tests.oracle.workload import DDL, DML

pytestmark = [pytest.mark.spark, pytest.mark.oracle]

NOT_YET: frozenset[str] = frozenset()
"""Statements whose effect the snapshots don't show yet. Take a name out, and the test holds it."""
EXACT = True
"""Whether snapshots have the source's columns in its order, and at once: not only when a row tells them."""
FORMATS = ("tencent_dts", pytest.param("debezium", marks=pytest.mark.thorough))
"""The others are left to `make soak`; Debezium has a topic per table."""
SIZES = ((500, 30, 1), pytest.param((2_000, 100, 2), marks=pytest.mark.thorough))
"""Changes, statements, positions that are looked at."""
FEWER = frozenset(("create", "create_like"))
"""Statements that are left to `make soak`: every further table costs seconds."""
SEED = 20261121


def parts(source: list[Transaction], told: Told) -> list[tuple[list[Transaction], Checkpoint]]:
    """Transactions up to each position that is looked at."""
    out, waiting = [], []
    for part, known in segments(source, told):
        waiting += part
        if isinstance(known, Checkpoint):
            out.append((waiting, known))
            waiting = []
    return out


@pytest.fixture(scope="module", params=SIZES, ids=["short", "long"])
def workload(request):
    if reason := server.missing():
        pytest.skip(reason)
    changes, statements, positions = request.param
    kinds = frozenset((*DML, *DDL)) - NOT_YET - FEWER
    return made(SEED, changes, statements, checkpoints=positions, kinds=kinds)


@pytest.mark.parametrize("format", FORMATS)
def test_snapshots_are_what_the_database_says(format, workload, spark, make_config, monkeypatch):
    monkeypatch.setattr(features, "SMALL", 0)  # as in a large table; what rewrites files other tests show
    source, told = workload
    assert differences(Lake(spark, make_config, format, {}), format, source, told) == []


def differences(lake: Lake, format: str, source: list[Transaction], told: Told) -> list[str]:
    """Lands the workload position by position; how the snapshots differ at any of them."""
    feed, found = FEEDS[format], []
    encoder = feed.encoder()
    for transactions, checkpoint in parts(source, told):
        lake.land(encoder.encode(transactions))
        lake.catch_up()
        found += [f"at {checkpoint.gtid}: {x}" for x in lake.problems(checkpoint, feed.as_sent, EXACT)]
        if found:
            break
    return [*(f"quarantined: {x}" for x in lake.quarantined()), *(f"stopped: {x}" for x in lake.stopped()), *found]
