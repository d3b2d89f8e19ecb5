"""A checkpoint's entries are fences: of two runs that begin the same batch, one does it."""

import pytest

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import checkpoints
from cdc_platform.lake.store import Store


def test_an_entry_is_made_by_one_run(store: Store) -> None:
    mine = checkpoints.note(store, "offsets", 0, "mine")
    with pytest.raises(LakeChanged, match="two runs of one source") as why:
        checkpoints.note(store, "offsets", 0, "another's")
    assert "offsets/0" in str(why.value)
    assert store.read("offsets/0") == mine.encode(), "the first one's stays"
    checkpoints.note(store, "commits", 0, "{}")
    assert checkpoints.newest(store) == (0, 0)
