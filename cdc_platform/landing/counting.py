"""What a file of landed records notes of them: which offsets it holds, whether some may hold DDL, and whose they are.
Arrow only, on the executors."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats import senders
from cdc_platform.formats.contract import Context
from cdc_platform.formats.senders import Sender
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


class Asked(NamedTuple):
    """What is asked of records before they are decoded: the patterns of `Context`. None: nobody asks."""

    marker: str | None = None
    senders: str | None = None

    @classmethod
    def of(cls, context: Context | None) -> "Asked":
        """Of a format."""
        return cls(context.marker, context.senders) if context else cls()


class Notes:
    """Collects a file's note from its records."""

    def __init__(self, asked: Asked):
        self.asked = asked
        self.ranges: list[dict[str, Any]] = []
        self._matches = 0
        self._senders: set[Sender] = set()

    def add(self, records: pa.RecordBatch) -> None:
        """topic, partition, offset, value."""
        self.ranges = summed([self.ranges, count(iter([records.select(ADDRESSES.names)]), {})])
        if self.asked.marker is not None:
            self._matches += pc.match_substring_regex(records.column("value"), self.asked.marker).true_count
        self._senders |= senders.news(senders.first(records, self.asked.senders, self._senders), self._senders).keys()

    def to_json(self) -> dict[str, Any]:
        """Ranges of offsets; how many records match the marker of DDL; whose they are."""
        seen = {"senders": {"of": self.asked.senders, "seen": sorted(self._senders)}} if self.asked.senders else {}
        return {"ranges": self.ranges, "marker": self.asked.marker, "matches": self._matches, **seen}


def ranges(noted: Any) -> list[dict[str, Any]] | None:
    """What a file's note tells of its offsets, as `count`. Files of earlier versions note these alone, or nothing."""
    return noted["ranges"] if isinstance(noted, dict) else noted


def has_news(noted: Any, asked: Asked, known: Set[Sender]) -> bool:
    """Whether a file's records may match the marker, or come from a sender that isn't known, as far as it is noted."""
    if not isinstance(noted, dict) or noted["marker"] != asked.marker or noted["matches"]:
        return True
    if asked.senders is None:
        return False
    told = noted.get("senders")
    if told is None or told["of"] != asked.senders:
        return True
    seen = [Sender(*s) for s in told["seen"]]
    return bool(senders.news({s: 0 for s in seen if s not in known}, known))
