"""Columns and properties of the Delta tables of one source table: its snapshot and its tombstones."""

import json
from typing import TYPE_CHECKING

from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.tables import KEY, ORDER, ROW_ADDRESS, Name, Table
from cdc_platform.tables.columns import BINARY, STRING, TIMESTAMP, UNSIGNED_BIGINT, Array, Column, Struct, scalar

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

ADDRESS = "_cdc_address"
"""The bookkeeping column that, of snapshots, only those of tables without a key have."""
_SETTINGS = {"delta.checkpointInterval": "50"}
_BY_PLACE = {"delta.dataSkippingStatsColumns": "_cdc_source_time,_cdc_order"}
"""Changes lie in their order, so that other statistics pass over no file: Spark takes longer for those of all columns
than for the rows."""
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
_CHANGE = (
    Column("_cdc_op", STRING, "insert, update, delete, read (initial load), truncate"),
    Column("_cdc_source_time", TIMESTAMP, "commit time of the change at the source; NULL: not told"),
    Column("_cdc_order", ORDER, "order of the change within the source"),
    Column("_cdc_gtid", STRING, "GTID of the transaction, or (canal) the set of all executed with it; NULL: not told"),
    Column("_cdc_binlog_file", STRING, "binlog file; NULL: not told"),
    Column("_cdc_binlog_pos", UNSIGNED_BIGINT, "position in it; NULL: not told"),
    Column(ADDRESS, ROW_ADDRESS, "where the change came from: its row in changelog has the same"),
    Column("_cdc_missing_before", Array(STRING), "columns of which the change doesn't tell what the row before had"),
    Column("_cdc_missing_after", Array(STRING), "the same of the row after"),
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
    return _table(f"Live rows of {'.'.join(name)} from source {source}", own, **{KEY: key_of(columns)})


def history(source: str, name: Name, columns: list[TableColumn]) -> Table:
    """Versions of the rows of a source table."""
    own = (*(Column(c.name, scalar(c.spark), c.comment) for c in columns), *_VERSION)
    return _table(f"What the rows of {'.'.join(name)} from source {source} were, and when", own)


def typed_changes(source: str, name: Name, columns: list[TableColumn]) -> Table:
    """Changes of a source table, with rows before and after in its columns."""
    row = Struct(tuple((c.name, scalar(c.spark)) for c in columns))
    images = (
        Column("before", row, "the row before an update or delete; NULL: there was none, or nothing of it is told"),
        Column("after", row, "the row after an insert, read or update; NULL: there is none"),
    )
    return _table(f"Changes of {'.'.join(name)} from source {source}", (*_CHANGE, *images), **_BY_PLACE)


def tombstones(columns: list[TableColumn]) -> Table:
    """What is known to be deleted, with the order of the delete."""
    keys = [c for c in columns if c.key]
    named = tuple(Column(f"_k{i}", scalar(c.spark)) for i, c in enumerate(keys))
    own = (*named, Column("scope", STRING, _SCOPES), Column("_cdc_order", ORDER)) if keys else _WITHOUT_KEY
    return _table("Deleted keys with the order of their delete", own)


def key_of(columns: list[TableColumn]) -> str:
    """What a snapshot says of its key."""
    return json.dumps([c.name for c in columns if c.key])


def comment_of(field: "StructField") -> str:
    """What a snapshot's column says of its values, as `TableColumn.comment`."""
    return str(field.metadata.get("comment") or "")


def _table(comment: str, columns: tuple[Column, ...], **settings: str) -> Table:
    return Table("", comment, columns, settings={**_SETTINGS, **settings})
