"""What is kept of tables beside their snapshots, histories and typed changes, and whether it has all changes. No Spark
here."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cdc_platform.config import Config, Source, Tables
from cdc_platform.errors import LakeChanged
from cdc_platform.lake import batches, delta_table, queries, stores
from cdc_platform.lake.writer_lock import is_held
from cdc_platform.tables import (
    BESIDE_STATE,
    CHANGELOG,
    CHECKPOINT,
    HISTORY_PATH,
    TYPED_CHANGES_PATH,
    Location,
    Name,
    name_columns,
    name_of,
)

KEPT, LACKING, LEFT = "kept", "lacking", "left"
"""States that runs note: it has all changes that the snapshot has; it lacks some; nobody asks for it."""
WAITING, BEHIND, STOPPED = "waiting", "behind", "stopped"
"""Others: no run has made it so far; it lacks the newest changes; its table isn't kept up."""
ANEW = "it is made anew from the changelog"
"""Why it lacks changes while a run makes it."""
_WHY = {
    WAITING: "the next run makes it",
    BEHIND: "a run was ended before its end: the next one brings the newest changes",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """asked: whether the configuration asks for it of a table; about: with `{}` for the table's name."""

    path: Location
    asked: Callable[..., bool]
    about: str


KINDS: Mapping[str, Kind] = {
    "history": Kind(HISTORY_PATH, Tables.has_history, "What the rows of {} were, and when."),
    "typed_changes": Kind(
        TYPED_CHANGES_PATH, Tables.has_typed_changes, "Changes of {}, with rows before and after in its columns."
    ),
}
"""By name, which the room of its checkpoint and the option `tables.…` have, too."""


@dataclass(frozen=True, slots=True)
class Beside:
    """One of KINDS that is asked for of a table, as it is now. state: kept, lacking, waiting, behind, stopped."""

    source: str
    name: Name
    kind: str
    state: str
    reason: str | None
    path: str

    @property
    def lacks_changes(self) -> bool:
        """Whether it is known to lack changes: of its table, or with it where that isn't kept up."""
        return self.state in (LACKING, BEHIND, STOPPED)

    @property
    def is_short(self) -> bool:
        """Whether it lacks changes that its table has."""
        return self.lacks_changes and self.state != STOPPED

    @property
    def row(self) -> dict[str, Any]:
        """As a row of `status`."""
        return {**{k: v for k, v in asdict(self).items() if k != "name"}, "table": ".".join(self.name)}


def of_source(config: Config, source: Source) -> dict[Name, list[Beside]]:
    """Of each table that has a snapshot what is asked for beside it, as things are now."""
    kinds = {kind: of for kind, of in KINDS.items() if getattr(source.tables, kind)}
    states = {name_of(t): t["state"] for t in queries.followed(config, source)} if kinds else {}
    found: dict[Name, list[Beside]] = {}
    for kind, of in kinds.items():
        asked = [name for name in states if of.asked(source.tables, *name)]
        if not asked:
            continue
        told, why = States(config, source, kind), _behind(config, source, kind)
        for name in asked:
            state, reason = told.of(name)
            state = WAITING if state == LEFT else BEHIND if why and state == KEPT else state
            if states[name] != "live":
                state, reason = STOPPED, f"its table is {states[name]}"
            path = of.path.of(stores.lake(config), source.name, name).uri()
            text = reason or (why if state == BEHIND else _WHY.get(state))
            found.setdefault(name, []).append(Beside(source.name, name, kind, state, text, path))
    return found


def _behind(config: Config, source: Source, kind: str) -> str | None:
    """Why it is known to lack changes that the snapshots have; None: it isn't. A run that is under way brings them."""
    lake = stores.lake(config)
    mine, snapshots = (CHECKPOINT.at(lake, room=room, source=source.name) for room in (kind, "snapshots"))
    try:
        behind = batches.less_taken(CHANGELOG.at(lake), mine, snapshots, source=source.name)
    except LakeChanged as error:
        return None if is_held(config, source) else str(error)
    return _WHY[BEHIND] if behind and not is_held(config, source) else None


class States:
    """Of tables of a source, as runs noted them last."""

    def __init__(self, config: Config, source: Source, kind: str):
        self._path, self._of = BESIDE_STATE.at(stores.lake(config)), {"source": source.name, "kind": kind}
        rows = queries.newest_of_tables(self._path, "*", "number", **self._of)
        self._number = max((row["number"] for row in rows.values()), default=-1)
        self._known: dict[Name, tuple[str, str | None]] = {n: (row["state"], row["reason"]) for n, row in rows.items()}

    def in_state(self, *states: str) -> set[Name]:
        """Tables that are in one of these."""
        return {name for name, (state, _) in self._known.items() if state in states}

    def of(self, name: Name) -> tuple[str, str | None]:
        """State and reason of a table."""
        return self._known.get(name, (LEFT, None))

    def note(self, found: Mapping[Name, tuple[str, str | None]]) -> None:
        """Notes states and reasons, where they are others. BESIDE_STATE is there."""
        news = {name: told for name, told in sorted(found.items()) if self.of(name) != told}
        self._number += 1
        delta_table.append_rows(
            self._path,
            [
                {**self._of, "number": self._number, **name_columns(name), "state": state, "reason": reason}
                for name, (state, reason) in news.items()
            ],
        )
        self._known |= news
