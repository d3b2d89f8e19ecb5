"""A source goes on by another feed's topic: its tables stay, and nothing is lost or applied twice."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cdc_platform import chain
from cdc_platform.cli.app import run as command
from cdc_platform.config import load_config
from cdc_platform.errors import ConfigError
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.feeds.publish import Record, publish
from cdc_platform.lake import delta_table, queries, stores, watermarks
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.landing import ended
from cdc_platform.replay.run import replay
from cdc_platform.shadow import cutover
from cdc_platform.shadow.cutover import Cutover
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.shadow.point import GTID
from cdc_platform.snapshots.target import Target
from cdc_platform.spark.session import leased
from cdc_platform.tables import CHANGES, CUTS, HISTORY_PATH, OFFSET_LEDGER, WATERMARKS
from tests.killed import process
from tests.oracle.session import DB
from tests.shadow.test_run import ITEMS, named, without
from tests.shadow.world import BY, OF, Pair

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle]


class Killed(BaseException):
    """As if the process had gone."""


def asked(w: Pair) -> Cutover:
    return Cutover(w.config, w.pair, lambda _: None)


def rows(w: Pair, table: str) -> list[tuple[Any, ...]]:
    """Of a snapshot of the source in use."""
    found = read_snapshot(Target.of(w.config, OF, DB, table).snapshot.uri()).to_pylist()
    return sorted((tuple(v for k, v in r.items() if not k.startswith("_")) for r in found), key=repr)


def same(w: Pair, *names: str) -> None:
    """The snapshots are what the database has, and all that landed is accounted for."""
    for name in names:
        assert rows(w, name) == sorted(map(tuple, w.db.rows(name)), key=repr), name
    ledger = queries.ledger(w.config, [w.config.source(OF)])
    assert [(r["unaccounted"], r["lost"]) for r in ledger] == [(0, 0)] * len(ledger)


def follow(w: Pair) -> None:
    """cdc.yaml names the new topic for the source in use, and the other one is gone."""
    told = yaml.safe_load(w.file.read_text())
    of, by = told["sources"]
    of["topic_pattern"] = by["topic_pattern"]
    w.file.write_text(yaml.safe_dump(told))
    w.config = load_config(w.file)
    w.pair = w.config.shadow_of(OF)


def filled(w: Pair, name: str) -> tuple[str, str, str]:
    """A table with a key, one without, and one by which others are passed on."""
    w.create(name, ITEMS)
    w.create(bag := f"{name}_bag", "(a int, b varchar(9))")
    w.create(other := f"{name}_other", ITEMS)
    w.run(*(f"INSERT INTO {name} VALUES ({i}, 'n{i}', {i}.50, NULL)" for i in range(6)))
    w.run(f"INSERT INTO {bag} VALUES (1, 'x'), (1, 'x'), (2, NULL)")
    w.pass_on(other)
    return name, bag, other


def transactions(w: Pair, topic: str) -> set[str]:
    """GTIDs of changes that came to the source in use by a topic."""
    source = w.config.source(OF)
    path = CHANGES.at(stores.lake(w.config), format=source.format, source=OF)
    told = f"SELECT DISTINCT {GTID} AS gtid FROM {{t}} WHERE kind IN ('row', 'ddl') AND topic LIKE '{topic}%'"
    return {r["gtid"] for r in delta_table.ask(told, t=path)}


def versions(w: Pair, name: str, key: int) -> list[str]:
    """Names that a row had, by its history."""
    path = HISTORY_PATH.of(stores.lake(w.config), OF, (DB, name))
    rows = delta_table.ask(f"SELECT name FROM {{t}} WHERE id = {key} ORDER BY _cdc_valid_from", t=path)
    return [r["name"] for r in rows]


def newest_cut(w: Pair) -> dict[str, Any]:
    path = CUTS.at(stores.lake(w.config))
    return delta_table.ask(f"SELECT * FROM {{t}} WHERE source = '{OF}' ORDER BY cut DESC LIMIT 1", t=path)[0]


def refused(w: Pair, match: str, do: Callable[[], Any] | None = None) -> None:
    """It is refused, and nothing is changed."""
    path = OFFSET_LEDGER.at(stores.lake(w.config))
    with pytest.raises(ShadowRefused, match=match):
        (do or (lambda: asked(w).do(w.spark)))()
    over = delta_table.ask("SELECT count(*) AS n FROM {t} WHERE to_offset = -2", t=path)
    assert over == [{"n": 0}]


@pytest.mark.thorough
@pytest.mark.parametrize("format", ["tencent_dts", "canal"])
def test_it_goes_on_by_the_other_topic(feeds, capsys, format):
    w = feeds(format, format)
    followed = yaml.safe_load(w.file.read_text())
    followed["sources"][0]["tables"]["history"] = ["*.moved_canal"]
    w.file.write_text(yaml.safe_dump(followed))
    w.config = load_config(w.file)
    names = name, bag, other = filled(w, f"moved_{format}")
    same(w, *names)
    w.compare()

    # the new feed is ahead: what the old one lacks comes by the new one, once
    w.run(f"INSERT INTO {bag} VALUES (1, 'x')", f"UPDATE {name} SET name = 'last of both' WHERE id = 1")
    w.pass_on(other)
    w.run(f"UPDATE {name} SET name = 'by the new one' WHERE id = 2", f"DELETE FROM {name} WHERE id = 3")
    w.send(BY)

    def told(*arguments: str) -> Any:
        capsys.readouterr()
        assert command([*arguments, "--json", "--config", str(w.file)]) == 0
        return json.loads(capsys.readouterr().out)

    plan = told("shadow", "cutover", OF, "--plan")
    assert not plan["done"]
    done = told("shadow", "cutover", OF, "--yes")
    assert (done["done"], done["gtid"], done["offset"]) == (True, plan["gtid"], plan["offset"])
    assert done["new"].startswith(w.sides[BY].topic) and done["old"].startswith(w.sides[OF].topic)
    assert asked(w).do(w.spark)["topics"] == told("shadow", "cutover", OF)["topics"] == done["topics"]

    # until cdc.yaml names the new topic, nothing is read
    w.send(OF)
    with pytest.raises(ConfigError, match=rf"put another topic in place of {w.sides[OF].topic}.*valid: topics: \["):
        w.catch_up(OF)
    follow(w)
    w.catch_up(OF)
    same(w, *names)
    old, new = (transactions(w, side.topic) for side in w.sides.values())
    assert not old & new and old | new == {tx.gtid for tx in w.db.log()[-len(old | new) :]}
    w.run(f"INSERT INTO {name} VALUES (50, 'new', 1, NULL)", f"INSERT INTO {bag} VALUES (3, 'y')")
    w.db.alter(name, "ADD COLUMN more int DEFAULT 7")
    w.run(f"UPDATE {name} SET more = 8 WHERE id = 1", f"DELETE FROM {bag} WHERE b = 'x'")
    w.send(BY)
    w.catch_up(OF)
    same(w, *names)

    # what is kept of it is true
    assert "by the new one" in json.dumps(told("explain", OF, f"{DB}.{name}", "2"))
    assert told("certify", OF)
    read = {f"{r['topic']}/{r['partition']}": r["landed"] for r in queries.ledger(w.config, [w.config.source(OF)])}
    assert "took the place of this one" in told("show", f"{done['old']}/{read[done['old']]}", "--source", OF)["why"]
    assert (
        f"begins at offset {done['offset']}"
        in told("show", f"{done['new']}/{done['offset'] - 1}", "--source", OF)["why"]
    )
    source = w.config.source(OF)
    complete = watermarks.complete(WATERMARKS.at(stores.lake(w.config)), OF)
    assert complete and complete.proven and not complete.behind
    assert newest_cut(w)["kind"] == "transaction"
    with source_lock(w.config, source) as lease, leased(w.spark, lease):
        for table in names:
            chain.rebuild(w.spark, w.config, source, DB, table)
    same(w, *names)
    if format == "canal":
        assert versions(w, name, 1) == ["n1", "last of both", "last of both"]
        assert versions(w, name, 2) == ["n2", "by the new one"]
    assert replay(w.spark, w.config, source)["equal"]

    # a subject is erased in it, and what the other one has is named
    listed, left = w.file.read_text(), yaml.safe_load(w.file.read_text())
    left["sources"], left["shadow"] = left["sources"][:1], []
    w.file.write_text(yaml.safe_dump(left))
    done = told("erase", OF, f"{DB}.{name}", "50", "--yes")
    assert any(f"source {BY}, which cdc.yaml lacks" in why for why in done["proof"]["doubts"])
    w.file.write_text(listed)
    done = told("erase", BY, f"{DB}.{name}", "2", "--yes")  # it has landed nothing since the cutover
    assert done["records"] and not any("lacks" in why for why in done["proof"]["doubts"])


@pytest.mark.thorough
def test_a_killed_one_has_done_nothing_or_all(feeds, monkeypatch):
    w = feeds("tencent_dts", "tencent_dts")
    names = name, *_ = filled(w, "killed_cut")
    w.run(f"UPDATE {name} SET name = 'later' WHERE id = 1")
    w.send(BY)

    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    def first(*args: Any, **how: Any) -> None:
        take_over(*args, **how)
        raise Killed

    take_over = ended.take_over
    for where, what, instead in (
        (cutover.ready, "bring", kill),
        (cutover.delta_table, "append_rows", kill),
        (cutover.ended, "take_over", kill),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(where, what, instead)
            with pytest.raises(Killed):
                asked(w).do(w.spark)
        assert ended.ended(w.config, w.config.source(OF)) == frozenset()
        w.catch_up(OF)
    with monkeypatch.context() as patched:
        patched.setattr(cutover.ended, "take_over", first)
        with pytest.raises(Killed):
            asked(w).do(w.spark)
    assert asked(w).do(w.spark)["done"]
    with pytest.raises(ConfigError, match="put another topic in place"):
        w.catch_up(OF)
    follow(w)
    w.catch_up(OF)
    same(w, *names)


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_one_whose_process_is_killed_has_done_nothing_or_all(feeds):
    w = feeds("tencent_dts", "tencent_dts")
    names = name, *_ = filled(w, "killed_process")
    w.run(f"UPDATE {name} SET name = 'later' WHERE id = 1")
    w.send(BY)
    arguments = ["shadow", "cutover", OF, "--yes", "--json", "--config", str(w.file)]
    take_over = "cdc_platform.landing.ended take_over 0"
    assert process(take_over, arguments)
    assert ended.ended(w.config, w.config.source(OF)) == frozenset()
    w.catch_up(OF)
    assert process(take_over, arguments, behind=True)
    with pytest.raises(ConfigError, match="put another topic in place"):
        w.catch_up(OF)
    assert asked(w).do(w.spark)["done"]
    follow(w)
    w.catch_up(OF)
    same(w, *names)


@pytest.mark.thorough
def test_what_is_not_certain_is_refused(feeds):
    w = feeds("tencent_dts", "tencent_dts")
    name, bag, other = filled(w, "uncertain_cut")
    w.run(f"UPDATE {name} SET name = 'by the old one' WHERE id = 1")
    w.send(OF)
    refused(w, f"{BY} hasn't come to .*, which {OF} has; what would do: `cdc-platform run`")
    w.run(f"INSERT INTO {bag} VALUES (9, 'z')")
    w.pass_on(other)
    w.run(f"INSERT INTO {bag} VALUES (9, 'z')")
    w.send(OF)
    refused(w, f"{bag} isn't compared in full: it has no key, and {OF} has newer changes")
    w.pass_on(other)
    w.run(f"DELETE FROM {name} WHERE id = 2")
    w.send(OF)
    w.send(BY, without(name, 2))
    w.pass_on(other)
    refused(w, f"1 row of oracle.{name} differs")
    w.run(f"REPLACE INTO {name} VALUES (2, 'again', 1, NULL)")
    w.pass_on(other)

    # two transactions of the new feed in one message, of which the old one has the first
    w.run(f"UPDATE {name} SET name = 'one' WHERE id = 1")
    w.send(OF)
    w.run(f"UPDATE {name} SET name = 'two' WHERE id = 1")
    w.send(BY)
    refused(w, f"in {BY} another transaction begins in the message that .* ends in")
    w.send(OF)
    w.pass_on(other)

    publish([Record(f"{w.sides[OF].topic}.feed", 0, None, b"nothing that can be read")], w.bootstrap)
    refused(w, f"quarantine holds 1 row of {OF}; what would do: `cdc-platform quarantine list --source {OF}`")


@pytest.mark.thorough
def test_what_differs_between_the_point_and_the_seam_is_refused(feeds):
    """The newest transactions of the feed in use can't be judged by the comparison's point."""
    w = feeds("tencent_dts", "tencent_dts")
    names = name, _, other = filled(w, "seam_cut")
    w.run(f"UPDATE {name} SET name = 'lost' WHERE id = 1")
    w.send(OF, without(name, 1))
    w.send(BY)
    w.run(f"INSERT INTO {other} (id) VALUES (900)")
    both = w.db.log()[-1].gtid
    w.send(OF)
    w.send(BY)
    w.run(f"UPDATE {name} SET name = 'newer' WHERE id = 4")
    w.send(BY)
    w.catch_up()
    row = w.compare()[f"{DB}.{name}"]
    assert [row[k] for k in ("state", "reason", "differing", "unsettled")] == ["behind", None, 0, 2]
    differs = f"1 row of {DB}.{name} differs, and {BY} has all that {OF} has, up to {both}"
    refused(w, f"{differs}; what would do: `cdc-platform shadow status {OF}` tells which")
    assert [d[:3] for d in w.open()] == [(name, "1", "differs")]

    # another value in the last transaction of both
    w.run(f"UPDATE {name} SET name = 'mended' WHERE id = 1")
    w.pass_on(other)
    w.run(f"UPDATE {name} SET name = 'one' WHERE id = 2")
    w.send(OF)
    w.send(BY, named(name, 2, "two"))
    w.run(f"UPDATE {name} SET name = 'newest' WHERE id = 5")
    w.send(BY)
    refused(w, f"1 row of {DB}.{name} differs, and {BY} has all")
    assert [d[:3] for d in w.open()] == [(name, "2", "differs")]

    # what is newer in the other feed comes by it
    w.run(f"UPDATE {name} SET name = 'mended' WHERE id = 2")
    w.pass_on(other)
    w.run(f"UPDATE {name} SET name = 'last of both' WHERE id = 3")
    w.send(OF)
    w.send(BY)
    w.run(f"UPDATE {name} SET name = 'by the new one' WHERE id = 5")
    w.send(BY)
    w.catch_up()
    row = w.compare()[f"{DB}.{name}"]
    assert [row[k] for k in ("state", "reason", "differing", "unsettled")] == ["behind", None, 0, 1]
    assert asked(w).do(w.spark)["done"] and w.open() == []
    follow(w)
    w.catch_up(OF)
    same(w, *names)


@pytest.mark.thorough
def test_and_back_again(feeds):
    """The old topic once more, by a source of another name: from where the new one took over nothing comes twice."""
    w = feeds("tencent_dts", "tencent_dts")
    names = name, bag, other = filled(w, "back_again")
    asked(w).do(w.spark)
    w.run(f"INSERT INTO {bag} VALUES (7, 'seven')", f"UPDATE {name} SET name = 'by the new one' WHERE id = 1")
    for side in (OF, BY):
        w.send(side)
    first = w.sides[OF].source()
    follow(w)
    w.catch_up(OF)
    same(w, *names)
    told = yaml.safe_load(w.file.read_text())
    told["sources"] = [told["sources"][0], {**first, "name": "third"}]
    told["shadow"] = {"of": OF, "by": "third", "settle_s": 10}
    w.file.write_text(yaml.safe_dump(told))
    w.config = load_config(w.file)
    w.pair = w.config.shadow_of(OF)
    w.catch_up("third")
    w.run(f"INSERT INTO {other} (id) VALUES (1000)")
    w.run(f"INSERT INTO {other} (id) VALUES (1001)")
    for side in (OF, BY):
        w.send(side)
    done = asked(w).do(w.spark)
    assert done["new"].startswith(w.sides[OF].topic)
    w.run(f"INSERT INTO {bag} VALUES (7, 'seven')", f"UPDATE {name} SET name = 'by the old one' WHERE id = 1")
    w.send(OF)
    follow(w)
    w.catch_up(OF)
    same(w, *names)
    old, new = (transactions(w, side.topic) for side in w.sides.values())
    assert not old & new and len(new) == 4
