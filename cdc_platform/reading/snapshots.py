"""A lake's snapshots: each at its newest or a given version, or all tables of a source at one cut."""

import os
from dataclasses import replace
from datetime import datetime
from typing import Any

from cdc_platform import tables
from cdc_platform.config.storage import Storage, kind
from cdc_platform.errors import NotReadable
from cdc_platform.lake import folders, stores
from cdc_platform.reading.catalog import (
    Cut,
    CutKind,
    Snapshot,
    TableName,
    complete_up_to,
    cuts,
    find_cut,
    resolve,
    states,
)
from cdc_platform.reading.frames import Frames


class Snapshots(Frames):
    """Reads of a lake's snapshots. A table is given as "source/db.table", or by its path "source/db/table".

    only_live: a table that isn't kept up to date any more (stopped, dropped at the source, left out by the rules) is
    refused, with the reason; else its last rows are read. storage: as in cdc.yaml, where the lake is on an object
    store; what it doesn't give comes from the environment.
    """

    def __init__(self, lake: str, *, only_live: bool = True, storage: Storage | None = None):
        self.lake, self.only_live = lake.rstrip("/"), only_live
        self._store = stores.of(lake if kind(lake) != "folder" else os.path.abspath(lake), storage or Storage())

    def tables(self, source: str | None = None) -> list[TableName]:
        """The live tables, of one source or of all."""
        folders.look(self._store)
        own = None if source is None else folders.source(self._store, source)
        return [self._shown(name) for name, found in states(self._store, own).items() if found.state == "live"]

    def cuts(self, source: str, limit: int = 20) -> list[Cut]:
        """The source's cuts, the newest first."""
        return [_of_folder(cut, source) for cut in cuts(self._store, source, limit=limit, folder=True)]

    def complete_up_to(self, table: Any, *, proven: bool = False) -> datetime | None:
        """All that the source had committed before this time, by its own clock, is in the table: proven, or assumed of
        partitions to which nothing comes. None: no run has told so far, or it is complete to no time; proven: or it is
        assumed now. Raises NotReadable: no such table, or it isn't live."""
        name = self._named(table)
        own = folders.source(self._store, name.source)
        found = complete_up_to(self._store, name._replace(source=own))
        return found.time if found and (found.proven or not proven) else None

    def at_cut(self, source: str, cut: int | None = None, kind: CutKind = "transaction") -> "SnapshotsAtCut":
        """All tables of a source at one cut: the newest, or one by its number. kind: `transaction` takes only a cut
        that has no transaction by half; `any` also one of a feed that can't tell. Raises NotReadable."""
        return SnapshotsAtCut(_of_folder(find_cut(self._store, source, cut, kind, folder=True), source))

    def _find(self, table: Any, version: int | None) -> Snapshot:
        name = self._named(table)
        return Snapshot(tables.SNAPSHOT_PATH.of(self._store, name.source, name.name), version)

    def _shown(self, name: TableName) -> TableName:
        """As readers know it: by the folder it is in."""
        return name._replace(source=folders.folder(self._store, name.source))

    def _named(self, table: Any) -> TableName:
        folders.look(self._store)
        known = {self._shown(name): found for name, found in states(self._store).items()}
        name = resolve(str(table), known, "this lake")
        found = known[name]
        if self.only_live and found.state != "live":
            raise NotReadable(
                str(name),
                f"is {found.state}{f' ({found.reason})' if found.reason else ''}: its rows are not kept up to date",
                ["only_live=False, to read its last rows"],
            )
        return name


def _of_folder(cut: Cut, folder: str) -> Cut:
    """A cut of who had a folder then, as who reads that knows it."""
    shown = {name._replace(source=folder): at for name, at in cut.snapshots.items()}
    return replace(cut, source=folder, snapshots=shown)


class SnapshotsAtCut(Frames):
    """Tables of one source as of one cut. A table may also be given as "db.table"."""

    def __init__(self, cut: Cut):
        self.cut = cut

    def tables(self) -> list[TableName]:
        """The tables that the cut has."""
        return list(self.cut.snapshots)

    def _find(self, table: Any, version: int | None) -> Snapshot:
        if version is not None:
            raise NotReadable(str(table), "a cut has its own version of each table: give no other")
        source, given = self.cut.source, str(table)
        where = f"cut {self.cut.number} of {source}"
        known = list(self.cut.snapshots)
        alone = f"{source}/{given}"
        meant = alone if any(alone in (str(n), n.path) for n in known) else given
        return self.cut.snapshots[resolve(meant, known, where)]
