"""A lake in an S3 bucket: what comes of the feeds is what comes of them in a folder, and how often the store is
asked."""

import pytest

from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.feeds import Feed
from cdc_platform.lake import checkpoints
from tests.e2e.e2e_shop import Shop, facts, run_stages, unaccounted
from tests.lakes import forget_all

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e, pytest.mark.s3]

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
