"""Columns of canal's row images, cell by cell and in bulk: what each says of its column, and its canonical text.

Facts: alibaba/canal `LogEventConvert.parseOneRow`. A column says its name and type in every row; `mysqlType` is
missing where the server had no table definition. `sqlType` follows the value (an unsigned number is promoted by
its size) and decides nothing but this: BLOB means bytes, one ISO-8859-1 character each.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.canal_common.options import CanalOptions
from cdc_platform.formats.canal_common.text import (
    Dialect,
    completed,
    hint,
    is_canonical,
    is_complete_type,
    parse_mysql_type,
    to_text,
)
from cdc_platform.formats.contract import UNKNOWN
from cdc_platform.formats.protobuf.arrow import bools, distinct
from cdc_platform.formats.texts import shown
from cdc_platform.mysql.charsets import decode_text
from cdc_platform.mysql.fitting import longest_text
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.mysql.values import Checked

_BLOB = 2004  # java.sql.Types


@dataclass(frozen=True, slots=True)
class Kind:
    """How cells are read: the type text of their column and what it means. `raw`: text that came as bytes, for
    canal knows the text types by their bare names only. `told`: `mysqlType`, where it leaves something open, and
    whether `sqlType` is BLOB."""

    text: str
    type: MySqlType
    raw: bool = False
    told: tuple[str, bool] | None = None

    @classmethod
    def of(cls, mysql_type: str, blob: bool) -> "Kind":
        """From `mysqlType` and `sqlType` of a column."""
        found = parse_mysql_type(mysql_type)
        told = None if found and is_complete_type(mysql_type) else (mysql_type, blob)
        if found is None:
            text = "longblob" if blob else "longtext"
            return cls(text, parse_type(text), told=told)
        return cls(*found, raw=blob and found[1].family == "text", told=told)

    def completed(self, known: str | None) -> "Kind":
        """The same with what the schema history knows."""
        if self.told is None or (found := completed(self.told[0] or None, known, blob=self.told[1])) is None:
            return self
        return Kind(*found, raw=self.told[1] and found[1].family == "text")


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of many row images, image after image: `image` whose each is (ascending), name as a number in
    `names`, kind as a number in `kinds`, whether part of the key, place in the table as told, value (null: NULL),
    and whether NULL was told together with a value."""

    image: np.ndarray
    name: np.ndarray
    names: list[str]
    kind: np.ndarray
    kinds: list[Kind]
    key: np.ndarray
    index: np.ndarray
    value: pa.StringArray
    torn: np.ndarray

    @classmethod
    def read(cls, columns: pa.StructArray, heads: pa.StructArray | None, image: np.ndarray, whole: bool) -> "Cells":
        """`columns`: one per cell, with `heads` as `columns.plain_rows` gives them, or None where each says all of
        itself; `whole`: all columns that there are."""
        told, head = columns, np.arange(len(columns))
        if heads is not None:
            told, head = heads, columns.field("head").to_numpy()
            if not whole:  # heads are in order of appearance among all of them
                first, which = distinct(head)
                told, head = heads.take(pa.array(head[first])), which
        name, names = _coded(told.field("name"))
        mysql_type, texts = _coded(told.field("mysqlType"))
        kind = mysql_type * 2 + (told.field("sqlType").to_numpy() == _BLOB)
        null = bools(columns.field("isNull"), False)  # absent: false
        value = columns.field("value")
        return cls(
            image=image,
            name=name[head],
            names=names,
            kind=kind[head],
            kinds=[Kind.of(text, blob) for text in texts for blob in (False, True)],
            key=bools(told.field("isKey"), False)[head],
            index=told.field("index").to_numpy()[head],
            value=pc.if_else(pa.array(null), None, value) if null.any() else value,
            torn=null & (pc.binary_length(value).to_numpy() > 0) if null.any() else null,
        )

    def retype(self, tables: dict[str, np.ndarray], options: CanalOptions) -> None:
        """Types of option `columns` in place of those told. `tables`: full table name → which images are its."""
        for table, columns in options.columns.items():
            mine = tables.get(table)
            if mine is None:
                continue
            for column, text in columns.items():
                same = [i for i, name in enumerate(self.names) if name.casefold() == column.casefold()]
                where = mine[self.image] & np.isin(self.name, same)
                bytes_too = np.array([k.raw for k in self.kinds])[self.kind] & where
                type_ = parse_type(text)
                self.kind[where] = len(self.kinds)
                self.kinds.append(Kind(text, type_))
                if type_.family == "text":
                    self.kind[bytes_too] = len(self.kinds)
                    self.kinds.append(Kind(text, type_, raw=True))

    def open(self) -> np.ndarray:
        """Cells whose message leaves open what their type is."""
        of_kind = np.array([k.told is not None for k in self.kinds], bool)
        return np.nonzero(of_kind[self.kind])[0] if of_kind.any() else np.zeros(0, np.int64)

    def complete(self, cells: np.ndarray, known: Callable[[str], str | None]) -> None:
        """Gives cells of one table the types that are known by column name."""
        count = len(self.kinds)
        pairs, which = np.unique(self.name[cells] * count + self.kind[cells], return_inverse=True)
        kinds = np.empty(len(pairs), np.int64)
        for i, pair in enumerate(pairs.tolist()):
            name, kind = divmod(pair, count)
            kinds[i] = self._number(self.kinds[kind].completed(known(self.names[name])), kind)
        self.kind[cells] = kinds[which]

    def _number(self, kind: Kind, before: int) -> int:
        if kind is self.kinds[before]:
            return before
        if kind not in self.kinds:
            self.kinds.append(kind)
        return self.kinds.index(kind)

    def texts(self, dialect: Dialect) -> tuple[pa.StringArray, dict[int, str]]:
        """(canonical text of each cell, cell → reason of the bad ones)."""
        bad = {int(i): self._reason(int(i), "is NULL and has a value") for i in np.nonzero(self.torn)[0]}
        codes = self.kind.astype(np.uint16) if len(self.kinds) < 65_536 else self.kind  # 16 bits: sorted by radix
        order = np.argsort(codes, kind="stable")
        sizes = np.bincount(codes, minlength=1)
        parts, place = [self.value], np.arange(len(codes))
        start, end = 0, len(codes)
        sizes_of_values = pc.fill_null(pc.binary_length(self.value), 0).to_numpy(zero_copy_only=False)
        for code in np.nonzero(sizes)[0].tolist():
            where = order[start : start + sizes[code]]
            start += len(where)
            kind = self.kinds[code]
            if not kind.raw and is_canonical(kind.type):
                longest = longest_text(kind.type)
                if longest is None or not len(where) or sizes_of_values[where].max() <= longest:
                    continue
            values = self.value.take(pa.array(where))
            text, ok = _convert(values, kind, dialect)
            if text is not values:
                parts.append(text)
                place[where] = np.arange(end, end + len(text))
                end += len(text)
            for i in np.nonzero(~ok)[0].tolist():
                cell = int(where[i])
                told = f"{shown(self.value[cell].as_py())} doesn't fit its type {shown(kind.text)}"
                why = self._reason(cell, f"{told}{_RAW_HINT if kind.raw else hint(kind.type)}")
                waits = kind.type.family in ("enum", "set") and not kind.type.labels
                bad.setdefault(cell, f"{UNKNOWN}: {why}" if waits else why)
        return pa.concat_arrays(parts).take(pa.array(place)) if len(parts) > 1 else self.value, bad

    def _reason(self, cell: int, what: str) -> str:
        return f"column {shown(self.names[self.name[cell]])}: {what}"


def _coded(texts: pa.StringArray) -> tuple[np.ndarray, list[str]]:
    """(number of each text, the texts that the numbers mean, in order of appearance)."""
    coded = texts.dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()


_RAW_HINT = ": its bytes came as they are, in a charset that isn't told, and are no UTF-8"


def _convert(values: pa.StringArray, kind: Kind, dialect: Dialect) -> Checked:
    return _text_of_bytes(values) if kind.raw else to_text(values, kind.type, dialect)


def _text_of_bytes(values: pa.StringArray) -> Checked:
    """Text whose bytes canal didn't decode. Only UTF-8 proves itself."""
    raw = []
    for text in values.to_pylist():
        try:
            raw.append(None if text is None else text.encode("latin-1"))
        except UnicodeEncodeError:
            raw.append(b"\xff")
    return decode_text(pa.array(raw, pa.binary()), "utf8mb4")
