"""What a comparison found, as data."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from cdc_platform.reconcile.columns import Pairing
from cdc_platform.reconcile.frames import Differing
from cdc_platform.units import count


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of a differing row. A value None is NULL; without a row there is no value either: see `kind`."""

    column: str
    expected: str | None
    actual: str | None
    differs: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """One differing row. kind: missing (not in the snapshot), extra (not at the source), changed, or repeated
    (more or fewer equal rows). expected_rows, actual_rows: how many rows of this key each side has."""

    kind: str
    key: dict[str, str | None]
    expected_rows: int
    actual_rows: int
    cells: list[Cell]


class Open(NamedTuple):
    """Keys that differ, of those that were looked into, and by which columns they were compared; of which table."""

    pairing: Pairing
    keys: list[Differing]
    name: tuple[str, str]


@dataclass(slots=True)
class TableResult:
    """One table. Counts are of rows; `expected` is the source, `actual` the snapshot.

    version: of the snapshot's Delta table. position: of the source's binlog at which it was read, where it is told.
    moved: keys that changed at the source after that position, and of which the snapshot has no row that the source was
    seen to have: not judged. reserve: why the whole proves nothing, though nothing differs. null_dates: values that are
    no dates and known to be NULL in a snapshot. digest: of a server's sums. not_looked_into: differing buckets whose
    rows were not read; then the counts of missing, extra and changed are lower bounds. problems: what is wrong with the
    table as a whole. open: what a repair starts from (`told` leaves it out).
    """

    table: str
    version: int | None = None
    position: dict[str, Any] | None = None
    expected_rows: int = 0
    actual_rows: int = 0
    buckets: int = 0
    differing_buckets: int = 0
    not_looked_into: int = 0
    missing: int = 0
    extra: int = 0
    changed: int = 0
    moved: int = 0
    null_dates: int = 0
    seconds: float = 0.0
    digest: str | None = None
    problems: list[str] = field(default_factory=list)
    not_compared: dict[str, str] = field(default_factory=dict)
    reserve: str | None = None
    differences: list[Difference] = field(default_factory=list)
    open: Open | None = None

    @property
    def equal(self) -> bool:
        """Whether nothing was found that differs."""
        return not (self.problems or self.not_looked_into or self.missing or self.extra or self.changed)

    @property
    def falls_short(self) -> list[str]:
        """Why it proves nothing of the table, though nothing was found that differs."""
        moved = [f"{count(self.moved, 'row')} changed while compared, and weren't judged"] if self.moved else []
        return [*moved, *([self.reserve] if self.reserve else [])]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        data = asdict(replace(self, open=None))
        del data["open"], data["reserve"]
        return {**data, "falls_short": self.falls_short}


def show_rows(
    pairing: Pairing,
    differing: Iterable[Differing],
    expected: Mapping[str, list[tuple[Any, ...]]],
    actual: Mapping[str, list[tuple[Any, ...]]],
) -> list[Difference]:
    """Rows of both sides (by digest of key: digest, then value and text of each column) side by side."""
    out = []
    for one in differing:
        was, got = expected.get(one.digest, []), actual.get(one.digest, [])
        row_e, row_a = was[0] if was else None, got[0] if got else None
        cells = [_cell(pair.name, i, row_e, row_a) for i, pair in enumerate(pairing.pairs)]
        one_row = row_e or row_a or ()
        values = {pair.name: one_row[1 + 2 * i] for i, pair in enumerate(pairing.pairs)} if one_row else {}
        key = {pair.name: values.get(pair.name) for pair in pairing.keys}
        kind = "repeated" if row_e and row_a and not any(c.differs for c in cells) else one.kind
        out.append(Difference(kind, key, len(was), len(got), cells))
    return out


def _cell(name: str, i: int, expected: tuple[Any, ...] | None, actual: tuple[Any, ...] | None) -> Cell:
    shown, text = 1 + 2 * i, 2 + 2 * i
    return Cell(
        name,
        expected[shown] if expected else None,
        actual[shown] if actual else None,
        expected is None or actual is None or expected[text] != actual[text],
    )


def by_key(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """Rows under the digest of their key."""
    out: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        out.setdefault(row[0], []).append(row)
    return out
