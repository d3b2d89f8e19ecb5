"""Feeds of two formats: the tables of one source take the place of the other's, where readers find them."""

import json
from typing import Any

import pytest
import yaml

from cdc_platform.cli.app import run as command
from cdc_platform.config import load_config
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.lake import delta_table, exchange, folders, handles, queries, stores
from cdc_platform.reading import Snapshots, described
from cdc_platform.replay.run import replay
from cdc_platform.shadow import handover
from cdc_platform.shadow.cutover import way
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.shadow.handover import Handover
from cdc_platform.tables import SNAPSHOT_FOLDERS, SNAPSHOT_PATH
from tests.oracle.session import DB
from tests.shadow.test_cutover import Killed, filled
from tests.shadow.test_run import ITEMS, named, without
from tests.shadow.world import BY, OF, Pair

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle]


def asked(w: Pair) -> Handover:
    alike = len({w.config.source(name).format for name in (OF, BY)}) == 1
    found = way(w.config, w.pair, lambda _: None, exchange=alike)
    assert isinstance(found, Handover)
    return found


def rows(w: Pair, folder: str, table: str) -> list[tuple[Any, ...]]:
    """Of a snapshot in a folder, as its readers see it."""
    found = read_snapshot(SNAPSHOT_PATH.of(stores.lake(w.config), folder, (DB, table)).uri()).to_pylist()
    return sorted((tuple(v for k, v in r.items() if not k.startswith("_")) for r in found), key=repr)


def same(w: Pair, folder: str, *names: str) -> None:
    """A folder's tables are what the database has."""
    for name in names:
        assert rows(w, folder, name) == sorted(map(tuple, w.db.rows(name)), key=repr), (folder, name)


def versions(w: Pair, folder: str, *names: str) -> list[int]:
    return [delta_table.version(SNAPSHOT_PATH.of(stores.lake(w.config), folder, (DB, n))) for n in names]


def limits(w: Pair, folder: str, name: str) -> dict[str, list[str]]:
    """What the feed can't tell of a table, as its metadata says."""
    return described.limits_of(handles.opened(SNAPSHOT_PATH.of(stores.lake(w.config), folder, (DB, name))))


def refused(w: Pair, match: str) -> None:
    """It is refused, and nothing is changed."""
    with pytest.raises(ShadowRefused, match=match):
        asked(w).do(w.spark)
    assert folders.folder(stores.lake(w.config), BY) == BY
    assert queries.query("SELECT * FROM t", t=SNAPSHOT_FOLDERS.at(stores.lake(w.config))) in (None, [])


@pytest.mark.thorough
def test_readers_go_on_where_they_are(feeds, capsys):
    w = feeds("tencent_dts", "canal")
    names = name, bag, other = filled(w, "handed")
    w.run(f"DELETE FROM {name} WHERE id = 5")
    w.pass_on(other)
    same(w, OF, *names)
    reader = Snapshots(w.config.lake)
    before = reader.at_cut(OF).cut
    w.run(f"UPDATE {name} SET name = 'by the new one' WHERE id = 2", f"INSERT INTO {bag} VALUES (4, 'z')")
    w.pass_on(other)

    def told(*arguments: str) -> Any:
        capsys.readouterr()
        assert command([*arguments, "--json", "--config", str(w.file)]) == 0
        return json.loads(capsys.readouterr().out)

    w.compare()
    plan = told("shadow", "cutover", OF)
    assert (plan["done"], plan["folders"], plan["tables"]) == (False, {OF: BY, BY: OF}, 3)
    at = versions(w, OF, *names)
    done = told("shadow", "cutover", OF, "--yes")
    assert (done["done"], done["folders"]) == (True, {OF: BY, BY: OF})
    assert told("shadow", "cutover", OF, "--yes")["done"] and asked(w).do(w.spark)["done"]
    assert versions(w, OF, *names) == [v + 1 for v in at], "each table took its rows with one commit"
    for folder in (OF, BY):
        same(w, folder, *names)

    # the new feed alone brings what readers see
    w.run(f"UPDATE {name} SET name = 'later' WHERE id IN (1, 2)", f"DELETE FROM {name} WHERE id = 3")
    w.run(f"DELETE FROM {bag} WHERE a = 1", f"INSERT INTO {name} VALUES (5, 'again', 5.5, NULL)")
    w.db.alter(name, "ADD COLUMN more int DEFAULT 7")
    w.run(f"UPDATE {name} SET more = 8 WHERE id = 1")
    w.send(BY)
    w.catch_up(BY)
    same(w, OF, *names)
    w.send(OF)
    w.catch_up(OF)
    same(w, BY, *names)
    assert w.compare()["*"]["different"] == 0

    # what is known of a table is known of it where it is
    table = f"{OF}/{DB}.{name}"
    assert table in map(str, reader.tables(OF)) and reader.arrow(table).num_rows == len(rows(w, OF, name))
    now = reader.at_cut(OF).cut
    assert now.number > before.number and now.source == OF
    assert reader.at_cut(OF, before.number).cut.snapshots == before.snapshots, "an old cut is what it was"
    assert [c.number for c in reader.cuts(OF)] == sorted({c.number for c in reader.cuts(OF)}, reverse=True)
    assert "later" in json.dumps(told("explain", BY, f"{DB}.{name}", "2"))
    assert told("certify", BY)
    listed = {(t["source"], t["table"]): t["path"] for t in told("tables")}
    assert f"snapshots/{OF}/" in listed[BY, f"{DB}.{name}"] and f"snapshots/{BY}/" in listed[OF, f"{DB}.{name}"]
    assert replay(w.spark, w.config, w.config.source(BY))["equal"]


@pytest.mark.thorough
def test_a_killed_one_has_done_nothing_or_all(feeds, monkeypatch):
    w = feeds("tencent_dts", "canal")
    names = name, _, other = filled(w, "killed_hand")
    w.run(f"UPDATE {name} SET name = 'later' WHERE id = 1")
    w.pass_on(other)

    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    def after(what: Any) -> Any:
        def then(*args: Any, **how: Any) -> None:
            what(*args, **how)
            raise Killed

        return then

    undecided = (
        (handover.ready, "bring", kill),
        (handover.exchange, "decide", kill),
        (handover.exchange, "decide", after(exchange.decide)),
        (handover.folders, "exchange", kill),
    )
    for where, what, instead in undecided:
        with monkeypatch.context() as patched:
            patched.setattr(where, what, instead)
            with pytest.raises(Killed):
                asked(w).do(w.spark)
        w.pass_on(other)
        assert folders.folder(stores.lake(w.config), BY) == BY
        same(w, OF, *names)
        same(w, BY, *names)
    with monkeypatch.context() as patched:
        patched.setattr(handover.folders, "exchange", after(folders.exchange))
        with pytest.raises(Killed):
            asked(w).do(w.spark)
    w.run(f"UPDATE {name} SET name = 'behind it' WHERE id = 1")
    w.send(BY)
    w.catch_up(BY)
    same(w, OF, *names)
    assert asked(w).do(w.spark)["done"]
    for folder in (OF, BY):  # a cut of where its tables are now, though nothing came
        cut = Snapshots(w.config.lake).at_cut(folder, kind="any").cut
        assert all(f"snapshots/{folder}/" in at.path.uri() for at in cut.snapshots.values())
    w.send(OF)
    w.catch_up(OF)
    same(w, BY, *names)


@pytest.mark.thorough
def test_an_exchange_that_was_given_up_is_not_made_later(feeds, monkeypatch):
    """A process that stood still between its notes and its decision finds that another one has gone on."""
    w = feeds("tencent_dts", "canal")
    names = *_, other = filled(w, "given_up")
    real = folders.exchange

    def slow(lake: Any, *args: Any) -> bool:
        exchange.finish(lake, BY)  # as who takes the source over does
        return real(lake, *args)

    monkeypatch.setattr(handover.folders, "exchange", slow)
    with pytest.raises(ShadowRefused, match="another exchange was made"):
        asked(w).do(w.spark)
    monkeypatch.undo()
    w.pass_on(other)
    for folder in (OF, BY):
        same(w, folder, *names)
    assert asked(w).do(w.spark)["done"]
    for folder in (OF, BY):
        same(w, folder, *names)


@pytest.mark.thorough
def test_what_is_not_certain_is_refused(feeds):
    w = feeds("tencent_dts", "canal")
    name, _, other = filled(w, "uncertain_hand")
    w.run(f"UPDATE {name} SET name = 'by the old one' WHERE id = 1")
    w.send(OF)
    refused(w, rf"rows of {DB}.{name} aren't settled, and {BY} isn't known to have all that {OF} has")
    w.pass_on(other)
    w.run(f"DELETE FROM {name} WHERE id = 2")
    w.send(OF)
    w.send(BY, without(name, 2))
    w.pass_on(other)
    refused(w, f"1 row of oracle.{name} differs")
    w.run(f"REPLACE INTO {name} VALUES (2, 'again', 1, NULL)")
    w.pass_on(other)
    told = yaml.safe_load(w.file.read_text())
    told["sources"][1]["tables"]["readers"] = {"*": "any"}
    w.file.write_text(yaml.safe_dump(told))
    w.config = load_config(w.file)
    refused(w, "the sources have different `tables` settings; what would do: the same `tables` for both")
    for source in told["sources"]:
        source["tables"] = {"include": [f"{DB}.*"], "exclude": [f"{DB}.uncertain_hand_bag"]}
    w.file.write_text(yaml.safe_dump(told))
    w.config = load_config(w.file)
    w.catch_up()
    refused(w, f"{DB}.uncertain_hand_bag is left out by the rules of {OF}, and its rows of before are kept")


@pytest.mark.thorough
def test_rows_that_differ_by_the_newest_change_of_all_are_refused(feeds):
    """`by` has it, has come on behind it, and tells a value of it wrongly; it has a newer change of another row."""
    w = feeds("tencent_dts", "canal")
    name, _, other = filled(w, "newest_hand")
    w.run(f"UPDATE {name} SET name = 'one' WHERE id < 4")
    w.send(OF)
    w.run(f"UPDATE {name} SET name = 'newer' WHERE id = 4")
    w.send(BY, named(name, 2, "two"))
    w.pass_on(other, BY)
    w.catch_up(OF)
    row = w.compare()[f"{DB}.{name}"]
    assert (row["state"], row["differing"], row["unsettled"]) == ("behind", 0, 2)
    refused(w, f"1 row of {DB}.{name} differs")
    assert [d[:3] for d in w.open()] == [(name, "2", "differs")]
    w.run(f"UPDATE {name} SET name = 'three' WHERE id < 4")
    w.pass_on(other)
    w.run(f"UPDATE {name} SET name = 'newest' WHERE id = 4")
    w.pass_on(other, BY)
    row = w.compare()[f"{DB}.{name}"]
    assert (row["state"], row["differing"], row["unsettled"]) == ("behind", 0, 1)
    assert asked(w).do(w.spark)["done"]


@pytest.mark.thorough
@pytest.mark.parametrize(("of", "by"), [("canal", "tencent_dts"), ("debezium", "canal_json"), ("debezium", "debezium")])
def test_and_back_again(feeds, of, by):
    """Also with a table of which one has tombstones and the other none, and with names that columns are mapped for."""
    w = feeds(of, by)
    w.create(
        odd := f"odd_{of}_{by}", "(id int primary key, `a b,c` int, `t` datetime(6), d decimal(20,4), b varbinary(9))"
    )
    w.create(other := f"{odd}_other", ITEMS)
    w.run(f"INSERT INTO {odd} VALUES (1, 1, '2020-01-01 00:00:00.000001', 1.5, 'x'), (2, NULL, NULL, NULL, NULL)")
    w.run(f"INSERT INTO {odd} VALUES (3, 3, '1970-01-01', -12345678901234.5678, 0x00ff)")
    for _ in range(2):
        w.pass_on(other)
    w.run(f"DELETE FROM {odd} WHERE id = 1")
    w.pass_on(other)
    w.pass_on(other)
    said = [limits(w, folder, odd) for folder in (OF, BY)]
    assert asked(w).do(w.spark)["folders"] == {OF: BY, BY: OF}
    assert [limits(w, folder, odd) for folder in (BY, OF)] == said and (said[0] != said[1]) == (by == "canal_json")
    w.run(f"INSERT INTO {odd} VALUES (1, 11, NULL, 2, 'y')", f"DELETE FROM {odd} WHERE id = 2")
    w.pass_on(other)
    w.pass_on(other)
    for folder in (OF, BY):
        same(w, folder, odd, other)

    told = yaml.safe_load(w.file.read_text())
    told["shadow"] = {**told["shadow"], "of": BY, "by": OF}
    w.file.write_text(yaml.safe_dump(told))
    w.config = load_config(w.file)
    w.pair = w.config.shadow_of(BY)
    assert asked(w).do(w.spark)["folders"] == {OF: OF, BY: BY}
    w.run(f"UPDATE {odd} SET `a b,c` = 5", f"DELETE FROM {odd} WHERE id = 3")
    w.pass_on(other)
    w.pass_on(other)
    for folder in (OF, BY):
        same(w, folder, odd, other)
