"""Looks through every file of a source in the lake for a subject's bytes. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_platform.config import Config, Source
from cdc_platform.erasing import shadows
from cdc_platform.erasing.quotes import Finder, Quotes
from cdc_platform.lake import folders, stores
from cdc_platform.lake.store import File, Store
from cdc_platform.landing.erased import digest
from cdc_platform.spark import delta_sql
from cdc_platform.tables import (
    ALL,
    CARRIED,
    ENVELOPES,
    HISTORY_PATH,
    LANDING,
    SNAPSHOT_PATH,
    TOMBSTONES_PATH,
    TYPED_CHANGES_PATH,
)

_SHOWN = 20
_FILES, _BYTES = 256, 64 << 20
"""Files of a group, and the bytes of all of them, of which several are looked through at once; a larger file is by
itself: a row group may be in memory whole."""
_OTHER = ("_checkpoints", "_exchanges", "_erasures", "_replays/{source}")
"""Folders of a lake that hold no table, or lakes of their own."""
_OF_PAIRS = tuple(t.path for t in shadows.TABLES)
"""Tables in which a row may be of two sources: it stands under the name of one."""


@dataclass(slots=True)
class Looked:
    """files, bytes, rows: that were looked through. left: where something was found; found: the first of them."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    left: int = 0
    found: list[str] = field(default_factory=list)

    def note(self, where: str) -> None:
        self.left += 1
        if len(self.found) < _SHOWN:
            self.found.append(where)

    def add(self, other: "Looked") -> None:
        """What was looked through after it."""
        self.files, self.bytes, self.rows = self.files + other.files, self.bytes + other.bytes, self.rows + other.rows
        self.left += other.left
        self.found += other.found[: _SHOWN - len(self.found)]

    def data(self) -> dict[str, Any]:
        """As a proof has it."""
        return {n: getattr(self, n) for n in ("files", "bytes", "rows", "left", "found")}


@dataclass(frozen=True, slots=True)
class Payloads:
    """What records are known by, as digests under `salt`. values: of whole records; keys: of theirs, with topic and
    partition, under which no tombstone may stand there."""

    salt: bytes
    values: frozenset[str]
    keys: frozenset[tuple[str, int, str]]

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> "Payloads":
        """Those of an erasure."""
        row = note["row"]
        keys = ((topic, partition, key) for topic, partition, key in note.get("keys", ()))  # not in earlier notes
        return cls(bytes.fromhex(row["salt"]), frozenset(r["digest"] for r in row["records"]), frozenset(keys))

    def there(self, batch: pa.RecordBatch) -> Iterator[str]:
        """Columns in which one stands, for each record that has it."""
        for value in batch.column("value").drop_null():
            if digest(self.salt, value.as_py()) in self.values:
                yield "value"
        bare = batch.select(["topic", "partition", "key", "value"]).filter(pc.is_null(batch.column("value")))
        for row in bare.filter(pc.is_valid(bare.column("key"))).to_pylist():
            if (row["topic"], row["partition"], digest(self.salt, row["key"])) in self.keys:
                yield "key"


def look_through(config: Config, source: Source, quotes: Quotes, payloads: Payloads, but: Collection[str]) -> Looked:
    """quotes: of values of the subject's alone. but: paths in the lake that are about to be removed."""
    lake, found, wanted, plain = stores.lake(config), Looked(), quotes.finder, quotes.in_bytes
    landed = tuple(t.at("", source=source.name).lstrip("/") + "/" for t in (LANDING, ENVELOPES))

    def look(path: str, size: int) -> Looked:
        looked = Looked(1, size)
        if path.endswith(".parquet"):
            check = payloads if path.startswith(landed) and "/_delta_log/" not in path else None
            try:
                _parquet(File(lake, path), path, wanted, plain, check, looked, _by(path, source))
            except FileNotFoundError:  # it was removed since it was listed
                return Looked()
        elif (read := lake.read(path)) is None:
            return Looked()
        elif any(p.search(read) for p in plain):
            looked.note(path)
        return looked

    for some in _groups((path, size) for path, size in files(lake, source) if path not in but):
        for looked in delta_sql.ask_parallel(lake, [partial(look, *file) for file in some]):
            found.add(looked)
    return found


def _groups(files: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    some: list[tuple[str, int]] = []
    for file in files:
        if some and (len(some) == _FILES or sum(size for _, size in some) + file[1] > _BYTES):
            yield some
            some = []
        some.append(file)
    if some:
        yield some


def files(lake: Store, source: Source) -> Iterator[tuple[str, int]]:
    """Paths and bytes of the files that may hold something of a source: its own, and those of tables that sources
    share."""
    names = {"source": source.name, "format": source.format}
    own = [t.at("", **names).lstrip("/") for t in ALL if "{source}" in t.path]
    of_tables = (SNAPSHOT_PATH, TOMBSTONES_PATH, HISTORY_PATH, TYPED_CHANGES_PATH)
    own += [path for of in of_tables for path in folders.under(lake, of, source.name)]
    own.append(CARRIED.at("", **names).lstrip("/"))
    shared = [t.path for t in ALL if "{source}" not in t.path]
    for folder in (*own, *(of.format(**names) for of in _OTHER)):
        yield from ((f"{folder}/{p}", size) for p, size in lake.sizes(folder).items())
    mine = f"source={source.name}/"
    for folder in shared:
        for p, size in lake.sizes(folder).items():
            if folder in _OF_PAIRS or not p.startswith("source=") or p.startswith(mine):
                yield f"{folder}/{p}", size


def _by(path: str, source: Source) -> str | None:
    """Of whose pairs rows of a file are looked at, by the name of the other feed; None: all."""
    others = path.startswith(tuple(f"{folder}/source=" for folder in _OF_PAIRS))
    return source.name if others and f"/source={source.name}/" not in path else None


def _parquet(
    file: File,
    path: str,
    wanted: Finder,
    plain: Sequence[re.Pattern[bytes]],
    check: Payloads | None,
    found: Looked,
    by: str | None,
) -> None:
    with file.open() as opened, pq.ParquetFile(opened) as parquet:
        noted = b"\n".join(v for v in (parquet.metadata.metadata or {}).values())
        if any(p.search(noted) for p in plain):
            found.note(f"{path}: footer")
        for every in parquet.iter_batches(1 << 14, use_threads=False):
            batch = every if by is None else every.filter(pc.equal(every.column("by"), by))
            found.rows += batch.num_rows
            for name, column in _leaves("", batch):
                if len(wanted.at(column)):
                    found.note(f"{path}: {name}")
            for name in check.there(batch) if check is not None else ():
                found.note(f"{path}: {name}")


def _leaves(name: str, of: Any) -> Iterator[tuple[str, pa.Array]]:
    """Columns of texts and bytes, nested ones, too."""
    if isinstance(of, pa.RecordBatch):
        for n, column in zip(of.schema.names, of.columns, strict=True):
            yield from _leaves(n, column)
    elif pa.types.is_dictionary(of.type):
        yield from _leaves(name, of.dictionary)
    elif pa.types.is_struct(of.type):
        for i in range(of.type.num_fields):
            yield from _leaves(f"{name}.{of.type.field(i).name}", of.field(i))
    elif pa.types.is_map(of.type):
        yield from _leaves(f"{name}.key", of.keys)
        yield from _leaves(f"{name}.value", of.items)
    elif pa.types.is_list(of.type):
        yield from _leaves(name, of.values)
    elif pa.types.is_string(of.type) or pa.types.is_binary(of.type):
        yield name, of
