"""Changes of a key, looked for in the files of the changelog or of `changes`. Arrow only.

No statistics tell a file's keys. Those of Delta's log leave out files without the table; the footer of a changelog file
(changelog/file_stats.py) says of which tables its changes tell their key in one spelling and move no row, and between
which keys they lie: of these the column `key` is read, of others the row images, too. All columns are read only where a
change was found.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changes.maps import map_has, map_value, of_table
from cdc_platform.lake.data_files import Unit, footer, note_in, read
from cdc_platform.lake.store import File
from cdc_platform.snapshots.reduce.images import rows_at
from cdc_platform.tables import Name, name_of

_IMAGES = ("key", "before", "after")
_BATCH_ROWS = 1 << 17
_INTEGER = re.compile("-?[0-9]+")
_TIMES = frozenset({"datetime", "timestamp", "time"})
_LOOSE = _TIMES | {"decimal", "float"}
"""Families of types of which several texts may be one value."""
_REMOTE_READS = 16
"""Files of an object store read at once: most of the time is waiting."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Row changes of tables (their names at any time) that hold the texts of one of some cells in an image, and their
    TRUNCATEs. keyed: the cells are a key's; else any columns'."""

    names: frozenset[Name]
    cells: tuple[Mapping[str, str | None], ...]
    alike: "Alikes"
    keyed: bool = True


@dataclass(frozen=True, slots=True)
class Alike:
    """How texts of a column's cells compare. family: of its type: zeros at the end of a fraction don't count, nor do
    the Z of a time and the sign of 0.0. collation: of the key (`tables.key_collation`), about as Spark has it; "": by
    their bytes."""

    family: str = ""
    collation: str = ""

    @property
    def exact(self) -> bool:
        """Whether a value has one spelling."""
        return not self.collation and self.family not in _LOOSE

    def one(self, text: str | None) -> str | None:
        """The spelling that all texts of a value share."""
        if text is None:
            return None
        return self.all(pa.array([text]))[0].as_py()

    def all(self, texts: pa.StringArray) -> pa.StringArray:
        """The same of many."""
        if self.family == "float":
            texts = pc.replace_substring_regex(texts, r"^-?0+(\.0*)?([eE].*)?$", "0")
        elif self.family in _LOOSE:
            fraction = pc.match_substring(texts, ".")
            bare = pc.utf8_rtrim(texts, "Z") if self.family in _TIMES else texts
            texts = pc.if_else(fraction, pc.utf8_rtrim(pc.utf8_rtrim(bare, "0"), "."), bare)
        if self.collation:
            if "RTRIM" in self.collation:
                texts = pc.utf8_rtrim(texts, " ")
            texts = pc.utf8_lower(texts)
            if "_AI" in self.collation:
                texts = pc.replace_substring_regex(pc.utf8_normalize(texts, "NFD"), r"\p{M}", "")
        return texts


@dataclass(frozen=True, slots=True)
class Alikes:
    """How texts of a table compare, column by column. families: of their types, by the names that they have had, in
    lower case; collation: as Alike has it."""

    families: Mapping[str, str] = field(default_factory=dict)
    collation: str = ""

    def of(self, column: str) -> Alike:
        """Of one column."""
        return Alike(self.families.get(column.lower(), ""), self.collation)

    def one(self, column: str, text: str | None) -> str | None:
        """The spelling that all texts of a value of a column share."""
        return self.of(column).one(text)


def find(files: Iterable[File], sought: Sought, schema: pa.Schema) -> pa.Table:
    """The changes, with the columns of `schema`, in no order."""
    files = list(files)
    if not files:
        return schema.empty_table()
    at_once = _REMOTE_READS if files[0].store.remote else os.cpu_count() or 2
    with ThreadPoolExecutor(min(at_once, len(files))) as pool:
        found = list(pool.map(partial(_in_file, sought, schema), files))
    return pa.Table.from_batches([batch for some in found for batch in some], schema)


def _in_file(sought: Sought, schema: pa.Schema, file: File) -> list[pa.RecordBatch]:
    metadata = footer(file)
    columns = columns_needed(note_in(metadata), sought)
    if not columns:
        return []
    narrow = pa.schema([schema.field(c) for c in columns])
    base, places = 0, []
    for batch in read(Unit(file, 0, metadata.num_row_groups, 0), narrow, most=_BATCH_ROWS):
        mine = _those(batch, sought)
        if mine is not None:
            places.append(np.nonzero(mine)[0] + base)
        base += batch.num_rows
    at = np.concatenate(places) if places else np.zeros(0, np.int64)
    if len(at) and not set(_NAMES) <= set(columns):
        names = pa.schema([schema.field(c) for c in _NAMES])
        at = at[np.concatenate([_of_tables(batch, sought.names) for batch in rows_at(file, at, names)])]
    return list(rows_at(file, at, schema)) if len(at) else []


_NAMES = ("db", "schema", "table")
_ALL = (*_NAMES, "op", *_IMAGES)


def columns_needed(note: Any, sought: Sought) -> tuple[str, ...]:
    """Columns that have to be read of a file with that note; none: it has no such change. Which of the rows are of the
    tables is then asked of the few that hold the texts, where names aren't among the columns."""
    if not isinstance(note, list) or not all("schema" in group and "plain" in group for group in note):
        return _ALL
    mine = [g["plain"] for g in note if g["db"] is not None and g["table"] is not None and name_of(g) in sought.names]
    if not mine:
        return ()
    if not sought.keyed or sought.alike.collation or not all(map(_only_key, mine, [sought] * len(mine))):
        return _ALL
    return ("key",) if any(_in_range(plain, sought) for plain in mine) else ()


def _only_key(plain: Any, sought: Sought) -> bool:
    """Whether all changes of a table in a file tell these keys, and move no row; a TRUNCATE tells none."""
    if not isinstance(plain, dict) or plain.get("truncates"):
        return False
    return all(set(plain["keys"]) == set(cells) for cells in sought.cells)


def _in_range(plain: dict[str, Any], sought: Sought) -> bool:
    if not plain.get("keys_range") or not sought.alike.of(plain["keys"][0]).exact:
        return True
    low, high = plain["keys_range"]
    texts = [cells[plain["keys"][0]] for cells in sought.cells]
    if isinstance(low, int):
        numbers = [int(text) if text is not None and _INTEGER.fullmatch(text) else low for text in texts]
        return any(low <= number <= high for number in numbers)
    return any(text is None or low <= text <= high for text in texts)


def _those(batch: pa.RecordBatch, sought: Sought) -> np.ndarray | None:
    """Which rows are sought; None: none."""
    truncates = pc.equal(batch.column("op"), "truncate") if "op" in batch.schema.names else None
    images = {c: batch.column(c) for c in _IMAGES if c in batch.schema.names}
    found = np.zeros(batch.num_rows, bool)
    if truncates is not None:
        found |= _true(truncates)
    for cells in sought.cells:
        for image in images:
            if (mine := _holding(images, image, cells, sought)) is not None:
                found |= mine
    if not found.any():
        return None
    if set(_NAMES) <= set(batch.schema.names):
        found &= _of_tables(batch, sought.names)
    return found if found.any() else None


def _holding(
    images: Mapping[str, pa.MapArray], image: str, cells: Mapping[str, str | None], sought: Sought
) -> np.ndarray | None:
    """In which changes an image holds these texts; None: in none. The row after has what it doesn't tell from the row
    before: with `binlog_row_image` MINIMAL it tells no more of a key than what has changed."""
    exact = {name: text for name, text in cells.items() if text is not None and sought.alike.of(name).exact}
    items = images[image].items
    there = (_true(pc.equal(items, text)).any() for text in exact.values())  # of most batches the texts alone say so
    if image == "after":  # with none of them it tells no more than the row before
        if len(exact) == len(cells) and not any(there):
            return None
    elif not all(there):
        return None
    found = np.ones(len(images[image]), bool)
    for name, text in cells.items():
        told = _after(images, name, keyed=sought.keyed) if image == "after" else map_value(images[image], name)
        if text is None:
            found &= _true(pc.and_(pc.is_null(told), pc.is_valid(images[image])))
        else:
            alike = sought.alike.of(name)
            found &= _true(pc.equal(alike.all(told), sought.alike.one(name, text)))
    return found


def _after(images: Mapping[str, pa.MapArray], name: str, *, keyed: bool) -> pa.StringArray:
    """A column of the row after each change: as it tells it, else as the row before had it. keyed: the column is a
    key's, of which NULL tells nothing (snapshots/reduce/fold.py)."""
    told = map_value(images["after"], name)
    untold = _true(pc.is_null(told)) if keyed else ~map_has(images["after"], name)
    for before in ("key", "before"):
        if before in images and untold.any():
            told = pc.if_else(pa.array(untold), map_value(images[before], name), told)
            untold = untold & ~map_has(images[before], name)
    return told


def _of_tables(batch: pa.RecordBatch, names: Iterable[Name]) -> np.ndarray:
    found = np.zeros(batch.num_rows, bool)
    for name in names:
        found |= _true(of_table(batch, name))
    return found


def _true(mask: pa.BooleanArray) -> np.ndarray:
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
