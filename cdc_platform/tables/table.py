"""A Delta table of the lake: where it is, its columns and properties."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, TypeVar, overload

from cdc_platform.tables.columns import Column, arrow
from cdc_platform.tables.names import Name

if TYPE_CHECKING:
    import pyarrow as pa

STATS = "delta.dataSkippingStatsColumns"
"""Property of a table: columns whose lowest and highest values its log has, file by file."""


class Lake(Protocol):
    """A lake's store (lake/store.py)."""

    def at(self, path: str) -> Self:
        """The place below."""
        ...


L = TypeVar("L", bound=Lake)


@dataclass(frozen=True, slots=True)
class Location:
    """Where something of the lake is: a path with names of sources and tables left open."""

    path: str
    comment: str

    @overload
    def at(self, lake: str, **names: str) -> str: ...

    @overload
    def at(self, lake: L, **names: str) -> L: ...

    def at(self, lake: str | L, **names: str) -> str | L:
        """The place under `lake`, or its path; the names are escaped so that no name leaves it."""
        return self._at(lake, {k: path_name(v) for k, v in names.items()})

    @overload
    def of(self, lake: str, source: str, name: Name) -> str: ...

    @overload
    def of(self, lake: L, source: str, name: Name) -> L: ...

    def of(self, lake: str | L, source: str, name: Name) -> str | L:
        """The same of a source's table: a schema is a segment of its own."""
        db, *schema, table = map(path_name, name)
        return self._at(lake, {"source": path_name(source), "db": "/".join([db, *schema]), "table": table})

    def _at(self, lake: str | L, segments: dict[str, str]) -> str | L:
        path = self.path.format(**segments)
        return f"{lake}/{path}" if isinstance(lake, str) else lake.at(path)


@dataclass(frozen=True, slots=True)
class Table(Location):
    """A Delta table of the lake whose columns are the same in every lake.

    stats: columns whose lowest and highest values the log has; empty: Delta's first 32. settings: the other
    properties. added: columns that tables made by earlier versions lack until `delta_sql.ensure` adds them.
    """

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    stats: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    added: tuple[str, ...] = ()

    @property
    def properties(self) -> dict[str, str]:
        """All properties that it is made with."""
        return {**self.settings, **({STATS: ",".join(self.stats)} if self.stats else {})}

    @property
    def names(self) -> tuple[str, ...]:
        """Of its columns, in order."""
        return tuple(c.name for c in self.columns)

    @property
    def ddl(self) -> str:
        """Its columns, as CREATE TABLE has them."""
        return ", ".join(c.ddl for c in self.columns)

    def arrow(self, *names: str, but: Collection[str] = (), comments: bool = False) -> "pa.Schema":
        """Arrow schema of its rows: all columns, or those named, in that order, without those in `but`.
        comments: with the columns' comments, as Delta's log has them. KeyError: there is no such column."""
        import pyarrow as pa  # not above: commands that read no table start without it

        columns = {c.name: c for c in self.columns}
        chosen = [columns[n] for n in names or self.names if n not in but]
        metadata = [{"comment": c.comment} if comments and c.comment else None for c in chosen]
        return pa.schema([pa.field(c.name, arrow(c.type), metadata=m) for c, m in zip(chosen, metadata, strict=True)])


_LONGEST_SEGMENT = 240


def path_name(name: str) -> str:
    """Injective name → path segment: ASCII letters, digits, `_`, `-` and inner `.` stay, a leading `_` or `.` and
    every other UTF-8 byte become `~XX` (a percent sign would make delta-rs readers miss the table). What would be
    too long for a file system (255 bytes) is cut, and told apart by `~~` and a hash of the name."""
    out = []
    last = len(name) - 1
    for i, c in enumerate(name):
        plain = c.isascii() and (c.isalnum() or c in "_-" or (c == "." and 0 < i < last))
        if plain and not (i == 0 and c in "_."):
            out.append(c)
        else:
            out.extend(f"~{b:02X}" for b in c.encode("utf-8", "surrogatepass"))
    text = "".join(out) or "~"
    if len(text) <= _LONGEST_SEGMENT:
        return text
    return (
        text[: _LONGEST_SEGMENT - 34]
        + "~~"
        + hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    )
