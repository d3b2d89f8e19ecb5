"""`options:` of a source of the format `tdsql`."""

from typing import Literal

from pydantic import Field, NonNegativeInt

from cdc_platform.formats.option_types import ZoneName
from cdc_platform.formats.table_schemas.options import SchemaOptions

Escapes = Literal["raw", "backslash"]
Sets = Literal["one", "prefix"]


class TdsqlOptions(SchemaOptions):
    """Options of the format `tdsql`."""

    time_zone: ZoneName = Field(
        default="UTC",
        description="Zone in which TIMESTAMP text is written (IANA name or offset): the server's time_zone",
        examples=["Asia/Shanghai"],
    )
    escapes: Escapes = Field(
        default="raw",
        description="Whether quoted text has escapes: raw (none; what the consumers known do) or backslash "
        r"(\\ \' \n \r \t \0 \Z \xNN are one character); it differs by server version",
        examples=["backslash"],
    )
    hidden_columns: dict[str, NonNegativeInt] = Field(
        default={},
        description="How many values at the end of a table's rows are of hidden columns (MariaDB's DB_ROW_HASH_1, for "
        "UNIQUE over TEXT, BLOB or long VARCHAR): {'shop.orders': 1}",
        examples=[{"shop.orders": 1}],
    )
    sets: Sets | None = Field(
        default=None,
        description="What messages with different `prefix` are: one set's (one), or each those of a set of a "
        "distributed instance (prefix): its rows are read by its own statements. Needed only where it matters: rows "
        "and TRUNCATEs whose reading depends on it go to quarantine until it is told",
        examples=["prefix"],
    )
    order: Literal["topic", "gtid"] = Field(
        default="topic",
        description="What orders changes: topic (Kafka offsets) or gtid (recognizes what is sent again from an "
        "earlier place on, also of tables without key)",
        examples=["gtid"],
    )
