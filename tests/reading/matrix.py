"""Snapshots of every kind that a reader may meet, made by the stages themselves."""

import random
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from deltalake import DeltaTable

from cdc_platform import tables
from tests.changelog.feed import Feed, Image, SourceTable, position

DB = "shop"
_BIG = 40
"""Rows of the large tables, of 8 KB each after compression: vectors come by themselves, for more than 256 KB."""


class Shown(NamedTuple):
    """A snapshot as a reader is to open it. version: None for the newest."""

    path: str
    version: int | None


def _table(name: str, *columns: str, keys: tuple[str, ...] = ("id",)) -> SourceTable:
    return SourceTable(DB, name, [tuple(c.split(": ", 1)) for c in columns], keys)  # type: ignore[misc]


def _plain(name: str) -> SourceTable:
    return _table(name, "id: bigint", "a: int", "b: varchar(9)", "at: timestamp(6)", "d: date", "f: double")


def _row(i: int, a: int | None = 1) -> Image:
    told = {"at": f"2026-01-0{i} 00:00:00.00000{i}Z", "d": f"1500-01-0{i}", "f": f"{i}.5"}
    return {"id": str(2**60 + i), "a": None if a is None else str(a), "b": f"é{i}", **told}


def _large(name: str) -> tuple[SourceTable, Callable[[int, str], Image]]:
    rows = random.Random(name)
    texts = [rows.randbytes(8192).hex() for _ in range(_BIG)]
    return _table(name, "id: int", "a: varchar(9)", "t: text"), lambda i, a: {"id": str(i), "a": a, "t": texts[i]}


_NUMBERS = _table("numbers", "id: bigint unsigned", "dec: decimal(38,10)", "u: int unsigned", "bits: bit(8)", "y: year")
_BINARY = _table("binary", "id: varbinary(9)", "v: blob")
_TIMES = _table("times", "id: int", "at: datetime(6)", "t: time")
_ODD = _table("odd", "id: int", "a b: int", "c,;{}()=: int", "e.f: int", 'g"h: int')
_BARE = _table("bare", "id: int", "a: int", keys=())

ROWS = {
    "plain": "no rename, small",
    "added": "after ADD COLUMN",
    "numbers": "DECIMAL(38,10), UNSIGNED, BIT, YEAR",
    "binary": "BINARY, BLOB",
    "times": "DATETIME: `timestampNtz`",
    "bare": "no key: `_cdc_address`",
    "empty": "no rows",
    "cut": "an older version, named by a cut",
    "large_any": "large, `readers: any`",
    "large_fast": "large: deletion vectors",
    "moved_any": "after RENAME and DROP COLUMN, `readers: any`",
    "moved_fast": "after RENAME and DROP COLUMN: column mapping",
    "odd": "odd column names: column mapping",
}
"""Kind of a table → what the page calls it."""
READERS = {"*_any": "any"}
"""`tables.readers` of the source."""


def make(feed: Feed, names: Collection[str] = ROWS) -> dict[str, Shown]:
    """Tables of ROWS in a lake that is still empty, in two runs. `cut` is a version of `plain`."""
    plain, added, empty, moved_any, moved_fast = map(_plain, ("plain", "added", "empty", "moved_any", "moved_fast"))
    large_any, large_fast = (_large(name) for name in ("large_any", "large_fast"))
    at = iter(range(10, 10_000))

    def say(*events: dict[str, Any]) -> None:
        """What is told of these tables."""
        feed.say(*(e for e in events if (e["ddl"].split()[2] if e["kind"] == "ddl" else e["table"]) in names))

    def insert(table: SourceTable, *rows: Image) -> list[dict[str, Any]]:
        return [table.stated(), *(table.insert((1, next(at)), r) for r in rows)]

    for t in (plain, added, empty, moved_any, moved_fast):
        say(*insert(t, *(_row(i) for i in range(1, 5))))
    for t, row in (large_any, large_fast):
        say(*insert(t, *(row(i, "1") for i in range(_BIG))))
    two = ({"id": "1", "a": "1"}, {"id": "1", "a": "1"})
    say(*insert(_BARE, *two))
    high = {"id": str(2**64 - 1), "dec": f"{'9' * 28}.{'9' * 10}", "u": str(2**32 - 1), "bits": "255", "y": "2155"}
    none = {**dict.fromkeys(high, None), "id": "0"}
    say(*insert(_NUMBERS, high, none))
    say(*insert(_BINARY, {"id": "AP8=", "v": "/wCA"}, {"id": "AA==", "v": None}))
    say(*insert(_TIMES, {"id": "1", "at": "2026-03-29 02:30:00.000001", "t": "-838:59:59"}))
    say(*insert(_ODD, {"id": "1", "a b": "2", "c,;{}()=": "3", "e.f": "4", 'g"h': None}))
    feed.catch_up()
    first = {s["table"]: s for s in max(feed.rows(tables.CUTS), key=lambda c: c["cut"])["snapshots"]}

    for t in (moved_any, moved_fast):
        sql = f"ALTER TABLE {t.name} CHANGE a n INT, DROP b"
        say({"kind": "ddl", "db": DB, "ddl": sql, **position(1, next(at))})
    more = SourceTable(DB, "added", [*added.columns, ("new", "int")])
    say(more.stated(), more.insert((1, next(at)), {**_row(7), "new": "1"}))
    for t in (plain, added):
        say(t.update((1, next(at)), _row(2), _row(2, None)), t.delete((1, next(at)), _row(3)))
    say(*(empty.delete((1, next(at)), _row(i)) for i in range(1, 5)))
    for t in (moved_any, moved_fast):
        now = SourceTable(DB, t.name, [(n.replace("a", "n") if n == "a" else n, k) for n, k in t.columns if n != "b"])
        rows = [{("n" if n == "a" else n): v for n, v in _row(i).items() if n != "b"} for i in (2, 8)]
        say(now.stated(), now.update((1, next(at)), rows[0], {**rows[0], "n": "5"}))
        say(now.insert((1, next(at)), rows[1]))
    for t, row in (large_any, large_fast):
        say(t.update((1, next(at)), row(3, "1"), row(3, "2")), t.delete((1, next(at)), row(4, "1")))
    say(_BARE.delete((1, next(at)), two[0]))
    feed.catch_up()
    found = {n: Shown(feed.target(DB, "plain" if n == "cut" else n).snapshot.uri(), None) for n in names}
    found["cut"] = found["cut"]._replace(version=first["plain"]["version"])
    return found


FEATURES = {
    "large_fast": {"deletionVectors"},
    "moved_fast": {"columnMapping", "timestampNtz"},
    "odd": {"columnMapping", "timestampNtz"},
    "times": {"timestampNtz"},
}
"""What the protocol of some names; that of the others names none."""


def reader_features(shown: Shown) -> set[str]:
    """What a table's protocol asks of readers."""
    protocol = DeltaTable(shown.path, version=shown.version).protocol()
    named = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} & set().union(*FEATURES.values())
    assert (protocol.min_reader_version > 1) is bool(named)
    return named
