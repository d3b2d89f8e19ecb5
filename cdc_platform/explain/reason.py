"""A reason why a row isn't there, or isn't as it should be."""

from dataclasses import dataclass, field
from typing import Any

from cdc_platform.snapshots.reduce.one_key import Change


@dataclass(frozen=True, slots=True)
class Reason:
    """kind: deleted, moved, truncated, dropped, renamed, not read, filtered, quarantined, waiting, not decoded, not
    applied, not landed, lost, stopped, left out, differs, erased, never seen. sure: it alone is why. by: the change
    that did it, as it came. more: facts of the kind."""

    kind: str
    text: str
    sure: bool
    by: Change | None = None
    more: dict[str, Any] = field(default_factory=dict)
