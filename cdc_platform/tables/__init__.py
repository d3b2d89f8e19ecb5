"""Every Delta table of the lake: path, columns, partitions and properties, one frozen record each.

Nothing here imports Spark, Delta, Dagster or (before it is asked for a schema) pyarrow.
"""

from cdc_platform.tables.bookkeeping import (
    BESIDE_STATE,
    CUT_LACKS,
    CUTS,
    DECODED_WITH,
    LINEAGES,
    LOG_EPOCHS,
    OFFSET_LEDGER,
    SNAPSHOT_FOLDERS,
    TABLE_RULES,
    TABLE_STATE,
    TOPICS,
)
from cdc_platform.tables.changelog import (
    CHANGELOG,
    CONTROL_EVENTS,
    QUARANTINE,
    SCHEMA_CHANGES,
    SCHEMA_EFFECTS,
    SCHEMA_HISTORY,
    TYPES_KNOWN,
)
from cdc_platform.tables.common import MESSAGE_AT, ORDER, POSITION
from cdc_platform.tables.names import LOADED, Name, as_name, name_columns, name_in, name_of, text_of
from cdc_platform.tables.proof import (
    CERTIFICATES,
    ERASURES,
    RECONCILIATIONS,
    SEQUENCES,
    SHADOW_COMPARISONS,
    SHADOW_DIFFERENCES,
    WATERMARKS,
)
from cdc_platform.tables.snapshots import (
    ADDRESS_TYPE,
    BOOKKEEPING,
    HISTORY_PATH,
    IMAGES,
    KEY,
    MADE_FOR,
    ORDER_TYPE,
    ROW_ADDRESS,
    SNAPSHOT_PATH,
    TOMBSTONES_PATH,
    TYPED_CHANGES_PATH,
)
from cdc_platform.tables.stages import CARRIED, CHANGES, CHECKPOINT, CONTEXTS, DDL_SEEN, ENVELOPES, LANDING, WAITING
from cdc_platform.tables.table import STATS, Location, Table, path_name

ALL = (
    *(LANDING, ENVELOPES, WAITING, CHANGES, DDL_SEEN, CONTEXTS),
    *(CHANGELOG, SCHEMA_HISTORY, SCHEMA_CHANGES, SCHEMA_EFFECTS, TYPES_KNOWN, CONTROL_EVENTS, QUARANTINE),
    *(OFFSET_LEDGER, LOG_EPOCHS, LINEAGES, TABLE_RULES, DECODED_WITH, TOPICS, TABLE_STATE, BESIDE_STATE, CUTS),
    SNAPSHOT_FOLDERS,
    *(WATERMARKS, SEQUENCES, RECONCILIATIONS, CERTIFICATES, SHADOW_COMPARISONS, SHADOW_DIFFERENCES, ERASURES),
)
"""In the order of the data."""

__all__ = [
    "ADDRESS_TYPE",
    "ALL",
    "BESIDE_STATE",
    "BOOKKEEPING",
    "CARRIED",
    "CERTIFICATES",
    "CHANGELOG",
    "CHANGES",
    "CHECKPOINT",
    "CONTEXTS",
    "CONTROL_EVENTS",
    "CUTS",
    "CUT_LACKS",
    "DDL_SEEN",
    "DECODED_WITH",
    "ENVELOPES",
    "ERASURES",
    "HISTORY_PATH",
    "IMAGES",
    "KEY",
    "LANDING",
    "LINEAGES",
    "LOADED",
    "LOG_EPOCHS",
    "MADE_FOR",
    "MESSAGE_AT",
    "OFFSET_LEDGER",
    "ORDER",
    "ORDER_TYPE",
    "POSITION",
    "QUARANTINE",
    "RECONCILIATIONS",
    "ROW_ADDRESS",
    "SCHEMA_CHANGES",
    "SCHEMA_EFFECTS",
    "SCHEMA_HISTORY",
    "SEQUENCES",
    "SHADOW_COMPARISONS",
    "SHADOW_DIFFERENCES",
    "SNAPSHOT_FOLDERS",
    "SNAPSHOT_PATH",
    "STATS",
    "TABLE_RULES",
    "TABLE_STATE",
    "TOMBSTONES_PATH",
    "TOPICS",
    "TYPED_CHANGES_PATH",
    "TYPES_KNOWN",
    "WAITING",
    "WATERMARKS",
    "Location",
    "Name",
    "Table",
    "as_name",
    "name_columns",
    "name_in",
    "name_of",
    "path_name",
    "text_of",
]
