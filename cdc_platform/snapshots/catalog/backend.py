"""What every kind of catalog is to `publish`."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from cdc_platform.errors import CdcError
from cdc_platform.snapshots.catalog.names import Entry


class CatalogError(CdcError):
    """What a catalog refuses, in one line and without secrets."""


class CatalogUnavailable(CatalogError):
    """A catalog that answers nothing, or nothing to this client: asking for the next table would be no use."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot as Delta's log describes it. fields: its columns as the log writes them (Delta's protocol, "Schema
    Serialization Format"), in order."""

    path: str
    fields: tuple[dict[str, Any], ...]
    comment: str


class CatalogTable(NamedTuple):
    """A table of the catalog. location: None where it doesn't say. fields: its columns as `Snapshot` has them, or None
    where the catalog's readers take them from Delta's log. id: under which the catalog knows it."""

    location: str | None
    fields: tuple[dict[str, Any], ...] | None = None
    id: str = ""


class Backend(Protocol):
    """A kind of catalog. Every method raises CatalogError."""

    def tables(self, catalog: str, database: str) -> set[str]:
        """Names in a database, which is created if it isn't there."""
        ...

    def find(self, entry: Entry) -> CatalogTable:
        """One of the tables that the last `tables` named."""
        ...

    def create(self, entry: Entry, snapshot: Snapshot) -> None:
        """Register a snapshot."""
        ...

    def alter(self, entry: Entry, snapshot: Snapshot, found: CatalogTable) -> None:
        """Give a registered snapshot its present columns."""
        ...

    def drop(self, entry: Entry) -> None:
        """Remove a table from the catalog, not its files."""
        ...


def same(ours: tuple[dict[str, Any], ...], theirs: tuple[dict[str, Any], ...]) -> bool:
    """Whether columns are alike for a reader: names, types and comments, in order."""

    def seen(field: dict[str, Any]) -> tuple[Any, ...]:
        return field["name"], field["type"], (field.get("metadata") or {}).get("comment")

    return [seen(f) for f in ours] == [seen(f) for f in theirs]
