"""The side lake of a replay: who lost it changes nothing there any more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

import pytest

from cdc_platform.changes import decoded_by
from cdc_platform.config import Config, Source
from cdc_platform.errors import ConfigError, LeaseLost
from cdc_platform.lake import erasing, lease, stores
from cdc_platform.lake.batches import End
from cdc_platform.replay import run, side
from cdc_platform.replay.present import Present

PRESENT = Present(End(3, 0), "id", 3, {}, {})


def begun_anew(config: Config, source: Source) -> None:
    other = source.model_copy(update={"format": "canal_json"})
    side.opened(config, other, PRESENT)


def test_an_erasure_that_came_while_a_replay_waited_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"name": "s", "format": "canal", "topics": ["t"]}
    config = Config.model_validate({"lake": str(tmp_path), "sources": [told]})
    source, held = config.source("s"), side.held
    monkeypatch.setattr(run.present, "look", lambda *_: PRESENT)
    monkeypatch.setattr(run, "leased", lambda *_: nullcontext())

    @contextmanager
    def later(*given: Any) -> Iterator[lease.Lease]:
        with held(*given) as mine:
            erasing.decide(stores.lake(config), "s", [], number=1)
            yield mine

    monkeypatch.setattr(side, "held", later)
    with pytest.raises(ConfigError, match="an erasure of it was begun and isn't finished"):
        run.replay(cast("Any", None), config, source)
    assert not stores.lake(config).exists("_replays/s/replay.json")


@pytest.mark.parametrize("change", [side.discard, begun_anew])
def test_who_lost_the_side_lake_removes_nothing(tmp_path: Path, change: Callable[[Config, Source], object]) -> None:
    told = {"name": "s", "format": "canal", "topics": ["t"]}
    config = Config.model_validate({"lake": str(tmp_path), "sources": [told]})
    source, lake = config.source("s"), stores.lake(config)
    with pytest.raises(LeaseLost), side.held(config, source) as mine:
        side.opened(config, source, PRESENT)
        lake.put("_replays/s/1/table/file", b"rows")
        before = lake.below("_replays/s"), lake.read("_replays/s/replay.json")
        lake.put(f"_replays/_leases/s/{2:020d}", mine.record())
        mine._renewed -= 40
        change(config, source)
    assert (lake.below("_replays/s"), lake.read("_replays/s/replay.json")) == before


def test_other_code_of_the_same_version_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that was updated between two replays."""
    told = {"name": "s", "format": "canal", "topics": ["t"]}
    config = Config.model_validate({"lake": str(tmp_path), "sources": [told]})
    source = config.source("s")
    with side.held(config, source):
        first = side.opened(config, source, PRESENT).lake
        stores.lake(config).put("_replays/s/1/table/file", b"rows of the code before")
        assert side.opened(config, source, PRESENT).lake == first
        monkeypatch.setattr(side, "_CODE", "of the checkout as it is now")
        assert side.opened(config, source, PRESENT).lake != first
        assert stores.lake(config).below("_replays/s/1") == []


@pytest.mark.parametrize("package", ["formats", "mysql", "changes", "changelog", "snapshots"])
def test_what_makes_its_rows_is_part_of_what_it_is_known_by(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = decoded_by._files

    def changed(path: str, folder: Traversable) -> Iterator[tuple[str, bytes]]:
        yield from there(path, folder)
        if path == f"cdc_platform.{package}":
            yield f"{path}/one_more.py", b""

    parts = "cdc_platform.changelog", "cdc_platform.snapshots"
    assert decoded_by.code(*parts) == side._CODE
    monkeypatch.setattr(decoded_by, "_files", changed)
    assert decoded_by.code(*parts) != side._CODE
