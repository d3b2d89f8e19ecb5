"""Files of a table that may hold a row, by what its log has of them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake.exceptions import TableNotFoundError

from cdc_platform.lake.skipping import Above, files_that_may_hold
from cdc_platform.tables import CHANGELOG
from tests.lakes import store_at
from tests.rows import add


def test_files_are_left_out_by_their_lowest_and_highest_values(tmp_path: Path):
    path = store_at(CHANGELOG.at(str(tmp_path)))
    with pytest.raises(TableNotFoundError):
        files_that_may_hold(path, [{"db": "shop"}])
    landed = datetime(2026, 11, 20, tzinfo=UTC)
    for source, table, offsets in (("s", "a", (1, 5)), ("s", "b" * 40, (6, 9)), ("other", "a", (1, 5))):
        rows = [{"source": source, "db": "shop", "table": table, "offset": o, "landed_at": landed} for o in offsets]
        add(tmp_path, CHANGELOG, *rows)

    def found(*some: dict) -> int:
        return len(files_that_may_hold(path, some, source="s"))

    assert found({"db": "shop"}) == 2
    assert found({"db": "shop", "table": "a"}) == 1
    assert found({"db": "shop", "table": "b" * 40}, {"db": "crm"}) == 1
    assert found({"db": "shop", "table": "a"}, {"table": "b" * 40}) == 2
    assert [found({"offset": Above(n)}) for n in (4, 5, 8, 9)] == [2, 1, 1, 0]
    assert found({"offset": 7}) == 1
    assert found() == 0
