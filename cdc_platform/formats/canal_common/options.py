"""Options that canal's two forms have in common: how the server wrote the text of values."""

from pydantic import Field

from cdc_platform.formats.canal_common.text import BinaryText, Dialect, LabelText
from cdc_platform.formats.contract import Limit
from cdc_platform.formats.limits import of
from cdc_platform.formats.option_types import ColumnTypes, ZoneName
from cdc_platform.formats.table_schemas.options import SchemaOptions

TIMESTAMP_WITHOUT_ZONE = Limit(
    "it may come as text without a zone and is then read in UTC: option time_zone names that of the canal server, of "
    "TiCDC's changefeed",
    of("timestamp"),
    unless="time_zone",
)


class CanalOptions(SchemaOptions):
    """Options of the format `canal`; the defaults are canal's own ways."""

    time_zone: ZoneName = Field(
        default="UTC",
        description="Zone of TIMESTAMP text without an offset (IANA name or offset): that of the canal server's JVM, "
        "for TiCDC that of the changefeed",
        examples=["Asia/Shanghai"],
    )
    columns: ColumnTypes = Field(
        default={},
        description="Real MySQL types that the messages don't tell, e.g. "
        "{'shop.orders': {'status': \"enum('open','paid')\"}}; they win over `mysqlType`",
        examples=[{"shop.orders": {"status": "enum('open','paid')"}}],
    )
    binary: BinaryText = Field(
        default="latin-1",
        description="How binary columns are written: latin-1 (canal, TiCDC), utf-8 (some TiCDC releases), hex "
        "(Tencent DTS in its mode that isn't fully compatible), base64 (Flink)",
        examples=["hex"],
    )
    labels: LabelText = Field(
        default="number",
        description="How ENUM and SET are written: number (canal's index and bitmask) or label (Tencent DTS, Flink)",
        examples=["label"],
    )

    @property
    def dialect(self) -> Dialect:
        """These settings as the text converters want them."""
        return Dialect(self.time_zone, self.binary, self.labels)
