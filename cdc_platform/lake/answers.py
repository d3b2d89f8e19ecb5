"""What delta-rs answers, as Arrow and as rows, without pandas: pyarrow imports it, which takes 0.4 s, as soon as it is
asked for a table of anything, or for a time as Python has it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1)


def table(found: Any) -> pa.Table:
    """Something that streams Arrow batches, in whole."""
    return pa.RecordBatchReader.from_stream(found).read_all()


def rows(found: pa.Table) -> list[dict[str, Any]]:
    """A row for each, as Table.to_pylist gives them; their zone, if they have one, is UTC."""
    times = {f.name: f.type for f in found.schema if pa.types.is_timestamp(f.type) and f.type.unit == "us"}
    for name in times:
        found = found.set_column(found.schema.get_field_index(name), name, found[name].cast(pa.int64()))
    out = found.to_pylist()
    for name, type_ in times.items():
        epoch = _EPOCH.replace(tzinfo=UTC) if type_.tz else _EPOCH
        for row in out:
            if row[name] is not None:
                row[name] = epoch + timedelta(microseconds=row[name])
    return out
