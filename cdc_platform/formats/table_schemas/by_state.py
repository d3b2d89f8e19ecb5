"""Groups of rows whose columns depend on where they stand, taken apart."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from cdc_platform.formats.collect import Changes
from cdc_platform.formats.table_schemas.lookup import Columns, TableSchemas
from cdc_platform.formats.table_schemas.places import Place


class _Group(Protocol):
    @property
    def db(self) -> str: ...
    @property
    def table(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def known(self) -> Columns | None: ...
    def _replace(self, *, known: Columns | None) -> Any: ...


G = TypeVar("G", bound=_Group)
C = TypeVar("C", bound=Changes)


def known_of(schemas: TableSchemas, group: _Group) -> Columns | None:
    """What is known of the columns of a group, wherever its rows stand or because it was taken apart."""
    return group.known or (None if schemas.empty else schemas.steady(group.db, group.table))


def by_state(
    schemas: TableSchemas, group: G, changes: Callable[[], C], place: Callable[[Any], Place]
) -> Iterator[tuple[G, C | None]]:
    """As Collector.variants. `changes`: the group's rows; `place`: where one of them stands."""
    if schemas.empty or schemas.steady(group.db, group.table) or not schemas.knows(group.db, group.table):
        yield group, None
        return
    rows = changes()
    states: dict[Columns | None, list[int]] = {}
    for i in range(len(rows)):
        known = schemas.of_row(group.db, group.table, place(rows.row(i)), group.names)
        states.setdefault(known, []).append(i)
    for known, which in states.items():
        yield group._replace(known=known), rows.take(which)
