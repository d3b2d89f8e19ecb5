"""How a batch's changes of one table come into its snapshot: a decision about figures alone, no Spark."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

NO_KEY = "changes come without a key value"
"""Why a table is stopped, until a statement that comes late tells what they hold in its key."""


class Plan(StrEnum):
    """What is done with a batch's changes of one table."""

    STOP = "stop"
    REBUILD = "rebuild"
    KEYLESS = "keyless"
    NOTHING = "nothing"
    APPEND = "append"
    REPLACE = "replace"
    REFOLD = "refold"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Facts:
    """Of a table and its changes in a batch. changes: how many there are; no_key: those that tell no key; lost_moves:
    key changes whose images don't hold the whole row; whole: all are whole images (full_images.py); partial: images
    tell a part of the row, in this batch or before; empty: the snapshot holds nothing and nothing was deleted; newer:
    all are newer than what it holds; anew: the table is made from these changes alone."""

    keyed: bool
    changes: int = 1
    no_key: int = 0
    lost_moves: int = 0
    whole: bool = False
    partial: bool = False
    empty: bool = False
    newer: bool = False
    anew: bool = False


class Case(NamedTuple):
    """A plan, whether it is the one, and what the documentation tells of it."""

    plan: Plan
    holds: Callable[[Facts], bool]
    when: str
    how: str


CASES = (
    Case(
        Plan.KEYLESS,
        lambda f: not f.keyed,
        "the table has no key",
        "rows that came, all newer than any delete, are added, many tables together; else equal rows are counted: "
        "inserts less deletes",
    ),
    Case(
        Plan.REBUILD,
        lambda f: bool(f.lost_moves) and not f.anew,
        "a row moves to another key, and its image isn't whole",
        "from the whole changelog, at the end of the run",
    ),
    Case(
        Plan.STOP,
        lambda f: bool(f.no_key or f.lost_moves),
        "a change tells no key, or the whole changelog tells no whole row that moved",
        "the table's state says why",
    ),
    Case(
        Plan.NOTHING,
        lambda f: not f.changes,
        "only TRUNCATEs of single tables of a snapshot of several",
        "tombstones",
    ),
    Case(
        Plan.APPEND,
        lambda f: f.whole and f.empty,
        "whole images; the snapshot is new",
        "workers write the rows, of few changes many tables together",
    ),
    Case(
        Plan.REPLACE,
        lambda f: f.whole and f.newer,
        "whole images, all newer than the snapshot",
        "the same, and rows that they replace are marked or left out",
    ),
    Case(
        Plan.REFOLD,
        lambda f: f.partial and not (f.empty or f.newer),
        "late changes, and images tell a part of the row",
        "all changes of their keys are folded again",
    ),
    Case(
        Plan.MERGE,
        lambda _: True,
        "all else: late changes, key changes, values that only Spark reads, a TRUNCATE where tables don't go together",
        "folded by Spark; MERGE, where newer rows win",
    ),
)
"""In the order in which they are asked."""


class Choice(NamedTuple):
    """reason: why the table is stopped; None of other plans."""

    plan: Plan
    reason: str | None = None


def choose(facts: Facts) -> Choice:
    """The first of CASES that holds."""
    plan = next(case.plan for case in CASES if case.holds(facts))
    return Choice(plan, _reason(facts) if plan is Plan.STOP else None)


def _reason(facts: Facts) -> str:
    if facts.no_key:
        return f"{facts.no_key} {NO_KEY}"
    lost = "change a key with a partial row image, and no earlier change tells the whole row"
    return f"{facts.lost_moves} changes {lost}"


def without_workers(choice: Choice) -> Choice:
    """Where they couldn't do it, for the table has something that isn't kept to, or a text is Spark's to read."""
    return Choice(Plan.MERGE) if choice.plan in (Plan.APPEND, Plan.REPLACE) else choice
