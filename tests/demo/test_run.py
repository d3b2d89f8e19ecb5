from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from filelock import FileLock

from cdc_platform import tables
from cdc_platform.automation.observe import Newest, heartbeat
from cdc_platform.config import load_config
from cdc_platform.demo.folder import DemoFolderInUse, Settings, prepare
from cdc_platform.demo.run import Outcome, run_demo, table_versions, unaccounted, written_since
from cdc_platform.feeds.feeds import FEEDS
from cdc_platform.formats import FORMATS
from cdc_platform.lake import probe
from tests import s3_server
from tests.rows import add

OUTCOMES = ("applied", "control", "filtered", "waiting", "joined", "duplicate", "quarantined", "lost")


def ledger_row(topic="t", partition=0, landed=5, **outcomes):
    row = {"topic": topic, "partition": partition, "landed": landed, **dict.fromkeys(OUTCOMES, 0), **outcomes}
    accounted = sum(row[o] for o in OUTCOMES if o != "lost")
    return {**row, "accounted": accounted, "unaccounted": landed - accounted}


def test_a_ledger_that_adds_up_is_fine():
    rows = [ledger_row(applied=3, control=2), ledger_row(partition=1, landed=2, duplicate=1, filtered=1)]
    assert unaccounted(rows, {"t": 7}) == []


@pytest.mark.parametrize(("rows", "sent", "told"), [
    ([ledger_row(applied=4)], {"t": 5}, ["t/0: 5 records landed, 4 of them accounted for"]),
    ([ledger_row(applied=4, waiting=1)], {"t": 5}, ["t[0]: 1 records waiting"]),
    ([ledger_row(applied=3, quarantined=2)], {"t": 5}, ["t[0]: 2 records quarantined"]),
    ([ledger_row(applied=5, lost=1)], {"t": 5}, ["t[0]: 1 records lost"]),
    ([ledger_row(applied=5)], {"t": 6}, ["t: 6 records sent, 5 landed"]),
    ([ledger_row(applied=5)], {"t": 5, "u": 1}, ["u: 1 records sent, 0 landed"]),
    ([ledger_row(applied=5)], {}, ["t: 0 records sent, 5 landed"]),
])  # fmt: skip
def test_what_does_not_add_up_is_told(rows, sent, told):
    assert unaccounted(rows, sent) == told


def test_nothing_compared_is_not_equal():
    assert not Outcome("c", "l").equal
    assert Outcome("c", "l", snapshots=[{}]).equal
    assert not Outcome("c", "l", snapshots=[{}], problems=["x"]).equal


def test_the_folder_is_wiped_only_when_it_is_a_demos(tmp_path):
    folder = tmp_path / "demo"
    config = prepare(folder, Settings(folder))
    (folder / "lake").mkdir()
    assert prepare(folder, Settings(folder)).lake == config.lake == str(folder / "lake")
    assert not (folder / "lake").exists()

    (folder / "cdc.yaml").write_text("lake: ./precious\n")
    with pytest.raises(DemoFolderInUse, match="won't be wiped"):
        prepare(folder, Settings(folder))
    assert (folder / "cdc.yaml").read_text() == "lake: ./precious\n"


def test_the_demo_shows_every_format():
    assert set(Settings().formats) == {feed.format for feed in FEEDS.values()} == set(FORMATS)


@pytest.mark.parametrize("after", [timedelta(minutes=3), timedelta(hours=2), timedelta(days=30)])
def test_feeds_that_end_with_the_demo_are_not_silent_after_it(tmp_path, monkeypatch, after):
    ended = datetime.now(UTC)
    monkeypatch.setattr("cdc_platform.automation.observe.newest_record", lambda config, source: Newest(1, [], ended))
    config = prepare(tmp_path / "demo", Settings(tmp_path / "demo"))
    for source in load_config(config.file).sources:
        assert heartbeat(config, source, ended + after).passed, source.name


def test_two_demos_in_one_folder_exclude_each_other(tmp_path):
    with FileLock(tmp_path / ".demo.lock"), pytest.raises(DemoFolderInUse, match="another demo"):
        run_demo(Settings(tmp_path / "demo"), str)
    assert not (tmp_path / "demo").exists()


def test_versions_of_all_tables_of_a_lake(tmp_path):
    config = prepare(tmp_path / "demo", Settings(tmp_path / "demo"))
    rows, lake = pa.table({"x": [1]}), tmp_path / "demo" / "lake"
    name = config.sources[0].name
    paths = ("changelog", "changelog", f"landing/{name}", f"snapshots/{name}/shop/orders")
    for path in paths:
        write_deltalake(str(lake / path), rows, mode="append")
    assert table_versions(config) == {str(lake / path): paths.count(path) - 1 for path in set(paths)}


def test_a_run_with_nothing_new_may_tell_what_goes_by_the_clock(tmp_path):
    """On a slow machine a partition may have become idle meanwhile."""
    config = prepare(tmp_path / "demo", Settings(tmp_path / "demo"))
    add(config.lake, tables.CHANGELOG, overwrite=True)
    known = {
        "source": config.sources[0].name,
        "scope": "source",
        "source_time": (now := datetime.now(UTC)),
        "proven": True,
        "at": now,
    }
    add(config.lake, tables.WATERMARKS, {**known, "batch": 0})
    before = table_versions(config)
    add(config.lake, tables.WATERMARKS, {**known, "batch": 1})
    assert written_since(config, before) == [str(tmp_path / "demo" / "lake" / "watermarks")]
    add(config.lake, tables.WATERMARKS, {**known, "batch": 2, "proven": False})
    assert written_since(config, before) == []
    add(config.lake, tables.CHANGELOG, overwrite=True)
    assert written_since(config, before) == [str(tmp_path / "demo" / "lake" / "changelog")]


@pytest.mark.thorough
@pytest.mark.s3
def test_a_lake_in_use_is_not_taken_for_a_demo(s3, s3_store, tmp_path, monkeypatch):
    for name, value in (("ACCESS_KEY_ID", s3_server.KEY), ("SECRET_ACCESS_KEY", s3_server.SECRET)):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    settings = Settings(tmp_path / "demo", lake=s3_store.uri())
    assert prepare(tmp_path / "demo", settings).lake == s3_store.uri()
    probe.check(s3_store)
    with pytest.raises(DemoFolderInUse, match="is in use"):
        prepare(tmp_path / "demo", settings)
