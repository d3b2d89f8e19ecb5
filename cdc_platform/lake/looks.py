"""A table as one visit to its log finds it: what a batch asks of it is answered by that, not by opening it again.

A visit is a request or two on an object store, and a source has a thousand tables.
"""

from collections.abc import Mapping
from contextlib import suppress
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
