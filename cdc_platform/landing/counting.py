"""What a file of landed records notes of them: which offsets it holds, and whether some may hold DDL. Arrow only, on
the executors."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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


def matches(records: pa.RecordBatch, marker: str | None) -> int:
    """How many of some records have values that match a pattern (RE2). None: nobody asks."""
    if marker is None:
        return 0
    return pc.match_substring_regex(records.column("value"), marker).true_count


def note(told: Iterable[list[dict[str, Any]]], marker: str | None, matching: int) -> dict[str, Any]:
    """A file's note: ranges of offsets, and how many of its records match the marker of DDL."""
    return {"ranges": summed(told), "marker": marker, "matches": matching}


def ranges(noted: Any) -> list[dict[str, Any]] | None:
    """What a file's note tells of its offsets, as `count`. Files of earlier versions note these alone, or nothing."""
    return noted["ranges"] if isinstance(noted, dict) else noted


def has_none(noted: Any, marker: str) -> bool:
    """Whether it is noted of a file that none of its records matches this marker."""
    return isinstance(noted, dict) and noted["marker"] == marker and noted["matches"] == 0
