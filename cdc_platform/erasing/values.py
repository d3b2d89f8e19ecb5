"""Which texts of a subject are its alone, so that they can be looked for. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_platform.erasing.quotes import Finder, Quotes, parts, stands
from cdc_platform.erasing.subject import CHANGE, Subject, identity, named, those
from cdc_platform.lake.data_files import Unit, footer, read
from cdc_platform.lake.store import File
from cdc_platform.tables import ROW_ADDRESS

_SHOWN = 20
_IMAGES = ("key", "before", "after")


@dataclass(frozen=True, slots=True)
class Values:
    """The subject's texts. own: parts of them that no row of others has, nor what is known of the source, as a whole or
    as a part. looked_for: texts with such parts; short: those that aren't looked for, as they stand anywhere; shared:
    the others. elsewhere: tables and keys of other rows that have some of these, the first of them."""

    own: Quotes
    looked_for: int
    short: int
    shared: int
    elsewhere: list[tuple[str, str]]

    def data(self) -> dict[str, int]:
        """As a plan and a proof have it: values, too_short, with_others."""
        return {"values": self.looked_for, "too_short": self.short, "with_others": self.shared}


def values_of(subject: Subject, files: Iterable[File], known: Iterable[str]) -> Values:
    """files: of CHANGES; known: names, columns and statements of the source."""
    known = list(known)
    of = {text: found for text in subject.texts if (found := parts(text))}
    own = {p for found in of.values() for p in found if not any(stands(p, other) for other in known)}
    narrow = pa.schema([CHANGE.field(n) for n in (*ROW_ADDRESS.names, "db", "schema", "table", "reason", *_IMAGES)])
    where: dict[tuple[str, str], None] = {}
    every = sorted(own)
    wanted = Finder(every)
    for file in files if own else ():
        for batch in read(Unit(file, 0, footer(file).num_row_groups, 0), narrow):
            for text, number in _matching(batch := _others_rows(batch, subject), wanted):
                if theirs := [p for p in every if stands(p, text)]:
                    own.difference_update(theirs)
                    if len(where) < _SHOWN:
                        where[_row(batch, number)] = None
    looked_for = sum(any(p in own for p in found) for found in of.values())
    short = len(subject.texts) - len(of)
    return Values(Quotes(tuple(sorted(own))), looked_for, short, len(of) - looked_for, list(where))


def _others_rows(batch: pa.RecordBatch, subject: Subject) -> pa.RecordBatch:
    """Without the subject's."""
    mine = sorted({i for rows in those(batch, frozenset(subject.addresses)).values() for i in rows})
    at = batch.select(ROW_ADDRESS.names).take(pa.array(mine, pa.int64())).to_pylist()
    keep = np.ones(batch.num_rows, bool)
    keep[[i for i, row in zip(mine, at, strict=True) if identity(row) in subject.identities]] = False
    return batch if keep.all() else batch.filter(pa.array(keep))


def _matching(batch: pa.RecordBatch, wanted: Finder) -> Iterator[tuple[str, int]]:
    """Texts in images that match, each once, and the number of a row that has it."""
    found: dict[str, int] = {}
    for name in ("reason", *_IMAGES):
        items = batch.column(name)
        ends = np.arange(len(items) + 1)
        if name != "reason":
            items, ends = _items(items), items.offsets.to_numpy() - items.offsets[0].as_py()
        at = pa.array(wanted.at(items))
        for text, item in zip(items.take(at).to_pylist(), at.to_pylist(), strict=True):
            if text not in found:
                found[text] = int(np.searchsorted(ends, item, "right")) - 1
    yield from found.items()


def _row(batch: pa.RecordBatch, number: int) -> tuple[str, str]:
    [row] = batch.slice(number, 1).select(["db", "schema", "table", "key", "after"]).to_pylist(maps_as_pydicts="strict")
    return named(row)


def _items(images: pa.MapArray) -> pa.Array:
    """Values of these maps alone: a slice's `items` are those of all."""
    first, last = images.offsets[0].as_py(), images.offsets[-1].as_py()
    return images.items.slice(first, last - first)
