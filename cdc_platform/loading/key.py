"""By which SQL a table is gone through by its primary key. What its rows are sorted by must be what they are compared
by: where both aren't one order, a chunk that goes on behind a row leaves rows out.

A server takes an index for both where it can. That is one order but for some texts. Here these go by their
bytes instead, which no index serves: each chunk then reads the whole table.

- A key that has only the beginnings of values (`PRIMARY KEY (name(20))`): a comparison looks for the value's beginning
  in the index, and under a collation to which ß is ss, say, a later value can have an earlier beginning.
- CHAR under a collation of MariaDB's that doesn't pad (NO PAD): it sorts values with blanks at their end, and compares
  them without. MySQL takes the blanks off for both.
- Texts under the Czech collations of several passes, where ENUM or SET is in the key, so that no index sorts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cdc_platform.mysql.ddl import quoted_name
from cdc_platform.mysql.types import parse_type
from cdc_platform.reconcile.columns import Pair, SourceColumn
from cdc_platform.reconcile.server import Server, table_name
from cdc_platform.reconcile.statements import cell
from cdc_platform.reconcile.texts import key_literal

SORTED = "SET SESSION max_sort_length = 16384, sort_buffer_size = GREATEST(@@SESSION.sort_buffer_size, 4194304)"
"""By so many bytes of a value a server sorts (by itself 1024: keys that are alike so far would have no order); some
values must have room in its buffer."""
_BY_NUMBER = ("enum", "set")
"""Families that a server sorts by a number, and compares with texts as texts."""
_NOT_PADDED = "(collation_name LIKE '%%nopad%%' OR collation_name LIKE '%%\\_0900\\_%%')"
"""0900: another name that MariaDB gives some of them, of tables from MySQL."""
_TEXTS = (
    "SELECT column_name, collation_name IN ('cp1250_czech_cs', 'latin2_czech_cs') "
    f"OR (data_type = 'char' AND VERSION() LIKE '%%MariaDB%%' AND {_NOT_PADDED}) "
    "FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND collation_name IS NOT NULL"
)
"""Columns with a collation, and whether it is one by which servers sort otherwise than they compare."""


@dataclass(frozen=True, slots=True)
class Part:
    """A column of a primary key. by_bytes: it is sorted and compared by its bytes; of: by those of so many characters
    of its beginning (None: all)."""

    name: str
    type_text: str
    by_bytes: bool = False
    of: int | None = None

    @property
    def _by_number(self) -> bool:
        return parse_type(self.type_text).family in _BY_NUMBER

    @property
    def sorted(self) -> str:
        """SQL of what rows are sorted by, and compared by."""
        name = quoted_name(self.name)
        if self.by_bytes:
            return f"CAST({name if self.of is None else f'LEFT({name}, {self.of:d})'} AS BINARY)"
        return f"({name} + 0)" if self._by_number else name

    @property
    def text(self) -> str:
        """SQL of the text that a load goes on behind."""
        if self.by_bytes:
            return f"CONCAT('0x', HEX({self.sorted}))"  # 0x: told from a text by which a load went on by the column
        if self._by_number:
            return f"CAST({self.sorted} AS CHAR)"
        return self._pair.text.key.sql(quoted_name(self.name), cell(self._pair))

    def literal(self, text: str) -> str | None:
        """SQL of the value that has such a text; None: none has."""
        if self.by_bytes:
            return f"X'{text[2:]}'" if re.fullmatch("0x(?:[0-9A-F]{2})*", text) else None
        if self._by_number:
            return text if text.isdigit() else None
        return key_literal(self._pair.text.key, text)

    @property
    def _pair(self) -> Pair:
        return Pair(self.name, self.name, "", parse_type(self.type_text), True)


def behind(key: Sequence[Part], after: Sequence[str]) -> str | None:
    """Condition of the rows behind these texts of a key; None: they are none of it."""
    literals = [p.literal(t) for p, t in zip(key, after, strict=True)]
    if None in literals:
        return None
    columns = [p.sorted for p in key]
    parts = []
    for i, (column, literal) in enumerate(zip(columns, literals, strict=True)):
        same = [f"{c} = {value}" for c, value in zip(columns[:i], literals[:i], strict=True)]
        parts.append(" AND ".join([*same, f"{column} > {literal}"]))
    first = f"{columns[0]} >= {literals[0]}"  # which an index helps
    return f"{first} AND ({' OR '.join(f'({p})' for p in parts)})"


def primary_key(server: Server, db: str, name: str, columns: Sequence[SourceColumn]) -> tuple[Part, ...]:
    """Of a table, in its order; (): it has none. columns: all of the table's."""
    types = {c.name.lower(): c.type_text for c in columns}
    with server.connected() as cursor:
        cursor.execute(f"SHOW KEYS FROM {table_name(db, name)} WHERE Key_name = 'PRIMARY'")
        found = [(str(row[4]), row[7]) for row in sorted(cursor.fetchall(), key=lambda r: int(r[3]))]
        cursor.execute(_TEXTS, (db, name))
        texts = {str(column).lower(): bool(apart) for column, apart in cursor.fetchall()}
    parts = []
    for column, length in found:
        of = int(length) if length is not None and column.lower() in texts else None
        by_bytes = of is not None or texts.get(column.lower(), False)
        parts.append(Part(column, types[column.lower()], by_bytes, of))
    return tuple(parts)
