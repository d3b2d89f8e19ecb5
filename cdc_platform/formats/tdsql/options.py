"""`options:` of a source of the format `tdsql`."""

from typing import Literal

from pydantic import Field

from cdc_platform.formats.contract import FormatOptions
from cdc_platform.formats.option_types import ZoneName

Escapes = Literal["raw", "backslash"]


class TdsqlOptions(FormatOptions):
    """Options of the format `tdsql`."""

    schema_file: str = Field(
        default="",
        description="File with the CREATE TABLE statements of the tables as they were where the topic begins "
        "(mysqldump --no-data; USE or `db`.`table` names the database); DDL in the topic goes on from there. "
        "Read where the run is started",
        examples=["/etc/cdc/shop.sql"],
    )
    time_zone: ZoneName = Field(
        default="UTC",
        description="Zone in which TIMESTAMP text is written (IANA name): the server's time_zone",
        examples=["Asia/Shanghai"],
    )
    escapes: Escapes = Field(
        default="raw",
        description="Whether quoted text has escapes: raw (none; what the consumers known do) or backslash "
        r"(\\ \' \n \r \t \0 \Z \xNN are one character); it differs by server version",
        examples=["backslash"],
    )
    lower_case_table_names: bool = Field(
        default=False,
        description="Whether the server takes `T` and `t` for one table (its setting lower_case_table_names is not 0)",
        examples=[True],
    )
    order: Literal["topic", "gtid"] = Field(
        default="topic",
        description="What orders changes: topic (Kafka offsets) or gtid (tells messages sent twice, also of tables "
        "without key; not for MySQL's GTIDs where a server may become master again)",
        examples=["gtid"],
    )
