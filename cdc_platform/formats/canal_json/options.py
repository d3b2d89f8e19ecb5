"""`options:` of a source of the format `canal_json`."""

from pydantic import Field

from cdc_platform.formats.canal_common.options import CanalOptions


class CanalJsonOptions(CanalOptions):
    """Options of the format `canal_json`; the defaults are canal's own ways."""

    database: str = Field(
        default="", description="Database of messages that name none (Flink SQL, SeaTunnel)", examples=["shop"]
    )
    table: str = Field(
        default="", description="Table of messages that name none (Flink SQL, SeaTunnel)", examples=["orders"]
    )
