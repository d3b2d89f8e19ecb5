"""What the table WATERMARKS told of a source before."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import accumulate
from typing import Any

from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import PARTITION, SOURCE, Complete, Where, of_source, published
from cdc_platform.tables import Name, name_columns, name_of

_AT_LEAST, _OFFSETS = 64, 200_000
"""So many publications are looked at, or so many of their offsets, by those who look for an earlier one."""
_NAME = ("db", "schema", "table")


class Past:
    """What was told of a source's partitions and of its snapshots, for those who ask of many tables: what they have in
    common is read once, as it was then."""

    def __init__(self, path: Store, source: str):
        self._path, self._source = path, source
        self._steps: dict[Where, tuple[list[int], list[datetime | None]]] = {}
        self._told: dict[str, dict[int, datetime]] = {}
        self._names: dict[str, set[Name]] = {}
        self._rests: dict[tuple[str, frozenset[Where]], dict[tuple[int, Where], int]] = {}
        self._read: dict[int, list[Complete]] = {}

    def reached(self, where: Where, offset: int) -> datetime | None:
        """A partition's watermark before an offset; None: it had none."""
        if where not in self._steps:
            self._steps[where] = _steps(self._path, self._source, where)
        offsets, times = self._steps[where]
        return times[place - 1] if (place := bisect_left(offsets, offset)) else None

    def earlier(self, number: int, name: Name | None, held: Mapping[Where, int]) -> Iterator[Complete]:
        """Publications before one that stand for a snapshot (None: for the source) without what is held, of the latest
        time of it first. Only what tells that is read of all, each in full as it is asked for."""
        low = max(0, number - max(_AT_LEAST, _OFFSETS // max(1, len(held))))
        of = f"{of_source(self._source, SOURCE)} AND end_offsets IS NOT NULL AND batch >= {low} AND batch < {number}"
        times, rests, own = self._times(of), self._ends(of, held), {}
        if name is not None and name in self._behind(of):  # others are as their source
            told = _members(self._path, of, "behind", ("batch", "source_time"), _is(name))
            times = _latest_first(times | {r["batch"]: r["source_time"] for r in told})
            own = _ends(self._path, of, held, name)
        for batch in times:
            if all(own.get((batch, w), rests.get((batch, w), 0)) <= offset for w, offset in held.items()):
                yield from self._whole(of, batch)

    def _whole(self, of: str, batch: int) -> list[Complete]:
        if batch not in self._read:
            if len(self._read) >= _AT_LEAST:
                self._read.clear()
            rows = delta_table.ask(f"SELECT * FROM {{t}} WHERE {of} AND batch = {batch}", t=self._path)
            self._read[batch] = [published(r) for r in rows]
        return self._read[batch]

    def _behind(self, of: str) -> set[Name]:
        """Snapshots that were behind their source in some of these publications."""
        if of not in self._names:
            self._names[of] = {name_of(r) for r in _members(self._path, of, "behind", _NAME, distinct=True)}
        return self._names[of]

    def _times(self, of: str) -> dict[int, datetime]:
        """Publication → up to when the source was complete."""
        if of not in self._told:
            rows = delta_table.ask(f"SELECT batch, source_time FROM {{t}} WHERE {of}", t=self._path)
            self._told[of] = _latest_first({r["batch"]: r["source_time"] for r in rows})
        return self._told[of]

    def _ends(self, of: str, held: Mapping[Where, int]) -> dict[tuple[int, Where], int]:
        """As _ends, of the source."""
        if (asked := (of, frozenset(held))) not in self._rests:
            self._rests[asked] = _ends(self._path, of, held, None)
        return self._rests[asked]


def _latest_first(times: Mapping[int, datetime | None]) -> dict[int, datetime]:
    told = ((at, batch) for batch, at in times.items() if at is not None)
    return {batch: at for at, batch in sorted(told, reverse=True)}


def _steps(path: Store, source: str, where: Where) -> tuple[list[int], list[datetime | None]]:
    """Offsets of a partition, and of each the latest time that is told up to it."""
    rows = delta_table.ask(
        f'SELECT "offset", max(source_time) AS at FROM {{t}} WHERE {of_source(source, PARTITION)} '
        f"AND topic = '{delta_table.topic(where[0])}' AND \"partition\" = {int(where[1])} "
        'GROUP BY "offset" ORDER BY "offset"',
        t=path,
    )
    times = accumulate((r["at"] for r in rows), lambda one, other: max(filter(None, (one, other)), default=None))
    return [r["offset"] for r in rows], list(times)


def _ends(path: Store, of: str, held: Iterable[Where], name: Name | None) -> dict[tuple[int, Where], int]:
    """Of publications and of some partitions the offsets that they name for a snapshot (None: for the source)."""
    places = (f"(e['topic'] = '{delta_table.topic(t)}' AND e['partition'] = {int(p)})" for t, p in held)
    if not (there := " OR ".join(places)):
        return {}
    mine = "e['table'] IS NULL" if name is None else _is(name)
    rows = _members(path, of, "end_offsets", ("batch", "topic", "partition", "offset"), f"({there}) AND ({mine})")
    return {(r["batch"], (r["topic"], r["partition"])): r["offset"] for r in rows}


def _members(
    path: Store, of: str, array: str, columns: tuple[str, ...], where: str = "true", *, distinct: bool = False
) -> list[dict[str, Any]]:
    """Columns of the structs `e` in an array of rows, and `batch`, the rows' own."""
    told = ", ".join(c if c == "batch" else f"e['{c}'] AS \"{c}\"" for c in columns)
    each = f"SELECT batch, unnest({array}) AS e FROM {{t}} WHERE {of}"
    return delta_table.ask(f"SELECT {'DISTINCT ' * distinct}{told} FROM ({each}) AS each WHERE {where}", t=path)


def _is(name: Name) -> str:
    """That a struct names a table. Braces are doubled for delta_table.ask."""
    texts = {c: v and v.replace("'", "''").replace("{", "{{").replace("}", "}}") for c, v in name_columns(name).items()}
    return " AND ".join(f"e['{c}'] IS NULL" if v is None else f"e['{c}'] = '{v}'" for c, v in texts.items())
