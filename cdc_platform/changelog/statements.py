"""DDL and column lists of a file, for the schema history. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.order_key import lowest, those
from cdc_platform.tables import SCHEMA_HISTORY

_STATEMENT = tuple(n for n in SCHEMA_HISTORY.names if n not in ("source", "format", "decoder_version", "order_key"))


class Statements:
    """DDL statements of a file, its first statements of new column lists, and where the rows of those begin."""

    def __init__(self, versions: frozenset[str]):
        self._versions = pa.array(sorted(versions), pa.string())
        self._ddl: list[dict[str, Any]] = []
        self._lists: dict[str, dict[str, Any]] = {}
        self.placed: dict[str, list[int]] = {}

    @property
    def statements(self) -> list[dict[str, Any]]:
        """As Unify tells them."""
        return [*self._ddl, *self._lists.values()]

    def add(self, events: pa.RecordBatch, unused: pa.BooleanArray) -> None:
        """More events, in the order of the file, with their `order_key`. unused: which weren't used before."""
        kind = events.column("kind")
        new = pc.is_in(events.column("schema_version"), self._versions)
        ddl = pc.and_(pc.equal(kind, "ddl"), unused)
        told = those(events, pc.or_(ddl, pc.and_(pc.equal(kind, "schema"), new)))
        for event in told.to_pylist():
            statement = {
                **{c: event[c] for c in (*_STATEMENT, "row_index")},
                **{c: None if event[c] is None else _micros(event[c]) for c in ("source_time", "landed_at")},
                "binlog_pos": None if event["binlog_pos"] is None else str(event["binlog_pos"]),
                "order_key": [int(x) for x in event["order_key"].values()],
            }
            if event["kind"] == "ddl":
                self._ddl.append(statement)
            else:
                version = event["schema_version"]
                self._lists[version] = min(statement, self._lists.get(version, statement), key=came)
        rows = those(events.select(["schema_version", "order_key"]), pc.and_(pc.equal(kind, "row"), new))
        for version in pc.unique(rows.column("schema_version")).to_pylist():
            mine = those(rows, pc.equal(rows.column("schema_version"), version))
            low = lowest(mine.column("order_key"))
            self.placed[version] = min(low, self.placed.get(version, low))


def came(statement: dict[str, Any]) -> tuple:
    """When a statement arrived; NULL before all, as Spark has it."""
    at = ("landed_at", "topic", "partition", "offset", "entry_index", "row_index")
    return tuple((statement[n] is not None, statement[n]) for n in at)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
