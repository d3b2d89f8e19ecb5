"""Which snapshots and cuts a lake has, from its own tables, without Spark."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from cdc_platform import tables
from cdc_platform.errors import NotReadable
from cdc_platform.lake import watermarks
from cdc_platform.lake.queries import columns, query, schema_of, text
from cdc_platform.lake.store import Store

CutKind = Literal["transaction", "any"]
_SHOWN = 20


class TableName(NamedTuple):
    """A snapshot by its source, and the parts of its name as the source spells them; schema None: it has none."""

    source: str
    db: str
    table: str
    schema: str | None = None

    @staticmethod
    def of(source: str, name: tables.Name) -> "TableName":
        return TableName(source, **tables.name_columns(name))  # pyright: ignore[reportArgumentType]

    @property
    def name(self) -> tables.Name:
        """Without the source."""
        return tables.name_of(self._asdict())

    @property
    def text(self) -> str:
        """db.table, or db.schema.table."""
        return ".".join(self.name)

    def __str__(self) -> str:
        return f"{self.source}/{self.text}"

    @property
    def path(self) -> str:
        """`<source>/<db>[/<schema>]/<table>`, names escaped: path under `snapshots/`, and the end of its asset key (but
        where `shadow cutover` exchanged folders: lake/folders.py)."""
        return tables.SNAPSHOT_PATH.of("", self.source, self.name).removeprefix("/snapshots/")


class Snapshot(NamedTuple):
    """A snapshot to read: where it lies; None: its newest version."""

    path: Store
    version: int | None


@dataclass(frozen=True, slots=True)
class State:
    """What the platform last recorded of a table. state: live, stopped, dropped, left_out or stale."""

    state: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Cut:
    """Versions of all snapshots of a source that belong together. source_time: commit time at the source of the newest
    change in it; at: when it was published."""

    source: str
    number: int
    kind: str
    reason: str | None
    source_time: datetime | None
    at: datetime | None
    snapshots: Mapping[TableName, Snapshot]


def states(lake: Store, source: str | None = None) -> dict[TableName, State]:
    """Every table that the lake has recorded a state of."""
    where = f"WHERE source = {text(source)} " if source is not None else ""
    path = tables.TABLE_STATE.at(lake)
    found = query(
        f'SELECT source, db, {schema_of(path)}, "table", last_value(state ORDER BY rebuild, batch) AS state, '
        f"last_value(reason ORDER BY rebuild, batch) AS reason FROM t {where}GROUP BY 1, 2, 3, 4 "
        "ORDER BY 1, 2, 3 NULLS FIRST, 4",
        t=path,
    )
    return {TableName.of(r["source"], tables.name_of(r)): State(r["state"], r["reason"]) for r in found or []}


def resolve(given: str, known: Iterable[TableName], where: str) -> TableName:
    """The one table that is meant by "source/db.table", or by its escaped path "source/db/table". where: for the error,
    what `known` is the content of. Raises NotReadable: no such table, or several."""
    known = list(known)
    found = [n for n in known if given in (str(n), n.path)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotReadable(given, "names several tables; give its path", [n.path for n in found])
    names = [str(n) for n in known]
    near = difflib.get_close_matches(given, names, n=5, cutoff=0.5)
    valid = near or names[:_SHOWN]
    more = [f"… {len(names)} in all"] if len(names) > len(valid) else []
    raise NotReadable(given, f"no such table in {where}", [*valid, *more] or ["none yet"])


def cuts(lake: Store, of: str, where: str = "", limit: int = 20, *, folder: bool = False) -> list[Cut]:
    """Cuts of a source, or of the tables in a folder, the newest first. where: a condition on the rows of `cuts`, in
    SQL, without outside text."""
    path = tables.CUTS.at(lake)
    there = columns(path) or ()
    more = ", schemas" if "schemas" in there else ""
    own = "coalesce(folder, source)" if folder and "folder" in there else "source"
    found = query(
        f"SELECT source, cut, kind, reason, source_time, at, snapshots{more} FROM t "
        f"WHERE {own} = {text(of)}{f' AND {where}' if where else ''} ORDER BY cut DESC LIMIT {int(limit)}",
        t=path,
    )
    return [_cut(lake, row) for row in found or []]


def _cut(lake: Store, row: Mapping[str, Any]) -> Cut:
    schemas = dict(row.get("schemas") or ())
    snapshots = {
        TableName(row["source"], s["db"], s["table"], schemas.get(s["path"])): Snapshot(
            lake.at(s["path"]), s["version"]
        )
        for s in row["snapshots"]
    }
    told = {name: row[name] for name in ("source", "kind", "reason", "source_time", "at")}
    return Cut(number=row["cut"], snapshots=snapshots, **told)


class UpTo(NamedTuple):
    """A time up to which a table is complete, by its source's clock. proven: every partition tells it; else some are
    taken for idle, and `reason` says which."""

    time: datetime
    proven: bool
    reason: str | None


def complete_up_to(lake: Store, name: TableName) -> UpTo | None:
    """Up to when a table is complete; None: nothing tells it, or no batch has met the table."""
    found = watermarks.complete(tables.WATERMARKS.at(lake), name.source)
    at = found.of(name.name) if found and name in states(lake, name.source) else None
    if found is None or at is None:
        return None
    own = found.behind.get(name.name)
    return UpTo(at, found.proven_of(name.name), own.reason if own else found.reason)


def find_cut(
    lake: Store, of: str, cut: int | None = None, kind: CutKind = "transaction", *, folder: bool = False
) -> Cut:
    """The cut of that number, of a source or of the tables in a folder; None: the newest of that kind. Raises
    NotReadable with what there is."""
    told = partial(cuts, lake, of, folder=folder)
    if cut is not None:
        if found := told(f"cut = {int(cut)}"):
            return found[0]
        below = told(f"cut < {int(cut)}", limit=1)  # of old ones the last of each hour stays
        there = dict.fromkeys(str(c.number) for c in (*below, *told()))
        raise NotReadable(of, f"has no cut {cut}", [*there] or ["none yet"])
    if found := told("kind = 'transaction'" if kind == "transaction" else "", limit=1):
        return found[0]
    other = told(limit=1)
    if other:
        raise NotReadable(
            of,
            f"has no cut of kind transaction; its newest, {other[0].number}, is of kind {other[0].kind}: "
            f"{other[0].reason or 'no reason given'}",
            ["kind='any'"],
        )
    sources = sorted({n.source for n in states(lake)})
    problem = "has no cut yet" if of in sources else "no such source in this lake"
    raise NotReadable(of, problem, [] if of in sources else sources or ["none yet"])
