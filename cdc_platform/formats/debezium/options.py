"""`options:` of a source of the format `debezium`."""

from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from cdc_platform.errors import UnknownType
from cdc_platform.formats.contract import FormatOptions
from cdc_platform.formats.kafka_connect.types import BinaryMode, DecimalMode, Dialect, TemporalMode
from cdc_platform.mysql.types import parse_type


class DebeziumOptions(FormatOptions):
    """Options of the format `debezium`; all but `columns` matter for bare payloads or for dtle only."""

    columns: dict[str, dict[str, str]] = Field(
        default={},
        description="Real MySQL types that the messages don't tell, e.g. "
        "{'shop.orders': {'id': 'bigint unsigned', 'at': 'time(3)'}}",
        examples=[{"shop.orders": {"id": "bigint unsigned", "at": "time(3)"}}],
    )
    time_precision_mode: TemporalMode = Field(
        default="adaptive_time_microseconds",
        description="The connector's time.precision.mode, for bare payloads",
        examples=["connect"],
    )
    decimal_handling_mode: DecimalMode = Field(
        default="precise",
        description="The connector's decimal.handling.mode, for bare payloads",
        examples=["string"],
    )
    binary_handling_mode: BinaryMode = Field(
        default="bytes",
        description="The connector's binary.handling.mode, for bare payloads and for columns that `columns` "
        "or the schema calls binary while they come as text",
        examples=["base64"],
    )
    unavailable_value: str = Field(
        default="__debezium_unavailable_value",
        description="unavailable.value.placeholder: the column isn't in the image",
        examples=["__debezium_unavailable_value"],
    )
    dtle_time_zone: str | None = Field(
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

    @field_validator("dtle_time_zone")
    @classmethod
    def _known_zone(cls, zone: str | None) -> str | None:
        if zone is not None:
            try:
                ZoneInfo(zone)
            except (ValueError, OSError, LookupError):
                raise ValueError(f"unknown time zone {zone!r}; valid: IANA names such as Asia/Shanghai") from None
        return zone

    @field_validator("columns")
    @classmethod
    def _known_types(cls, tables: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        for table, columns in tables.items():
            for name, text in columns.items():
                try:
                    parse_type(text)
                except UnknownType:
                    raise ValueError(f"{table}.{name}: unknown MySQL type {text!r}") from None
        return tables

    def dialect(self, dtle: bool, snapshot: bool) -> Dialect:
        """These settings for rows of Debezium or dtle, of a snapshot or not."""
        return Dialect(
            temporal=self.time_precision_mode,
            decimal=self.decimal_handling_mode,
            binary=self.binary_handling_mode,
            unavailable=self.unavailable_value,
            dtle=dtle,
            snapshot=dtle and snapshot,
            zone=self.dtle_time_zone,
            text_base64=self.dtle_text_base64,
            snapshot_year=self.dtle_snapshot_year,
        )
