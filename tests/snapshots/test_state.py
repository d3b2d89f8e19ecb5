"""What became of each table, asked of many rows at once: by the rules as they are written here."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.lake.store import Store
from cdc_platform.snapshots import state
from cdc_platform.tables import ORDER, TABLE_STATE, Name, name_columns, name_of
from tests.lakes import store_at
from tests.properties import examples
from tests.rows import add

SOURCE: Any = SimpleNamespace(name="s")
NAMES: list[Name] = [("shop", "a"), ("shop", "b"), ("shop", "x", "a")]
Row = dict[str, Any]

numbers = st.integers(0, 2)  # few, so that rows tie
orders = st.none() | st.fixed_dictionaries(dict.fromkeys(ORDER.names, numbers))
rows = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["s", "s", "s", "other"]),
        "name": st.sampled_from(NAMES),
        "batch": st.integers(-1, 2),
        "state": st.sampled_from(["live", "stopped", "stale", "dropped", "left_out"]),
        "reason": st.sampled_from([None, "", "why", "é"]),
        "changes": numbers,
        "invalid_dates": numbers,
        "partial": numbers,
        "high_order": orders,
        "rebuild": numbers,
        "entries": st.none() | numbers,  # NULL: not folded
    }
)


def order(row: Row) -> tuple[int, ...]:
    return tuple(int(row["high_order"][n]) for n in ORDER.names)


def rule(told: list[Row], since: int | None) -> Row:
    """What is so of a table by its rows."""
    asked = [r for r in told if since is not None and r["batch"] >= (since or -1)]
    last = max(told, key=lambda r: (r["rebuild"], r["batch"], r["state"], r["reason"] is None, r["reason"] or ""))
    high = max((r for r in told if r["high_order"]), key=order, default=None)
    return {
        "state": last["state"],
        "reason": last["reason"],
        "batch": max(r["batch"] for r in told),
        "rebuild": max(r["rebuild"] for r in told),
        "invalid_dates": sum(r["invalid_dates"] for r in told),
        "partial": sum(r["partial"] for r in told),
        "entries": sum(1 if r["entries"] is None else r["entries"] for r in told),
        "touched": bool(asked),
        "changes": sum(r["changes"] for r in asked),
        "high_order": high and order(high),
    }


def by_name(told: list[Row]) -> dict[Name, list[Row]]:
    found: dict[Name, list[Row]] = {}
    for row in told:
        if row["source"] == "s":
            found.setdefault(row["name"], []).append(row)
    return found


def written(lake: Path, told: list[Row], files: int) -> Store:
    """These rows, in some files."""
    for n in range(files):
        some = [{**{k: v for k, v in r.items() if k != "name"}, **name_columns(r["name"])} for r in told[n::files]]
        add(lake, TABLE_STATE, *some)
    return TABLE_STATE.at(store_at(str(lake)))


def asked(path: Store, since: int | None) -> dict[Name, Row]:
    """As `rule` has it."""
    found = {}
    for name, now in state.now(path, SOURCE, since).items():
        assert name_of(now) == name
        told = {k: v for k, v in now.items() if k not in ("db", "schema", "table")}
        found[name] = {**told, "high_order": now["high_order"] and order(now)}
    return found


@examples(100)
@given(told=st.lists(rows, min_size=1, max_size=12), files=st.integers(1, 3), since=st.none() | st.integers(0, 2))
def test_what_is_so_of_tables(
    tmp_path_factory: pytest.TempPathFactory, told: list[Row], files: int, since: int | None
) -> None:
    path = written(tmp_path_factory.mktemp("state"), told, min(files, len(told)))
    assert asked(path, since) == {name: rule(mine, since) for name, mine in by_name(told).items()}


def test_what_is_so_of_tables_with_many_rows(tmp_path: Path) -> None:
    """More than are looked at in one go, of more tables than rows come of in it, in no order."""
    chance = random.Random(1)
    names = [("shop", f"t{n}") for n in range(300)]

    def place(name: Name) -> Row | None:
        bare = name[-1].endswith("7") or chance.random() < 0.1
        return None if bare else dict.fromkeys(ORDER.names, chance.randrange(1 << 40))

    told = [
        {
            "source": "s",
            "name": (name := chance.choice(names)),
            "batch": chance.randrange(50),
            "state": chance.choice(["live", "stopped"]),
            "reason": chance.choice([None, "why"]),
            **{n: chance.randrange(9) for n in ("changes", "invalid_dates", "partial")},
            "high_order": place(name),
            "rebuild": chance.randrange(3),
            "entries": chance.choice([None, 5]),
        }
        for _ in range(60_000)
    ]
    path = written(tmp_path, told, 5)
    assert asked(path, 40) == {name: rule(mine, 40) for name, mine in by_name(told).items()}
