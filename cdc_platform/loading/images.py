"""Whether the server's log has rows whole. While a table is read in pieces, a row may pass from a key that isn't read
yet to one that was: that change alone tells the row then, and a log without what hasn't changed tells a part of it."""

from collections.abc import Sequence

from cdc_platform.config import Source
from cdc_platform.errors import UnknownType
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.table import Table
from cdc_platform.mysql.types import parse_type
from cdc_platform.reconcile.server import Server

_VARIABLE = "binlog_row_image"
_WHOLE = ("FULL", "FULL_NODUP")
"""FULL_NODUP (MariaDB from 11.4 on): the row after leaves out what is as in the row before, which is whole."""
_WITHOUT_LONG = "NOBLOB"
_LONG = ("text", "blob", "json", "vector")
"""How types are called whose values NOBLOB leaves out where they haven't changed; all of geometry, too."""


def check_whole(source: Source, server: Server, tables: Sequence[Table]) -> None:
    """Raises LoadRefused where some of these tables have a key and the server's log tells a part of their rows. A table
    without a key is read at one place."""
    image = server.variables([_VARIABLE]).get(_VARIABLE, "FULL").upper()  # servers that lack it write all
    if image in _WHOLE:
        return
    if partly := [t.text for t in tables if t.key and (image != _WITHOUT_LONG or _has_long(t))]:
        problem = (
            f"{_VARIABLE} is {image} at the server: where the key of a row of {', '.join(partly)} changes during the "
            "load, its log tells a part of the row, and the rest would be NULL"
        )
        full = f"SET GLOBAL {_VARIABLE} = 'FULL', and new connections of all that write: open ones keep what they have"
        raise LoadRefused(source.name, problem, [full, "the vendor's own initial load"])


def _has_long(table: Table) -> bool:
    return any(_long(c.type_text) for c in table.at_source if not c.key)  # the key's values are always told


def _long(type_text: str) -> bool:
    try:
        type_ = parse_type(type_text)
    except UnknownType:
        return True
    return type_.name.endswith(_LONG) or type_.family == "geometry"
