"""Batches of few plain changes for each of many tables, as a task does it: the changelog's files are read once for all
tables of a task, and each table's rows, tombstones and marks are written one after the other. Runs on the executors;
no Spark here.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.full_images import FullImageTable
from cdc_platform.changelog.order_key import numbers
from cdc_platform.errors import CdcError
from cdc_platform.lake import deletion_vectors
from cdc_platform.lake.data_files import Output, Sink, Unit, Written, read
from cdc_platform.lake.store import File
from cdc_platform.snapshots.apply import replace_rows
from cdc_platform.snapshots.apply.append import ROWS, Columns, Load, made
from cdc_platform.snapshots.apply.replace_rows import DataFile, Keep
from cdc_platform.snapshots.apply.same_time import Looked, Unplaced
from cdc_platform.snapshots.reduce import images, latest_by_key
from cdc_platform.tables.names import name_columns

log = logging.getLogger(__name__)

_ITS_OWN = (ValueError, pa.ArrowException, OSError, CdcError)
"""Errors of one table: what they come to is seen where it is brought up to date by itself. The others go on."""
_TIED = "changes of one key came by two partitions at one source time"
_HELD_BYTES = 64 << 20
"""What a task's tables hold together before they are written."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task is to do for a table. load: how texts become rows and tombstones. sinks: of either. keys: columns of
    the snapshot's files that tell its rows apart: the key's; of a table without one the address, and a row that is
    there already takes its own place. by: the one of them (dotted where nested) that tells most. files: those that may
    hold rows of the keys;
    rewritten: numbers of those that are written anew rather than marked, and of `always` ones, whatever they hold.
    since: order of the last TRUNCATE among the changes: those before it are of no account. unplaced: what is to be
    looked at where several partitions told changes without a position."""

    table: FullImageTable
    load: Load
    sinks: Mapping[str, Sink]
    keys: Columns
    by: str
    files: tuple[DataFile, ...]
    rewritten: frozenset[int]
    always: frozenset[int]
    since: tuple[int, ...] | None = None
    unplaced: Unplaced | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """Some tables, each with its number among all and the numbers of those of the changelog's files that hold its
    changes."""

    files: tuple[latest_by_key.Numbered, ...]
    pieces: tuple[tuple[int, Piece, frozenset[int]], ...]


Told = dict[str, Any]
"""Of a table: `table`, its number; `why`: None, or why it couldn't be done here; `written`: by sink, the file;
`gone`: as marks.Mark tells it."""


@dataclass(slots=True)
class _Work:
    """A table while its task runs."""

    piece: Piece
    out: dict[str, Output]
    keys: list[pa.RecordBatch] = field(default_factory=list)
    looked: Looked | None = None
    why: str | None = None

    @staticmethod
    def of(piece: Piece) -> "_Work":
        keys = tuple((field, type_) for field, type_, _ in piece.keys if type_ is not None)
        looked = Looked(piece.unplaced, keys) if piece.unplaced is not None else None
        return _Work(piece, {name: Output(sink) for name, sink in piece.sinks.items()}, looked=looked)

    def look(self, changes: list[pa.RecordBatch]) -> None:
        """All changes, as latest_by_key.head gives them."""
        if self.looked is None:
            return
        try:
            for some in changes:
                self.looked.add(some)
            self.why = _TIED if self.looked.tied() else None
        except _ITS_OWN as error:
            self.failed(error)

    def take(self, rows: pa.RecordBatch) -> None:
        """Rows of changes that win."""
        if self.why is not None:
            return
        try:
            texts = images.texts_in(rows, self.piece.table)
            if not self.piece.load(iter([texts]), self.out):
                self.why = "a text is Spark's to read"
            elif self.piece.files:
                self.keys.append(made(texts, self.piece.keys))
        except _ITS_OWN as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Leaves nothing behind."""
        log.warning("%s: %r", ".".join(self.piece.table.name), error)
        self.why = self._discarded(type(error).__name__)

    def _discarded(self, why: str) -> str:
        for out in self.out.values():
            out.discard()
        return why

    def end(self, number: int) -> Told:
        """Takes out the rows that these take the place of, and closes the files."""
        gone: list[list[Any]] = []
        written: dict[str, Written | None] = {}
        if self.why is None:
            try:
                rows = self._replaced()
                if self.looked and self.looked.tied_to(self.piece.sinks[ROWS].table, self.piece.files, rows):
                    return {"table": number, "why": self._discarded(_TIED), "written": {}, "gone": []}
                gone = self._deleted_keys(rows)
                if self.piece.since is not None:
                    self.piece.load.truncated(self.piece.since, self.out)
                written = {name: out.close() for name, out in self.out.items()}
            except _ITS_OWN as error:
                self.failed(error)
        files = {name: list(done) for name, done in written.items() if done is not None}
        return {"table": number, "why": self.why, "written": files, "gone": gone}

    def _replaced(self) -> list[pa.RecordBatch]:
        """Where rows with these keys stand, as replace_rows.rows_of tells."""
        if not self.piece.files:
            return []
        schema = pa.schema([f for f, _, _ in self.piece.keys])
        held = replace_rows.Held(pa.Table.from_batches(self.keys, schema), self.piece.by)
        return list(replace_rows.rows_of(held, self.piece.files))

    def _deleted_keys(self, rows: list[pa.RecordBatch]) -> list[list[Any]]:
        piece = self.piece
        if not piece.files:
            return []
        table, told = piece.sinks[ROWS].table, []
        with deletion_vectors.Vectors(table) as new:
            for file, gone, added in replace_rows.gone_of(table, piece.files, rows, piece.always):
                if file.number in piece.rewritten and len(gone) < file.rows:
                    Keep.write(file, gone, self.out[ROWS])
                    told.append([file.number, None, added])
                else:
                    told.append([file.number, None if len(gone) == file.rows else new.add(gone), added])
        return told


def given(task: Task) -> Iterator[Any]:
    """A task's rows are its own to read (arrow_tasks.Rows)."""
    yield task


def done(given: Iterator[Any], _out: Mapping[str, Output]) -> list[Told]:
    """What a task did, table by table (arrow_tasks.Work)."""
    [task] = given
    return _done(task)


def _done(task: Task) -> list[Told]:
    works = [_Work.of(p) for _, p, _ in task.pieces]
    schema = images.IMAGES if all(p.table.keys for _, p, _ in task.pieces) else images.ADDRESSED
    try:
        for file, (owner, places) in _winners(task, works).items():
            for rows, of in _rows(task.files[file].unit.file, places, owner, schema):
                for i, mine in _split(rows, of):
                    works[i].take(mine)
                _flushed(works)
        return [work.end(number) for (number, _, _), work in zip(task.pieces, works, strict=True)]
    except BaseException:
        for work in works:
            for out in work.out.values():
                out.discard()
        raise


def _flushed(works: list[_Work]) -> None:
    outs = [out for work in works for out in work.out.values()]
    if sum(out.held for out in outs) > _HELD_BYTES:
        for out in outs:
            out.flush()


def _winners(task: Task, works: list[_Work]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """By place of a file in the task: whose (by place of a table) the last changes of each key are, and where they
    stand, in order."""
    tables = [p.table for _, p, _ in task.pieces]
    held: list[list[pa.RecordBatch]] = [[] for _ in tables]
    for at, file in enumerate(task.files):
        here = {i: p for i, (_, p, files) in enumerate(task.pieces) if at in files}
        for i, some in _latest_changes(at, file.unit, here):
            held[i].append(some)
    found: dict[int, list[tuple[np.ndarray, int]]] = {}
    for i, (table, changes) in enumerate(zip(tables, held, strict=True)):
        if not changes:
            continue
        works[i].look(changes)
        newest = latest_by_key.newest(changes, table)
        file, at = (newest.column(c).to_numpy() for c in ("file", "at"))
        for number in np.unique(file).tolist():
            found.setdefault(number, []).append((at[file == number], i))
    return {number: _in_order(some) for number, some in sorted(found.items())}


def _in_order(some: list[tuple[np.ndarray, int]]) -> tuple[np.ndarray, np.ndarray]:
    at = np.concatenate([a for a, _ in some])
    owner = np.concatenate([np.full(len(a), i) for a, i in some])
    order = np.argsort(at, kind="stable")
    return owner[order], at[order]


def _latest_changes(number: int, unit: Unit, pieces: Mapping[int, Piece]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Changes in a file, table by table, as heads.head gives them; of those that a TRUNCATE follows none."""
    names = {i: name_columns(p.table.name) for i, p in pieces.items()}
    known = {(n["db"] or "", n["schema"] or "", n["table"] or ""): i for i, n in names.items()}
    base = 0
    for batch in read(unit, latest_by_key.COLUMNS):
        for i, rows, at in _by_owner(batch, _owners(batch, known)):
            some, places = _after(rows, at, pieces[i].since)
            if len(places):
                yield i, latest_by_key.head(number, some, places + base, pieces[i].table)
        base += batch.num_rows


def _after(rows: pa.RecordBatch, at: np.ndarray, since: tuple[int, ...] | None) -> tuple[pa.RecordBatch, np.ndarray]:
    """Those of some changes that come after the last TRUNCATE."""
    if since is None:
        return rows, at
    later = np.zeros(rows.num_rows, bool)
    same = np.ones(rows.num_rows, bool)
    for column, place in zip(numbers(rows.column("order_key")).T, since, strict=True):
        later |= same & (column > place)
        same &= column == place
    later &= pc.not_equal(rows.column("op"), "truncate").to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(later)), at[later]


def _owners(batch: pa.RecordBatch, known: Mapping[tuple[str, str, str], int]) -> np.ndarray:
    """Number of the table of each change; -1: of none of these."""
    columns = [pc.fill_null(batch.column(n), "").dictionary_encode() for n in ("db", "schema", "table")]
    codes = [c.indices.to_numpy().astype(np.int64) for c in columns]
    words = [c.dictionary.to_pylist() for c in columns]
    code = (codes[0] * len(words[1]) + codes[1]) * len(words[2]) + codes[2]
    seen, where = np.unique(code, return_inverse=True)
    rest, table = np.divmod(seen, len(words[2]))
    db, schema = np.divmod(rest, len(words[1]))
    parts = zip(db.tolist(), schema.tolist(), table.tolist(), strict=True)
    owner = [known.get((words[0][d], words[1][s], words[2][t]), -1) for d, s, t in parts]
    return np.array(owner, np.int64)[where]


def _by_owner(batch: pa.RecordBatch, owner: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch, np.ndarray]]:
    """Rows of each owner with where they stand, in order."""
    order = np.argsort(owner, kind="stable")
    numbers, starts = np.unique(owner[order], return_index=True)
    for i, at in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        if i >= 0:
            yield i, batch.take(pa.array(at)), at


def _rows(
    file: File, at: np.ndarray, owner: np.ndarray, schema: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Rows of a file at some places, with whose they are."""
    done = 0
    for rows in images.rows_at(file, at, schema):
        yield rows, owner[done : done + rows.num_rows]
        done += rows.num_rows


def _split(rows: pa.RecordBatch, owner: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
    return ((i, mine) for i, mine, _ in _by_owner(rows, owner))
