"""Events as a decoder would give them, appended to a source's changes table, and what comes of them."""

import atexit
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import mkdtemp
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from cdc_platform import tables
from cdc_platform.changelog import run as changelog
from cdc_platform.changes.file_stats import Summary
from cdc_platform.changes.run import events_sink
from cdc_platform.formats.events import columns_json, event_batch, schema_version
from cdc_platform.lake import commits, delta_table, handles, stores
from cdc_platform.lake.data_files import Output
from cdc_platform.lake.store import Store
from cdc_platform.results import StageResult
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from tests.lakes import store_at

LANDED = datetime(2026, 11, 20, tzinfo=UTC)
Image = dict[str, str | None]


@dataclass(frozen=True)
class SourceTable:
    """A table of the source: db, name, columns as (name, MySQL type), names of the key columns."""

    db: str
    name: str
    columns: Sequence[tuple[str, str]]
    keys: Sequence[str] = ("id",)

    @property
    def json(self) -> str:
        return columns_json([{"name": n, "type": t, "key": n in self.keys} for n, t in self.columns])

    @property
    def version(self) -> str:
        return schema_version(self.db, self.name, self.json)

    def stated(self) -> dict[str, Any]:
        """The event that states the columns."""
        return {
            "kind": "schema",
            "db": self.db,
            "table": self.name,
            "schema_version": self.version,
            "columns": self.json,
        }

    def change(
        self, op: str, at: tuple, before: Image | None = None, after: Image | None = None, **rest: Any
    ) -> dict[str, Any]:
        """A row change at (file, position[, row number]); the key is the row before's, as formats tell it."""
        image = before or after or {}
        key = {k: image[k] for k in self.keys if k in image} or None
        told: dict[str, Any] = {
            "kind": "row",
            "db": self.db,
            "table": self.name,
            "op": op,
            "key": key,
            "before": before,
            "after": after,
            "schema_version": self.version,
            "row_no": (*at, 0)[2],
        }
        return {**told, **position(*at[:2]), **rest}

    def insert(self, at: tuple, row: Image, **rest: Any) -> dict[str, Any]:
        return self.change("insert", at, None, row, **rest)

    def update(self, at: tuple, old: Image, new: Image, **rest: Any) -> dict[str, Any]:
        return self.change("update", at, old, new, **rest)

    def delete(self, at: tuple, old: Image, **rest: Any) -> dict[str, Any]:
        return self.change("delete", at, old, **rest)


def position(file: int | None, pos: int | None, lineage: str | None = "1") -> dict[str, Any]:
    """Position fields of an event; (None, None) tells none."""
    name = None if file is None else f"mysql-bin.{file:06d}"
    return {"binlog_file": name, "binlog_pos": pos, "file_no": file, "lineage": lineage}


SHARED = [t for t in tables.ALL if t.partition_by == ("source",)]


@cache
def empty_lake(spark: Any) -> str:
    """A lake's folder with the tables that first runs make: a copy takes milliseconds."""
    folder = mkdtemp(prefix="cdc-tests-lake-")
    atexit.register(rmtree, folder, ignore_errors=True)
    for table in SHARED:
        delta_sql.ensure(table, table.at(store_at(folder)))
    return folder


@dataclass
class Feed:
    """One source's changes table and the stages behind it."""

    spark: Any
    config: Any
    name: str
    _offsets: Any = field(default_factory=count)
    _commits: Any = field(default_factory=count)
    _files: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        if stores.lake(self.config).remote:
            for table in (*SHARED, tables.CHANGES):
                delta_sql.ensure(table, self._at(table))
            return
        empty = Path(empty_lake(self.spark))
        for table in SHARED:
            if not Path(self.config.lake, table.path).exists():
                copytree(empty / table.path, Path(self.config.lake, table.path))
        if not Path(self._at(tables.CHANGES).uri()).exists():
            nobodys = tables.CHANGES.at(store_at(empty), format=self.source.format, source="nobody")
            copytree(delta_sql.ensure(tables.CHANGES, nobodys).uri(), self._at(tables.CHANGES).uri())

    @property
    def source(self) -> Any:
        return self.config.source(self.name)

    def _at(self, table: tables.Table) -> Store:
        return table.at(stores.lake(self.config), format=self.source.format, source=self.name)

    def say(self, *events: dict[str, Any]) -> None:
        """Append events as one commit of one file; each a message of its own unless it tells its offset."""
        landed = LANDED + timedelta(seconds=next(self._commits))
        rows = [
            as_event({"landed_at": landed, **({} if "offset" in e else {"offset": next(self._offsets)}), **e})
            for e in events
        ]
        append_events(self._at(tables.CHANGES), event_batch(rows), next(self._files))

    def unify(self) -> StageResult:
        return changelog.run(self.spark, self.config, self.source)

    def snapshot(self, *, cut: bool = True) -> StageResult:
        return snapshots.run(self.spark, self.config, self.source, cut=cut)

    def catch_up(self) -> StageResult:
        self.unify()
        return self.snapshot()

    def rows(self, table: tables.Table) -> list[dict[str, Any]]:
        """Rows of a shared table that belong to this source, in the order of their wire address."""
        found = handles.opened(self._at(table)).to_pyarrow_table(filters=[("source", "=", self.name)])
        dicts = found.to_pylist(maps_as_pydicts="strict")
        return sorted(
            dicts,
            key=lambda r: [r.get(k) or 0 for k in ("batch", "partition", "offset", "entry_index", "row_index")],
        )

    def target(self, db: str, table: str) -> Target:
        return Target.of(self.config, self.name, db, table)

    def live(self, db: str, table: str) -> list[dict[str, Any]]:
        """Rows of a snapshot as another reader than Spark sees them, without bookkeeping."""
        found = read(self.target(db, table).snapshot)
        return [{k: v for k, v in r.items() if not k.startswith("_cdc_")} for r in found.to_pylist()]

    def tombstones(self, db: str, table: str) -> list[dict[str, Any]]:
        """What is known of deletes."""
        path = self.target(db, table).tombstones
        return read(path).to_pylist() if delta_table.exists(path) else []

    def kept(self, db: str, tables: Iterable[str]) -> list[list[str]]:
        """All that is kept of some tables, bookkeeping and tombstones too."""
        found = [(read(self.target(db, t).snapshot).to_pylist(), self.tombstones(db, t)) for t in tables]
        return [sorted(map(repr, rows)) for both in found for rows in both]

    def has(self, db: str, table: str) -> bool:
        """Whether there is a snapshot."""
        return delta_table.exists(self.target(db, table).snapshot)

    def state(self, db: str, table: str) -> tuple[str, str | None]:
        """State and reason of a table now."""
        states = [r for r in self.rows(tables.TABLE_STATE) if (r["db"], r["table"]) == (db, table)]
        now = max(states, key=lambda r: (r["rebuild"], r["batch"]))
        return now["state"], now["reason"]

    def in_newest_cut(self) -> list[str]:
        """Names of the tables in the source's newest cut."""
        newest = max(self.rows(tables.CUTS), key=lambda c: c["cut"])
        return [s["table"] for s in newest["snapshots"]]

    def forget_last_commit(self, room: str) -> None:
        """As after a kill between a batch's work and its commit: the next run does that batch again."""
        commits = Path(tables.CHECKPOINT.at(self.config.lake, room=room, source=self.name)) / "commits"
        last = max(int(p.name) for p in commits.iterdir() if p.name.isdigit())
        (commits / f"{last}").unlink()


def append_events(changes: Store, events: pa.RecordBatch, number: int) -> None:
    """One commit of one file, as decoders write them: it notes what it holds."""
    out = Output(events_sink(changes))
    summary = Summary()
    summary.add(events)
    out.write(events)
    out.note = summary.to_json()
    written = out.close()
    commits.append_files(out.sink, [written] if written else [], (f"tests {uuid4()}", number))


def as_event(event: dict[str, Any]) -> dict[str, Any]:
    """Readable event → a row for `event_batch`: defaults filled in, maps as pairs."""
    out = {
        "topic": "t",
        "partition": 0,
        "entry_index": 0,
        "row_index": 0 if event["kind"] == "row" else None,
        **event,
    }
    return {k: list(v.items()) if isinstance(v, dict) else v for k, v in out.items()}


def read(path: str | Store) -> pa.Table:
    """A Delta table by delta-rs."""
    table = DeltaTable(path) if isinstance(path, str) else DeltaTable(path.uri(), storage_options=path.options)
    reader = QueryBuilder().register("t", table)
    return pa.table(cast(Any, reader.execute("SELECT * FROM t").read_all()))
