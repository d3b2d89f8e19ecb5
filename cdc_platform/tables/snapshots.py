"""Where the tables of a source table are (`{db}` with its schema, if it has one: `Location.of`); their columns are its
own, beside those whose types stand here."""

from cdc_platform.tables.columns import Struct, sql
from cdc_platform.tables.common import ADDRESS, ENTRY_INDEX, ORDER, ROW_INDEX
from cdc_platform.tables.table import Location

SNAPSHOT_PATH = Location("snapshots/{source}/{db}/{table}", "Live rows of one source table")
HISTORY_PATH = Location("history/{source}/{db}/{table}", "What the rows of one source table were, and when")
TYPED_CHANGES_PATH = Location(
    "typed_changes/{source}/{db}/{table}", "Changes of one source table, with rows before and after in its columns"
)
TOMBSTONES_PATH = Location("tombstones/{source}/{db}/{table}", "Deleted keys with the order of their delete")

MADE_FOR = "cdc.shape"
"""Property of a table kept beside a snapshot: what it was made for, so that another one is seen to be needed. Empty: it
lacks changes."""

KEY = "cdc.key"
"""Property of a snapshot: names of the columns that tell its rows and tombstones apart, in order (a JSON list, empty
where there is no key). Earlier versions noted none."""

IMAGES = ("before", "after")
"""Columns of typed changes: structs of the table's columns."""

BOOKKEEPING = "_cdc_"
"""Names of a snapshot's columns that the source's table hasn't begin so."""

ROW_ADDRESS = Struct(tuple((c.name, c.type) for c in (*ADDRESS, ENTRY_INDEX, ROW_INDEX)))
ORDER_TYPE = sql(ORDER)
ADDRESS_TYPE = sql(ROW_ADDRESS)
