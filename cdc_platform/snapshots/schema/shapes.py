"""Columns and properties of the Delta tables of one source table: its snapshot and its tombstones."""

from typing import TYPE_CHECKING

from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.tables import ORDER, ROW_ADDRESS, Name, Table
from cdc_platform.tables.columns import BINARY, STRING, TIMESTAMP, Column, scalar

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

ADDRESS = "_cdc_address"
"""The bookkeeping column that only snapshots of tables without a key have."""
_SETTINGS = {"delta.checkpointInterval": "50"}
_BOOKKEEPING = (
    Column("_cdc_order", ORDER, "order of the change that made this row"),
    Column("_cdc_source_time", TIMESTAMP, "commit time of that change at the source"),
)
_VERSION = (
    Column("_cdc_op", STRING, "the change that made this version: read (initial load), insert, update"),
    Column("_cdc_valid_from", TIMESTAMP, "commit time of that change at the source; NULL: not told"),
    Column("_cdc_valid_to", TIMESTAMP, "commit time of the change that ended it; NULL: not told, or there is none"),
    Column("_cdc_order", ORDER, "order of the change that made it"),
    Column("_cdc_order_to", ORDER, "order of the change that ended it; NULL: the row is so now"),
)
_ADDRESS = Column(ADDRESS, ROW_ADDRESS, "where the change that made this row came from")
_SCOPES = "row; table: TRUNCATE; origin: TRUNCATE of one of several; expired: earlier deletes are forgotten"
_WITHOUT_KEY = (
    Column("scope", STRING, "delete; insert: taken away by one; table: TRUNCATE"),
    Column("content", BINARY, "digest of the row"),
    Column(ADDRESS, ROW_ADDRESS),
    Column("_cdc_order", ORDER),
)
"""Tombstones of tables without a key."""


def snapshot(source: str, name: Name, columns: list[TableColumn]) -> Table:
    """The live rows of a source table."""
    own = (*(Column(c.name, scalar(c.spark), c.comment) for c in columns), *_BOOKKEEPING)
    own += () if any(c.key for c in columns) else (_ADDRESS,)
    return _table(f"Live rows of {'.'.join(name)} from source {source}", own)


def history(source: str, name: Name, columns: list[TableColumn]) -> Table:
    """Versions of the rows of a source table."""
    own = (*(Column(c.name, scalar(c.spark), c.comment) for c in columns), *_VERSION)
    return _table(f"What the rows of {'.'.join(name)} from source {source} were, and when", own)


def tombstones(columns: list[TableColumn]) -> Table:
    """What is known to be deleted, with the order of the delete."""
    keys = [c for c in columns if c.key]
    named = tuple(Column(f"_k{i}", scalar(c.spark)) for i, c in enumerate(keys))
    own = (*named, Column("scope", STRING, _SCOPES), Column("_cdc_order", ORDER)) if keys else _WITHOUT_KEY
    return _table("Deleted keys with the order of their delete", own)


def comment_of(field: "StructField") -> str:
    """What a snapshot's column says of its values, as `TableColumn.comment`."""
    return str(field.metadata.get("comment") or "")


def _table(comment: str, columns: tuple[Column, ...]) -> Table:
    return Table("", comment, columns, settings=_SETTINGS)
