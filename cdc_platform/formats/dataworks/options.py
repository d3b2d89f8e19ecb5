"""`options:` of a source of the format `dataworks`."""

from pydantic import Field

from cdc_platform.formats.option_types import ColumnTypes, ZoneName
from cdc_platform.formats.table_schemas.options import SchemaOptions


class DataworksOptions(SchemaOptions):
    """Options of the format `dataworks`."""

    time_zone: ZoneName = Field(
        default="UTC",
        description="Zone (IANA name or offset) in which the synchronization task reads DATE and DATETIME: the "
        "messages hold instants only",
        examples=["Asia/Shanghai"],
    )
    columns: ColumnTypes = Field(
        default={},
        description="Real MySQL types that the six types of the messages don't tell, e.g. "
        "{'shop.orders': {'id': 'bigint unsigned', 'price': 'decimal(12,2)'}}",
        examples=[{"shop.orders": {"id": "bigint unsigned", "price": "decimal(12,2)"}}],
    )
