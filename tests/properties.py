"""How many examples Hypothesis tries."""

from typing import Any

from hypothesis import settings

_SHARE = 4
_short = False


def take(markers: str) -> None:
    """The expression of markers that this run selects tests by: `make test` tries a part of the examples, `make
    test-all` all of them."""
    global _short  # noqa: PLW0603 - tests ask for their settings while they are imported
    _short = markers == "not thorough"


def examples(number: int, **more: Any) -> settings:
    """Settings of a test that tries so many."""
    return settings(max_examples=number // _SHARE if _short else number, deadline=None, **more)
