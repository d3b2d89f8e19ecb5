"""The subject: the keys that its row has had, its events, and the messages that held them. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.tellings import numbers
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.explain.records import Address
from cdc_platform.explain.scan import Sought, find
from cdc_platform.explain.table import Table
from cdc_platform.lake.data_files import Unit, footer, read
from cdc_platform.lake.skipping import files_that_may_hold
from cdc_platform.lake.store import File, Store
from cdc_platform.snapshots.reduce.one_key import key_after, key_image
from cdc_platform.tables import CHANGES, name_in

Key = Mapping[str, str | None]
Identity = tuple[Address, int | None, int | None]
"""A row change: its message, event and row."""
CHANGE = CHANGES.arrow()
KINDS = ("row", "error")
"""Of events that tell a key; a list of columns may stand at the same place of a message."""
_SHOWN = 20


@dataclass(frozen=True)
class Subject:
    """keys: of the row, at any time, under today's names of its columns. events: CHANGES rows of it. doubts: why some
    may not have been found."""

    table: Table
    keys: tuple[Key, ...]
    events: list[dict[str, Any]]
    doubts: list[str] = field(default_factory=list)

    @cached_property
    def identities(self) -> frozenset[Identity]:
        """Of its events."""
        return frozenset(map(identity, self.events))

    def holds(self, event: Mapping[str, Any]) -> bool:
        """Whether a row of CHANGES is one of its events."""
        return event["kind"] in KINDS and identity(event) in self.identities

    @cached_property
    def addresses(self) -> list[Address]:
        """Of the messages that hold any of them, in order."""
        return sorted({address_of(e) for e in self.events})

    @cached_property
    def texts(self) -> frozenset[str]:
        """Values, and reasons of errors, which quote some."""
        images = (e[i] for e in self.events for i in ("key", "before", "after") if e[i])
        told = {text for image in images for text in image.values() if text}
        return frozenset(told | {e["reason"] for e in self.events if e["reason"]})


def address_of(event: Mapping[str, Any]) -> Address:
    """Where its message begins."""
    return Address(event["topic"], event["partition"], event["offset"])


def identity(event: Mapping[str, Any]) -> Identity:
    """What tells a row change from all others."""
    return address_of(event), event["entry_index"], event["row_index"]


def of(table: Table, key: Key, files: Sequence[File], *, follow: bool) -> Subject:
    """Looks for a key in these files of CHANGES. follow: keys that the row had before or since are the same subject's.
    Raises EraseRefused where it had any and they aren't to be followed, or where changes can't all be found."""
    source = table.source.name
    if table.origin:
        raise EraseRefused(source, f"the rows of {table.text} are kept with those of other tables (tables.routes)")
    keys: list[Key] = [dict(key)]
    while True:
        cells: list[Mapping[str, str | None]] = []
        for one in keys:
            then, untold = table.then(one)
            if untold:
                raise EraseRefused(source, untold[0])
            cells += then
        sought = Sought(table.names, tuple(cells), table.alike)
        events = [e for e in find(files, sought, CHANGE).to_pylist(maps_as_pydicts="strict") if e["op"] != "truncate"]
        more = _others(table, keys, events)
        if not more:
            return Subject(table, tuple(keys), events, _doubts(table))
        if not follow:
            told = "; ".join(", ".join(f"{k}={v}" for k, v in one.items()) for one in more)
            choices = [f"--follow: these are the same subject's: {told}"]
            raise EraseRefused(source, "the row has had other keys, and their changes hold its values", choices)
        keys += more


def check_whose(found: Subject) -> None:
    """Raises EraseRefused where an event stands under a name that another table has, too: before a RENAME, or since."""
    table = found.table
    for event in found.events:
        name = name_in(event)
        if name is not None and (other := table.shared.get(name)):
            told, today = ".".join(name), ".".join(other)
            problem = f"{address_of(event)} holds a row of {told}, a name that {today} has had, too, or has"
            choices = [f"where {today} isn't needed: DROP it at the source, and this once more"]
            raise EraseRefused(table.source.name, f"{problem}: whose it is isn't known", choices)


def _doubts(table: Table) -> list[str]:
    if not table.alike.collation:
        return []
    return [f"keys compare by {table.alike.collation}: other spellings are looked for by similar rules"]


def _others(table: Table, known: Sequence[Key], events: Iterable[Mapping[str, Any]]) -> list[Key]:
    """Keys to which, or from which, changes led."""
    alike, names = table.alike.one, table.keys

    def spelled(key: Key) -> tuple[str | None, ...]:
        return tuple(alike(n, key[n]) for n in names)

    there, found = {spelled(k) for k in known}, dict[tuple[str | None, ...], Key]()
    for event in events:
        old, after = key_image(event, names), event["after"] or {}
        moved = key_after(old, after, [n for n in names if n in old or n in after])
        for told in (event["key"] or {}, event["before"] or {}, moved):
            if all(n in told for n in names) and (text := spelled(told)) not in there:
                found.setdefault(text, {n: told[n] for n in names})
    return list(found.values())


# -- messages ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """A message that holds events of the subject. left: EVENT rows of it that aren't the subject's, as they were last
    decoded; shared: whether rows or statements of others are among them. offsets: of its records, of
    parts that came once more, too; parts: the records that it counts for."""

    address: Address
    left: pa.Table
    shared: bool
    others: int
    offsets: tuple[int, ...]
    parts: int

    @property
    def rows_of(self) -> list[str]:
        """Tables and keys of the others in it, the first of them."""
        rows = self.left.filter(pc.equal(self.left["kind"], "row")).slice(0, _SHOWN)
        told = rows.select(["db", "schema", "table", "key", "after"]).to_pylist(maps_as_pydicts="strict")
        return list(dict.fromkeys(" ".join(named(row)) for row in told))


def events_at(changes: Store, addresses: Sequence[Address]) -> dict[Address, pa.Table]:
    """CHANGES rows of messages, in order: of those that were decoded again of the newest telling, by which they
    count. Raises LakeChanged."""
    found, again = dict[Address, list[pa.RecordBatch]](), dict[Address, list[tuple[str, pa.RecordBatch]]]()
    for file, address, rows in rows_at(changes, addresses, CHANGE):
        found.setdefault(address, []).append(rows)
        retold = rows.filter(pc.fill_null(rows.column("retold"), False))
        if retold.num_rows:
            again.setdefault(address, []).append((file.path, retold))
    number = numbers(changes, {path for told in again.values() for path, _ in told}, None)
    for address, told in again.items():
        newest = max(number[path] for path, _ in told)
        found[address] = [rows for path, rows in told if number[path] == newest]
    order = [("entry_index", "ascending"), ("row_index", "ascending")]
    return {at: pa.Table.from_batches(rows).sort_by(order) for at, rows in found.items()}


def rows_at(
    table: Store, addresses: Iterable[Address], schema: pa.Schema
) -> Iterator[tuple[File, Address, pa.RecordBatch]]:
    """Rows that a table has of some messages, or records, by file and address."""
    wanted = set(addresses)
    some = [a._asdict() for a in wanted]
    for file in files_that_may_hold(table, some) if some else []:
        for batch in read(Unit(file, 0, footer(file).num_row_groups, 0), schema):
            for at, rows in those(batch, wanted).items():
                yield file, at, batch.take(pa.array(rows))


def those(batch: pa.RecordBatch, wanted: set[Address] | frozenset[Address]) -> dict[Address, list[int]]:
    """Numbers of the rows of some messages, or records."""
    offsets = pa.array(sorted({a.offset for a in wanted}), pa.int64())
    at = np.nonzero(pc.is_in(batch.column("offset"), offsets).to_numpy(zero_copy_only=False))[0]
    found: dict[Address, list[int]] = {}
    if len(at):
        rows = batch.select(["topic", "partition", "offset"]).take(pa.array(at)).to_pylist()
        for number, row in zip(at.tolist(), rows, strict=True):
            if (address := Address(**row)) in wanted:
                found.setdefault(address, []).append(number)
    return found


def named(row: Mapping[str, Any]) -> tuple[str, str]:
    """Table and key of a row change."""
    table = ".".join(row[n] for n in ("db", "schema", "table") if row[n])
    key = row["key"] or dict(list((row["after"] or {}).items())[:1])
    return table, ", ".join(f"{k}={v}" for k, v in key.items())
