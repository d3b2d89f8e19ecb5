"""The lake on S3: a load, a comparison of two feeds and an erasure, as commands in processes of their own, over a real
MariaDB and broker."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_platform.config import load_config
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.lake import delta_table, stores
from cdc_platform.tables import SNAPSHOT_PATH
from tests import s3_server
from tests.erasing.bytes import holding
from tests.erasing.people import MAIL, SECRET, filled
from tests.loading.conftest import db, world  # noqa: F401 (fixtures)
from tests.loading.world import NAME
from tests.oracle.session import DB
from tests.shadow.conftest import feeds  # noqa: F401 (fixture)
from tests.shadow.test_run import without
from tests.shadow.world import BY, OF

pytestmark = [
    *(pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.e2e, pytest.mark.s3),
    *(pytest.mark.thorough, pytest.mark.timeout(1200)),
]
TABLE = "(id int NOT NULL PRIMARY KEY, name varchar(40))"


def cdc(w: Any, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("cdc-platform")), *words, "--config", str(w.file)],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def moved(in_a_bucket, monkeypatch) -> Callable[[Any], Any]:
    """`moved(w)`: its lake in a bucket, and its runs as commands."""

    def move(w: Any) -> Any:
        w.file.write_text(yaml.safe_dump(yaml.safe_load(w.file.read_text()) | in_a_bucket))
        w.config = load_config(w.file)

        def catch_up(*_: Any) -> None:
            code, told, errors = cdc(w, "run", "--json")
            assert code in (0, 1), errors  # 1, too, where the table isn't equal yet
            assert all(r["error"] is None for r in json.loads(told)["sources"]), told

        monkeypatch.setattr(w, "catch_up", catch_up)
        return w

    return move


def rows(w: Any, name: str) -> dict[int, Any]:
    """Rows of a snapshot, by another way than the platform's tables are read."""
    path = stores.lake(w.config).uri().replace("s3a://", "s3://")
    options = {
        **{"endpoint": w.config.storage.endpoint, "allow_http": "true", "region": "us-east-1"},
        **{"access_key_id": s3_server.KEY, "secret_access_key": s3_server.SECRET},
    }
    found = read_snapshot(f"{path}/snapshots/{NAME}/oracle/{name}", options).to_pylist()
    return {r["id"]: {k: v for k, v in r.items() if not k.startswith("_")} for r in found}


def test_a_table_is_loaded(world, moved):  # noqa: F811
    w = moved(world("tencent_dts"))
    w.db.create("on_s3", TABLE)
    w.db.run(*(f"INSERT INTO on_s3 VALUES ({i}, 'n{i}')" for i in range(20)))
    w.skip()
    w.db.run("UPDATE on_s3 SET name = 'new' WHERE id < 3", "DELETE FROM on_s3 WHERE id = 7")
    w.publish()
    w.catch_up()
    assert len(rows(w, "on_s3")) < 19
    code, told, errors = cdc(w, "load", NAME, "oracle.on_s3", "--chunk-rows", "7", "--json")
    assert code == 0, errors
    [one] = json.loads(told)["tables"]
    assert (one["rows"], one["chunks"], one["state"]) == (19, 3, "live")
    assert {i: r["name"] for i, r in rows(w, "on_s3").items()} == dict(w.db.rows("on_s3"))


def test_two_feeds_are_compared(feeds, moved):  # noqa: F811
    w = moved(feeds("tencent_dts", "canal"))
    w.create("two_on_s3", TABLE)
    w.create("other_on_s3", TABLE)
    w.run(*(f"INSERT INTO two_on_s3 VALUES ({i}, 'n{i}')" for i in range(9)))
    w.send(OF)
    w.send(BY, without("two_on_s3", 4))
    w.pass_on("other_on_s3")
    code, told, errors = cdc(w, "shadow", "compare", OF, "--json")
    assert code == 1, errors
    assert w.open() == [("two_on_s3", "4", "only_of", {"id": "4", "name": "n4"}, None)], told
    code, told, _ = cdc(w, "certify", OF, "oracle.two_on_s3", "--json")
    [one] = json.loads(told)["tables"]
    assert (code, one["verdict"]) == (1, "broken")
    assert f"it differs from that of {BY}: 1 row lacking in {BY}" in one["reasons"][0]

    code, told, errors = cdc(w, "shadow", "cutover", OF, "--yes", "--json")
    assert code != 0 and "1 row of oracle.two_on_s3 differ" in told + errors
    w.run("UPDATE two_on_s3 SET name = 'again' WHERE id = 4")
    w.pass_on("other_on_s3")
    code, told, errors = cdc(w, "shadow", "cutover", OF, "--yes", "--json")
    assert code == 0, errors
    assert json.loads(told)["folders"] == {OF: BY, BY: OF}
    w.run("DELETE FROM two_on_s3 WHERE id = 5", "UPDATE two_on_s3 SET name = 'by the new one' WHERE id = 6")
    w.send(BY)
    w.catch_up()
    path = SNAPSHOT_PATH.of(stores.lake(w.config), OF, (DB, "two_on_s3"))
    found = delta_table.ask("SELECT id, name FROM {t} ORDER BY id", t=path)
    assert [(r["id"], r["name"]) for r in found] == sorted(w.db.rows("two_on_s3"))


def copied(w: Any, folder: Path) -> Path:
    """All objects of the lake, as files."""
    lake = stores.lake(w.config)
    for name in lake.below(""):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lake.read(name) or b"")
    return folder


def test_a_subject_is_erased(world, moved, tmp_path):  # noqa: F811
    w = moved(world("tencent_dts"))
    filled(w, "people_on_s3")
    before = rows(w, "people_on_s3")
    assert holding(copied(w, tmp_path / "before"), SECRET, MAIL)
    code, told, errors = cdc(w, "erase", NAME, "oracle.people_on_s3", "7", "--yes", "--json")
    assert code == 0, (told, errors)
    assert holding(copied(w, tmp_path / "after"), SECRET, MAIL) == []
    assert rows(w, "people_on_s3") == {k: v for k, v in before.items() if k != 7}
