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
from tests.loading.world import NAME
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


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
@pytest.mark.parametrize("format", ["tencent_dts", "canal"])
def test_at_each_moment_the_history_is_the_servers_own(world, format, keyed):  # noqa: F811
    w = world(format, history=[f"{DB}.*"])
    name, twin, dice = f"kept_{format}_{keyed}".lower(), "twin", random.Random(34)
    w.skip()
    w.db.create(name, f"(id int{' PRIMARY KEY' if keyed else ''}, note varchar(20))")
    w.db.run("CREATE DATABASE IF NOT EXISTS apart", f"DROP TABLE IF EXISTS apart.{twin}")
    w.db.run(f"CREATE TABLE apart.{twin} LIKE {DB}.{name}", f"ALTER TABLE apart.{twin} ADD SYSTEM VERSIONING")
    w.db.run("SET system_versioning_alter_history = KEEP")
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
                asked = f"SELECT {', '.join(columns)} FROM apart.{twin} FOR SYSTEM_TIME AS OF FROM_UNIXTIME({moment})"
                expected = sorted(map(tuple, w.db._asked(asked)), key=repr)
                assert then(history, moment, columns) == expected, (step, moment - BEGIN)
    w.db.run("SET timestamp = DEFAULT")
    assert sum(r["_cdc_order_to"] is not None for r in history) > 10, "versions that have ended"
