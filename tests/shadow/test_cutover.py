"""A source goes on by another feed's topic: its tables stay, and nothing is lost or applied twice."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cdc_platform.cli.app import run as command
from cdc_platform.config import load_config
from cdc_platform.errors import ConfigError
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.landing import ended
from cdc_platform.shadow import cutover
from cdc_platform.shadow.cutover import Cutover
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.snapshots.target import Target
from cdc_platform.tables import OFFSET_LEDGER
from tests.oracle.session import DB
from tests.shadow.test_run import ITEMS, without
from tests.shadow.world import BY, OF, Pair

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(600)]


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


def refused(w: Pair, match: str, do: Callable[[], Any] | None = None) -> None:
    """It is refused, and nothing is changed."""
    path = OFFSET_LEDGER.at(stores.lake(w.config))
    with pytest.raises(ShadowRefused, match=match):
        (do or (lambda: asked(w).do(w.spark)))()
    over = delta_table.ask("SELECT count(*) AS n FROM {t} WHERE to_offset = -2", t=path)
    assert over == [{"n": 0}]


@pytest.mark.parametrize("format", ["tencent_dts", pytest.param("canal", marks=pytest.mark.thorough)])
def test_it_goes_on_by_the_other_topic(feeds, capsys, format):
    w = feeds(format, format)
    names = name, bag, _ = filled(w, f"moved_{format}")
    same(w, *names)
    w.compare()

    # the new feed is ahead: what the old one lacks comes by the new one, once
    w.run(f"UPDATE {name} SET name = 'last of both' WHERE id = 1", f"INSERT INTO {bag} VALUES (1, 'x')")
    w.send(OF)
    w.send(BY)
    w.catch_up()
    w.run(f"UPDATE {name} SET name = 'by the new one' WHERE id = 2", f"DELETE FROM {name} WHERE id = 3")
    w.run(f"INSERT INTO {bag} VALUES (1, 'x'), (3, 'y')", f"DELETE FROM {bag} WHERE a = 2")
    w.send(BY)
    plan = asked(w).plan()
    assert not plan["done"]
    done = asked(w).do(w.spark)
    assert (done["done"], done["gtid"], done["offset"]) == (True, plan["gtid"], plan["offset"])
    assert done["new"].startswith(w.sides[BY].topic) and done["old"].startswith(w.sides[OF].topic)
    again = asked(w).do(w.spark)
    assert (again["done"], again["topics"]) == (True, done["topics"])

    # until cdc.yaml names the new topic, nothing is read
    w.send(OF)
    with pytest.raises(ConfigError, match=rf"put another topic in place of {w.sides[OF].topic}.*valid: topics: \["):
        w.catch_up(OF)
    follow(w)
    w.catch_up(OF)
    same(w, *names)
    w.run(f"INSERT INTO {name} VALUES (50, 'new', 1, NULL)", f"INSERT INTO {bag} VALUES (3, 'y')")
    w.db.alter(name, "ADD COLUMN more int DEFAULT 7")
    w.run(f"UPDATE {name} SET more = 8 WHERE id = 1", f"DELETE FROM {bag} WHERE b = 'x'")
    w.send(BY)
    w.catch_up(OF)
    same(w, *names)

    # what is kept of it is true
    def told(*arguments: str) -> int:
        capsys.readouterr()
        return command([*arguments, "--config", str(w.file)])

    assert told("explain", OF, f"{DB}.{name}", "2") == 0
    assert "by the new one" in capsys.readouterr().out
    assert told("certify", OF) == 0
    assert told("rebuild", OF, f"{DB}.{bag}") == 0
    same(w, *names)
    assert told("replay", OF) == 0


def test_a_killed_one_has_done_nothing_or_all(feeds, monkeypatch):
    w = feeds("tencent_dts", "tencent_dts")
    names = _, bag, _ = filled(w, "killed_cut")
    w.run(f"INSERT INTO {bag} VALUES (1, 'x')")
    w.send(BY)

    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    def first(*args: Any, **how: Any) -> None:
        take_over(*args, **how)
        raise Killed

    take_over = ended.take_over
    for where, what, instead in (
        (cutover.run, "compare", kill),
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
