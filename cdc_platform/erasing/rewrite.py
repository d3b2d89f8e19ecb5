"""Files of the lake's tables written anew without a subject's bytes; no commit names them yet. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from cdc_platform.erasing.quotes import GONE, Quotes
from cdc_platform.erasing.subject import KINDS, Identity, identity, those
from cdc_platform.explain.records import Address
from cdc_platform.explain.scan import Alike
from cdc_platform.lake import deletion_vectors
from cdc_platform.lake.data_files import Output, Sink, Unit, Written, footer, note_of, read
from cdc_platform.lake.log_state import Action
from cdc_platform.lake.store import File
from cdc_platform.landing.erased import blanked, digest, nulled, payload
from cdc_platform.tables import Name, name_in


class Work(Protocol):
    """What is done with the rows of a table."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the table, which `mine` needs."""
        ...

    @property
    def keeps_note(self) -> bool:
        """Whether what a file's footer notes of its rows is so afterwards."""
        ...

    def mine(self, batch: pa.RecordBatch) -> np.ndarray:
        """Which rows are the subject's."""
        ...

    def erased(self, batch: pa.RecordBatch, mine: np.ndarray, /) -> pa.RecordBatch:
        """What is left of rows, some of which are the subject's."""
        ...


def files(sink: Sink, named: Mapping[str, Action], work: Work, *, write: bool) -> tuple[dict[str, Written | None], int]:
    """Of a table's data files (path → what its log tells) those that hold rows of the subject, anew (None: it isn't to
    be written); and how many rows that count were the subject's. Rows that are marked in deletion vectors go with
    them."""
    found, rows = dict[str, Written | None](), 0
    for path, add in named.items():
        file = File(sink.table, path)
        marked = deletion_vectors.read(sink.table, add.get("deletionVector"))
        mine = _mine(file, sink.schema, work)
        if mine:
            found[path] = _rewritten(file, sink, work, mine, marked) if write else None
            rows += len(mine - marked)
    return found, rows


def _mine(file: File, schema: pa.Schema, work: Work) -> BitMap64:
    """Numbers of its rows that are the subject's."""
    narrow = pa.schema([schema.field(c) for c in work.columns])
    found, base = BitMap64(), 0
    for batch in read(Unit(file, 0, footer(file).num_row_groups, 0), narrow, most=1 << 17):
        at = np.nonzero(work.mine(batch))[0]
        found.update(BitMap64((at + base).astype(np.uint64)))
        base += batch.num_rows
    return found


def _rewritten(file: File, sink: Sink, work: Work, mine: BitMap64, marked: BitMap64) -> Written:
    out, at = Output(sink), 0
    try:
        for batch in read(Unit(file, 0, footer(file).num_row_groups, 0), sink.schema):
            n = batch.num_rows
            gone, ours = _mask(marked, at, n), _mask(mine, at, n)
            at += n
            kept, ours = (batch.filter(pa.array(~gone)), ours[~gone]) if gone.any() else (batch, ours)
            out.write(work.erased(kept, ours) if ours.any() else kept)
        if work.keeps_note:
            out.note = note_of(file)
        written = out.close(empty=True)
    except BaseException:
        out.discard()
        raise
    assert written is not None
    return written


def _mask(rows: BitMap64, first: int, count: int) -> np.ndarray:
    here = rows & BitMap64(range(first, first + count))
    found = np.zeros(count, bool)
    found[np.fromiter(here, np.int64, len(here)) - first] = True
    return found


def _without(batch: pa.RecordBatch, mine: np.ndarray) -> pa.RecordBatch:
    return batch.filter(pa.array(~mine))


# -- what is done ------------------------------------------------------------------------------------------


@dataclass
class Bytes:
    """Of LANDING and ENVELOPES: bytes of messages or records go, and what is left of each stands in their place.
    digests: of the payloads that were there, by HMAC under `salt`; keys: those of their records, with the partition."""

    left: Mapping[Address, bytes]
    salt: bytes
    columns: tuple[str, ...] = ("topic", "partition", "offset")
    keeps_note: bool = True
    digests: dict[Address, str] = field(default_factory=dict)
    keys: set[tuple[str, int, str]] = field(default_factory=set)

    def mine(self, batch: pa.RecordBatch) -> np.ndarray:
        found = np.zeros(batch.num_rows, bool)
        found[[i for rows in those(batch, frozenset(self.left)).values() for i in rows]] = True
        return found

    def erased(self, batch: pa.RecordBatch, _mine: np.ndarray) -> pa.RecordBatch:
        at = {i: a for a, rows in those(batch, frozenset(self.left)).items() for i in rows}
        for i, address in at.items():
            value, key = (batch.column(name)[i].as_py() for name in ("value", "key"))
            if (told := payload(value, key)) is not None:
                self.digests[address] = digest(self.salt, told)
            if key is not None:
                self.keys.add((*address[:2], digest(self.salt, key)))
        return blanked(batch, {i: self.left[address] for i, address in at.items()})


@dataclass
class Events:
    """Of CHANGES and CHANGELOG: row changes are taken out. columns: with `kind`, where the table has that."""

    identities: frozenset[Identity]
    addresses: frozenset[Address]
    columns: tuple[str, ...] = ("topic", "partition", "offset", "entry_index", "row_index")
    keeps_note: bool = False

    def mine(self, batch: pa.RecordBatch) -> np.ndarray:
        found = np.zeros(batch.num_rows, bool)
        near = sorted(i for rows in those(batch, self.addresses).values() for i in rows)
        for i, row in zip(near, batch.take(pa.array(near, pa.int64())).to_pylist(), strict=True):
            found[i] = row.get("kind", "row") in KINDS and identity(row) in self.identities
        return found

    erased = staticmethod(_without)


@dataclass
class Rows:
    """Of a snapshot, its tombstones or its history: rows with one of some keys. names: of the key's columns in the
    files; keys: their values there; alike: how texts of each column compare."""

    columns: tuple[str, ...]
    keys: Sequence[Sequence[Any]]
    alike: Sequence[Alike]
    keeps_note: bool = False

    def mine(self, batch: pa.RecordBatch) -> np.ndarray:
        found = np.zeros(batch.num_rows, bool)
        for key in self.keys:
            here = np.ones(batch.num_rows, bool)
            for name, value, alike in zip(self.columns, key, self.alike, strict=True):
                column = batch.column(name)
                if pa.types.is_string(column.type):
                    same = pc.equal(alike.all(column), alike.one(value))
                else:
                    same = pc.equal(column, pa.scalar(value, column.type))
                here &= pc.fill_null(same, False).to_numpy(zero_copy_only=False)
            found |= here
        return found

    erased = staticmethod(_without)


@dataclass
class Images:
    """Of typed changes: those of which a row before or after has one of some keys. images: names of these two in the
    files, and what is looked for in each."""

    images: Mapping[str, Rows]
    keeps_note: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.images)

    def mine(self, batch: pa.RecordBatch) -> np.ndarray:
        found = np.zeros(batch.num_rows, bool)
        for name, rows in self.images.items():
            image = batch.column(name)
            found |= rows.mine(pa.RecordBatch.from_arrays(image.flatten(), names=[f.name for f in image.type]))
        return found

    erased = staticmethod(_without)


@dataclass
class Held:
    """Of QUARANTINE: rows about the subject's events count as resolved, without key, column and reason."""

    events: Events
    names: frozenset[Name]
    keys: Sequence[Mapping[str, str | None]]
    now_us: int
    keeps_note: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.events.columns, "db", "schema", "table", "key", "reason")

    def mine(self, batch: pa.RecordBatch) -> np.ndarray:
        found = self.events.mine(batch.select(self.events.columns))
        tables = pa.array(sorted({name[-1] for name in self.names}), pa.string())
        near = pc.indices_nonzero(pc.is_in(batch.column("table"), tables))
        rows = batch.select(["db", "schema", "table", "key"]).take(near).to_pylist(maps_as_pydicts="strict")
        found[near.to_numpy()] |= np.array([self._is_subject(row) for row in rows], bool)
        done = pc.fill_null(pc.equal(batch.column("reason"), GONE), False)
        return found & ~done.to_numpy(zero_copy_only=False)

    def _is_subject(self, row: Mapping[str, Any]) -> bool:
        return name_in(row) in self.names and any(row["key"] == dict(one) for one in self.keys)

    def erased(self, batch: pa.RecordBatch, mine: np.ndarray) -> pa.RecordBatch:
        then = batch.column("resolved_at")
        now = pa.scalar(self.now_us, pa.int64()).cast(pa.timestamp("us")).cast(then.type)
        made = {
            "reason": pc.if_else(pa.array(mine), GONE, batch.column("reason")),
            "key": nulled(batch.column("key"), mine),
            "column": nulled(batch.column("column"), mine),
            "resolved_at": pc.if_else(pc.and_(pa.array(mine), pc.is_null(then)), now, then),
        }
        columns = [made.get(f.name, batch.column(f.name)) for f in batch.schema]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@dataclass
class Texts:
    """Of columns of texts, or lists of texts or structs, in which values may be quoted: these are replaced."""

    columns: tuple[str, ...]
    quotes: Quotes
    keeps_note: bool = False

    def mine(self, batch: pa.RecordBatch) -> np.ndarray:
        found = np.zeros(batch.num_rows, bool)
        for name in self.columns:
            values = batch.column(name).to_pylist()
            told = pa.array([_as_text(v) for v in values], pa.string())
            for i in self.quotes.may_stand(told):
                found[i] |= self._of(values[i]) != values[i]
        return found

    def erased(self, batch: pa.RecordBatch, _mine: np.ndarray) -> pa.RecordBatch:
        made = {
            n: pa.array([self._of(v) for v in batch.column(n).to_pylist()], batch.schema.field(n).type)
            for n in self.columns
        }
        columns = [made.get(f.name, batch.column(f.name)) for f in batch.schema]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _of(self, told: Any) -> Any:
        if isinstance(told, list):
            return [self._of(one) for one in told]
        if isinstance(told, dict):
            return {name: self._of(one) for name, one in told.items()}
        return self.quotes.replaced(told) if isinstance(told, str) else told


def _as_text(told: Any) -> str | None:
    """Texts in a list one behind the other, as they are."""
    if isinstance(told, dict):
        told = list(told.values())
    if isinstance(told, list):
        return "\n".join(filter(None, map(_as_text, told)))
    return told if isinstance(told, str) else None


def stats_may_hold(named: Mapping[str, Action], addresses: Iterable[Address]) -> dict[str, Action]:
    """Data files that may hold rows of these messages, by what the log tells of their offsets."""
    wanted = list(addresses)
    return {path: add for path, add in named.items() if _may_hold(add, wanted)}


def _may_hold(add: Action, wanted: Sequence[Address]) -> bool:
    told = json.loads(add.get("stats") or "{}")
    low, high = told.get("minValues", {}), told.get("maxValues", {})
    ends = (low.get("offset"), high.get("offset"))
    return None in ends or any(ends[0] <= a.offset <= ends[1] for a in wanted)
