"""Whose tables are in which folder, and whose cuts are of it."""

from pathlib import Path

import pytest

from cdc_platform import tables
from cdc_platform.automation.naming import Naming
from cdc_platform.config import Config, parse_config
from cdc_platform.lake import exchange, folders, stores
from cdc_platform.lake.exchange import Exchanged
from cdc_platform.lake.store import Store
from cdc_platform.reading import Snapshots
from cdc_platform.spark import delta_sql
from tests.rows import add

OLD, NEW = "shop", "shop-dts"
ORDERS = ("shop", "orders")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    sources = [{"name": n, "format": f, "topics": [n]} for n, f in ((OLD, "canal_json"), (NEW, "tencent_dts"))]
    return parse_config({"lake": str(tmp_path / "lake"), "sources": sources}, tmp_path / "cdc.yaml")


@pytest.fixture
def lake(config: Config) -> Store:
    found = stores.lake(config)
    delta_sql.ensure(tables.SNAPSHOT_FOLDERS, tables.SNAPSHOT_FOLDERS.at(found))
    return found


def exchanged(lake: Store, of: str, by: str, cut: int) -> None:
    assert folders.exchange(lake, folders.next_number(lake), of, by, cut)


def test_a_source_has_the_folder_of_its_name(config: Config) -> None:
    lake = stores.lake(config)
    assert folders.folder(lake, OLD) == OLD
    assert (folders.source(lake, OLD), folders.ever(lake, OLD)) == (OLD, [OLD])
    assert folders.cuts_before(lake, OLD) == 0
    assert not folders.was_exchanged(lake, NEW, OLD)
    assert folders.snapshot(lake, OLD, ORDERS) == tables.SNAPSHOT_PATH.of(lake, OLD, ORDERS)


def test_two_exchange_theirs_and_change_back(lake: Store) -> None:
    exchanged(lake, OLD, NEW, 7)
    assert (folders.folder(lake, NEW), folders.folder(lake, OLD)) == (OLD, NEW)
    assert folders.snapshot(lake, NEW, ORDERS) == tables.SNAPSHOT_PATH.of(lake, OLD, ORDERS)
    assert folders.tombstones(lake, NEW, ORDERS) == tables.TOMBSTONES_PATH.of(lake, OLD, ORDERS)
    assert folders.table_folder(lake, tables.HISTORY_PATH, NEW, ORDERS) == tables.HISTORY_PATH.of(lake, NEW, ORDERS)
    assert folders.under(lake, tables.SNAPSHOT_PATH, NEW) == [f"snapshots/{NEW}", f"snapshots/{OLD}"]
    assert folders.under(lake, tables.HISTORY_PATH, NEW) == [f"history/{NEW}"]
    assert folders.was_exchanged(lake, NEW, OLD) and not folders.was_exchanged(lake, OLD, NEW)
    assert (folders.source(lake, OLD), folders.source(lake, NEW)) == (NEW, OLD)

    exchanged(lake, NEW, OLD, 9)
    assert (folders.folder(lake, NEW), folders.folder(lake, OLD)) == (NEW, OLD)
    assert folders.was_exchanged(lake, OLD, NEW) and not folders.was_exchanged(lake, NEW, OLD)
    assert (folders.source(lake, OLD), folders.source(lake, NEW)) == (OLD, NEW)
    assert folders.ever(lake, NEW) == [NEW, OLD]
    assert folders.cuts_before(lake, NEW) == 9


def test_a_third_takes_the_place_later(lake: Store) -> None:
    exchanged(lake, OLD, NEW, 7)
    exchanged(lake, NEW, "third", 8)
    assert [folders.folder(lake, s) for s in (OLD, NEW, "third")] == [NEW, "third", OLD]
    assert [folders.source(lake, f) for f in (OLD, NEW, "third")] == ["third", OLD, NEW]


def test_a_number_is_given_once(lake: Store) -> None:
    assert not folders.decided(lake, NEW, 1)
    assert not folders.exchange(lake, 1, OLD, NEW, 0)
    assert folders.folder(lake, NEW) == NEW
    exchanged(lake, OLD, NEW, 0)
    assert folders.decided(lake, NEW, 2)
    assert folders.folder(lake, NEW) == OLD, "what was decided stays"


def test_what_is_decided_while_it_is_given_up_is_done(lake: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process notes the exchange between the question whether it is noted and the answer."""
    note = folders._note

    def late(of: Store, number: int, rows: list[dict[str, object]]) -> None:
        monkeypatch.undo()
        assert folders.exchange(of, number, OLD, NEW, 0)
        note(of, number, rows)

    delta_sql.ensure(tables.TOPICS, tables.TOPICS.at(lake))
    exchange.decide(lake, NEW, [Exchanged(tables.TOPICS.path, {}, [], news=True)], {}, 1)
    monkeypatch.setattr(folders, "_note", late)
    assert exchange.finish(lake, NEW)
    assert folders.folder(lake, NEW) == OLD


def test_what_was_not_decided_is_given_up(lake: Store) -> None:
    path = delta_sql.ensure(tables.TOPICS, tables.TOPICS.at(lake))
    exchange.decide(lake, NEW, [Exchanged(tables.TOPICS.path, {}, [])], {}, 1)
    add(str(lake.root), tables.TOPICS, {"source": NEW, "topic": "t"})
    assert not exchange.finish(lake, NEW)
    assert not folders.exchange(lake, 1, OLD, NEW, 0), "nor can it be decided any more"
    assert exchange.noted(lake) == []
    assert path.uri()
    exchange.decide(lake, NEW, [Exchanged(tables.TOPICS.path, {}, [], news=True)], {}, 2)
    exchanged(lake, OLD, NEW, 0)
    assert exchange.finish(lake, NEW)
    assert not exchange.finish(lake, NEW)


def test_readers_and_dagster_find_a_table_where_it_is(config: Config, lake: Store) -> None:
    known = {"rebuild": 0, "batch": 0, "state": "live", "db": "shop", "table": "orders"}
    add(config.lake, tables.TABLE_STATE, {**known, "source": OLD}, {**known, "source": NEW, "table": "new"})
    cuts = [{"source": s, "cut": n, "kind": "transaction"} for s, n in ((OLD, 1), (OLD, 2), (NEW, 1), (NEW, 3))]
    placed = [{"db": "shop", "table": "orders", "path": "snapshots/shop/shop/orders", "version": 4}]
    add(config.lake, tables.CUTS, *({**c, "snapshots": placed} for c in cuts[:3]))
    exchanged(lake, OLD, NEW, 2)
    add(config.lake, tables.CUTS, {**cuts[3], "snapshots": placed, "folder": OLD})

    reader = Snapshots(config.lake)
    assert [str(n) for n in reader.tables(OLD)] == [f"{OLD}/shop.new"]
    assert [c.number for c in reader.cuts(OLD)] == [3, 2, 1]
    assert [c.number for c in reader.cuts(OLD, limit=2)] == [3, 2]
    assert reader.at_cut(OLD).cut.number == 3
    assert [str(n) for n in reader.at_cut(OLD, 2).tables()] == [f"{OLD}/shop.orders"]

    naming, new = Naming(config), config.source(NEW)
    assert naming.table(new, *ORDERS).key.path == ["snapshots", OLD, *ORDERS]
    assert naming.table(new, *ORDERS).metadata["dagster/uri"].endswith(f"snapshots/{OLD}/shop/orders")
    assert naming.key("snapshots", new).path == ["snapshots", OLD]
    assert naming.key("complete", new).path == ["complete", OLD]
    assert naming.key("changelog", new).path == Naming(config).key("changelog", new).path
