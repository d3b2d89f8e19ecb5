"""Comparisons of two real feeds that are killed, whose feeds send again, and of tables that have to wait."""

from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_platform.errors import ConfigError
from cdc_platform.lake import stores
from cdc_platform.shadow import run
from cdc_platform.spark import arrow_tasks
from cdc_platform.tables import SHADOW_DIFFERENCES
from tests.shadow.test_run import ITEMS, named, without
from tests.shadow.world import BY, OF

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle]


class Killed(BaseException):
    """As if the process had gone."""


def noted(w: Any) -> list[dict[str, Any]]:
    """All rows of SHADOW_DIFFERENCES."""
    path = SHADOW_DIFFERENCES.at(stores.lake(w.config)).uri()
    return DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []


def killed(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, w: Any) -> None:
    """A comparison that is killed where it calls a function."""

    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(where, name, kill)
        with pytest.raises(Killed):
            w.compare()


@pytest.mark.thorough
def test_a_killed_comparison_leaves_no_half_truth(feeds, monkeypatch):
    w = feeds("tencent_dts", "canal")
    w.create(t := "killed", ITEMS)
    w.create(other := "killed_other", ITEMS)
    w.run(*(f"INSERT INTO {t} VALUES ({i}, 'n{i}', {i}.50, NULL)" for i in range(5)))
    w.send(OF)
    w.send(BY, lambda tx: without(t, 2)(named(t, 3, "three")(tx)))
    w.pass_on(other)
    killed(monkeypatch, run.differences.arrow_tasks, "append", w)
    assert noted(w) == []
    killed(monkeypatch, run.delta_table, "append_rows", w)
    assert sorted((r["kind"], r["number"]) for r in noted(w)) == [("differs", 0), ("only_of", 0)]
    first = noted(w)
    row = w.compare()[f"oracle.{t}"]
    assert [row[k] for k in ("number", "state", "only_of", "only_by", "differing")] == [1, "different", 1, 0, 1]
    assert noted(w) == first, "what the killed one noted is true, and isn't noted again"

    w.run(f"UPDATE {t} SET name = 'later' WHERE id = 1")
    w.send(OF)
    w.catch_up(OF)
    row = w.compare()[f"oracle.{t}"]
    assert [row[k] for k in ("state", "only_of", "differing", "unsettled")] == ["different", 1, 1, 1]
    assert noted(w) == first, "what the other one will still bring is no difference"

    w.run(f"DELETE FROM {t} WHERE id IN (2, 3)")
    w.pass_on(other)
    killed(monkeypatch, run.delta_table, "append_rows", w)
    closed = [r for r in noted(w) if r["closed_at"] is not None]
    assert sorted((r["kind"], r["number"]) for r in closed) == [("differs", 3), ("only_of", 3)]
    assert {r["first_seen"] for r in closed} == {r["first_seen"] for r in first}
    assert w.compare()[f"oracle.{t}"]["state"] == "equal"
    assert (len(noted(w)), w.open()) == (4, [])
    assert arrow_tasks.append is run.differences.arrow_tasks.append
    with pytest.raises(ConfigError, match=r"the pair has no table 'oracle\.kill'"):
        w.compare(tables=["oracle.kill"])


@pytest.mark.thorough
def test_tables_that_have_to_wait_and_a_feed_that_sends_again(feeds):
    w = feeds("tencent_dts", "canal", tables=["oracle.waits*"])
    w.create(t := "waits", ITEMS)
    w.create(bag := "waits_bag", "(a int, b varchar(9))")
    w.create(other := "waits_other", ITEMS)
    w.run(f"INSERT INTO {t} VALUES (1, 'a', 1, NULL)", f"INSERT INTO {bag} VALUES (1, NULL), (1, NULL), (2, 'x')")
    w.pass_on(other)
    found = w.compare()
    assert {n: r["state"] for n, r in found.items() if n != "*"} == {f"oracle.{n}": "equal" for n in (t, bag, other)}

    # a statement, TRUNCATE and rows without a key that only one has
    w.run(f"DELETE FROM {bag} WHERE a = 2")
    w.db.alter(t, "ADD COLUMN more int DEFAULT 7")
    w.db.truncate(other)
    w.send(OF)
    w.catch_up(OF)
    found = w.compare()
    assert {r["state"] for n, r in found.items() if n != "*"} == {"behind"}
    assert "statement, TRUNCATE or load of it in first is newer" in found[f"oracle.{t}"]["reason"]
    assert "it has no key, and first has newer changes" in found[f"oracle.{bag}"]["reason"]
    assert w.open() == []
    w.pass_on(other)
    found = w.compare()
    states = {n: (r["state"], r["reason"]) for n, r in found.items() if n != "*"}
    assert states == {f"oracle.{n}": ("equal", None) for n in (t, bag, other)}

    # it sends again what it has sent; rows without a key are counted
    w.sides[BY].sent -= 3
    w.send(BY)
    w.run(f"INSERT INTO {bag} VALUES (5, 'y'), (5, 'y')")
    w.send(OF)
    w.send(BY, lambda tx: None if any(c.table.name == bag for c in tx.events) else tx)
    w.pass_on(other)
    found = w.compare()
    row = found[f"oracle.{bag}"]
    assert [row[k] for k in ("state", "only_of", "only_by")] == ["different", 2, 0]
    assert [found[f"oracle.{n}"]["state"] for n in (t, other)] == ["equal", "equal"]

    # of tables that the pair isn't about nothing is said
    w.create(apart := "apart", ITEMS)
    w.run(f"INSERT INTO {apart} (id) VALUES (1)")
    w.send(OF)
    w.send(BY, without(apart, 1))
    w.pass_on(other)
    assert f"oracle.{apart}" not in w.compare()
