"""Changes of a table that are nothing but whole row images: what they come to, and how that is found. Arrow only.

Images are maps, which Spark takes apart entry by entry; most files have nothing but whole images in table order, whose
texts are every n-th of a column. Of which tables that is so a changelog file notes, and snapshots take those a
shorter way.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changelog.order_key import ORDER, ends
from cdc_platform.changelog.ties import Unplaced
from cdc_platform.changes.maps import map_value, of_table
from cdc_platform.errors import UnknownType
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.tables.names import Name

_OFFSET = ORDER.get_field_index("landed")

_TIMES = {"date": pa.date32(), "datetime": pa.timestamp("us"), "timestamp": pa.timestamp("us", "UTC")}
_SHORTEST = {"date": 10, "datetime": 19, "timestamp": 20}
_WHOLE = "0|-?[1-9][0-9]*"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*[1-9])?"
_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"
_SPELLINGS = {
    **dict.fromkeys(("integer", "year"), _WHOLE),
    "date": "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "datetime": f"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} {_CLOCK}",
    "timestamp": f"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} {_CLOCK}Z",
    "binary": _BASE64,
    "time": r"-?[0-9]{2,3}:[0-9]{2}:[0-9]{2}(\.[0-9]*[1-9])?",
    **dict.fromkeys(("text", "enum", "set"), ""),
}
_RANGES = {**dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "integer"), "date": "text", "string": "text"}


class FullImageTable(NamedTuple):
    """A table as workers need it: names of its columns in order, of its key (none: it has no key); how texts of the key
    are spelled; the families of columns that hold a date; how the first key column is compared where its range is
    wanted (integer, text, None)."""

    name: Name
    names: tuple[str, ...]
    keys: tuple[str, ...]
    spelled: tuple[str, ...]
    dates: tuple[tuple[str, str], ...]
    range: str | None

    def rows(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which changes are of this table."""
        return of_table(batch, self.name)

    def as_noted(self) -> dict[str, Any]:
        """What figures of its changes hold for, as JSON gives it back."""
        return {n: list(map(_listed, getattr(self, n))) for n in ("names", "keys", "spelled", "dates")}


def _listed(value: str | tuple[str, str]) -> str | list[str]:
    return list(value) if isinstance(value, tuple) else value


def full_image_table(
    name: Name, columns: Collection[tuple[str, MySqlType]], keys: tuple[str, ...]
) -> FullImageTable | None:
    """A table of these columns. None: two texts may be one value of its key."""
    types = [t for n, t in columns if n in keys]
    spelled = tuple(s for t in types if (s := _spelling(t)) is not None)
    if len(spelled) < len(types):
        return None
    dates = tuple((n, t.family) for n, t in columns if t.family in _TIMES)
    return FullImageTable(
        name,
        tuple(n for n, _ in columns),
        keys,
        spelled,
        dates,
        None if not types or types[0].family == "time" else _RANGES.get(types[0].spark),
    )


def _spelling(type_: MySqlType) -> str | None:
    """A pattern that exactly one text of each value matches (each text, if empty), for workers compare keys as texts.
    None: there is none."""
    if type_.family != "decimal":
        found = _SPELLINGS.get(type_.family)
    elif type_.spark == "string":
        found = ""
    else:
        scale = int(type_.spark.rstrip(")").rpartition(",")[2])
        found = _WHOLE if not scale else rf"(0|-?[1-9][0-9]*)\.[0-9]{{{scale}}}"
    return found and f"^({found})$"


def table_of_list(name: Name, columns_json: str, keys: list[str] | None) -> FullImageTable | None:
    """The table that a column list tells of; keys: those that the configuration gives. None: as `full_image_table`, or
    it is none that can be kept."""
    told = json.loads(columns_json)
    try:
        columns = [(c["name"], parse_type(c["type"])) for c in told]
    except UnknownType:
        return None
    key = tuple(c["name"] for c in told if (c["name"] in keys if keys else c["key"]))
    return full_image_table(name, columns, key)


@dataclass(slots=True)
class ImageStatistics:
    """Of a table's changes in a file, as far as they are plain. truncates: TRUNCATEs among them; truncated: order of
    the last one. keys: lowest and highest first keys; of a table without a key offsets, for its rows are told apart by
    the addresses of their changes."""

    changes: int = 0
    deletes: int = 0
    truncates: int = 0
    truncated: list[int] | None = None
    orders: list[list[int]] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    unplaced: Unplaced = field(default_factory=Unplaced)


def statistics_json(figures: ImageStatistics) -> dict[str, Any]:
    """As JSON can tell them: changes, deletes, TRUNCATEs, lowest and highest order and first key, and of changes
    without a position what ties.Unplaced tells."""
    orders, keys = figures.orders, figures.keys
    emptied = {"truncates": figures.truncates, "truncated": figures.truncated}
    spans = {"orders": [min(orders), max(orders)] if orders else None}
    spans["keys_range"] = [min(keys), max(keys)] if keys else None
    return {"changes": figures.changes, "deletes": figures.deletes, **emptied, **spans, **figures.unplaced.to_json()}


def looked(table: FullImageTable | None, rows: pa.RecordBatch, order: np.ndarray, figures: ImageStatistics) -> bool:
    """Adds to the figures; False: some change isn't plain. Plain are TRUNCATEs, and changes that tell their key, in the
    one spelling of its value, and, but deletes, all columns in order with dates that exist; none that changes a key. Of
    a table without a key rows that came: which of equal rows another change is about, all of them say together
    (snapshots/apply/keyless.py). table: None of changes whose columns aren't known: TRUNCATEs tell none."""
    emptied = pc.fill_null(pc.equal(rows.column("op"), "truncate"), False)
    number = emptied.true_count
    if number < rows.num_rows:
        some, at = (rows, order) if not number else (rows.filter(pc.invert(emptied)), order[~_mask(emptied)])
        if table is None or not _looked(table, some, at, figures):
            return False
    if number:
        mine = order[_mask(emptied)]
        last = ends(mine)[1]
        figures.changes, figures.truncates = figures.changes + number, figures.truncates + number
        figures.truncated = max(last, figures.truncated or last)
        figures.orders += ends(mine)
    return True


def _mask(which: pa.BooleanArray) -> np.ndarray:
    return which.to_numpy(zero_copy_only=False)


def _looked(table: FullImageTable, rows: pa.RecordBatch, order: np.ndarray, figures: ImageStatistics) -> bool:
    return (_with_key if table.keys else _without_key)(table, rows, order, figures)


def _without_key(table: FullImageTable, rows: pa.RecordBatch, order: np.ndarray, figures: ImageStatistics) -> bool:
    came = pc.is_in(rows.column("op"), pa.array(["insert", "read"]))
    if not pc.all(came).as_py() or _whole(table, rows) is None:
        return False
    figures.changes += rows.num_rows
    figures.orders += ends(order)
    figures.keys += [int(order[:, _OFFSET].min()), int(order[:, _OFFSET].max())]
    return True


def _whole(table: FullImageTable, rows: pa.RecordBatch) -> dict[str, pa.StringArray] | None:
    """Texts by column of the images after; None: some aren't whole, or hold a date that doesn't exist."""
    texts = texts_of(rows.column("after"), table.names)
    return texts if texts is not None and all(_exist(texts[name], family) for name, family in table.dates) else None


def _with_key(table: FullImageTable, rows: pa.RecordBatch, order: np.ndarray, figures: ImageStatistics) -> bool:
    op, told = rows.column("op"), [map_value(rows.column("key"), k) for k in table.keys]
    deleted = pc.equal(op, "delete")
    if any(k.null_count for k in told):
        return False
    if not all(_one_spelling(table, name, k, s) for name, k, s in zip(table.keys, told, table.spelled, strict=True)):
        return False
    alive = rows if not pc.any(deleted).as_py() else rows.filter(pc.invert(deleted))
    if (texts := _whole(table, alive)) is None:
        return False
    updated = pc.equal(alive.column("op"), "update")
    for name, key in zip(table.keys, told, strict=True):
        before = key if alive is rows else key.filter(pc.invert(deleted))
        if pc.or_(pc.invert(updated), pc.fill_null(pc.equal(before, texts[name]), False)).false_count:
            return False
    try:
        low_high = _range(told[0], table.range)
    except pa.ArrowInvalid:  # a key that is no number
        return False
    figures.changes += rows.num_rows
    figures.deletes += rows.num_rows - alive.num_rows
    figures.orders += ends(order)
    figures.keys += low_high
    figures.unplaced.add(told, order)
    return True


def _one_spelling(table: FullImageTable, name: str, texts: pa.StringArray, pattern: str) -> bool:
    """Whether no two different texts of a key column are one value, and all are values of its type."""
    dates = dict(table.dates)
    spelled = not pattern or pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py()
    return spelled and (name not in dates or _exist(texts, dates[name]))


def _range(texts: pa.StringArray, how: str | None) -> list[Any]:
    if how is None:
        return []
    found = pc.min_max(texts.cast(pa.int64()) if how == "integer" else texts)
    return [found["min"].as_py(), found["max"].as_py()]


def texts_of(images: pa.MapArray, names: tuple[str, ...]) -> dict[str, pa.StringArray] | None:
    """Texts by column, where every image holds exactly these columns in this order."""
    if images.null_count:
        return None
    width, offsets = len(names), images.offsets.to_numpy()
    if not (np.diff(offsets) == width).all():
        return None
    keys = images.keys.slice(offsets[0], offsets[-1] - offsets[0])
    places = pc.fill_null(pc.index_in(keys, pa.array(names, pa.string())), -1).to_numpy()
    if not (places.reshape(-1, width) == np.arange(width)).all():
        return None
    return {name: images.items.take(pa.array(offsets[:-1] + i)) for i, name in enumerate(names)}


def _exist(texts: pa.StringArray, family: str) -> bool:
    """Whether all are dates for sure: what Arrow reads Spark reads, too."""
    shortest = pc.min(pc.binary_length(texts)).as_py()
    if shortest is None:
        return True
    if shortest < _SHORTEST[family] or pc.any(pc.starts_with(texts, "0000")).as_py():
        return False
    try:
        texts.cast(_TIMES[family])
    except pa.ArrowInvalid:
        return False
    return True
