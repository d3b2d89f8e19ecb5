"""Snapshots that a connector took of a table once more: what they tell, and what they don't.

A snapshot sends a table's rows as they are, and no deletes. So rows that were deleted while nobody read the log
would stay. No message proves that a snapshot is of all rows: Debezium's ad-hoc blocking ones with conditions have its
marks (`first`, `last_in_data_collection`), and DROP TABLE IF EXISTS and CREATE TABLE in the topic of schema changes.
Those of a connector's own snapshot also DROP DATABASE (`BinlogSnapshotChangeEventSource.readTableStructure`). With
that, and when the table's last row has come, the snapshot replaces what was there; or when the configuration says that
snapshots are of all rows. Else it is said. A load of the platform's own (formats/loaded.py) says itself that it is of
all rows. No Spark here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc_platform.changelog.schema import LOADED_AGAIN, TAKEN_AGAIN, Address, Order, Step
from cdc_platform.formats.contract import LOAD, LOAD_END, LOAD_WHOLE
from cdc_platform.mysql.ddl import Statement, creates, dropped_database, named_tables
from cdc_platform.mysql.effects import Effect
from cdc_platform.tables import Name, name_of

_RECONCILE = "`cdc-platform reconcile` finds them"
_ROWS = (
    "a snapshot was taken again (at {at}), which tells no deletes: rows that were deleted while nobody read the log "
    f"stay. {_RECONCILE}; if snapshots are of all rows, option whole_snapshots lets them replace what was there"
)
_STRUCTURE = (
    "the connector read the structure of the tables again (at {at}) and sent no row of this one: if it didn't go on in "
    f"the log where it had been, changes until then are missing. {_RECONCILE}"
)
_SOMEWHERE = (
    "nothing tells where in the log its full load was taken. One that is sent again tells no deletes: rows that were "
    f"deleted while nobody read the log stay. {_RECONCILE}"
)


_UNFINISHED = (
    "a load from the source's server (from {at} on) was interrupted: rows that it came to are loaded, and none that is "
    "gone at the source was taken away. `cdc-platform load` goes on"
)


class Loads(NamedTuple):
    """What snapshots that were taken again do. replaced: as DROP and CREATE TABLE, two steps each; said: of each table
    what isn't told."""

    replaced: list[Step]
    said: dict[Name, list[str]]


NO_LOADS = Loads([], {})


@dataclass(slots=True)
class _Load:
    """A snapshot of a table: where in the log it was taken, the first message that shows it, where its last rows stand
    once they have come, whether it says itself that it is of all rows."""

    order: Order
    address: Address
    last: tuple[Order, Address] | None = None
    whole: bool = False


@dataclass(slots=True)
class _Table:
    """What lists of a table's columns tell: its loads by the place where they were taken, the lowest order of all."""

    low: Order
    loads: dict[str, _Load] = field(default_factory=dict)


def loads(rows: Iterable[dict[str, Any]], made_up: Sequence[dict[str, Any]], *, whole: bool) -> Loads:
    """rows: schema_history's column lists of a source, with `order` and `address`; made_up: its statements by which a
    connector describes the tables in its snapshot. whole: snapshots are of all rows."""
    tables: dict[Name, _Table] = {}
    over: set[str] = set()
    for row in rows:
        _add(tables.setdefault(name_of(row), _Table(row["order"])), row, over)
    own = {(r["order"][1:3], r["db"]) for r in made_up if dropped_database(Statement(r["db"], r["ddl"] or ""))}
    found = Loads([], {})
    for name, table in tables.items():
        for at, load in table.loads.items():
            if not at:
                found.said.setdefault(name, []).append(_SOMEWHERE)
                continue
            if load.whole:
                if load.last:  # whatever comes late from before it
                    found.replaced.extend(_replaced(name, load, LOADED_AGAIN))
                elif not any(o.whole and o.last and o.order > load.order for o in table.loads.values()):
                    found.said.setdefault(name, []).append(_UNFINISHED.format(at=at))
                continue
            if load.order[:3] <= table.low[:3]:
                continue
            if (load.last or at in over) and (whole or (load.order[1:3], name[0]) in own):
                found.replaced.extend(_replaced(name, load, TAKEN_AGAIN))
            else:
                found.said.setdefault(name, []).append(_ROWS.format(at=at))
    for name, text in _described(made_up, tables):
        found.said.setdefault(name, []).append(text)
    return found


def _add(table: _Table, row: dict[str, Any], over: set[str]) -> None:
    table.low = min(table.low, row["order"])
    info = dict(row["info"] or ())
    if (at := info.get(LOAD)) is None:
        return
    load = table.loads.setdefault(at, _Load(row["order"], row["address"]))
    load.order, load.address = min((load.order, load.address), (row["order"], row["address"]))
    if LOAD_END in info:
        load.last = row["order"], row["address"]
    load.whole |= LOAD_WHOLE in info
    if info.get(LOAD_END) == "all":
        over.add(at)


def _replaced(name: Name, load: _Load, statement: str) -> list[Step]:
    """A snapshot's rows stand at one place of the log, before all that comes there; those of a load of the platform's
    own behind those of an earlier one at its place, which it replaces, too."""
    place = (*load.order[:3], -1, load.order[4] - 1 if load.whole else 0, 0)
    effects = Effect(0, name, None), Effect(0, None, name)  # type: ignore[arg-type]  # names may have a schema here
    return [Step(place, load.address, statement, effect, load.last) for effect in effects]


def _described(made_up: Sequence[dict[str, Any]], tables: dict[Name, _Table]) -> Iterable[tuple[Name, str]]:
    """Of tables that a connector described in a snapshot after they had rows, and of which it sent no row there."""
    told: dict[tuple[Name, Order], str] = {}
    for row in made_up:
        statement = Statement(row["db"], row["ddl"] or "")
        if creates(statement.sql) and row["order"][1] >= 0:
            told |= dict.fromkeys(
                ((name, row["order"][:3]) for name in named_tables(statement)),
                f"{row['binlog_file']}:{row['binlog_pos']}",
            )
    for (name, place), at in told.items():
        table = tables.get(name)
        if table and place > table.low[:3] and all(load.order[1:3] != place[1:] for load in table.loads.values()):
            yield name, _STRUCTURE.format(at=at)
