"""What is kept of comparisons."""

from pathlib import Path

from cdc_platform.config import Config
from cdc_platform.lake import new_tables, stores
from cdc_platform.lake.comparisons import comparisons
from cdc_platform.reconcile import notes
from cdc_platform.reconcile.result import TableResult
from cdc_platform.tables import OFFSET_LEDGER
from tests.rows import add


def test_what_is_lost_while_tables_are_compared_was_not_seen(tmp_path: Path):
    source = {"name": "s", "format": "canal", "topics": ["t"]}
    config = Config.model_validate({"lake": str(tmp_path), "sources": [source]})
    new_tables.create(OFFSET_LEDGER.at(stores.lake(config)), OFFSET_LEDGER)

    def lose(first: int, records: int) -> None:
        row = {"source": "s", "batch": -1, "room": "landing", "topic": "t", "partition": 0, "outcome": "lost"}
        row |= {"from_offset": first, "to_offset": first + records - 1}
        add(tmp_path, OFFSET_LEDGER, {**row, "records": records})

    lose(0, 3)
    seen = notes.seen(config, config.source("s"), ("d", "one"))
    lose(10, 4)
    notes.note(config, config.source("s"), ("d", "one"), TableResult("d.one", version=0), seen)
    [[row]] = comparisons(config, config.source("s")).values()
    assert (row["equal"], row["lost"], row["at"]) == (True, 3, seen.at)
