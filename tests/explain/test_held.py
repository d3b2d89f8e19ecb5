"""What may hold a row back, and by which moments it could have been there."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdc_platform.explain.held import may_count
from cdc_platform.reading.catalog import Cut
from cdc_platform.reading.moments import Moment

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
BEFORE, AFTER = NOON - timedelta(seconds=1), NOON + timedelta(seconds=1)
TIME, CUT = Moment(time=NOON), Moment(cut=Cut("s", 1, "any", None, BEFORE, NOON, {}))


@pytest.mark.parametrize(
    ("moment", "source_time", "landed_at", "counts"),
    [
        (TIME, BEFORE, AFTER, True),
        (TIME, NOON, AFTER, True),
        (TIME, AFTER, BEFORE, False),
        (TIME, None, BEFORE, True),
        (TIME, None, AFTER, True),
        (TIME, None, None, True),
        (CUT, AFTER, BEFORE, True),
        (CUT, BEFORE, AFTER, False),
        (CUT, None, None, True),
        (Moment(), AFTER, AFTER, True),
    ],
)
def test_what_is_held_counts_by_its_source_time_or_landing(
    moment: Any, source_time: Any, landed_at: Any, counts: bool
) -> None:
    assert may_count(moment, source_time, landed_at) is counts
