"""What `explain` says beside the changes: whether others of the moment may still come."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.config import Config
from cdc_platform.explain import describe
from cdc_platform.reading.moments import Moment
from tests.rows import add

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
IDLE = "nothing that tells a time comes by t/1"


@pytest.mark.parametrize(
    ("proven", "seconds", "doubts"),
    [(True, 1, []), (True, 0, ["the table is complete up to"]), (False, 1, ["the table is taken for complete up to"])],
)
def test_changes_may_come_that_a_proven_time_rules_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proven: bool, seconds: int, doubts: list[str]
) -> None:
    source = {"name": "s", "format": "canal", "topics": ["t"]}
    config = Config.model_validate({"lake": str(tmp_path), "sources": [source]})
    add(tmp_path, tables.TABLE_STATE, {"source": "s", "db": "d", "table": "t", "batch": 0, "state": "live", "at": NOON})
    told = {"source": "s", "scope": "source", "batch": 0, "source_time": NOON, "at": NOON}
    add(tmp_path, tables.WATERMARKS, {**told, "proven": proven, "reason": None if proven else IDLE})
    monkeypatch.setattr(describe, "by_rule", lambda _: None)
    table = SimpleNamespace(source=SimpleNamespace(name="s"), snapshot=("d", "t"))
    asked: Any = SimpleNamespace(moment=Moment(time=NOON - timedelta(seconds=seconds)), table=table)
    found = list(describe._too_early(config, asked))
    assert len(found) == len(doubts)
    assert all(said.startswith(expected) for said, expected in zip(found, doubts, strict=True))
    assert all((IDLE in said) is not proven for said in found)
