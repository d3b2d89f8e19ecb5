"""Gaps: which numbers of a sender no record has, and until when they are open."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform import tables
from cdc_platform.cli.app import run
from cdc_platform.config import load_config
from cdc_platform.lake import sequences
from cdc_platform.snapshots.cuts import publish
from tests.automation.conftest import complete, ledger, schema_history, snapshot, table_state
from tests.properties import examples
from tests.rows import add

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SOURCE = "shop-dts"


def made(folder):
    raw = {
        "lake": "./lake",
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "sources": [{"name": SOURCE, "format": "tencent_dts", "topics": ["dts"]}],
    }
    folder.mkdir(exist_ok=True)
    (folder / "cdc.yaml").write_text(json.dumps(raw))
    return load_config(folder / "cdc.yaml")


@pytest.fixture
def config(tmp_path):
    return made(tmp_path)


def came(config, *runs, batch=0, at=NOON, shard="", overwrite=False):
    """Stretches as (first number, last number), each at the offsets that come next."""
    offset, rows = batch * 1_000, []
    for first, last in runs:
        upto = offset + (0 if first is None else last - first)
        said = {"source": SOURCE, "batch": batch, "topic": "dts", "partition": 0, "shard": shard, "at": at}
        rows.append({**said, "from_offset": offset, "to_offset": upto, "first": first, "last": last})
        offset = upto + 1
    add(config.lake, tables.SEQUENCES, *rows, overwrite=overwrite)


def gaps(config):
    return [(g.first, g.last) for g in sequences.gaps(config, config.sources[0])]


def compared(config, table, at, equal=True):
    row = {"source": SOURCE, "db": "shop", "table": table, "against": "server", "equal": equal, "version": 0, "rows": 2}
    add(config.lake, tables.RECONCILIATIONS, {**row, "differing": 0, "lost": 0, "at": at})


def test_a_feed_that_numbers_nothing_has_none(config):
    assert gaps(config) == []


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ([(4, 9)], []),
        ([(4, 9), (10, 20)], []),
        ([(4, 9), (12, 20)], [(10, 11)]),
        ([(4, 9), (12, 20), (30, 31)], [(10, 11), (21, 29)]),
        ([(4, 9), (12, 20), (10, 11)], []),
        ([(4, 9), (12, 20), (10, 10)], [(11, 11)]),
        ([(4, 9), (1, 5), (6, 30)], []),
        ([(4, 9), (1, 5), (8, 30)], [(6, 7)]),
        ([(4, 9), (6, 12), (13, 13)], []),
        ([(4, 9), (None, None), (40, 50)], []),
    ],
    ids=[
        *("one stretch", "goes on", "a gap", "two gaps", "closed late", "closed in part", "begun again"),
        *("a gap in the second life", "sent again from before", "no sequence in between"),
    ],
)
def test_what_is_missing(config, runs, told):
    came(config, *runs)
    assert gaps(config) == told


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return made(tmp_path_factory.mktemp("logs"))


@examples(40)
@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(2, 15))), min_size=1, max_size=4), st.data())
def test_lives_of_a_sender(logs, lives, data):
    """Each life numbers 1 to 16 or so and loses some; late ones come within it. The missing are those that it lost."""
    runs, expected = [], set()
    for life, (late, lost) in enumerate(lives):
        sent = [n for n in range(1, 17) if n not in lost]
        if late and lost:
            sent.append(data.draw(st.sampled_from(sorted(lost))))
        runs += [(n, n) for n in sent]
        expected |= {(life, n) for n in lost if n not in sent}
    came(logs, *runs, overwrite=True)
    found = [n for first, last in gaps(logs) for n in range(first, last + 1)]
    assert sorted(found) == sorted(n for _, n in expected)


def test_a_gap_says_where_and_why(config):
    came(config, (1, 10), (13, 20))
    came(config, (1, 5), (7, 7), shard="s1", batch=1)
    assert [g.text for g in sequences.gaps(config, config.sources[0])] == [
        "2 records of dts/0, between offsets 9 and 10 (numbers 11 to 12 by their sender): they never came to the topic",
        "1 record of dts/0, shard s1, between offsets 1004 and 1005 (number 6 by its sender): "
        "it never came to the topic",
    ]
    ledger(config, (SOURCE, "dts", 0, 10, 9, "lost", 4))
    first = sequences.gaps(config, config.sources[0])[0]
    assert first.removed
    assert first.text.endswith("(numbers 11 to 12 by their sender): Kafka had removed them before they were landed")
    one = replace(first, last=first.first)
    assert one.text.endswith("(number 11 by its sender): Kafka had removed it before it was landed")


def test_a_gap_that_closes_in_part_stays_where_it_was(config):
    """Those that come late come behind what follows the gap; the others are missing before that."""
    came(config, (1, 10), (15, 20), (12, 12), (11, 11))
    [gap] = sequences.gaps(config, config.sources[0])
    assert (gap.first, gap.last, gap.before, gap.after) == (13, 14, 9, 10)


@pytest.mark.thorough
def test_a_comparison_that_finds_all_tables_equal_mends_it(config, capfd):
    for table in ("orders", "items"):
        schema_history(config, (SOURCE, "shop", table))
        snapshot(config, SOURCE, f"shop.{table}", 2)
    ledger(config, (SOURCE, "dts", 0, 0, 9, "landed", 10), (SOURCE, "dts", 0, 0, 9, "applied", 10))
    complete(config, SOURCE, 0, NOON)
    compared(config, "orders", NOON - timedelta(hours=1))
    came(config, (1, 10), (13, 20))
    config_file = str(config.state_dir.parent / "cdc.yaml")
    why = "2 records of dts/0, between offsets 9 and 10 (numbers 11 to 12 by their sender)"

    def certified():
        code = run(["certify", SOURCE, "--config", config_file, "--json"])
        told = json.loads(capfd.readouterr().out)
        return code, {c["table"]: (c["verdict"], " ".join(c["reasons"])) for c in told["tables"]}

    code, told = certified()
    assert code == 1
    assert {t: (v, why in r) for t, (v, r) in told.items()} == {
        "shop.orders": ("broken", True),
        "shop.items": ("broken", True),
    }
    assert run(["status", "--config", config_file]) == 1
    assert "never came to the topic" in " ".join(capfd.readouterr().out.split())
    compared(config, "orders", NOON + timedelta(hours=1))
    _, told = certified()
    assert told["shop.orders"][0] == "proven"
    assert told["shop.items"][0] == "broken"
    assert len(sequences.open_gaps(config, config.sources[0])) == 1
    compared(config, "items", NOON + timedelta(hours=1), equal=False)
    assert len(sequences.open_gaps(config, config.sources[0])) == 1
    table_state(config, SOURCE, "shop.items", "dropped", rebuild=1)
    assert sequences.open_gaps(config, config.sources[0]) == []


def test_what_kafka_had_removed_is_of_all_tables_until_they_are_compared(config):
    source, names = config.sources[0], [("shop", "orders"), ("shop", "items")]
    assert sequences.lost_of_tables(config, source, names) == {}
    ledger(config, (SOURCE, "dts", 0, 10, 13, "lost", 4), (SOURCE, "dts", 1, 7, -2, "lost", 1))
    why = "offsets of the source were lost before they were landed: dts/0 10 to 13, dts/1 from 7 on"
    lost = sequences.Lost(why, {("dts", 0): 10, ("dts", 1): 7})
    assert sequences.lost_of_tables(config, source, names) == dict.fromkeys(names, lost)
    row = {"source": SOURCE, "db": "shop", "against": "server", "version": 0, "rows": 2, "differing": 0, "at": NOON}
    rows = [{**row, "table": "orders", "equal": True, "lost": 5}, {**row, "table": "items", "equal": True, "lost": 4}]
    add(config.lake, tables.RECONCILIATIONS, *rows)
    newer = sequences.Lost("offsets of the source were lost before they were landed: dts/1 from 7 on", {("dts", 1): 7})
    assert sequences.lost_of_tables(config, source, names) == {("shop", "items"): newer}, "the others were compared"


def test_a_cut_of_which_records_are_missing_says_so(config, monkeypatch, capsys):
    monkeypatch.setenv("CDC_CONFIG", str(config.file))
    came(config, (1, 5), (8, 12))
    table_state(config, SOURCE, "shop.orders", "live")
    empty = (tables.OFFSET_LEDGER, tables.QUARANTINE, tables.SCHEMA_CHANGES, tables.SCHEMA_HISTORY, tables.CHANGELOG)
    for table in (*empty, tables.CONTROL_EVENTS):
        add(config.lake, table, overwrite=True)
    state = {"state": "stopped", "reason": "why"}

    def cut(entries):
        publish.publish(None, config, config.sources[0], {("shop", "orders"): {**state, "entries": entries}})
        assert run(["cut", "list", SOURCE, "--json"]) == 0
        newest = json.loads(capsys.readouterr().out)[0]
        return newest["kind"], newest["reason"]

    assert cut(1) == ("position", "2 records never came, by their sender's numbers")
    compared(config, "orders", NOON + timedelta(hours=1))
    assert cut(2) == ("position", "no begin and commit has come"), "a comparison found the table equal"
