"""What may be kept of a table beside its snapshot, as an asset of its own."""

from collections.abc import Callable
from dataclasses import dataclass

from cdc_platform import tables
from cdc_platform.config import Tables


@dataclass(frozen=True, slots=True)
class Beside:
    """asked: whether the configuration asks for it of a table; description: with `{}` for the table's name."""

    path: tables.Location
    asked: Callable[..., bool]
    description: str


BESIDE = {
    "history": Beside(tables.HISTORY_PATH, Tables.has_history, "What the rows of {} were, and when."),
    "typed_changes": Beside(
        tables.TYPED_CHANGES_PATH, Tables.has_typed_changes, "Changes of {}, with rows before and after in its columns."
    ),
}
"""By stage."""
