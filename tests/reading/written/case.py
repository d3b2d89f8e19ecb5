"""A snapshot that readers are tried with."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.reading.source_tables import Table

Told = Callable[[Table], Iterator[None]]
"""What happens to a table; after each `yield` the platform has caught up."""


class Case(NamedTuple):
    """vectors: whether files of the newest version have some; marks, mapped: whether the protocol has the feature, and
    column mapping. by_spark: no vector is of the platform's own commits."""

    told: Told
    what: str
    vectors: bool
    marks: bool
    mapped: bool
    by_spark: bool


CASES: dict[str, Case] = {}


def case(
    what: str, *, vectors: bool = True, marks: bool | None = None, mapped: bool = False, by_spark: bool = False
) -> Callable[[Told], Told]:
    def add(told: Told) -> Told:
        marked = vectors if marks is None else marks
        CASES[told.__name__] = Case(told, what, vectors, marked, mapped, by_spark)
        return told

    return add


PLAIN = {"id": "int", "a": "varchar(40)"}


def rows(n: int, first: int = 0) -> list[dict[str, str | None]]:
    return [{"id": str(i), "a": f"a{i}"} for i in range(first, first + n)]
