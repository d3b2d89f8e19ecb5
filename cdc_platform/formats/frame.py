"""Decoders on Spark: a DataFrame of whole messages → a DataFrame of change events, batch by Arrow batch.

Executors get the format's name and its options as JSON, never a closure over the registry.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc_platform.formats.contract import EVENT, MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def decode(messages: "DataFrame", format_name: str, options: dict[str, Any]) -> "DataFrame":
    """Messages (MESSAGE's columns) → EVENT rows."""
    return messages.select(*MESSAGE.names).mapInArrow(
        partial(_decode, format_name, json.dumps(options)), spark_schema(EVENT)
    )


def _decode(format_name: str, options_json: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from cdc_platform.formats import FORMATS

    format_ = FORMATS[format_name]
    options = format_.options.model_validate_json(options_json)
    for batch in batches:
        yield format_.decode(as_message_batch(batch), options)


def as_message_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spark's Arrow batch with exactly MESSAGE's types."""
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in MESSAGE], schema=MESSAGE)


def spark_schema(schema: pa.Schema) -> "StructType":
    """Arrow schema → Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=False)
