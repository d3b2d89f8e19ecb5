"""The present state of snapshots, read from the lake without Spark: what an asset page, a check and `status` show.

State, not deltas: each call reads what the lake says now, whoever wrote it and in whichever run.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from cdc_platform import certificate, tables
from cdc_platform.certificate import Certificate
from cdc_platform.config import Config, Source
from cdc_platform.errors import LakeChanged, StorageError
from cdc_platform.lake import folders, held_rows, looks, queries, stores, watermarks
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import Complete
from cdc_platform.tables import Name

log = logging.getLogger("cdc_platform.definitions")
BOOKKEEPING = "_cdc_"
"""Prefix of the columns that the platform adds to a snapshot."""
GONE = ("dropped", "left_out")
"""States of tables that no longer have an asset."""
_OPEN_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a snapshot. type: as Delta's schema spells it. untold: what the feed can't tell of it."""

    name: str
    type: str
    nullable: bool
    comment: str | None
    key: bool
    untold: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """The newest row change in the last cut of a source's snapshots. One before it may be missing: what quarantine
    holds.

    kind: transaction (no transaction is in it by half) or position. source_time: commit time at the source.
    """

    number: int
    kind: str
    source_time: datetime | None
    binlog_file: str | None
    binlog_pos: int | None
    gtid: str | None
    at: datetime

    @property
    def position(self) -> str | None:
        """`file:position`, else the GTID, else None."""
        if self.binlog_file is not None and self.binlog_pos is not None:
            return f"{self.binlog_file}:{self.binlog_pos}"
        return self.gtid


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One snapshot as it is now.

    state: live, stopped, stale, dropped, left_out, or waiting (no batch has met it). held: rows in quarantine that
    name it. rows, version, columns: None or empty while there is no Delta table. limits: what the feed can't tell of
    whole rows. updated_at: when a batch last touched it. complete: up to when its source is complete.
    certificate: what can be answered for it.
    """

    source: Source
    db: str
    table: str
    path: Store
    state: str = "waiting"
    reason: str | None = None
    invalid_dates: int = 0
    updated_at: datetime | None = None
    held: int = 0
    held_reason: str | None = None
    cut: Cut | None = None
    version: int | None = None
    rows: int | None = None
    columns: tuple[Column, ...] = field(default=(), repr=False)
    limits: tuple[str, ...] = ()
    schema: str | None = None
    complete: Complete | None = None
    certificate: Certificate | None = field(default=None, repr=False)

    @property
    def complete_up_to(self) -> datetime | None:
        """All that the source had committed before this time, by its own clock, is in it. None: it can't be told, or no
        batch has met it."""
        return self.complete.of(self.id) if self.complete and self.state != "waiting" else None

    @property
    def id(self) -> Name:
        """Its name, by its parts."""
        return tables.name_of({"db": self.db, "schema": self.schema, "table": self.table})

    @property
    def name(self) -> str:
        """db.table, or db.schema.table."""
        return ".".join(self.id)


def known(config: Config) -> list[tuple[Source, Name]]:
    """Source and name of every snapshot that is or will be followed, in order."""
    gone = {(t["source"], tables.name_of(t)) for t in queries.table_states(config) if t["state"] in GONE}
    return [(s, name) for s, name in queries.known_tables(config) if (s.name, name) not in gone]


def known_or_none(config: Config) -> list[tuple[Source, Name]]:
    """The same for definitions, which must load whatever the lake's state: none where its tables can't be read."""
    from deltalake.exceptions import DeltaError

    try:
        return known(config)
    except (DeltaError, LakeChanged, StorageError, OSError) as error:
        log.warning("the lake's tables can't be read, so they have no assets for now: %s", error)
        return []


def cuts(config: Config) -> dict[str, Cut]:
    """source → its last cut."""
    found = queries.query(
        "SELECT source, cut, kind, source_time, binlog_file, binlog_pos, gtid, at FROM t "
        "QUALIFY row_number() OVER (PARTITION BY source ORDER BY cut DESC) = 1",
        t=tables.CUTS.at(stores.lake(config)),
    )
    return {
        r["source"]: Cut(
            r["cut"],
            r["kind"],
            r["source_time"],
            r["binlog_file"],
            None if r["binlog_pos"] is None else int(r["binlog_pos"]),
            r["gtid"],
            r["at"],
        )
        for r in found or []
    }


def complete(config: Config, source: Source) -> Complete | None:
    """Up to when a source's snapshots are complete; None: no run has told."""
    return watermarks.complete(tables.WATERMARKS.at(stores.lake(config)), source.name)


def complete_of_all(config: Config, source: Source) -> tuple[datetime | None, int]:
    """Up to when all snapshots of a source that are followed are complete (None: one tells no time), and how many of
    them are behind the source."""
    reached = complete(config, source)
    if reached is None or not reached.behind:
        return reached and reached.source_time, 0
    behind = [reached.of(name) for s, name in known(config) if s.name == source.name and name in reached.behind]
    times = [at for at in (reached.source_time, *behind) if at is not None]
    return (min(times) if len(times) > len(behind) else None), len(behind)


def statuses(config: Config, source: Source) -> list[TableStatus]:
    """Every known snapshot of a source, in order; without what only its Delta log says (see `opened`)."""
    states = {tables.name_of(t): t for t in queries.table_states(config) if t["source"] == source.name}
    held = {tables.name_in(h): h for h in held_rows.by_table(config) if h["source"] == source.name}
    cut, reached = cuts(config).get(source.name), complete(config, source)
    certified = certificate.of_source(config, source)

    def status(name: Name) -> TableStatus:
        state, kept = states.get(name, {}), held.get(name, {})
        return TableStatus(
            source,
            name[0],
            name[-1],
            folders.snapshot(stores.lake(config), source.name, name),
            schema=name[1] if len(name) == 3 else None,
            state=state.get("state", "waiting"),
            reason=state.get("reason"),
            invalid_dates=state.get("invalid_dates") or 0,
            updated_at=state.get("at"),
            held=kept.get("rows", 0),
            held_reason=kept.get("reason"),
            cut=cut,
            complete=reached,
            certificate=certified.get(name),
        )

    return [status(name) for s, name in known(config) if s.name == source.name]


def opened(config: Config, found: Iterable[TableStatus]) -> list[TableStatus]:
    """The same with version, rows, columns and limits. Each Delta log is read once, several at a time."""
    found = list(found)
    keys = {s.name: _keys(config, s) for s in {s.source.name: s.source for s in found}.values()}

    def one(s: TableStatus) -> TableStatus:
        key = s.source.tables.key_columns(*s.id) or keys[s.source.name].get(s.id, [])
        return replace(s, **_opened(s.path, key))

    with ThreadPoolExecutor(_OPEN_AT_ONCE) as pool:
        return list(pool.map(one, found))


def _keys(config: Config, source: Source) -> dict[Name, list[str]]:
    """Table → key columns, by the newest column list that messages stated."""
    return {
        source.tables.routed(*tables.name_of(r)): [c["name"] for c in json.loads(r["columns"]) if c.get("key")]
        for r in queries.newest_columns(config, source.name)
    }


def _opened(path: Store, key: list[str]) -> dict[str, Any]:
    """What the Delta table at `path` says: version, rows, columns, limits. Empty: there is none."""
    if (look := looks.look(path)) is None:
        return {}
    limits = json.loads(look.properties.get("cdc.limits") or "{}")
    return {
        "version": look.version,
        "rows": queries.row_count(path) if look.rows is None else look.rows,
        "columns": tuple(columns(look, key, limits)),
        "limits": tuple(limits.get("*", ())),
    }


def columns(
    look: looks.Look, key: Sequence[str], limits: Mapping[str, list[str]], *, bookkeeping: bool = False
) -> Iterator[Column]:
    """A table's columns; bookkeeping: those of the platform's, too."""
    from deltalake import Schema

    for f in Schema.from_json(look.schema).fields:
        if bookkeeping or not f.name.startswith(BOOKKEEPING) or f.name in key:
            comment = (f.metadata or {}).get("comment")
            kind = getattr(f.type, "type", None)
            kind = kind if isinstance(kind, str) else json.loads(f.type.to_json())["type"]
            yield Column(f.name, kind, f.nullable, comment, f.name in key, tuple(limits.get(f.name, ())))
