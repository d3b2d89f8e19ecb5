"""`options:` of a source of the format `debezium`."""

from pydantic import Field

from cdc_platform.formats.debezium.connectors import Database
from cdc_platform.formats.kafka_connect.dialect import BinaryMode, DecimalMode, Dialect, TemporalMode
from cdc_platform.formats.kafka_connect.other_types import POSTGRESQL, SQLSERVER
from cdc_platform.formats.option_types import ColumnTypes, ZoneName
from cdc_platform.formats.table_schemas.options import SchemaOptions

_NAMED = {"postgresql": POSTGRESQL, "sqlserver": SQLSERVER}


class DebeziumOptions(SchemaOptions):
    """Options of the format `debezium`; all but `columns` matter for bare payloads or for dtle only."""

    columns: ColumnTypes = Field(
        default={},
        description="Real MySQL types that the messages don't tell, e.g. "
        "{'shop.orders': {'id': 'bigint unsigned', 'at': 'time(3)'}}",
        examples=[{"shop.orders": {"id": "bigint unsigned", "at": "time(3)"}}],
    )
    database: str = Field(
        default="",
        description="Database of messages that name none: Flink SQL's debezium-json has no `source`",
        examples=["shop"],
    )
    table: str = Field(default="", description="Table of messages that name none", examples=["orders"])
    time_precision_mode: TemporalMode = Field(
        default="adaptive_time_microseconds",
        description="The connector's time.precision.mode, for bare payloads",
        examples=["connect"],
    )
    decimal_handling_mode: DecimalMode | None = Field(
        default=None,
        description="The connector's decimal.handling.mode, for bare payloads; default: as each value shows",
        examples=["string"],
    )
    binary_handling_mode: BinaryMode | None = Field(
        default=None,
        description="The connector's binary.handling.mode, for bare payloads and for columns that `columns` or the "
        "schema calls binary while they come as text (default: as each value shows)",
        examples=["base64"],
    )
    replace_null_with_default: bool = Field(
        default=True,
        description="The converter's replace.null.with.default: whether NULL in a column with a default arrives as "
        "that default",
        examples=[False],
    )
    whole_snapshots: bool = Field(
        default=False,
        description="Whether the connector's snapshots are of all rows of the tables (no conditions in ad-hoc ones): "
        "one that is taken again then replaces what was there. Not needed where the topic of schema changes is read",
        examples=[True],
    )
    unavailable_value: str = Field(
        default="__debezium_unavailable_value",
        description="unavailable.value.placeholder: the column isn't in the image",
        examples=["__debezium_unavailable_value"],
    )
    time_zone: ZoneName = Field(
        default="UTC",
        description="Zone of TIMESTAMP text without an offset, which custom converters write (Flink CDC's "
        "format.timestamp.zone)",
        examples=["Asia/Shanghai"],
    )
    dtle_time_zone: ZoneName | None = Field(
        default=None, description="DateTimeZone of the dtle job, if set", examples=["Asia/Shanghai"]
    )
    dtle_text_base64: bool = Field(
        default=False,
        description="dtle writes JSON columns, and those that `columns` calls *text, as base64 in incremental rows",
        examples=[True],
    )
    dtle_snapshot_year: bool = Field(
        default=False,
        description="dtle's snapshot rows give YEAR 1901..1969 as 2001..2069: turn them back",
        examples=[True],
    )

    @property
    def whole_loads(self) -> bool:
        """As MySqlOptions."""
        return self.whole_snapshots

    def dialect(self, dtle: bool, snapshot: bool, database: Database = "mysql") -> Dialect:
        """These settings for rows of Debezium or dtle, of a snapshot or not."""
        own = database != "mysql" and "time_precision_mode" not in self.model_fields_set
        return Dialect(
            temporal="adaptive" if own else self.time_precision_mode,  # the default of those connectors
            named=_NAMED.get(database),
            decimal=self.decimal_handling_mode,
            binary=self.binary_handling_mode,
            unavailable=self.unavailable_value,
            dtle=dtle,
            snapshot=dtle and snapshot,
            zone=self.dtle_time_zone,
            null_defaults=self.replace_null_with_default,
            text_zone=self.time_zone if "time_zone" in self.model_fields_set else None,
            text_base64=self.dtle_text_base64,
            snapshot_year=self.dtle_snapshot_year,
        )
