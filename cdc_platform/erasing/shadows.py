"""What comparisons of two feeds noted of a subject (shadow/differences.py): rows of the pairs of which a source is the
one feed or the other. Those of a pair stand under the name of its `of`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.config import Config, Source
from cdc_platform.erasing.subject import Subject
from cdc_platform.explain.scan import Alikes
from cdc_platform.lake import queries
from cdc_platform.lake.store import Store
from cdc_platform.mysql.types import MySqlType
from cdc_platform.shadow.run import held
from cdc_platform.tables import SHADOW_COMPARISONS, SHADOW_DIFFERENCES, Location, Name, as_name, name_in

TABLES = SHADOW_COMPARISONS, SHADOW_DIFFERENCES


@contextmanager
def alone(config: Config, source: Source) -> Iterator[None]:
    """Within it nothing compares the source with another. Raises RunInProgress."""
    with ExitStack() as stack:
        for pair in config.shadow:
            if source.name in (pair.of, pair.by):
                stack.enter_context(held(config, pair))
        yield


def beside(config: Config, source: Source) -> list[str]:
    """Sources that bring the same database by another feed."""
    pairs = [(p.of, p.by) for p in config.shadow if source.name in (p.of, p.by)]
    return [name for pair in pairs for name in pair if name != source.name]


def partitions(lake: Store, table: Location, source: Source) -> list[str]:
    """Under which names rows of a source's pairs stand in one of TABLES: its own, and those that it was compared to."""
    rows = queries.query(
        f'SELECT DISTINCT source FROM t WHERE "by" = {queries.text(source.name)} ORDER BY 1', t=table.at(lake)
    )
    return [source.name, *(r["source"] for r in rows or [] if r["source"] != source.name)]


@dataclass
class Noted:
    """Of SHADOW_DIFFERENCES: rows of the subject are taken out. names: of its snapshot, in lower case, as feeds may
    spell it otherwise; keys: under its columns' names at any time, in lower case; types: of today's, by which texts are
    read, and `alike` compares those of other types; by: only rows of pairs in which that is the other feed."""

    names: frozenset[Name | None]
    keys: Sequence[Mapping[str, str | None]]
    types: Mapping[str, MySqlType | None]
    alike: Alikes
    by: str | None = None
    columns: tuple[str, ...] = ("by", "db", "schema", "table", "key")
    keeps_note: bool = False

    @classmethod
    def of(cls, subject: Subject, by: str | None) -> "Noted":
        """by: as the class has it."""
        table = subject.table
        cells = [dict(c) for key in subject.keys for c in (key, *table.then(key)[0])]
        keys = [{n.lower(): text for n, text in one.items()} for one in cells]
        types = {c.name.lower(): c.parsed for c in table.columns}
        names = frozenset(_folded(table.source.tables.routed(*name)) for name in table.names)
        return cls(names, keys, types, table.alike, by)

    def mine(self, batch: pa.RecordBatch) -> np.ndarray:
        """Rows of the key."""
        return np.array([self._is_subject(row) for row in batch.select(self.columns).to_pylist()], bool)

    def _is_subject(self, row: Mapping[str, Any]) -> bool:
        if _folded(name_in(row)) not in self.names or self.by not in (None, row["by"]):
            return False
        there = {n.lower(): text for n, text in json.loads(row["key"]).items()}
        return any(all(n in there and self._same(n, there[n], text) for n, text in key.items()) for key in self.keys)

    def _same(self, column: str, one: str | None, other: str | None) -> bool:
        """A difference tells values as Spark's texts, a change as the feed's."""
        if one is None or other is None:
            return one is other
        return self._value(column, one) == self._value(column, other)

    def _value(self, column: str, text: str) -> Any:
        type_ = self.types.get(column)
        family = type_.family if type_ else ""
        try:
            return _READ[family](text) if family in _READ else self.alike.one(column, text)
        except ValueError:
            return text

    def erased(self, batch: pa.RecordBatch, mine: np.ndarray) -> pa.RecordBatch:
        """The others."""
        return batch.filter(pa.array(~mine))


def _integer(text: str) -> int:
    """Of a BIT(1), or what one feed tells as a truth value, a snapshot has `true`."""
    return {"true": 1, "false": 0}[text] if text in ("true", "false") else int(text)


_READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("integer", "year", "bit", "boolean"), _integer),
    "float": float,
}


def _folded(name: Name | None) -> Name | None:
    return name and as_name(*(part.lower() for part in name))
