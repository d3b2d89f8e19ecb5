"""Which of the valid names was probably meant."""

import difflib
from collections.abc import Iterable

_SHOWN = 20


def closest(given: str, valid: Iterable[str], shown: int = _SHOWN) -> list[str]:
    """The valid names that look like `given`, the likeliest first; where none does, all of them (at most `shown`, and
    how many there are)."""
    names = list(dict.fromkeys(valid))
    lowered = {n.lower(): n for n in reversed(names)}
    near = [lowered[n] for n in difflib.get_close_matches(given.lower(), lowered, n=5, cutoff=0.6)]
    near = near or [n for n in names if given and given.lower() in n.lower()][:5]
    return near or [*names[:shown], *([f"… {len(names)} in all"] if len(names) > shown else [])]
