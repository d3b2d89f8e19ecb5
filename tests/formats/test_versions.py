"""A version of a format makes the same events of the same bytes for good."""

import json
import shutil
from pathlib import Path

import pytest

from scripts import decoders


def test_what_the_fixtures_decode_to_is_recorded_by_version() -> None:
    before, now = decoders.recorded(), decoders.present()
    assert decoders.refused(before, now) == []
    assert decoders.FILE.read_text() == decoders.text(now), "python -m scripts.decoders renews it"
    assert all(len(told["scenarios"]) > 10 for told in now.values())


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    shutil.copytree(decoders.FIXTURES / "debezium", tmp_path / "debezium")
    return tmp_path / "debezium"


def rewritten(file: Path, old: str, new: str) -> None:
    before = file.read_text()
    assert old in before
    file.write_text(before.replace(old, new))


def test_other_events_of_the_same_messages_need_another_version(changed: Path) -> None:
    before = decoders.present()
    rewritten(changed / "ticdc.expected.json", "unordered", "out_of_order")
    now = decoders.present(changed.parent)
    [why] = [w for w in decoders.refused(before, now) if w.startswith("debezium")]
    assert "raise its version" in why and "ticdc" in why
    now["debezium"]["version"] = "next"
    assert decoders.refused(before, now) == []


def test_what_is_new_or_laid_out_otherwise_needs_none(changed: Path) -> None:
    before = decoders.present()
    for end in (".json", ".expected.json"):
        shutil.copy(changed / f"ticdc{end}", changed / f"one_more{end}")
    laid_out = changed / "tombstones.expected.json"
    laid_out.write_text(json.dumps(json.loads(laid_out.read_text()), indent=4))
    for end, name in ((".json", "commit_ts"), (".expected.json", "unordered")):  # other messages, so another scenario
        rewritten(changed / f"ticdc{end}", name, "else")
    now = decoders.present(changed.parent)
    assert decoders.refused(before, now) == []
    assert "one_more" in now["debezium"]["scenarios"]
