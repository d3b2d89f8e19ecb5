"""What a table is called at its source: the parts of its name, outermost first; and what stands for a topic of rows
that came by none."""

from collections.abc import Mapping
from typing import Any

LOADED = ":load"
"""Stands for the topic of rows that the platform read from the source's server itself (`cdc-platform load`). No topic
of Kafka's can have this name. Its partitions are the epochs of the source's log that the loads stood in."""

Name = tuple[str, str] | tuple[str, str, str]
"""(database, table), or (database, schema, table) where the source has schemas. Names are equal where all parts are; as
text they are joined by dots, as a path by slashes (`Location.at`)."""


def as_name(*parts: str) -> Name:
    """Two or three parts as a name."""
    first, *middle, last = parts
    return (first, middle[0], last) if middle else (first, last)


def name_of(row: Mapping[str, Any]) -> Name:
    """The name in columns `db`, `schema` and `table`. An empty schema is none, as is a column that isn't there."""
    schema = row.get("schema")
    return (row["db"], schema, row["table"]) if schema else (row["db"], row["table"])


def name_in(row: Mapping[str, Any]) -> Name | None:
    """The same; None: the row names no table."""
    return None if row["db"] is None or row["table"] is None else name_of(row)


def text_of(row: Mapping[str, Any]) -> str:
    """db.table or db.schema.table, of those parts that a row names."""
    return ".".join(row[c] for c in ("db", "schema", "table") if row[c] is not None)


def name_columns(name: Name) -> dict[str, str | None]:
    """A name as columns `db`, `schema` and `table`."""
    return {"db": name[0], "schema": name[1] if len(name) == 3 else None, "table": name[-1]}
