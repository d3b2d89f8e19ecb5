"""Events in Arrow: which are of a table, and the maps of text that keep their rows."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.tables import Name, name_columns


def map_value(maps: pa.MapArray, name: str) -> pa.StringArray:
    """Of each map the value under a key; NULL where it has none."""
    found = _places(maps, name)
    return maps.items.take(pa.array(found, mask=found < 0))


def map_has(maps: pa.MapArray, name: str) -> np.ndarray:
    """Whether each map has a key, be its value NULL."""
    return _places(maps, name) >= 0


def _places(maps: pa.MapArray, name: str) -> np.ndarray:
    """Of each map the place of a key's value among all items; -1: it has none."""
    offsets = maps.offsets.to_numpy()
    keys = maps.keys
    mine = np.nonzero(pc.equal(keys, name).to_numpy(zero_copy_only=False))[0]
    row = np.searchsorted(offsets, mine, side="right") - 1
    inside = (row >= 0) & (row < len(maps))
    found = np.full(len(maps), -1, np.int64)
    found[row[inside]] = mine[inside]
    if maps.null_count:
        found[maps.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def of_table(batch: pa.RecordBatch, name: Name) -> pa.BooleanArray:
    """Which rows have the name of this table in `db`, `schema` and `table`."""
    parts = name_columns(name)
    mine = pc.and_(*(pc.equal(batch.column(n), parts[n]) for n in ("db", "table")))
    schema = pc.fill_null(batch.column("schema"), "")
    return pc.fill_null(pc.and_(mine, pc.equal(schema, parts["schema"] or "")), False)
