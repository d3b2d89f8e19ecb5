"""The lake on S3: a comparison of two feeds, as commands in processes of their own, over a real
MariaDB and broker."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_platform.config import load_config
from tests import s3_server
from tests.shadow.conftest import db, feeds  # noqa: F401 (fixtures)
from tests.shadow.test_run import without
from tests.shadow.world import BY, OF

pytestmark = [
    *(pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.e2e, pytest.mark.s3),
    *(pytest.mark.thorough, pytest.mark.timeout(1200)),
]
ENV = {"CDC_TEST_KEY": s3_server.KEY, "CDC_TEST_SECRET": s3_server.SECRET}
TABLE = "(id int NOT NULL PRIMARY KEY, name varchar(40))"


def cdc(w: Any, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("cdc-platform")), *words, "--config", str(w.file)],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def moved(s3, tmp_path, monkeypatch) -> Callable[[Any], Any]:
    """`moved(w)`: its lake in a bucket, and its runs as commands."""
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    storage = {"endpoint": s3.endpoint, "access_key": "${CDC_TEST_KEY}", "secret_key": "${CDC_TEST_SECRET}"}

    def move(w: Any) -> Any:
        told = yaml.safe_load(w.file.read_text())
        told |= {"lake": f"s3a://{s3_server.BUCKET}/{tmp_path.name}", "storage": storage}
        w.file.write_text(yaml.safe_dump(told))
        w.config = load_config(w.file)

        def catch_up(*_: Any) -> None:
            code, _out, errors = cdc(w, "run")
            assert code == 0, errors

        monkeypatch.setattr(w, "catch_up", catch_up)
        return w

    return move


def test_two_feeds_are_compared(feeds, moved):  # noqa: F811
    w = moved(feeds("tencent_dts", "canal"))
    w.create("two_on_s3", TABLE)
    w.create("other_on_s3", TABLE)
    w.run(*(f"INSERT INTO two_on_s3 VALUES ({i}, 'n{i}')" for i in range(9)))
    w.send(OF)
    w.send(BY, without("two_on_s3", 4))
    w.pass_on("other_on_s3")
    code, told, errors = cdc(w, "shadow", "compare", OF, "--json")
    assert code == 1, errors
    assert w.open() == [("two_on_s3", "4", "only_of", {"id": "4", "name": "n4"}, None)], told
    code, told, _ = cdc(w, "certify", OF, "oracle.two_on_s3", "--json")
    [one] = json.loads(told)["tables"]
    assert (code, one["verdict"]) == (1, "broken")
    assert f"it differs from that of {BY}: 1 row lacking in {BY}" in one["reasons"][0]
