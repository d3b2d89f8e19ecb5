"""What several tests of snapshots ask for."""

from typing import Any

import pytest

from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots import together as ways


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The tables of each batch that went together."""
    done, kept = [], ways.bring_up

    def bring_up(*a: Any) -> Any:
        found = kept(*a)
        done.append({name[-1] for name in found})
        return found

    monkeypatch.setattr(snapshots.together, "bring_up", bring_up)
    return done
