"""Options that canal's two forms have in common: how the server wrote the text of values."""

from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from cdc_platform.errors import UnknownType
from cdc_platform.formats.canal_text import BinaryText, Dialect, LabelText
from cdc_platform.formats.contract import FormatOptions
from cdc_platform.mysql.types import parse_type


class CanalOptions(FormatOptions):
    """Options of the format `canal`; the defaults are canal's own ways."""

    time_zone: str = Field(
        default="UTC",
        description="Zone of TIMESTAMP text without an offset (IANA name): that of the canal server's JVM, for "
        "TiCDC that of the changefeed",
    )
    columns: dict[str, dict[str, str]] = Field(
        default={},
        description="Real MySQL types that the messages don't tell, e.g. "
        "{'shop.orders': {'status': \"enum('open','paid')\"}}; they win over `mysqlType`",
    )
    binary: BinaryText = Field(
        default="latin-1",
        description="How binary columns are written: latin-1 (canal, TiCDC), utf-8 (some TiCDC releases), hex "
        "(Tencent DTS in its mode that isn't fully compatible), base64 (Flink)",
    )
    labels: LabelText = Field(
        default="number",
        description="How ENUM and SET are written: number (canal's index and bitmask) or label (Tencent DTS, Flink)",
    )

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
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

    @property
    def dialect(self) -> Dialect:
        """These settings as the text converters want them."""
        return Dialect(self.time_zone, self.binary, self.labels)
