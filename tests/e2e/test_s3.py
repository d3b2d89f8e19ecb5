"""A lake in an S3 bucket: what comes of the feeds is what comes of them in a folder, and how often the store is
asked."""

import pytest

from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.compare import compare
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.feeds import Feed
from cdc_platform.feeds.shop import TABLES
from cdc_platform.lake import checkpoints
from cdc_platform.snapshots.target import Target
from tests.e2e.e2e_shop import Shop, facts, run_stages, unaccounted
from tests.lakes import forget_all

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e, pytest.mark.s3]

ORDERS = "shop.orders"
STAGES = ("landing", "envelopes", "changes", "changelog")
"""Which need no JVM that knows S3."""


@pytest.fixture
def shop(broker):
    feeds = {
        "deb": Feed("debezium", lambda: DebeziumEncoder("s3-deb"), {"topic_pattern": "s3-deb.*"}),
        "json": Feed("canal_json", lambda: CanalJsonEncoder("s3-json"), {"topics": ["s3-json"]}),
    }
    return Shop(broker.bootstrap_servers, "s3", 10, feeds)


@pytest.mark.parametrize("more", [(6,), pytest.param((6, 6), marks=pytest.mark.thorough)], ids=len)
def test_what_is_landed_and_told_in_a_bucket_is_what_is_in_a_folder(
    shop, spark, s3, on_s3, tmp_path, monkeypatch, more
):
    folder = shop.config(tmp_path)
    bucket = on_s3(folder)
    for transactions in (0, *more):
        if transactions:
            shop.advance(transactions)
        for config in (folder, bucket):
            run_stages(spark, config, *STAGES)
        assert facts(bucket) == facts(folder)
    assert unaccounted(facts(bucket)["outcomes"]) == {}
    shop.advance(6)
    note = checkpoints.note
    for stage in ("landing", "changes", "changelog"):
        with monkeypatch.context() as killed:  # before the batch's end is recorded
            killed.setattr(checkpoints, "note", lambda c, log, *r: note(c, log, *r) if log == "offsets" else 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run_stages(spark, bucket, stage)
        run_stages(spark, bucket, stage)
    forget_all()  # a process of its own
    for config in (folder, bucket):
        run_stages(spark, config, *STAGES)
    assert facts(bucket) == facts(folder)
    run_stages(spark, bucket, *STAGES)
    s3.reset()
    again = run_stages(spark, bucket, *STAGES)
    assert {key: result.batches for key, result in again.items()} == dict.fromkeys(again, 0)
    assert len(asked := s3.reset()) <= 2 * 22, "\n".join(asked)


@pytest.fixture
def one_feed(broker):
    of = {"topics": ["s3-one"], "tables": {"include": [ORDERS]}}
    feeds = {"one": Feed("canal_json", lambda: CanalJsonEncoder("s3-one"), of)}
    return Shop(broker.bootstrap_servers, "s3-one", 6, feeds)


def equals_the_source(shop, config):
    at = Target.of(config, "one", *ORDERS.split(".")).snapshot
    sent = shop.feeds["one"].as_sent(shop.workload.truth)[ORDERS]
    assert compare(TABLES[ORDERS], sent, at.uri(), storage_options=at.options).describe() == []
    found = facts(config)
    assert found["changelog"]
    assert unaccounted(found["outcomes"]) == {}
    assert found["quarantine"] == []


def test_snapshots_in_a_bucket_equal_the_source(one_feed, in_a_bucket, rounds_of, tmp_path):
    """All stages of one table, a backlog and an increment, in a process whose JVM knows S3."""
    config = one_feed.config(tmp_path, **in_a_bucket)
    one = rounds_of(config.file)
    for more in (0, 4):
        if more:
            one_feed.advance(more)
        one()
        equals_the_source(one_feed, config)


@pytest.mark.thorough
def test_so_they_do_where_answers_are_lost_and_requests_refused(one_feed, s3, in_a_bucket, rounds_of, tmp_path):
    """Every few requests, Python's and Spark's: what was done though nobody was told, commits among it, what wasn't
    done, and what the store is too busy for."""
    config = one_feed.config(tmp_path, **in_a_bucket)
    one = rounds_of(config.file)
    for more in (0, 4, 4):
        if more:
            one_feed.advance(more)
        for n in range(1, 400, 8):
            s3.fault("drop_after", method="PUT", path="_delta_log" if n % 3 else "", skip=n)
            s3.fault("503", skip=3 * n)
            s3.fault("503_after", method="PUT", skip=2 * n)
            s3.fault("drop", method="GET", skip=4 * n)
        one()
        asked = s3.reset()
        puts = [request for request in asked if request.startswith("PUT") and "_delta_log" in request]
        assert len(puts) > len(set(puts)), "none was asked for again"
        equals_the_source(one_feed, config)
