"""Changes of one table → the rows before and after as far as each change itself tells them, by column. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.snapshots.schema.image_columns import ImageColumn, Images, image_columns
from cdc_platform.snapshots.schema.upcast import UNTOLD

NAMES = pa.list_(pa.string())


@dataclass(frozen=True, slots=True)
class Table:
    """Names of all columns, and of those of the key. nulls_told: a NULL before is one; else it may say that the column
    isn't told, as PostgreSQL's messages do of columns outside the replica identity, and of a row before that has its
    key alone nothing else is."""

    names: tuple[str, ...]
    keys: frozenset[str]
    nulls_told: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows before changes, or after. there: which changes have one; texts: by the table's columns; missing: names
    of columns that a change which may have one doesn't tell."""

    there: np.ndarray
    texts: list[pa.StringArray]
    missing: pa.ListArray


def before_and_after(changes: pa.RecordBatch, table: Table) -> tuple[Rows, Rows]:
    """changes: `op`, `key`, `before` and `after` of the changelog, and UNTOLD or not."""
    op = changes.column("op")
    update, delete = (pc.equal(op, o).to_numpy(zero_copy_only=False) for o in ("update", "delete"))
    made = pc.is_in(op, pa.array(["insert", "read"])).to_numpy(zero_copy_only=False)
    key, before, after = (image_columns(changes.column(image)) for image in ("key", "before", "after"))
    if not table.nulls_told and table.keys:
        _without_nulls(before, table.keys)
    # The key that is told is of the row before. One without a key that lacks columns tells those that changed.
    under = key.columns if table.keys else {n: c.where(update) for n, c in after.columns.items()}
    old = _over(before.columns, under)
    if UNTOLD in changes.schema.names:
        _without(old, changes.column(UNTOLD))
    had = (update | delete) & _any(old, len(op))
    old = {n: c.where(had) for n, c in old.items()}
    # What an update doesn't tell of the row after is as it was: MySQL leaves nothing else out.
    new = _over(after.columns, {n: c.where(update) for n, c in old.items()})
    has = update | (made & ~after.none)
    return _rows(table.names, old, had, update | delete), _rows(table.names, new, has, update | made)


Columns = dict[str, ImageColumn]


def _over(columns: Columns, under: Columns) -> Columns:
    """Columns, and in images without them others."""
    return {**under, **{n: c.over(under[n]) if n in under else c for n, c in columns.items()}}


def _any(columns: Columns, n: int) -> np.ndarray:
    """Which images have a column at all."""
    found = np.zeros(n, bool)
    for of in columns.values():
        found |= of.there
    return found


def _without_nulls(images: Images, keys: frozenset[str]) -> None:
    """Images that hold nothing but their key, NULLs aside, are the key alone from then on."""
    rest = {n: c for n, c in images.columns.items() if n not in keys}
    more = _any(
        {n: c.where(c.texts.is_valid().to_numpy(zero_copy_only=False)) for n, c in rest.items()}, len(images.none)
    )
    images.columns |= {n: c.where(more) for n, c in rest.items()}


def _without(columns: Columns, names: pa.ListArray) -> None:
    """Takes away columns, in each image those that are named."""
    flat, parents = names.flatten(), pc.list_parent_indices(names).to_numpy()
    for name in pc.unique(flat).to_pylist():
        which = np.ones(len(names), bool)
        which[parents[pc.equal(flat, name).to_numpy(zero_copy_only=False)]] = False
        columns[name] = columns[name].where(which)


def _rows(names: Sequence[str], columns: Columns, there: np.ndarray, may: np.ndarray) -> Rows:
    """may: which changes may have such a row."""
    n = len(there)
    none = ImageColumn(pa.nulls(n, pa.string()), np.zeros(n, bool))
    found = [columns.get(name, none).where(there) for name in names]
    lacks = ~np.array([c.there for c in found], bool).reshape(len(names), n).T & may[:, None]
    offsets = np.append(0, np.cumsum(lacks.sum(axis=1))).astype(np.int32)
    named = pa.array(list(names), pa.string()).take(pa.array(np.nonzero(lacks)[1]))
    return Rows(there, [c.texts for c in found], pa.ListArray.from_arrays(pa.array(offsets), named))
