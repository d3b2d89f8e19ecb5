"""The names of snapshots in a catalog."""

import re
from typing import NamedTuple

from cdc_platform.config import Catalog
from cdc_platform.spark.delta_sql import quoted
from cdc_platform.tables import Name


class Entry(NamedTuple):
    """A table of a catalog."""

    catalog: str
    database: str
    table: str

    @property
    def schema(self) -> str:
        """Its database in SQL."""
        return f"{quoted(self.catalog)}.{quoted(self.database)}"

    def __str__(self) -> str:
        return f"{self.schema}.{quoted(self.table)}"


def entry(catalog: Catalog, source: str, name: Name) -> Entry:
    """Where a snapshot is registered."""
    *database_, table = name
    database = catalog.database.format(source=allowed(source), db=allowed(".".join(database_)))
    return Entry(catalog.name, database, allowed(table))


def allowed(name: str) -> str:
    """A name as catalogs take it: lower-case ASCII letters, digits and `_`. What isn't that, and each `_` beside
    another or at the end, is written as `__` and two hexadecimal digits per byte: different names stay different."""

    def escaped(found: re.Match[str]) -> str:
        return "".join(f"__{byte:02x}" for byte in found[0].encode())

    return re.sub(r"[^a-z0-9_]|_(?![a-z0-9])|(?<=_)_", escaped, name)
