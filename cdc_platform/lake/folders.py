"""Which folder of `snapshots` and `tombstones` a source's tables are in: that of its own name, until `shadow cutover`
exchanges those of two sources. What else is kept of a source stays under its name. No Spark here.
"""

import time
from typing import Any

from cdc_platform.lake import delta_table, queries
from cdc_platform.lake.store import Store
from cdc_platform.tables import SNAPSHOT_FOLDERS, SNAPSHOT_PATH, TOMBSTONES_PATH, Location, Name, path_name

EXCHANGED = (SNAPSHOT_PATH, TOMBSTONES_PATH)
"""What is under the name of the folder; the rest is under the source's own."""
_KNOWN_S = 60.0
_known: dict[str, tuple[float, list[dict[str, Any]]]] = {}
"""Lake → when it was looked, and the rows then. Who holds a source's lease has looked since the last one."""


def snapshot(lake: Store, source: str, name: Name) -> Store:
    """Where the snapshot of one of a source's tables is."""
    return table_folder(lake, SNAPSHOT_PATH, source, name)


def tombstones(lake: Store, source: str, name: Name) -> Store:
    """Where its tombstones are."""
    return table_folder(lake, TOMBSTONES_PATH, source, name)


def table_folder(lake: Store, location: Location, source: str, name: Name) -> Store:
    """Where any of what is kept of one of a source's tables is."""
    return location.of(lake, _named(lake, location, source), name)


def under(lake: Store, location: Location, source: str) -> list[str]:
    """Paths, under the lake, that all of that is below, or was."""
    names = ever(lake, source) if location in EXCHANGED else [source]
    return [location.path.split("/{db}")[0].format(source=path_name(n)) for n in names]


def _named(lake: Store, location: Location, source: str) -> str:
    return folder(lake, source) if location in EXCHANGED else source


def folder(lake: Store, source: str) -> str:
    """Name of the folder that a source's tables are in."""
    return next((r["folder"] for r in reversed(_rows(lake)) if r["source"] == source), source)


def source(lake: Store, of: str) -> str:
    """The source whose tables are in a folder."""
    return next((r["source"] for r in reversed(_rows(lake)) if r["folder"] == of), of)


def ever(lake: Store, source: str) -> list[str]:
    """All folders that a source's tables are in, or were."""
    return list(dict.fromkeys([source, *(r["folder"] for r in _rows(lake) if r["source"] == source)]))


def look(lake: Store) -> None:
    """Forgets what was seen: the next question looks anew."""
    _known.pop(lake.root, None)


def cuts_before(lake: Store, source: str) -> int:
    """The highest number of a cut that was published of a source's folder before its tables came there."""
    return max((r["cut"] for r in _rows(lake) if r["source"] == source), default=0)


def was_exchanged(lake: Store, by: str, of: str) -> bool:
    """Whether the last exchange of a source was to put it in another one's place."""
    last = next((r for r in reversed(_rows(lake)) if r["source"] == by), None)
    with_it = {r["source"] for r in _rows(lake) if last and r["number"] == last["number"]}
    return bool(last and last["in_use"] and of in with_it)


def next_number(lake: Store) -> int:
    """Of an exchange."""
    rows = queries.query("SELECT max(number) AS n FROM t", t=SNAPSHOT_FOLDERS.at(lake))
    return (int(rows[0]["n"] or 0) if rows else 0) + 1


def exchange(lake: Store, number: int, of: str, by: str, cut: int) -> bool:
    """Notes that `by` has the folder of `of` from here on, and the other way round: all at once, unless that number was
    taken. cut: the highest number of a cut of either. Returns whether it is so."""
    rows = [
        {"source": by, "folder": folder(lake, of), "number": number, "in_use": True, "cut": cut},
        {"source": of, "folder": folder(lake, by), "number": number, "in_use": False, "cut": cut},
    ]
    _note(lake, number, rows)
    return _exchanged(lake, by, number)


def decided(lake: Store, source: str, number: int) -> bool:
    """Whether that exchange of a source was noted. Where it wasn't, it can't be from here on."""
    if not _exchanged(lake, source, number):  # whoever was about to note it may go on later
        _note(lake, number, [{"source": source, "folder": None, "number": number, "cut": 0}])
    return _exchanged(lake, source, number)


def _exchanged(lake: Store, source: str, number: int) -> bool:
    return any(r["source"] == source and r["number"] == number for r in _rows(lake, anew=True))


def _note(lake: Store, number: int, rows: list[dict[str, Any]]) -> None:
    delta_table.append_rows(SNAPSHOT_FOLDERS.at(lake), rows, once=("exchange", number))
    look(lake)


def _rows(lake: Store, *, anew: bool = False) -> list[dict[str, Any]]:
    """In the order of the exchanges, without what was void."""
    looked, rows = _known.get(lake.root, (float("-inf"), []))
    if anew or time.monotonic() - looked > _KNOWN_S:
        told = "SELECT source, folder, number, in_use, cut FROM t WHERE folder IS NOT NULL ORDER BY number, source"
        rows = queries.query(told, t=SNAPSHOT_FOLDERS.at(lake)) or []
        _known[lake.root] = time.monotonic(), rows
    return rows
