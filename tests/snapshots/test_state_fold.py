"""What became of tables, a row for each batch, kept as one for each day: all that is asked of it stays the same."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from cdc_platform.lake import delta_table, new_tables, queries, stores
from cdc_platform.snapshots import state, state_fold
from cdc_platform.tables import ORDER, TABLE_STATE

pytestmark = pytest.mark.spark


class Later(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(days=3)


def order(pos: int) -> dict[str, Any]:
    return {**dict.fromkeys(ORDER.names, 1), "pos": Decimal(pos)}


def outcome(name: str, batch: int, **more: Any) -> state.Outcome:
    told = {"state": "live", "reason": None, "changes": batch, "invalid_dates": 1, "partial": 2} | more
    return state.Outcome(("shop", name), **told, high_order=order(batch) if name != "bare" else None)


@pytest.fixture
def lake(make_config: Any) -> Any:
    config = make_config([{"name": n, "format": "debezium", "topics": [n]} for n in ("s", "other")])
    path = TABLE_STATE.at(stores.lake(config))
    new_tables.create(path, TABLE_STATE)
    for source in config.sources:
        for batch in range(6):
            before = state.now(path, source)
            some = [outcome(n, batch) for n in ("a", "bare")]
            some += [outcome("b", batch, state="stopped", reason="why")] if batch == 3 else []
            state.keep(stores.lake(config), source, some, before, batch)
        state.keep(stores.lake(config), source, [outcome("a", 5, changes=100)], state.now(path, source), 5, anew=True)
    return config


def test_what_is_asked_of_old_rows_stays_and_new_ones_are_added(spark: Any, lake: Any, monkeypatch: Any) -> None:
    source, other = lake.sources
    path = TABLE_STATE.at(stores.lake(lake))
    before, theirs, states = state.now(path, source), state.now(path, other), queries.table_states(lake)
    assert before[("shop", "a")]["entries"] == 7 and before[("shop", "a")]["rebuild"] == 1
    assert state_fold.fold(spark, lake, source) == 0  # of the last hour
    monkeypatch.setattr(state_fold, "datetime", Later)
    assert state_fold.fold(spark, lake, source) == 14 - 3
    assert state.now(path, source) == before
    assert state.now(path, other) == theirs
    assert queries.table_states(lake) == states
    rows = delta_table.ask("SELECT count(*) AS n FROM {t} WHERE source = 's'", t=path)
    assert rows[0]["n"] == 3
    assert state_fold.fold(spark, lake, source) == 0
    state.keep(stores.lake(lake), source, [outcome("a", 6)], before, 6)
    now = state.now(path, source, 6)[("shop", "a")]
    assert (now["entries"], now["batch"], now["touched"], now["changes"]) == (8, 6, True, 6)
    assert {n for n, t in state.now(path, source, 6).items() if t["touched"]} == {("shop", "a")}


def test_rows_are_of_the_hour_before_they_are_of_the_day(spark: Any, lake: Any, monkeypatch: Any) -> None:
    [source, _] = lake.sources
    monkeypatch.setattr(state_fold, "_BY_HOUR", timedelta(days=9))
    monkeypatch.setattr(state_fold, "datetime", Later)
    assert state_fold.fold(spark, lake, source) >= 14 - 6  # over a full hour, perhaps
