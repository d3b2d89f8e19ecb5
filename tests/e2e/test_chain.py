"""Kafka to snapshots, two formats in a classic session and one over Spark Connect: all cells equal."""

import os
import signal
import time

import pytest

from cdc_platform.lake import sequences
from cdc_platform.spark import connect
from tests.e2e.e2e_shop import Shop, facts, run_stages, unaccounted

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e]


@pytest.fixture(scope="module")
def shop(broker):
    return Shop(broker.bootstrap_servers, "chain", 30)


def check(shop, config):
    assert shop.differences(config) == []
    found = facts(config)
    assert unaccounted(found["outcomes"]) == {}
    assert found["quarantine"] == []
    assert [gap.text for source in config.sources for gap in sequences.gaps(config, source)] == []
    for landed in found["landed"].values():
        assert len({row[:3] for row in landed}) == len(landed)
    return found


def test_a_backlog_an_increment_and_a_run_without_news(shop, spark, tmp_path):
    config = shop.config(tmp_path)
    backlog = run_stages(spark, config)
    check(shop, config)
    assert backlog["dts", "landing"].rows > 40  # the 2 MB row alone takes 32 records
    shop.advance(15)
    increment = run_stages(spark, config)
    found = check(shop, config)
    assert 0 < increment["dts", "landing"].rows < backlog["dts", "landing"].rows
    again = run_stages(spark, config)
    assert {key: result.batches for key, result in again.items()} == dict.fromkeys(again, 0)
    assert facts(config) == found


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def place(request):
    """Keys of cdc.yaml that say where the lake is."""
    return {} if request.param == "folder" else request.getfixturevalue("in_a_bucket")


@pytest.fixture
def server(shop, place, tmp_path):
    """A Spark Connect server as `ui` starts it, stopped with all its children."""
    config = shop.config(tmp_path / "server", **place)
    process, server = connect.launch(config, tmp_path / "connect.log")
    try:
        deadline = time.monotonic() + 120
        while not connect.answers(server.port):
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "connect.log").read_text()[
                -3000:
            ]
            time.sleep(0.2)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.thorough
def test_the_same_over_spark_connect(shop, place, server, process, tmp_path):
    config = shop.config(tmp_path, shop.sources()[:1], spark={"remote": server.remote}, **place)
    driver = process(config, env=server.env)
    assert driver.popen.wait(1200) == 0, driver.tail()
    check(shop, config)
