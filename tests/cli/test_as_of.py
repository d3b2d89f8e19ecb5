"""What `as-of` says of the table that it makes."""

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_platform.cli import as_of
from cdc_platform.snapshots.cuts.publish import _left_out


@pytest.mark.parametrize(
    ("missing", "complete"),
    [({"quarantined": 2}, False), ({"lost": 1}, False), ({}, True)],
)
def test_a_table_as_of_a_cut_is_complete_where_nothing_was_left_out(missing: dict[str, int], complete: bool):
    verdict = _left_out({"quarantined": 0, "lost": 0, "waiting": 0, **missing})
    at: Any = SimpleNamespace(cut=SimpleNamespace(reason=verdict.reason if verdict else "no transactions are told"))
    nothing: Any = None
    found, reason = as_of._complete(nothing, nothing, ("shop", "orders"), at)
    assert (found, reason) == (complete, at.cut.reason)
