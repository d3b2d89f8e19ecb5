"""When statements were decided stays known through a swap."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.config import Config
from cdc_platform.lake import exchange, stores
from cdc_platform.lake.renames import Statements
from cdc_platform.replay import swap
from tests.rows import add

pytestmark = [pytest.mark.thorough, pytest.mark.spark]
MONDAY, TUESDAY = (datetime(2026, 11, day, tzinfo=UTC) for day in (23, 24))


def test_a_statement_was_decided_when_the_lake_in_use_followed_it(spark: Any, tmp_path: Path) -> None:
    """Of one that only the replay could read: when that did."""
    config = Config.model_validate(
        {"lake": str(tmp_path / "lake"), "sources": [{"name": "s", "format": "canal", "topics": ["t"]}]}
    )
    side, source = config.model_copy(update={"lake": str(tmp_path / "side")}), config.source("s")

    def decide(lake: str, at: datetime, offset: int, before: str, after: str) -> None:
        place = {"epoch": 0, "file": 1, "pos": offset, "event": 0, "row": 0, "landed": offset}
        told = {"source": "s", "topic": "t", "partition": 0, "offset": offset, "order_key": place, "at": at}
        names = {"db_before": "d", "table_before": before, "db_after": "d", "table_after": after}
        add(lake, tables.SCHEMA_CHANGES, {**told, **names, "ddl": "RENAME", "decision": "rebuilt"})

    decide(config.lake, MONDAY, 1, "a", "b")
    decide(side.lake, TUESDAY, 1, "a", "b")
    decide(side.lake, TUESDAY, 2, "b", "c")
    of = swap._written(swap._Table(spark, config, side, source, tables.SCHEMA_CHANGES))
    assert of is not None
    exchange.decide(stores.lake(config), "s", [of], {})
    assert exchange.finish(stores.lake(config), "s")
    told = Statements.of(config, source)
    assert [(r["table_before"], r["at"]) for r in told.rows] == [("a", MONDAY), ("b", TUESDAY)]
    assert told.today(("d", "b"), MONDAY) == ("d", "c"), "what was found on Monday was found of b"
