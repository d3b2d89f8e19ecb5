"""`run --rebuild`: who reads the table meanwhile finds all of its rows, and what is killed or refused leaves them."""

from collections.abc import Iterator
from typing import Any

import pytest

from cdc_platform.errors import TableStopped
from cdc_platform.lake import log_state
from cdc_platform.lake.folder import Folder
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots.apply import staging
from tests.changelog.feed import Feed, Image, SourceTable
from tests.snapshots.test_ddl import versions

pytestmark = pytest.mark.spark

KEYED = versions("id bigint", "a int", "b varchar(9)")
BARE = versions("id bigint", "a int", name="bare", keys=())


class Killed(BaseException):
    """No code catches it."""


def shop(spark: Any, make_config: Any) -> Feed:
    """A table with a key and one without: rows that came, changed and went."""
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    for first, table in ((10, KEYED), (20, BARE)):
        more = {"b": "x"} if table is KEYED else {}
        image: list[Image] = [{"id": str(i), "a": str(i), **more} for i in range(4)]
        feed.say(
            table.stated() | {"lineage": "1"},
            *(table.insert((1, first + i), row) for i, row in enumerate(image[:3])),
            table.update((1, first + 3), image[1], {**image[1], "a": "9"}),
            table.delete((1, first + 4), image[2]),
        )
        feed.unify()
    feed.snapshot()
    return feed


def by_merge(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table goes the way of Spark."""
    monkeypatch.setattr("cdc_platform.snapshots.table_batch.load", lambda *_, **__: False)


WAYS = {"by tasks": (KEYED, False), "by Spark": (KEYED, True), "without a key": (BARE, False)}


@pytest.fixture(params=["by tasks", *(pytest.param(w, marks=pytest.mark.thorough) for w in WAYS if w != "by tasks")])
def rebuilt(
    request: pytest.FixtureRequest, spark: Any, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Feed, SourceTable]]:
    table, merged = WAYS[request.param]
    feed = shop(spark, make_config)
    if merged:
        by_merge(feed, monkeypatch)
    yield feed, table


@pytest.mark.thorough
def test_readers_find_its_rows_all_the_time(rebuilt: tuple[Feed, SourceTable], monkeypatch: pytest.MonkeyPatch) -> None:
    feed, table = rebuilt
    before, commit, seen = feed.kept("shop", [table.name]), log_state.commit, []

    def looked(*args: Any) -> bool:
        seen.append(feed.live("shop", table.name))
        done = commit(*args)
        seen.append(feed.live("shop", table.name))
        return done

    monkeypatch.setattr(log_state, "commit", looked)
    snapshots.rebuild(feed.spark, feed.config, feed.source, "shop", table.name)
    assert len(seen) >= 4
    assert {len(rows) for rows in seen} == {2}
    assert (feed.kept("shop", [table.name]), feed.state("shop", table.name)) == (before, ("live", None))


@pytest.mark.thorough
def test_a_run_killed_between_the_two_tables_is_followed_by_one_that_does_it_again(
    rebuilt: tuple[Feed, SourceTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, table = rebuilt
    before, put = feed.kept("shop", [table.name]), staging._put

    def killed(spark: Any, path: Any, of: Any) -> None:
        if "tombstones" in path.root:
            raise Killed
        put(spark, path, of)

    with monkeypatch.context() as kill, pytest.raises(Killed):
        kill.setattr(staging, "_put", killed)
        snapshots.rebuild(feed.spark, feed.config, feed.source, "shop", table.name)
    assert len(feed.live("shop", table.name)) == 2
    assert feed.state("shop", table.name)[0] == "stale"
    feed.snapshot()
    assert (feed.kept("shop", [table.name]), feed.state("shop", table.name)) == (before, ("live", None))


@pytest.mark.thorough
def test_a_run_killed_anywhere_leaves_all_rows(
    rebuilt: tuple[Feed, SourceTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, table = rebuilt
    before, put_new = feed.kept("shop", [table.name]), Folder.put_new
    for most in range(40):
        made: list[str] = []

        def killed(self: Folder, path: str, data: bytes, made: list[str] = made, most: int = most) -> bool:
            if len(made) == most:
                raise Killed
            made.append(path)
            return put_new(self, path, data)

        try:
            with monkeypatch.context() as kill:
                kill.setattr(Folder, "put_new", killed)
                snapshots.rebuild(feed.spark, feed.config, feed.source, "shop", table.name)
        except Killed:
            assert len(feed.live("shop", table.name)) == 2, most
            feed.snapshot()
            assert (feed.kept("shop", [table.name]), feed.state("shop", table.name)) == (before, ("live", None)), most
        else:
            break
    else:
        pytest.fail("it was killed each time")
    assert most > 3
    left = {p.split("/")[0] for p in feed.target("shop", table.name).snapshot.below("") if "/_delta_log/" in p}
    assert not left


@pytest.mark.thorough
def test_one_that_cannot_be_made_stays_as_it_was(spark: Any, make_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = shop(spark, make_config)
    before = feed.kept("shop", ["t"])
    wide = versions("id bigint", "a int", "b int")
    feed.say(wide.stated() | {"lineage": "1"}, wide.insert((1, 90), {"id": "7", "a": "7", "b": "7"}))
    feed.unify()
    feed.snapshot()
    with pytest.raises(TableStopped):
        snapshots.rebuild(feed.spark, feed.config, feed.source, "shop", "t")
    assert feed.kept("shop", ["t"]) == before
    assert feed.state("shop", "t")[0] == "stopped"
