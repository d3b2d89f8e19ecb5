"""Which offsets a file of landed records holds: Arrow only, on the executors."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from cdc_platform.lake.data_files import Output
from cdc_platform.tables import LANDING

ADDRESSES = LANDING.arrow("topic", "partition", "offset")
"""What is read of the records."""

_FIGURES = {"offset_min": "from_offset", "offset_max": "to_offset", "offset_count": "records"}


def count(batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> list[dict[str, Any]]:
    """The work of a pass: per topic and partition the first and the last offset, and how many records."""
    every = pa.Table.from_batches(list(batches), ADDRESSES)
    found = every.group_by(["topic", "partition"], use_threads=False).aggregate(
        [("offset", "min"), ("offset", "max"), ("offset", "count")]
    )
    return found.rename_columns([_FIGURES.get(c, c) for c in found.column_names]).to_pylist()


def summed(told: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The same of several files."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for c in (c for file in told for c in file):
        so_far = found.setdefault((c["topic"], c["partition"]), c)
        if so_far is not c:
            so_far["from_offset"] = min(so_far["from_offset"], c["from_offset"])
            so_far["to_offset"] = max(so_far["to_offset"], c["to_offset"])
            so_far["records"] += c["records"]
    return list(found.values())
