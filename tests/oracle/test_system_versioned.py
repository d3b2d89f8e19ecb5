"""Histories beside MariaDB's own: each statement goes to a table and to its twin WITH SYSTEM VERSIONING, and at each
moment both say the same rows. On a real broker."""

import random
from datetime import UTC, datetime

import pytest

from cdc_platform.config import Config
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.lake import stores
from cdc_platform.tables import HISTORY_PATH
from tests.loading.conftest import db, world  # noqa: F401 (fixtures)
from tests.loading.world import NAME, World
from tests.oracle.session import DB

pytestmark = [
    *(pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.thorough),
    pytest.mark.timeout(900),
]
BEGIN, STEPS = 1_700_000_000, 60
KEPT_AT = (15, 40, STEPS)
"""Steps behind which a run brings what has come."""


def statement(dice: random.Random, keyed: bool) -> str:
    """One of any kind, with `{}` for the table."""
    a, b, text = dice.randrange(8), dice.randrange(8), dice.choice(["'x'", "'y'", "NULL", "'  '"])
    if keyed and dice.random() < 0.3:
        return f"UPDATE IGNORE {{}} SET id = {b} WHERE id = {a}"
    return dice.choice(
        [
            f"INSERT {'IGNORE ' if keyed else ''}INTO {{}} (id, note) VALUES ({a}, {text}), ({b}, 'new')",
            f"UPDATE {{}} SET note = {text} WHERE id = {a}",
            f"DELETE FROM {{}} WHERE id IN ({a}, {b})",
        ]
    )


def versions(config: Config, name: str) -> list[dict]:
    """All rows of a history."""
    return read_snapshot(HISTORY_PATH.of(stores.lake(config), NAME, (DB, name)).uri()).to_pylist()


def then(history: list[dict], moment: int, columns: list[str]) -> list[tuple]:
    """Those of a moment."""
    at = datetime.fromtimestamp(moment, UTC)
    was = [r for r in history if r["_cdc_valid_from"] <= at and (r["_cdc_order_to"] is None or r["_cdc_valid_to"] > at)]
    return sorted((tuple(r[c] for c in columns) for r in was), key=repr)


def expected(w: World, twin: str, moment: int, columns: list[str]) -> list[tuple]:
    """What the server says of a moment."""
    told = f"SELECT {', '.join(columns)} FROM apart.{twin} FOR SYSTEM_TIME AS OF FROM_UNIXTIME({moment})"
    return sorted(map(tuple, w.db._asked(told)), key=repr)


def twins(w: World, name: str, twin: str, definition: str) -> None:
    """A table that the feed tells, and one beside it whose versions the server keeps."""
    w.skip()
    w.db.create(name, definition)
    w.db.run("CREATE DATABASE IF NOT EXISTS apart", f"DROP TABLE IF EXISTS apart.{twin}")
    w.db.run(f"CREATE TABLE apart.{twin} LIKE {DB}.{name}", f"ALTER TABLE apart.{twin} ADD SYSTEM VERSIONING")
    w.db.run("SET system_versioning_alter_history = KEEP")


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
@pytest.mark.parametrize("format", ["tencent_dts", "canal"])
def test_at_each_moment_the_history_is_the_servers_own(world, format, keyed):  # noqa: F811
    w = world(format, history=[f"{DB}.*"])
    name, twin, dice = f"kept_{format}_{keyed}".lower(), "twin", random.Random(34)
    twins(w, name, twin, f"(id int{' PRIMARY KEY' if keyed else ''}, note varchar(20))")
    columns, history = ["id", "note"], []
    for step in range(1, STEPS + 1):
        w.db.run(f"SET timestamp = {BEGIN + 10 * step}")
        if step == 25:
            w.db.truncate(name)
            w.db.run(f"DELETE FROM apart.{twin}")
        elif step == 30:
            w.db.alter(name, "ADD COLUMN more int NOT NULL DEFAULT 5")
            w.db.run(f"ALTER TABLE apart.{twin} ADD COLUMN more int NOT NULL DEFAULT 5")
            columns = ["id", "note", "more"]
        else:
            sql = statement(dice, keyed)
            w.db.run(sql.format(name), sql.format(f"apart.{twin}"))
        if step in KEPT_AT:
            w.publish()
            w.catch_up()
            history = versions(w.config, name)
            for moment in range(BEGIN, BEGIN + 10 * step + 6, 5):
                assert then(history, moment, columns) == expected(w, twin, moment, columns), (step, moment - BEGIN)
    w.db.run("SET timestamp = DEFAULT")
    assert sum(r["_cdc_order_to"] is not None for r in history) > 10, "versions that have ended"


CHANGED = {
    12: ("MODIFY n bigint", ["id", "note", "n", "gone"]),
    20: ("MODIFY note varchar(200)", ["id", "note", "n", "gone"]),
    28: ("RENAME COLUMN note TO remark", ["id", "remark", "n", "gone"]),
    36: ("DROP COLUMN gone", ["id", "remark", "n"]),
    44: ("RENAME COLUMN n TO number", ["id", "remark", "number"]),
    52: ("ADD COLUMN note varchar(9) DEFAULT 'none'", ["id", "remark", "number", "note"]),
}
"""Step → what becomes of the table, and its columns then."""


def change(dice: random.Random, columns: list[str], step: int) -> str:
    """A statement of a row or two, whose values fill the columns' types of then."""
    text, number = columns[1], columns[2]
    a, b = dice.randrange(8), dice.randrange(8)
    n = dice.choice(
        [str(step), "NULL", "-1", "2147483647", *(["9007199254740993", "-2147483649"] if step > 12 else [])]
    )
    word = dice.choice(["'x'", "NULL", "'  '", f"'{'long' * 5}'", *([f"'{'w' * 150}'"] if step > 20 else [])])
    more = f", gone = '{step}'" if "gone" in columns else ", note = 'new'" if "note" in columns[3:] else ""
    return dice.choice(
        [
            f"INSERT IGNORE INTO {{}} (id, {text}, {number}) VALUES ({a}, {word}, {n}), ({b}, 'new', 0)",
            f"UPDATE {{}} SET {text} = {word}{more} WHERE id = {a}",
            f"UPDATE {{}} SET {number} = {n} WHERE id IN ({a}, {b})",
            f"UPDATE IGNORE {{}} SET id = {b} WHERE id = {a}",
            f"DELETE FROM {{}} WHERE id = {a}",
        ]
    )


@pytest.mark.parametrize("format", ["tencent_dts", "canal"])
def test_columns_that_change_between_the_moments(world, format):  # noqa: F811
    """All versions are as the table's columns are now, in the history as on the server."""
    w = world(format, history=[f"{DB}.*"])
    name, twin, dice = f"changed_{format}", "changed_twin", random.Random(35)
    twins(w, name, twin, "(id int PRIMARY KEY, note varchar(20), n int, gone varchar(9))")
    columns, history = ["id", "note", "n", "gone"], []
    for step in range(1, STEPS + 1):
        w.db.run(f"SET timestamp = {BEGIN + 10 * step}")
        if step in CHANGED:
            what, columns = CHANGED[step]
            w.db.alter(name, what)
            w.db.run(f"ALTER TABLE apart.{twin} {what}")
        else:
            sql = change(dice, columns, step)
            w.db.run(sql.format(name), sql.format(f"apart.{twin}"))
        if step in CHANGED or step % 8 == 0:  # right behind the statement, and when rows have come after it
            w.publish()
            w.catch_up()
            history = versions(w.config, name)
            for moment in range(BEGIN, BEGIN + 10 * step + 6, 5):
                found, told = then(history, moment, columns), expected(w, twin, moment, columns)
                assert found == told, (step, moment - BEGIN, columns)
    w.db.run("SET timestamp = DEFAULT")
    assert sum(r["_cdc_order_to"] is not None for r in history) > 10, "versions that have ended"
