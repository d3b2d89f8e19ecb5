"""Column names as MySQL takes them: without regard to case; names of tables as options spell them."""

from collections.abc import Mapping
from typing import Any


class Names:
    """Values by column name. MySQL doesn't tell names apart by case: what has no exact match may have another
    spelling, if only one fits."""

    def __init__(self, values: Mapping[str, Any]):
        self._values = values
        self._folded: dict[str, str | None] | None = None

    def get(self, name: str) -> Any:
        """The value of `name` or of its other spelling; None: there is neither."""
        return self._values.get(name) if name in self._values else self._values.get(self.other(name) or "")

    def other(self, name: str) -> str | None:
        """Another spelling of `name`, or None."""
        if self._folded is None:  # rarely needed
            self._folded = {}
            for known in self._values:
                folded = known.casefold()
                self._folded[folded] = None if folded in self._folded else known
        return self._folded.get(name.casefold())


def dotted(*parts: str | None) -> str:
    """A table's name as options spell it, without the parts that it lacks: `db.table`, `db.schema.table`."""
    return ".".join(filter(None, parts))
