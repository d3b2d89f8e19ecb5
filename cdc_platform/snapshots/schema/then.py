"""How far a source had come at a moment: its rows, and the DDL among them. No Spark here."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from cdc_platform.changelog.schema import Address, Order
from cdc_platform.lake import delta_table, queries
from cdc_platform.lake.store import Store


class AtCut(NamedTuple):
    """ends: "topic/partition" → last offset, of rows and DDL; rows: place of the newest row change."""

    ends: Mapping[str, int]
    rows: Order

    def has(self, event: Mapping[str, Any]) -> bool:
        """Whether an event (topic, partition, offset) had come."""
        return event["offset"] <= self.ends.get(f"{event['topic']}/{event['partition']}", -1)

    def came(self, _: Order, address: Address) -> bool:
        """The same of what stands at an address, wherever that is in the log."""
        topic, partition, offset = address[:3]
        return self.has({"topic": topic, "partition": partition, "offset": offset})

    def place(self, ddl: Iterable[Mapping[str, Any]]) -> Order:
        """Of the newest row or statement. ddl: statements with their `order`."""
        return max([self.rows, *(r["order"] for r in ddl if self.has(r))])


def at_cut(cuts: Store, source: str, number: int) -> AtCut | None:
    """A cut, by the table CUTS; None: there is none, or no row had come. One that an earlier version published doesn't
    tell how far a topic of DDL alone was: of its DDL what stands before the newest row had come."""
    ddl = "ddl_offsets" if "ddl_offsets" in (queries.columns(cuts) or ()) else "NULL AS ddl_offsets"
    found = delta_table.ask(
        f"SELECT offsets, {ddl}, order_key FROM {{cuts}} WHERE source = '{source}' AND cut = {int(number)}", cuts=cuts
    )
    if not found or found[0]["order_key"] is None:
        return None
    ends = {**dict(found[0]["ddl_offsets"] or {}), **dict(found[0]["offsets"])}
    return AtCut(ends, tuple(int(v) for v in found[0]["order_key"].values()))


def newest(changelog: Store, source: str, which: str) -> Order | None:
    """Place of the newest of some row changes. which: a condition in SQL."""
    found = delta_table.ask(
        f"SELECT max(order_key) AS place FROM {{changelog}} WHERE source = '{source}' AND {which}", changelog=changelog
    )
    return tuple(int(v) for v in found[0]["place"].values()) if found and found[0]["place"] is not None else None


def rows_by(changelog: Store, source: str, at: datetime) -> Order | None:
    """Place of the newest row change of a time or before: those that stand before it had come, too, whatever time they
    tell, if any."""
    return newest(changelog, source, f"source_time <= {delta_table.moment(at)}")


def at_time(rows: Order | None, at: datetime, ddl: Iterable[Mapping[str, Any]]) -> Order | None:
    """Place of the newest row (`rows`) or statement of a time or before; None: there is neither."""
    said = [r["order"] for r in ddl if r["source_time"] is not None and r["source_time"] <= at]
    return max([*said, *([] if rows is None else [rows])], default=None)
