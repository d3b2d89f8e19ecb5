"""`replay`: what other options make of the same bytes, beside the lake in use, which stays as it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.cli.app import run as command
from tests.changes.test_again import Topic, created, row

pytestmark = pytest.mark.spark


@pytest.fixture
def topic(spark: Any, tmp_path: Path) -> Topic:
    return Topic(spark, tmp_path)


@pytest.fixture
def asked(topic: Topic, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*args: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = command([*args, "--config", str(topic.file), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return ask


def in_lake(topic: Topic) -> set[tuple[str, int, int]]:
    """Every file of the lake in use."""
    lake = Path(topic.config.lake)
    own = ("_replays", "_leases", "_probe")
    files = (f for f in lake.rglob("*") if f.is_file() and f.relative_to(lake).parts[0] not in own)
    return {(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files}


def test_what_an_option_changes_is_told_and_nothing_in_use_changes(topic: Topic, asked: Any):
    topic.land(created(), row(10, 1, "AQ=="), row(20, 2, "1234"), row(30, 3, "Ag=="), row(40, 1, "Aw==", "u"))
    topic.catch_up()
    before = in_lake(topic)
    code, same = asked("replay", "s")
    print(json.dumps(same, indent=1))
    code, other = asked("replay", "s", "--options", '{"decimal_handling_mode": "string"}')
    print(json.dumps(other, indent=1))
    assert in_lake(topic) == before
