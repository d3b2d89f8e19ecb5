"""Changes whose place is a number of the format's own, as DataWorks': sent again, and without a time of their own."""

import json
from datetime import timedelta
from typing import Any

import pytest
import yaml

from cdc_platform.cli.app import run
from cdc_platform.config import load_config
from cdc_platform.explain import events
from cdc_platform.explain.records import Address
from tests.changelog.feed import LANDED, Feed, SourceTable

pytestmark = pytest.mark.spark

T = SourceTable("shop", "t", [("id", "int"), ("a", "int"), ("b", "text")])
LONG = "a\tb\x1b\u2028'" + 3000 * "x"
PLACE = {"lineage": "", "binlog_file": None}


@pytest.fixture(scope="module")
def feed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Feed:
    folder = tmp_path_factory.mktemp("places")
    source = {"name": "s", "format": "dataworks", "topics": ["t"]}
    (folder / "cdc.yaml").write_text(yaml.safe_dump({"lake": str(folder / "lake"), "sources": [source]}))
    found = Feed(spark, load_config(folder / "cdc.yaml"), "s")
    found.say(
        T.stated(),
        T.insert((1, 10), {"id": "1", "a": "1", "b": LONG}, **PLACE, source_time=None),
        T.insert((1, 20), {"id": "2", "a": "1"}, **PLACE, source_time=LANDED),
        T.insert((1, 30), {"id": "3", "a": "1"}, **PLACE, source_time=None),
    )
    found.catch_up()
    found.say(
        T.insert((1, 20), {"id": "2", "a": "1"}, **PLACE, source_time=LANDED),
        T.insert((1, 40), {"id": "4", "a": "1"}, **PLACE, source_time=LANDED + timedelta(minutes=1)),
    )
    found.unify()
    return found


def explained(feed: Feed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> Any:
    monkeypatch.setenv("CDC_CONFIG", str(feed.config.file))
    run(["explain", "s", "shop.t", *args, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("key", "there"), [("1", True), ("2", True), ("3", False), ("4", False)])
def test_a_change_without_a_time_had_come_where_one_behind_it_had(
    feed: Feed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str, there: bool
):
    told = explained(feed, capsys, monkeypatch, key, "--at", LANDED.isoformat())
    assert (told["here"], [w["kind"] for w in told["why"]]) == (there, [] if there else ["never seen"])
    later = explained(feed, capsys, monkeypatch, key, "--at", (LANDED + timedelta(hours=1)).isoformat())
    assert later["here"] is True


def test_people_see_the_whole_statement_as_a_server_takes_it(
    feed: Feed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CDC_CONFIG", str(feed.config.file))
    assert run(["explain", "s", "shop.t", "1", "--sql"]) == 0
    said = f"INSERT INTO `shop`.`t` (`id`, `a`, `b`) VALUES (1, 1, _utf8mb4 X'{LONG.encode().hex().upper()}');"
    assert said in capsys.readouterr().out.splitlines()


def test_what_is_sent_again_repeats_the_stored_change(feed: Feed):
    told = {}
    for offset in (4, 5):
        of = Address("t", 0, offset)
        [told[offset]] = events.outcomes(feed.config, feed.source, of, events.events_of(feed.config, feed.source, of))
    assert (told[4]["outcome"], told[4]["of"], told[5]["outcome"]) == ("duplicate", "t/0/2 entry 0 row 0", "applied")


@pytest.mark.thorough
def test_a_late_change_that_the_snapshots_have_not_come_to_needs_no_rebuild(
    feed: Feed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    feed.catch_up()
    feed.say(T.insert((1, 15), {"id": "5", "a": "1"}, **PLACE, source_time=LANDED))
    feed.unify()
    told = explained(feed, capsys, monkeypatch, "5")
    assert [(w["kind"], w["sure"]) for w in told["why"]] == [("not applied", True)]
    feed.catch_up()
    assert explained(feed, capsys, monkeypatch, "5")["agrees"] is True
