"""The registry of wire formats: a sixth format is one file, one word here, and its fixtures."""

from cdc_platform.formats import canal, canal_json, dataworks, debezium, tdsql, tencent_dts
from cdc_platform.formats.contract import Format

FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        tencent_dts.FORMAT,
        debezium.FORMAT,
        canal_json.FORMAT,
        canal.FORMAT,
        dataworks.FORMAT,
        tdsql.FORMAT,
    )
}
