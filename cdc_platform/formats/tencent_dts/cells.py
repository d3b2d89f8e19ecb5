"""Cells of Tencent DTS rows → canonical text, in bulk: cells are grouped by (column type, wire type, charset)
and each group is converted by one Arrow call.

Facts: vendor page "Data consumption via Kafka client" (product/571), tables of DataType. Numbers and DECIMAL
are text in `sv`; STRING and BYTES are bytes in `bv`, STRING in `charset`. TEXT is missing in the vendor's
table and travels as MYSQL_TYPE_BLOB in the binlog, so it is expected as STRING or BYTES, and
`Column.originalType` says what it is.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.errors import UnknownType
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.formats.tencent_dts.data import NUMBERS, UNKNOWN, Data
from cdc_platform.formats.texts import shown
from cdc_platform.mysql import charsets, values
from cdc_platform.mysql.fitting import labels_fit, longest_bytes, padded_to, texts_fit
from cdc_platform.mysql.types import MySqlType, lower_outside_quotes, parse_type

_WIRE_NAMES = {v: k for k, v in pb.DataType.items()}
_TEXT = frozenset(("text", "enum", "set", "json"))
_RAW = frozenset(("binary", "geometry"))

FALLBACK_TYPES: dict[int, str] = {
    pb.INT8: "tinyint", pb.INT16: "smallint", pb.INT32: "int", pb.INT64: "bigint",
    pb.UINT8: "tinyint unsigned", pb.UINT16: "smallint unsigned", pb.UINT32: "int unsigned",
    pb.UINT64: "bigint unsigned", pb.FLOAT32: "float", pb.FLOAT64: "double", pb.BYTES: "longblob",
    pb.DECIMAL: "decimal(65,30)", pb.STRING: "longtext",
}  # fmt: skip
"""Type of a column whose `originalType` is empty or no MySQL type, by what its first cell holds. (A column
that holds nothing but NULL in a batch is taken for longtext.)"""


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """Types of columns: column i has type number `code[i]`; of each type `texts` is what the schema tells,
    `parsed` what it means."""

    code: np.ndarray
    texts: list[str]
    parsed: list[MySqlType]

    @classmethod
    def read(cls, original_type: pa.StringArray, fallback: np.ndarray) -> "ColumnTypes":
        """`fallback[i]`: wire type that tells column i's type where `originalType` doesn't (0: none)."""
        distinct = original_type.dictionary_encode()
        texts = [lower_outside_quotes(t.strip()) for t in distinct.dictionary.to_pylist()]
        parsed = [_parse(t) for t in texts]
        code = distinct.indices.to_numpy().astype(np.int64)
        known = np.array([p is not None for p in parsed], bool)
        extra = [FALLBACK_TYPES.get(wire, "longtext") for wire in range(16)]
        code = np.where(known[code], code, len(texts) + fallback) if len(code) else code
        return cls(
            code,
            texts + extra,
            [p or parse_type("longtext") for p in parsed] + [parse_type(t) for t in extra],
        )


def untyped(original_type: pa.StringArray) -> np.ndarray:
    """Which columns state no type that can be read."""
    distinct = original_type.dictionary_encode()
    odd = [_parse(t.strip()) is None for t in distinct.dictionary.to_pylist()]
    return np.array([*odd, False], bool)[distinct.indices.to_numpy()]


def _parse(text: str) -> MySqlType | None:
    try:
        found = parse_type(lower_outside_quotes(text))
    except UnknownType:
        return None
    return None if found.family == "bit" and not 1 <= (found.args or (1,))[0] <= 64 else found


@dataclass(frozen=True, slots=True)
class Cells:
    """One image (old or new) of many rows, cell by cell: `data` the wire's values, `at` each cell's index there,
    `row` and `column` whose it is."""

    data: Data
    at: np.ndarray
    row: np.ndarray
    column: np.ndarray

    def wire_types(self, untyped: np.ndarray) -> np.ndarray:
        """DataType of each cell. Where the column (`untyped[column]`) has no type of its own, a STRING in
        charset `binary` counts as BYTES."""
        kinds = self.data.wire[self.at]
        bare = np.nonzero(untyped[self.column] & (kinds == pb.STRING))[0] if untyped.any() else ()
        if len(bare):
            charset = self.data.charset(self.at[bare])
            kinds[bare[pc.equal(pc.utf8_lower(charset), "binary").to_numpy(zero_copy_only=False)]] = pb.BYTES
        return kinds


@dataclass(frozen=True, slots=True)
class Converted:
    """`text` per cell (null: SQL NULL), `in_image` False for NA, `bad`: cell → reason."""

    text: pa.StringArray
    in_image: np.ndarray
    bad: dict[int, str]


def convert(cells: Cells, wire: np.ndarray, types: ColumnTypes, time_zone: str) -> Converted:
    """All cells of one image → canonical text. `wire`: what `cells.wire_types` gave."""
    bad = _misplaced(cells, wire)
    codes = types.code[cells.column] * 16 + wire
    codes = codes.astype(np.uint16) if len(types.texts) < 4096 else codes  # 16 bits: numpy sorts by radix
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes)
    parts: list[pa.Array] = [pa.array([], pa.string())]
    start = 0
    for code in np.nonzero(sizes)[0]:
        where = order[start : start + sizes[code]]
        start += len(where)
        kind, wire_type = divmod(int(code), 16)
        text, reasons = _group(cells.data, cells.at[where], types.parsed[kind], wire_type, time_zone)
        parts.append(text)
        for i, reason in reasons.items():
            bad.setdefault(int(where[i]), f"{reason} (type {types.texts[kind]!r})")
    place = np.empty(len(wire), np.int64)
    place[order] = np.arange(len(wire))
    return Converted(pa.concat_arrays(parts).take(pa.array(place)), wire != pb.NA, bad)


def _misplaced(cells: Cells, wire: np.ndarray) -> dict[int, str]:
    """Values where their DataType has none: reading on would lose them silently."""
    odd = cells.data.misplaced[cells.at]
    return {int(i): f"{_WIRE_NAMES[int(wire[i])]} holds a value in the wrong field" for i in np.nonzero(odd)[0]}


def _group(data: Data, at: np.ndarray, mysql_type: MySqlType, wire: int, zone: str):
    """Cells of one column type and one wire type → (text, index → reason of the bad ones)."""
    if wire in (pb.NIL, pb.NA):
        return pa.nulls(len(at), pa.string()), {}
    if wire == UNKNOWN:
        return pa.nulls(len(at), pa.string()), {
            i: f"unknown DataType {n}" for i, n in enumerate(data.told[at].tolist())
        }
    family = mysql_type.family
    if wire in NUMBERS and family not in _TEXT | _RAW:
        text, ok = values.to_text(data.sv(at), mysql_type, zone)
    elif wire in (pb.STRING, pb.BYTES) and family in _RAW:
        return _bytes(data.bv(at), mysql_type)
    elif wire in (pb.STRING, pb.BYTES) and family in _TEXT:
        return _fitting(*_decoded(data, at, family, wire), mysql_type)
    elif wire == pb.STRING:
        text, readable = charsets.decode_text(data.bv(at), "utf8mb4")
        text, ok = values.to_text(text, mysql_type, zone)
        ok &= readable
    else:
        text, ok = pa.nulls(len(at), pa.string()), np.zeros(len(at), bool)
    return text, {int(i): f"{_WIRE_NAMES[wire]} value doesn't fit" for i in np.nonzero(~ok)[0]}


def _bytes(raw: pa.BinaryArray, mysql_type: MySqlType):
    """Bytes of a binary column."""
    longest, long = longest_bytes(mysql_type), ()
    if longest is not None and len(raw):
        sizes = pc.fill_null(pc.binary_length(raw), 0).to_numpy(zero_copy_only=False)
        long = np.nonzero(sizes > longest)[0] if sizes.max() > longest else ()
    return values.base64_text(raw, padded_to(mysql_type))[0], {int(i): "more bytes than fit" for i in long}


def _fitting(text: pa.StringArray, reasons: dict[int, str], mysql_type: MySqlType):
    """Texts of a column, and why some can't be used: those longer than its type, and no labels of it, too."""
    fits = {"text": texts_fit, "enum": labels_fit, "set": labels_fit}.get(mysql_type.family)
    for i in np.nonzero(~fits(text, mysql_type))[0].tolist() if fits else ():
        reasons.setdefault(i, f"{shown(text[i].as_py())} doesn't fit")
    return text, reasons


def _decoded(data: Data, at: np.ndarray, family: str, wire: int):
    """Bytes of text columns, each in the charset its cell states."""
    raw, told = data.bv(at), data.charset(at).dictionary_encode()
    reasons: dict[int, str] = {}
    parts, wheres = [], []
    for code, stated in enumerate(told.dictionary.to_pylist()):
        alone = len(told.dictionary) == 1
        where = np.arange(len(raw)) if alone else np.nonzero(told.indices.to_numpy() == code)[0]
        some = raw if alone else raw.take(pa.array(where))
        name, charset = charsets.charset_name(stated), stated
        if stated == "" or (name == "binary" and (wire == pb.BYTES or family == "json")):
            # No charset told, as for a TEXT that travels as a blob: only UTF-8 proves itself by its bytes.
            name, charset = "utf8mb4", "UTF-8, and no charset is told"
        if name is None or name == "binary":
            problem = f"charset {charset!r} is {'bytes, not text' if name else 'unknown'}"
            text, ok = pa.nulls(len(some), pa.string()), np.zeros(len(some), bool)
        else:
            problem = f"its bytes are not {charset}"
            text, ok = charsets.decode_text(some, name)
        reasons |= {int(where[i]): problem for i in np.nonzero(~ok)[0]}
        parts.append(text)
        wheres.append(where)
    if len(parts) == 1:
        return parts[0], reasons
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(wheres)))), reasons
