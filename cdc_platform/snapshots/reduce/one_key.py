"""The rule by which changes make a row, told of one key: which change each cell comes from. No Spark here.

`fold` says the same of all keys of a batch, in columns of Spark, without keeping who told a cell;
tests/snapshots/reduce/test_fold.py holds both against each other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

UNIQUE = ("partition", "entry_index", "row_index")
"""What tells changes of one order apart."""
SETS_WHOLE_ROW = ("insert", "read")
"""Changes after which a column that the image lacks is NULL; after others it is what it was."""

Change = Mapping[str, Any]
"""A CHANGELOG row: maps as dicts, `order_key` as a tuple of integers."""
Image = Mapping[str, str | None]
Key = Mapping[str, str | None]
Alike = Callable[[str, str | None], str | None]
"""(column, text) → the spelling that equal texts of it share (`tables.key_collation`)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A column's text, and the change that told it."""

    text: str | None
    by: Change


@dataclass(frozen=True, slots=True)
class Step:
    """What a change does to one key. image: what it tells of the row; whole: columns that the image lacks are NULL;
    moved: to which key, or from which, where the change moves the row; lost: it moves it here, and the image lacks
    columns."""

    change: Change
    key: Key
    deleted: bool
    whole: bool
    image: Image = field(default_factory=dict)
    moved: Key | None = None
    lost: bool = False

    @property
    def place(self) -> tuple[Any, ...]:
        """Where it stands among the steps of its key."""
        return (*sort_key(self.change), self.deleted)


@dataclass(frozen=True, slots=True)
class Row:
    """What steps make of a key. cells: None where there is no row. last: the step that had the last word (before a
    TRUNCATE, if one came). since: steps that count, in order. truncated: the TRUNCATE after all of them."""

    cells: dict[str, Cell] | None
    last: Step | None
    since: tuple[Step, ...] = ()
    truncated: Change | None = None


def sort_key(change: Change) -> tuple[Any, ...]:
    """Where a change stands among all of its table."""
    return (change["order_key"], *(-1 if change[c] is None else change[c] for c in UNIQUE))


def steps(
    change: Change, keys: Sequence[str], columns: Sequence[str], alike: Alike = lambda _, text: text
) -> list[Step]:
    """What a change does to keys: it stays with one, or takes a row from one key to another. keys, columns: names of
    the table's. alike: of the key's columns."""
    before = key_image(change, keys)
    old = {k: before.get(k) for k in keys}
    op, after = change["op"], change["after"] or {}
    moves = op == "update" and any(
        after.get(k) is not None and old[k] is not None and alike(k, after[k]) != alike(k, old[k]) for k in keys
    )
    if not moves:
        return [Step(change, old, op == "delete", op in SETS_WHOLE_ROW, after)]
    new = key_after(old, after, keys)
    image = {**(change["before"] or {}), **after}
    lost = any(c not in image for c in columns)
    return [
        Step(change, old, deleted=True, whole=False, moved=new),
        Step(change, new, deleted=False, whole=True, image=image, moved=old, lost=lost),
    ]


def key_after(old: Image, after: Image, keys: Sequence[str]) -> Image:
    """The key of the row after: what it doesn't tell is as in the row before."""
    return {k: old.get(k) if after.get(k) is None else after[k] for k in keys}


def key_image(change: Change, keys: Sequence[str] = ()) -> Image:
    """Where the key of the row before stands: told key, if it has these columns, else the row images."""
    told, inserted = change["key"], change["after"] if change["op"] == "insert" else None
    if told is not None and any(k not in told for k in keys):
        told = None
    images = (told, inserted, change["before"], change["after"])
    return next((image for image in images if image is not None), {})


def row(
    mine: Iterable[Step], columns: Sequence[str], truncates: Iterable[Change] = (), held: "Held | None" = None
) -> Row:
    """What steps of one key come to, in whatever order they are given. columns: names of the table's. truncates: of its
    table. held: where what a lost move lacks is told; None: nowhere."""
    ordered = sorted(mine, key=lambda s: s.place)
    last_truncate = max(truncates, key=sort_key, default=None)
    if last_truncate is not None:
        alive = [s for s in ordered if s.change["order_key"] > last_truncate["order_key"]]
        if not alive:
            return Row(None, ordered[-1] if ordered else None, (), last_truncate if ordered else None)
        ordered = alive
    if not ordered:
        return Row(None, None)
    reset = max((i for i, s in enumerate(ordered) if s.whole or s.deleted), default=0)
    since = tuple(ordered[reset:])
    last = since[-1]
    if last.deleted:
        return Row(None, last, since)
    cells: dict[str, Cell] = {}
    for step in since:
        if step.lost and held is not None:
            cells |= {name: cell for name, cell in held(step).items() if name not in step.image}
        if not step.deleted:
            cells |= {name: Cell(text, step.change) for name, text in step.image.items()}
    first = since[0]
    whole = {c: Cell(None, first.change) for c in columns} if first.whole else {}
    return Row({c: cell for c in columns if (cell := cells.get(c) or whole.get(c)) is not None}, last, since)


Held = Callable[[Step], dict[str, Cell]]
"""A move whose images lack columns → cells of the row under the key that it came from, just before."""
