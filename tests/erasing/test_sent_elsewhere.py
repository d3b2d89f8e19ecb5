"""What was erased is sent again where nothing says that it is a replay: it stays away all the same, and is told."""

from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.cli import attention
from cdc_platform.erasing.run import Erasure
from cdc_platform.lake import erasing, stores
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.spark import delta_sql
from tests.changelog.feed import SourceTable
from tests.changelog.test_backfill import Changing

pytestmark = pytest.mark.spark

TABLE = SourceTable("d", "people", [("id", "int"), ("mail", "varchar(60)")])
OTHER = SourceTable("d", "orders", [("id", "int")])


def person(i: int, mail: str) -> dict[str, str | None]:
    return {"id": str(i), "mail": mail}


SENT = [
    TABLE.insert((1, 100), person(1, "one@example.org")),
    TABLE.insert((1, 110), person(7, "seven@example.org")),
    TABLE.update((1, 120), person(7, "seven@example.org"), person(7, "sieben@example.org")),
    TABLE.insert((1, 130), person(2, "two@example.org")),
]
EARLIER = OTHER.insert((1, 50), {"id": "1"})
"""It was never landed."""


@pytest.fixture(params=["canal"])
def landed(spark: Any, make_config: Any, request: Any) -> Changing:
    made = Changing(spark, make_config([{"name": "s", "format": request.param, "topics": ["t", "t2"]}]), "s")
    landing = tables.LANDING.at(stores.lake(made.config), source="s")
    delta_sql.ensure(tables.LANDING, landing)
    made.say(TABLE.stated(), OTHER.stated())
    made.say(*SENT)
    made.catch_up()
    assert people(made) == [1, 2, 7]
    return made


def erase(feed: Changing) -> None:
    erasure = Erasure.of(feed.config, feed.source, "d.people", "7", follow=False, told=lambda _: None)
    assert erasure.erase(feed.spark)["proof"]["left"] == 0


@pytest.fixture
def feed(landed: Changing) -> Changing:
    """Person 7 was erased."""
    erase(landed)
    assert people(landed) == [1, 2]
    assert told(landed) == []
    return landed


def people(feed: Changing) -> list[int]:
    return sorted(r["id"] for r in feed.live("d", "people"))


def told(feed: Changing) -> list[str]:
    found = [f.text for f in attention.of_lake(feed.config, [feed.source])]
    return [text for text in found if "erasure" in text]


SENDINGS = {
    "from before the first event that ever came": [EARLIER, *SENT],
    "by another partition": [{**e, "partition": 1, "offset": i} for i, e in enumerate(SENT)],
    "by another topic": [{**e, "topic": "t2", "offset": i} for i, e in enumerate(SENT)],
}


@pytest.mark.parametrize(
    "sending", [pytest.param(s, marks=pytest.mark.thorough) if "partition" in s else s for s in SENDINGS]
)
def test_what_comes_again_unrecognised_stays_away_and_is_told(feed: Changing, sending: str) -> None:
    newer = TABLE.update((1, 200), person(2, "two@example.org"), person(2, "zwei@example.org"))
    feed.say(*SENDINGS[sending])
    feed.say(newer)
    feed.catch_up()
    assert {r["id"]: r["mail"] for r in feed.live("d", "people")} == {1: "one@example.org", 2: "zwei@example.org"}
    [finding] = told(feed)
    assert "2 messages of it were sent again and are landed" in finding
    assert feed.sums()["duplicate"] >= 2


@pytest.mark.thorough
@pytest.mark.parametrize("landed", ["canal", "dataworks"], indirect=True)
def test_what_came_again_while_its_table_was_left_out_stays_away(feed: Changing) -> None:
    feed.follow(include=["d.orders"])
    feed.catch_up()
    feed.say(*SENDINGS["by another topic"])
    feed.catch_up()
    feed.follow(include=["d.*"])
    feed.catch_up()
    assert people(feed) == [1, 2]
    [finding] = told(feed)
    assert "2 messages of it were sent again and are landed" in finding
    assert {r["offset"] for r in feed.rows(tables.CHANGELOG) if r["topic"] == "t2"} <= {0, 3}


@pytest.mark.thorough
def test_an_erasure_that_was_killed_when_it_was_decided_is_told_and_known(
    landed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(lake: Any, source: str) -> None:
        if erasing.pending(lake, source):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(erasing, "finish", dies)
        erase(landed)
    [finding] = told(landed)
    assert finding.startswith("erasure 1 of a row of d.people was begun and isn't done")
    landed.say(*SENDINGS["by another topic"])
    with source_lock(landed.config, landed.source):
        landed.catch_up()
    assert people(landed) == [1, 2]
    unfinished, again = told(landed)
    assert unfinished == finding
    assert "2 messages of it were sent again and are landed" in again
    erase(landed)
    [again_only] = told(landed)
    assert again_only == again
