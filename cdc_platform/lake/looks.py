"""A table as one visit to its log finds it: what a batch asks of it is answered by that, not by opening it again.

A visit is a request or two on an object store, and a source has a thousand tables.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from cdc_platform.lake import commits, delta_table, handles, log_state
from cdc_platform.lake.commits import Live
from cdc_platform.lake.log_files import Action
from cdc_platform.lake.store import Store


class Look(NamedTuple):
    """A table at a version. features: those that its protocol lists. schema: its columns as JSON, as Delta's log has
    them. live: its data files; None where commits.live gives none."""

    path: Store
    version: int
    features: frozenset[str]
    properties: Mapping[str, str]
    schema: str
    live: Live | None

    @property
    def fields(self) -> dict[str, Any]:
        """As delta_table.file_fields."""
        return dict(_fields(self.schema))

    @property
    def rows(self) -> int | None:
        """Rows that count. None: the log doesn't tell."""
        return None if self.live is None else commits.counted(self.live)

    def newest(self, column: str) -> tuple[datetime | None] | None:
        """The latest value of a column of times, of all rows that count, and None in its place where there is no value.
        None: the log doesn't tell."""
        if self.live is None:
            return None
        ends = [end for add in self.live.adds if (end := _end(add, column)) is not _NO_VALUE]
        if not all(ends):
            return None
        told = max((at for at, exact in filter(None, ends) if exact), default=None)
        unsure = any(not exact and (told is None or at > told) for at, exact in filter(None, ends))
        return None if unsure else (told,)

    @property
    def bytes(self) -> int | None:
        """Of all data files."""
        return None if self.live is None else sum(add["size"] for add in self.live.adds)


def look(path: Store, *, look: bool = True) -> Look | None:
    """A table as it is now; look: false, where it may be as this process knows it. None: there is none."""
    from deltalake.exceptions import TableNotFoundError

    try:
        told = log_state.now(path, look=look)
        return told and of(path, told.version, told.protocol, told.metadata, commits.live_of(told))
    except FileNotFoundError:
        with suppress(TableNotFoundError):
            found = handles.head(path)
            return of(path, found.version, found.protocol, found.metadata, None)
        return None


def of(path: Store, version: int, protocol: Action, metadata: Action, live: Live | None) -> Look:
    """A table of which its log's actions tell this."""
    features = frozenset((*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())))
    return Look(path, version, features, metadata["configuration"], metadata["schemaString"], live)


@lru_cache(maxsize=4096)
def _fields(schema: str) -> tuple[tuple[str, Any], ...]:
    return tuple(delta_table.fields_of(schema).items())


_NO_VALUE = (datetime.min, False)
_EXACT, _ROUNDED = re.compile(r"\.\d{6}(?!\d)"), timedelta(milliseconds=1)
"""Times are told to the microsecond, or to the millisecond, above which they may be."""


def _end(add: Action, column: str) -> tuple[datetime, bool] | None:
    """A time that no value of a file is later than, and whether one is equal; None: its statistics don't tell."""
    told = json.loads(add["stats"])
    if (text := told.get("maxValues", {}).get(column)) is None:
        return _NO_VALUE if told.get("nullCount", {}).get(column) == told["numRecords"] else None
    with suppress(ValueError, OverflowError):
        if (at := datetime.fromisoformat(text)).tzinfo is not None:
            told_whole = _EXACT.search(text) is not None
            every_row = told.get("tightBounds", True) and not add.get("deletionVector")
            return (at.astimezone(UTC) + (timedelta() if told_whole else _ROUNDED)), told_whole and every_row
    return None
