"""`replay`: what other options make of the same bytes, beside the lake in use, which stays as it is until a swap."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import certificate, chain, tables
from cdc_platform.cli.app import run as command
from cdc_platform.config import load_config
from cdc_platform.formats.debezium import FORMAT
from cdc_platform.lake import commits, comparisons, exchange, stores, watermarks
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.reading import catalog
from cdc_platform.snapshots.run import rebuild
from tests.changelog.feed import read
from tests.changes.test_again import Topic, created, row
from tests.rows import add

pytestmark = pytest.mark.spark
STRING = {"decimal_handling_mode": "string"}


@pytest.fixture
def topic(spark: Any, tmp_path: Path) -> Topic:
    return Topic(spark, tmp_path)


@pytest.fixture
def asked(topic: Topic, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*args: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = command([*args, "--config", str(topic.file), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return ask


def in_use(topic: Topic) -> set[tuple[str, int, int]]:
    """Every file of the lake in use."""
    lake = Path(topic.config.lake)
    files = (f for f in lake.rglob("*") if f.is_file())
    kept = (f for f in files if f.relative_to(lake).parts[0] not in ("_replays", "_leases", "_store"))
    return {(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in kept}


def lines(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """1234 is four digits, or base64 of a number; AQ== only the latter."""
    return [
        *(created(), row(10, 1, "5"), row(20, 2, "1234"), row(30, 3, "55"), row(40, 1, "1234", "u")),
        *(row(50, 4, "AQ=="), *more),
    ]


def numbers(topic: Topic) -> list[tuple[int, int]]:
    return [(i, int(n)) for i, n in topic.rows()]


def versions(topic: Topic) -> list[tuple[int, int, bool]]:
    """Of the table's history: id, n, and whether it is so now."""
    found = read(tables.HISTORY_PATH.of(topic.config.lake, "s", ("d", "t"))).to_pylist()
    return sorted((r["id"], int(r["n"]), r["_cdc_order_to"] is None) for r in found)


def compared_equal(topic: Topic) -> bool:
    """Whether the table's certificate rests on a comparison that found it equal."""
    [told] = certificate.of_source(topic.config, topic.source)["d", "t"].facts["compared"]
    return bool(told["equal"] and not told["falls_short"])


def test_what_another_option_makes_is_told_beside_and_put_in_place_when_asked(topic: Topic, asked: Any):
    topic.rules = {"history": ["d.*"]}
    topic.with_options()
    topic.land(*lines())
    topic.catch_up()
    assert versions(topic) == [(1, 5, True), (3, 55, True), (4, 1, True)]
    told = {"source": "s", "db": "d", "table": "t", "against": "server", "equal": True, "version": 0, "rows": 3}
    told |= {"differing": 0, "lost": 0, "at": (now := datetime.now(UTC))}
    differed = {"equal": False, "differing": 2, "at": now - timedelta(hours=1)}
    add(topic.config.lake, tables.RECONCILIATIONS, told | differed, told)
    assert compared_equal(topic)
    before = in_use(topic)
    assert numbers(topic) == [(1, 5), (3, 55), (4, 1)]
    code, found = asked("replay", "s", "--options", json.dumps(STRING))
    assert code == 1
    assert found["options"] == {"decimal_handling_mode": {"in_use": None, "replay": "string"}}
    assert found["held"] == {"in_use": 2, "replay": 1}
    [table] = found["tables"]
    counts = {k: table[k] for k in ("only_in_use", "only_in_replay", "differing")}
    assert counts == {"only_in_use": 1, "only_in_replay": 1, "differing": 1}
    assert table["columns"] == [{"column": "n", "rows": 1}]
    why = {(r["column"], r["reason"].split(":")[0]): r["rows"] for r in table["reasons"]}
    held = "held in quarantine "
    assert why == {("n", f"{held}in use"): 1, (None, f"{held}in use"): 1, (None, f"{held}by the replay"): 1}
    assert [(r["kind"], r["key"]["id"]) for r in table["samples"]] == [
        ("differing", "1"),
        ("only_in_replay", "2"),
        ("only_in_use", "4"),
    ]
    assert table["samples"][0]["cells"] == [{"column": "n", "in_use": "5", "replay": "1234"}]
    assert in_use(topic) == before
    topic.with_options(**STRING)
    code, found = asked("replay", "s", "--swap")
    assert (code, found["swapped"], found["equal"]) == (0, True, False)
    assert numbers(topic) == [(1, 1234), (2, 1234), (3, 55)]
    assert versions(topic) == [(1, 5, False), (1, 1234, True), (2, 1234, True), (3, 55, True)]
    [told] = certificate.of_source(topic.config, topic.source)["d", "t"].facts["compared"]
    short = ["d.t was compared before its rows were made anew"]
    assert (told["equal"], told["falls_short"]) == (True, short), "nor does it differ again"
    topic.land(row(60, 5, "4"))
    topic.catch_up()
    assert numbers(topic) == [(1, 1234), (2, 1234), (3, 55), (5, 4)]
    assert topic.outcomes() == {"applied": 6, "quarantined": 1}


def complete_up_to(topic: Topic) -> tuple[int, int | None, str]:
    """Second up to which the source and its table are complete, and what holds the table back."""
    found = watermarks.complete(tables.WATERMARKS.at(lake(topic)), "s")
    assert found and found.source_time
    of = found.of(("d", "t"))
    why = found.behind["d", "t"].reason if found.behind else ""
    return int(found.source_time.timestamp()) % 1000, of and int(of.timestamp()) % 1000, why


@pytest.mark.thorough
def test_a_table_is_complete_no_further_than_what_a_swap_newly_holds(topic: Topic, asked: Any):
    topic.with_options()
    for second, more in enumerate([row(10, 1, "5"), row(50, 4, "AQ=="), row(60, 3, "55")]):
        more["source"]["ts_ms"] += 1000 * second
        topic.land(*([] if second else [created()]), more, at=datetime.now(UTC))
        topic.catch_up()
        assert complete_up_to(topic) == (second, second, "")
    topic.with_options(**STRING)
    assert asked("replay", "s", "--swap")[1]["swapped"]
    assert numbers(topic) == [(1, 5), (3, 55)]
    assert complete_up_to(topic)[:2] == (2, 0)
    assert complete_up_to(topic)[2].startswith("quarantine holds t/0/2: ")
    more = row(70, 5, "4")
    more["source"]["ts_ms"] += 9_000
    topic.land(more, at=datetime.now(UTC))
    topic.catch_up()
    assert complete_up_to(topic)[:2] == (9, 0)


def test_what_cant_be_done_is_refused_before_spark_is_started(
    topic: Topic, asked: Any, monkeypatch: pytest.MonkeyPatch
):
    topic.land(*lines())
    topic.catch_up()
    monkeypatch.setattr("cdc_platform.spark.session.open_session", lambda *_: pytest.fail("Spark was started"))

    def refused(*given: str) -> tuple[str, list[str]]:
        code, told = asked("replay", "s", *given)
        assert code == 2
        return told["error"]["key"], told["error"]["valid"]

    assert refused("--table", "d.tt") == ("--table", ["d.t"])
    assert refused("--from", "t/0/9") == ("--from", ["up to t/0/5"]), "the last that is decoded"
    key, valid = refused("--options", "{decimal_handling: string}")
    assert key.startswith("--options") and "decimal_handling_mode" in valid
    key, valid = refused("--options", "{decimal_handling_mode:string}")  # no blank: YAML reads a name without a value
    assert key == "--options.decimal_handling_mode:string" and "decimal_handling_mode" in valid
    assert refused("--swap", "--from", "t/0/1") == ("--swap", ["without --from"])
    assert refused("--discard", "--swap") == ("--discard", ["without --swap"])
    assert refused("--discard", "--table", "d.t", "--from", "1")[1] == ["without --table", "without --from"]


@pytest.mark.thorough
def test_why_cells_differ_and_a_replay_goes_on_where_it_was_killed(
    topic: Topic, asked: Any, monkeypatch: pytest.MonkeyPatch
):
    topic.land(row(10, 1, "1.50"), row(20, 2, "2"), row(30, 3, "3.00"))
    topic.catch_up()
    types = {"columns": {"d.t": {"id": "int", "n": "decimal(6,2)"}}}
    monkeypatch.setattr("cdc_platform.formats.debezium.FORMAT", replace(FORMAT, version="next"))
    before = in_use(topic)
    for stage in ("decode", "unify", "snapshot"):
        with monkeypatch.context() as killed:
            killed.setattr(chain, stage, lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                asked("replay", "s", "--options", json.dumps(types))
    code, found = asked("replay", "s", "--options", json.dumps(types), "--samples", "1")
    assert (code, found["path"].rpartition("/")[2]) == (1, "1")
    assert found["decoders"] == {"in_use": [{"decoder_version": FORMAT.version, "changes": 3}], "replay": "next"}
    [table] = found["tables"]
    assert (table["differing"], len(table["samples"])) == (1, 1)
    assert {"column": "n", "in_use": "string", "replay": "decimal(6,2)"} in table["types"]
    assert table["samples"][0]["cells"] == [{"column": "n", "in_use": "2", "replay": "2.00"}]
    why = [r["reason"] for r in table["reasons"] if r["column"] == "n"]
    assert [w.split(" ")[0] for w in why] == ["decoder", "option", "type"]
    assert f"decoder {FORMAT.version} is next" in why
    assert in_use(topic) == before
    # with other options it begins again; of one table alone the result is the same
    code, one = asked("replay", "s", "--table", "d.t")
    assert one["path"].rpartition("/")[2] == "2"
    assert (code, one["equal"], one["tables"][0]["rows"]) == (0, True, {"in_use": 3, "replay": 3})
    assert asked("replay", "s", "--discard")[1] == {"source": "s", "discarded": True}
    assert asked("replay", "s", "--discard")[1] == {"source": "s", "discarded": False}
    assert not list(Path(topic.config.lake, "_replays", "s").rglob("*.parquet"))


@pytest.mark.thorough
def test_from_an_offset_on_what_was_decoded_before_stays(topic: Topic, asked: Any):
    topic.land(*lines())
    topic.land(row(60, 5, "5678"), row(70, 6, "AQ=="), row(80, 1, "1234", "u"))
    topic.catch_up()
    before = in_use(topic)
    assert numbers(topic) == [(1, 5), (3, 55), (4, 1), (6, 1)]
    options = ("--options", json.dumps(STRING))
    code, found = asked("replay", "s", *options, "--from", "6")
    [table] = found["tables"]
    assert (code, found["held"]) == (1, {"in_use": 4, "replay": 3})  # 1234 twice before, AQ== after
    assert [(r["kind"], r["key"]["id"]) for r in table["samples"]] == [
        ("differing", "1"), ("only_in_replay", "5"), ("only_in_use", "6"),
    ]  # fmt: skip
    assert {r["reason"].split(":")[0] for r in table["reasons"]} == {
        "held in quarantine in use", "held in quarantine by the replay",
    }  # fmt: skip
    assert asked("replay", "s", *options, "--from", "t/0/6")[1]["path"] == found["path"]
    code, same = asked("replay", "s", *options, "--from", "t/0/9")  # nothing is decoded again
    assert (code, same["held"]) == (0, {"in_use": 4, "replay": 4})
    assert in_use(topic) == before
    for wrong in ("t/0/10", "u/0/1", "first", "t/0"):
        code, told = asked("replay", "s", "--from", wrong)
        assert (code, told["error"]["key"]) == (2, "--from")
    code, told = asked("replay", "s", "--from", "1", "--swap")
    assert (code, told["error"]["valid"]) == (2, ["without --from"])
    topic.with_options(**STRING)
    assert asked("quarantine", "retry")[0] == 0
    code, told = asked("replay", "s", "--from", "4")
    assert (code, told["error"]["valid"][0]) == (2, "t/0/2 or before")


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.thorough
def test_a_swap_that_is_killed_anywhere_is_done_by_the_next_run_or_not_at_all(
    topic: Topic, asked: Any, monkeypatch: pytest.MonkeyPatch
):
    topic.land(*lines())
    topic.catch_up()
    topic.with_options(**STRING)

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    before = in_use(topic)
    with monkeypatch.context() as killed:  # all is written, nothing is decided
        killed.setattr(exchange, "decide", dies)
        with pytest.raises(Killed):
            asked("replay", "s", "--swap")
    new = {name for name, *_ in in_use(topic) - before}
    assert before <= in_use(topic)
    assert not [name for name in new if "_delta_log" in name]
    with source_lock(topic.config, topic.source):
        assert numbers(topic) == [(1, 5), (3, 55), (4, 1)]

    decide = exchange.decide
    with monkeypatch.context() as killed:  # it is decided, and nothing of it is done
        killed.setattr(exchange, "decide", lambda *of: dies(decide(*of)))
        with pytest.raises(Killed):
            asked("replay", "s", "--swap")
    steps, done = 0, False
    while not done:  # each run does one step more, and dies
        real, noted, removed, allowed = commits.replace, exchange.checkpoints.note, type(lake(topic)).remove, [1]

        def one(work: Any, allowed: list[int] = allowed) -> Any:
            def do(*args: Any, **more: Any) -> Any:
                if not allowed:
                    raise Killed
                allowed.pop()
                return work(*args, **more)

            return do

        with monkeypatch.context() as killed:
            killed.setattr(commits, "replace", one(real))
            killed.setattr(exchange.checkpoints, "note", one(noted))
            killed.setattr(type(lake(topic)), "remove", one(removed))
            try:
                with source_lock(topic.config, topic.source):
                    done = True
            except Killed:
                steps += 1
    assert steps > 12
    with source_lock(topic.config, topic.source):
        assert not exchange.finish(lake(topic), "s")
    topic.land(row(60, 5, "4"))
    topic.catch_up()
    assert numbers(topic) == [(1, 1234), (2, 1234), (3, 55), (5, 4)]
    assert topic.outcomes() == {"applied": 6, "quarantined": 1}
    changelog = read(tables.CHANGELOG.at(topic.config.lake)).to_pylist()
    assert sorted(r["offset"] for r in changelog) == [1, 2, 3, 4, 6]
    code, found = asked("replay", "s")
    assert (code, found["held"]) == (0, {"in_use": 1, "replay": 1})


def lake(topic: Topic) -> Any:
    return stores.lake(topic.config)


def of(table: str, change: dict[str, Any]) -> dict[str, Any]:
    return {**change, "source": {**change["source"], "table": table}}


def rows_of(topic: Topic, table: str) -> list[tuple[Any, ...]]:
    found = read(topic_path(topic, table)).to_pylist()
    return sorted(tuple(v for k, v in r.items() if not k.startswith("_cdc_")) for r in found)


def topic_path(topic: Topic, table: str) -> str:
    return f"{topic.config.lake}/snapshots/s/d/{table}"


def states(topic: Topic) -> dict[str, str]:
    return {n.table: s.state for n, s in catalog.states(lake(topic), "s").items()}


@pytest.mark.thorough
def test_tables_that_are_left_out_or_lose_all_their_changes_by_a_swap(topic: Topic, asked: Any):
    def followed(*exclude: str, **options: Any) -> None:
        topic.with_options(**options)
        raw = json.loads(topic.file.read_text())
        raw["sources"][0]["tables"] = {"exclude": list(exclude)}
        topic.file.write_text(json.dumps(raw))
        topic.config = load_config(topic.file)
        topic.source = topic.config.source("s")

    topic.land(row(10, 1, "5"), of("u", row(11, 1, "1")), of("u", row(12, 2, "2")), of("v", row(13, 7, "x")))
    topic.catch_up()
    with source_lock(topic.config, topic.source):
        rebuild(topic.spark, topic.config, topic.source, "d", "u")
    followed("d.u")
    gone = of("u", {**row(21, 2, "2", "d"), "before": {"id": 2, "n": "2"}, "after": None})
    topic.land(of("u", row(20, 1, "9", "u")), gone)
    topic.catch_up()
    before = rows_of(topic, "u"), rows_of(topic, "v")
    assert (states(topic), len(before[0])) == ({"t": "live", "u": "left_out", "v": "live"}, 2)
    made = comparisons.rebuilds(topic.config, topic.source)
    typed = {"columns": {"d.v": {"id": "int", "n": "int"}}}  # which x isn't
    followed("d.u", **typed)
    code, found = asked("replay", "s", "--swap")
    assert (code, found["swapped"]) == (0, True), found
    assert states(topic) == {"t": "live", "u": "left_out", "v": "stopped"}
    assert (rows_of(topic, "u"), rows_of(topic, "v")) == before
    after = comparisons.rebuilds(topic.config, topic.source)
    assert all(after[name] > n for name, n in made.items()), "no comparison of before is of what is there now"
    followed(**typed)
    topic.catch_up()
    assert states(topic)["u"] == "live"
    assert [(int(i), int(n)) for i, n in rows_of(topic, "u")] == [(1, 9)]
