"""`replay`: what other options make of the same bytes, beside the lake in use, which stays as it is until it is asked to
be swapped."""

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import chain, tables
from cdc_platform.cli.app import run as command
from cdc_platform.lake import commits, exchange, stores
from cdc_platform.lake.writer_lock import source_lock
from tests.changes.test_again import Topic, created, row
from tests.changelog.feed import read

pytestmark = pytest.mark.spark
STRING = {"decimal_handling_mode": "string"}


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


def in_use(topic: Topic) -> set[tuple[str, int, int]]:
    """Every file of the lake in use."""
    lake = Path(topic.config.lake)
    files = (f for f in lake.rglob("*") if f.is_file())
    kept = (f for f in files if f.relative_to(lake).parts[0] not in ("_replays", "_leases", "_store"))
    return {(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in kept}


def lines(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """1234 is four digits, or base64 of a number; AQ== only the latter."""
    return [
        *(created(), row(10, 1, "5"), row(20, 2, "1234"), row(30, 3, "55"), row(40, 1, "1234", "u")),
        *(row(50, 4, "AQ=="), *more),
    ]


def numbers(topic: Topic) -> list[tuple[int, int]]:
    return [(i, int(n)) for i, n in topic.rows()]


def test_what_another_option_makes_is_told_beside_and_put_in_place_when_asked(topic: Topic, asked: Any):
    topic.land(*lines())
    topic.catch_up()
    before = in_use(topic)
    assert numbers(topic) == [(1, 5), (3, 55), (4, 1)]
    code, found = asked("replay", "s", "--options", json.dumps(STRING))
    assert code == 1
    assert found["options"] == {"decimal_handling_mode": {"in_use": None, "replay": "string"}}
    assert found["held"] == {"in_use": 2, "replay": 1}
    [table] = found["tables"]
    counts = {k: table[k] for k in ("only_in_use", "only_in_replay", "differing")}
    assert counts == {"only_in_use": 1, "only_in_replay": 1, "differing": 1}
    assert table["columns"] == [{"column": "n", "rows": 1}]
    why = {(r["column"], r["reason"].split(":")[0]): r["rows"] for r in table["reasons"]}
    held = "held in quarantine "
    assert why == {("n", f"{held}in use"): 1, (None, f"{held}in use"): 1, (None, f"{held}by the replay"): 1}
    assert [(r["kind"], r["key"]["id"]) for r in table["samples"]] == [
        ("differing", "1"),
        ("only_in_replay", "2"),
        ("only_in_use", "4"),
    ]
    assert table["samples"][0]["cells"] == [{"column": "n", "in_use": "5", "replay": "1234"}]
    assert in_use(topic) == before
    topic.with_options(**STRING)
    code, found = asked("replay", "s", "--swap")
    assert (code, found["swapped"], found["equal"]) == (0, True, False)
    assert numbers(topic) == [(1, 1234), (2, 1234), (3, 55)]
    topic.land(row(60, 5, "4"))
    topic.catch_up()
    assert numbers(topic) == [(1, 1234), (2, 1234), (3, 55), (5, 4)]
    assert topic.outcomes() == {"applied": 6, "quarantined": 1}
    code, found = asked("replay", "s")
    assert (code, found["held"]) == (0, {"in_use": 1, "replay": 1})
