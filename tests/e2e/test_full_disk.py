"""A lake's disk that runs full, or fails, while runs write: each says where, and the next one does what is left."""

import errno
import os
from itertools import count

import pytest

from cdc_platform import chain
from tests.disk import mounted
from tests.e2e.e2e_shop import Shop, facts, run_stages, unaccounted

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e]

WHOLE = list(chain.STAGES)
SHORT = WHOLE[: WHOLE.index("snapshots")]
PAGES = (0, 1, 2, 3, 5, 8, 12, 18, 26, 40, 60, 90, 140, 220, 400)
"""Free pages of the disk, run after run: each comes further than the one before."""


@pytest.fixture
def shop(broker, tmp_path):
    """One on whose lake no run has been; its topics' names are the test's."""
    return Shop(broker.bootstrap_servers, tmp_path.name.replace("_", "-"), 6)


@pytest.fixture
def config(shop, tmp_path):
    return shop.config(tmp_path, shop.sources()[:1])


def whole(shop, config):
    """What was sent has come, once."""
    assert shop.differences(config) == []
    found = facts(config)
    assert (unaccounted(found["outcomes"]), found["quarantine"]) == ({}, [])
    assert len(found["landed"]["dts"]) == len({row[:3] for row in found["landed"]["dts"]})
    assert len(found["changelog"]) == len(set(found["changelog"]))


@pytest.mark.thorough
@pytest.mark.parametrize("stages", [SHORT, pytest.param(WHOLE, marks=pytest.mark.thorough)], ids=["short", "whole"])
def test_a_disk_that_runs_full(spark, shop, config, tmp_path, stages):
    with mounted(tmp_path / "lake", "32m") as disk:
        run_stages(spark, config)
        shop.advance(6)
        failed = 0
        for pages in PAGES:
            disk.leave(pages << 12)
            try:
                run_stages(spark, config, *stages)
            except Exception as error:  # noqa: BLE001  Spark's own, too
                assert "No space left on device" in str(error)
                assert str(disk.path) in str(error)
                failed += 1
            else:
                break
        assert failed > 3
        disk.empty()
        run_stages(spark, config)
        whole(shop, config)
        left = [path for path in disk.path.rglob("*") if path.name.endswith(".tmp")]
        assert not left


@pytest.mark.thorough
def test_a_disk_that_fails_at_each_write_of_the_driver_in_turn(spark, shop, config, monkeypatch):
    run_stages(spark, config)
    shop.advance(6)
    for number in range(100):
        calls = count()

        def broken(write, number=number, calls=calls):
            def call(made, name):
                if str(name).startswith(config.lake) and next(calls) == number:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return write(made, name)

            return call

        with monkeypatch.context() as patched:
            patched.setattr(os, "link", broken(os.link))
            patched.setattr(os, "replace", broken(os.replace))
            try:
                run_stages(spark, config)
            except Exception as error:  # noqa: BLE001  Spark's own, too
                assert os.strerror(errno.EIO) in str(error)
                assert config.lake in str(error)
        if next(calls) <= number:
            break
    assert number > 3
    run_stages(spark, config)
    whole(shop, config)
