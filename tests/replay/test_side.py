"""The side lake of a replay: who lost it changes nothing there any more."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_platform.config import Config, Source
from cdc_platform.errors import LeaseLost
from cdc_platform.lake import stores
from cdc_platform.lake.batches import End
from cdc_platform.replay import side
from cdc_platform.replay.present import Present

PRESENT = Present(End(3, 0), "id", 3, {}, {})


def begun_anew(config: Config, source: Source) -> None:
    other = source.model_copy(update={"format": "canal_json"})
    side.opened(config, other, PRESENT)


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
