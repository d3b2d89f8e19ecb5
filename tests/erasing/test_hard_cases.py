"""What an erasure meets besides a plain row: keys that change, deletes, histories, other tables and other rows in the
same messages, messages in several parts, quarantine, topics that are read once more."""

import json
from datetime import date
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from cdc_platform import chain, tables
from cdc_platform.config import load_config
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.feeds.publish import Record, publish
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.kafka import offsets
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.landing import direct, erased
from cdc_platform.loading.run import load
from cdc_platform.replay.run import replay
from cdc_platform.spark.session import leased
from tests.erasing.bytes import holding
from tests.erasing.people import MAIL, PEOPLE, SECRET, erasure, filled, lake, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(600)]


def gone(w: Any, *wanted: str) -> None:
    """Nothing of these is left, and the ledger adds up."""
    assert holding(lake(w), *wanted) == []
    assert [r["unaccounted"] for r in w.ledger()] == [0] * len(w.ledger())


@pytest.mark.thorough
@pytest.mark.parametrize("format", ["canal", "debezium"])
def test_keys_that_change_and_deletes(world, format):
    """7 becomes 70, is deleted, and is there once more; 70 of another table is another's."""
    w = world(format, history=["*"], typed_changes=["*"])
    name, other = f"moved_{format}", f"other_{format}"
    filled(w, name)
    w.db.create(other, PEOPLE)
    w.db.run(f"INSERT INTO {other} VALUES (7, 'another seven', NULL, NULL), (70, 'another seventy', NULL, NULL)")
    w.db.run(f"UPDATE {name} SET id = 70 WHERE id = 7", f"UPDATE {name} SET mail = '{MAIL} 2' WHERE id = 70")
    w.publish()
    w.catch_up()
    w.db.run(f"DELETE FROM {name} WHERE id = 70", f"DELETE FROM {name} WHERE id = 1")
    w.publish()
    w.catch_up()
    w.db.run(f"INSERT INTO {name} VALUES (70, '{SECRET} again', NULL, NULL)")
    w.publish()
    w.catch_up()
    before, others = rows(w, name), rows(w, other)
    if format == "canal":
        with pytest.raises(EraseRefused, match=r"other keys.*--follow.*id=70"):
            erasure(w, name).erase(w.spark)
        assert rows(w, name) == before
        plan = erasure(w, name, follow=True).plan()
        assert plan["keys"] == [{"id": "7"}, {"id": "70"}]
        assert erasure(w, name, follow=True).erase(w.spark)["proof"]["left"] == 0
    else:  # it tells a delete and an insert
        assert erasure(w, name).plan()["elsewhere"] == [{"table": f"oracle.{name}", "key": "id=70"}]
        assert erasure(w, name).erase(w.spark)["proof"]["elsewhere"] == 1
        assert erasure(w, name, "70").erase(w.spark)["proof"]["left"] == 0
    gone(w, SECRET, MAIL)
    expected = {k: v for k, v in before.items() if k != 70}
    assert rows(w, name) == expected
    assert rows(w, other) == others
    kept = tables.HISTORY_PATH.of(stores.lake(w.config), w.source.name, ("oracle", name))
    told = delta_table.ask("SELECT id, name FROM {t}", t=kept)
    assert not {r["id"] for r in told} & {7, 70}
    assert {r["id"] for r in told} == {0, 1, 2, 3, 4, 5, 6, 8, 9}
    kept = tables.TYPED_CHANGES_PATH.of(stores.lake(w.config), w.source.name, ("oracle", name))
    told = [r[image] for image in tables.IMAGES for r in read_snapshot(kept.uri()).to_pylist()]
    assert {row["id"] for row in told if row} == {0, 1, 2, 3, 4, 5, 6, 8, 9}
    w.db.run(f"INSERT INTO {name} VALUES (1, 'one again', NULL, NULL)")
    w.publish()
    w.catch_up()
    assert rows(w, name) == {**expected, 1: {"id": 1, "name": "one again", "mail": None, "born": None}}
    assert replay(w.spark, w.config, w.source)["equal"]


@pytest.mark.thorough
def test_columns_that_stand_under_other_names_in_files(world):
    """Delta maps names with a space; of structs, too."""
    w, name = world("debezium", history=["*"], typed_changes=["*"]), "odd_names"
    w.db.create(name, "(`the id` int NOT NULL PRIMARY KEY, `full name` varchar(40))")
    w.db.run(f"INSERT INTO {name} VALUES (1, 'one'), (7, '{SECRET}')", f"UPDATE {name} SET `full name` = 'uno' LIMIT 1")
    w.publish()
    w.catch_up()
    assert erasure(w, name).erase(w.spark)["proof"]["left"] == 0
    gone(w, SECRET)
    kept = tables.TYPED_CHANGES_PATH.of(stores.lake(w.config), w.source.name, ("oracle", name))
    told = [(r["_cdc_op"], r["before"], r["after"]) for r in read_snapshot(kept.uri()).to_pylist()]
    one, uno = ({"the id": 1, "full name": text} for text in ("one", "uno"))
    assert sorted(told, key=str) == [("insert", None, one), ("update", one, uno)]


@pytest.mark.thorough
def test_messages_in_parts(world):
    """The subject's row in a message of many rows that comes in many records."""
    w = world("tencent_dts")
    w.encoder = DtsEncoder("feed", max_message_bytes=150)
    name = "parts"
    filled(w, name)
    before = rows(w, name)
    plan = erasure(w, name).plan()
    assert max(m["records"] for m in plan["messages"]) > 3
    assert all(m["shared"] for m in plan["messages"])
    told = erasure(w, name).erase(w.spark)
    assert told["proof"]["left"] == 0
    assert told["records"] == sum(m["records"] for m in plan["messages"])
    gone(w, SECRET, MAIL)
    expected = {k: v for k, v in before.items() if k != 7}
    assert rows(w, name) == expected
    found = replay(w.spark, w.config, w.source)
    assert found["equal"], found
    w.db.run(f"UPDATE {name} SET born = '2001-02-03' WHERE id = 3")
    w.publish()
    w.catch_up()
    assert rows(w, name)[3]["born"] == date(2001, 2, 3)


@pytest.mark.thorough
def test_loaded_rows(world):
    """A record of a load holds all rows of a table."""
    w, name = world("debezium"), "loaded_people"
    w.db.create(name, PEOPLE)
    w.db.run(*(f"INSERT INTO {name} VALUES ({i}, 'person {i}', NULL, NULL)" for i in range(5)))
    w.db.run(f"INSERT INTO {name} VALUES (7, '{SECRET}', NULL, NULL)")
    w.skip()
    w.db.run(f"UPDATE {name} SET mail = 'first' WHERE id = 1")
    w.publish()
    w.catch_up()
    load(w.spark, w.config, w.source, w.server, [("oracle", name)])
    assert 7 in rows(w, name)
    before = rows(w, name)
    assert erasure(w, name).erase(w.spark)["proof"]["left"] == 0
    gone(w, SECRET)
    assert rows(w, name) == {k: v for k, v in before.items() if k != 7}
    assert replay(w.spark, w.config, w.source)["equal"]


@pytest.mark.thorough
def test_a_topic_that_is_read_once_more(world):
    """From its first offset on, by a new checkpoint: what was erased lands without its bytes; other bytes at the same
    place would land."""
    w, name = world("debezium"), "read_again"
    filled(w, name)
    told = erasure(w, name).erase(w.spark)
    path = tables.LANDING.at(stores.lake(w.config), source=w.source.name)
    state = offsets.stable_state(w.config, w.source, {}, {})
    starts = {(s.topic, s.partition): 0 for s in state}
    checkpoint = stores.lake(w.config).at("_checkpoints/again")
    with source_lock(w.config, w.source) as lease, leased(w.spark, lease):
        landed = direct.land(w.spark, w.config, w.source, state, starts, path, checkpoint, 0)
    assert landed.records > told["records"] > 0
    assert holding(lake(w), SECRET, MAIL) == []
    twice = delta_table.ask("SELECT count(*) AS n FROM {t} WHERE erased IS NOT NULL AND value IS NULL", t=path)
    assert twice == [{"n": 2 * told["records"]}]


@pytest.mark.thorough
def test_a_message_in_quarantine(world):
    """One that tells the key goes, with its reason; one that tells nothing is named."""
    w, name = world("canal_json"), "held_people"
    w.db.create(name, PEOPLE)
    w.db.run(f"INSERT INTO {name} VALUES (7, '{SECRET}', NULL, '2000-01-01'), (8, 'b', NULL, NULL)")
    w.publish()
    w.catch_up()
    spoken = f"José Müller's of {MAIL}, at such a length that a reason that quotes it cuts it off"
    types = {"id": "int", "name": "varchar(60)", "mail": "varchar(60)", "born": "date"}
    bad = {"id": "7", "name": SECRET, "mail": None, "born": f"not a date but {spoken}"}
    told = {"database": "oracle", "table": name, "type": "INSERT", "isDdl": False, "ts": 1, "es": 1, "pkNames": ["id"]}
    values = [{**told, "data": [bad], "mysqlType": types, "old": None}, "nothing at all"]
    topic = next(r["topic"] for r in w.ledger())
    records = [Record(topic, 0, None, json.dumps(v).encode()) for v in values]
    publish(records, w.bootstrap)
    w.catch_up()
    quarantine = tables.QUARANTINE.at(stores.lake(w.config))
    held = delta_table.ask("SELECT key, reason FROM {t} WHERE resolved_at IS NULL", t=quarantine)
    assert len(held) == 2
    assert any("watermarks" in path for path in holding(lake(w), r"Jos\xe9 M\xfcller's of"))
    assert erasure(w, name).plan()["not_read"] == 1
    done = erasure(w, name).erase(w.spark)
    assert (done["proof"]["left"], done["proof"]["not_read"]) == (0, 1), done
    gone(w, SECRET, MAIL, r"Jos\xe9", "not a date", "a length")
    now = delta_table.ask("SELECT reason FROM {t} WHERE resolved_at IS NULL", t=quarantine)
    assert len(now) == 1
    assert rows(w, name).keys() == {8}
    assert sum(r["quarantined"] for r in w.ledger()) == 1


@pytest.mark.thorough
def test_what_is_found_elsewhere_is_told(world):
    """A message that nobody can read, and that holds the subject's name: it is looked through, and told."""
    w, name = world("canal_json"), "elsewhere_people"
    w.db.create(name, PEOPLE)
    w.db.run(f"INSERT INTO {name} VALUES (7, '{SECRET}', NULL, NULL), (8, 'b', NULL, NULL)")
    w.publish()
    w.catch_up()
    topic = next(r["topic"] for r in w.ledger())
    publish([Record(topic, 0, None, f"garbage about {SECRET}".encode())], w.bootstrap)
    w.catch_up()
    done = erasure(w, name).erase(w.spark)
    assert done["proof"]["left"] >= 1
    assert any("landing/" in where for where in done["proof"]["found"])
    [told] = erased.of_source(w.config, w.source)
    assert (told["number"], told["table"], told["records"]) == (1, f"oracle.{name}", 1)
    assert told["left"] == done["proof"]["left"]


@pytest.mark.thorough
def test_old_versions_and_marked_rows(world):
    """A snapshot with deletion vectors: rows that are only marked go, too; Spark and delta-rs read what is left."""
    w, name = world("canal"), "many_people"
    w.db.create(name, PEOPLE)
    some = [f"({i}, 'person {i}', 'p{i}', NULL)" for i in range(100, 3000)]
    w.db.run(f"INSERT INTO {name} VALUES {', '.join(some)}, (7, '{SECRET}', NULL, NULL)")
    w.publish()
    w.catch_up()
    path = tables.SNAPSHOT_PATH.of(stores.lake(w.config), w.source.name, ("oracle", name))
    marks = "delta.enableDeletionVectors"
    w.spark.sql(f"ALTER TABLE delta.`{path.uri()}` SET TBLPROPERTIES ('{marks}' = 'true')")
    for mail in ("a", "b"):
        w.db.run(f"UPDATE {name} SET mail = '{mail}' WHERE id IN (7, 101)")
        w.publish()
        w.catch_up()
    w.db.run(f"UPDATE {name} SET mail = 'b' WHERE id IN (102)")
    w.publish()
    w.catch_up()
    before, version = rows(w, name), DeltaTable(path.uri()).version()
    assert erasure(w, name).erase(w.spark)["proof"]["left"] == 0
    gone(w, SECRET)
    expected = {k: v for k, v in before.items() if k != 7}
    assert rows(w, name) == expected
    assert w.spark.read.format("delta").load(path.uri()).count() == len(expected)
    with pytest.raises(Exception, match=r"(?i)not.*found|no such|exist|invalid"):
        w.spark.read.format("delta").option("versionAsOf", version).load(path.uri()).collect()
    w.db.run(f"DELETE FROM {name} WHERE id = 101")
    w.publish()
    w.catch_up()
    assert rows(w, name).keys() == expected.keys() - {101}


@pytest.mark.thorough
def test_what_is_refused_changes_nothing(world):
    w = world("canal")
    w.db.create("no_key", "(a int, b varchar(40))")
    w.db.create("keyed", PEOPLE)
    w.db.run(f"INSERT INTO no_key VALUES (7, '{SECRET}')", f"INSERT INTO keyed VALUES (1, '{SECRET}', NULL, NULL)")
    w.publish()
    w.catch_up()
    with pytest.raises(EraseRefused, match="no key"):
        erasure(w, "no_key", "a=7")
    with pytest.raises(EraseRefused, match="nothing of this key"):
        erasure(w, "keyed", "9").erase(w.spark)
    assert rows(w, "keyed").keys() == {1}
    assert not (lake(w) / "_erasures").exists() or not list((lake(w) / "_erasures").iterdir())


@pytest.mark.thorough
def test_rules_that_change_and_a_source_beside(world):
    """Rows of a table that the rules left out are erased from `changes`, and don't come when the rules take it in; a
    source that shares tables keeps its own."""
    w = world("canal")
    w.db.create("let_in", PEOPLE)
    filled(w, "followed")
    w.db.run(f"INSERT INTO let_in VALUES (7, '{SECRET}', NULL, NULL), (8, 'b', NULL, NULL)")
    w.publish()
    told = yaml.safe_load(w.file.read_text())
    twin = {**told["sources"][0], "name": "twin"}
    told["sources"] = [{**told["sources"][0], "tables": {"include": ["oracle.followed"]}}, twin]
    w.file.write_text(yaml.safe_dump(told))
    w.config = load_config(w.file)
    w.source = w.config.source("oracle")
    twin = w.config.source("twin")
    w.catch_up()
    for stage in chain.STAGES.values():
        stage(w.spark, w.config, twin)
    before = rows(w, "followed")
    theirs = explained(w, twin)
    done = erasure(w, "followed").erase(w.spark)
    assert done["proof"]["left"] == 0
    assert explained(w, twin) == theirs
    assert rows(w, "followed") == {k: v for k, v in before.items() if k != 7}
    told["sources"][0]["tables"] = {"include": ["oracle.*"]}
    w.file.write_text(yaml.safe_dump(told))
    w.config = load_config(w.file)
    w.source = w.config.source("oracle")
    w.catch_up()
    assert rows(w, "followed").keys() == before.keys() - {7}
    assert rows(w, "let_in").keys() == {7, 8}
    assert [r["unaccounted"] for r in w.ledger()] == [0] * len(w.ledger())


def explained(w: Any, source: Any) -> Any:
    """The subject's row of another source, and its changes."""
    changelog = tables.CHANGELOG.at(stores.lake(w.config))
    of = f"source = '{source.name}' ORDER BY topic, \"offset\", entry_index, row_index"
    sql = f'SELECT topic, "offset", op, after FROM {{t}} WHERE {of}'
    return delta_table.ask(sql, t=changelog)
