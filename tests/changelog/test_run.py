"""One catch-up of the changelog stage: every event in its table, every offset accounted for, repeats found."""

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.changelog.run import files_writer
from cdc_platform.lake import batches, stores
from cdc_platform.spark import delta_sql
from tests.changelog.feed import Feed, SourceTable, position
from tests.lakes import store_at

pytestmark = pytest.mark.spark

ORDERS = SourceTable("shop", "orders", [("id", "bigint unsigned"), ("note", "text")])
WIDER = SourceTable("shop", "orders", [*ORDERS.columns, ("more", "int")])
SECRET = SourceTable("shop", "secrets", [("id", "int")])
OUTPUTS = {
    "changelog": tables.CHANGELOG,
    "schema_history": tables.SCHEMA_HISTORY,
    "control_events": tables.CONTROL_EVENTS,
    "quarantine": tables.QUARANTINE,
    "ledger": tables.OFFSET_LEDGER,
    "epochs": tables.LOG_EPOCHS,
}

BACKLOG: list[dict[str, Any]] = [
    {"offset": 0, **ORDERS.stated(), "lineage": "1"},
    {
        "offset": 0,
        "entry_index": 1,
        **ORDERS.insert((1, 10), {"id": "1", "note": None}, txn_id="x", txn_seq=1, txn_last=True),
    },
    {"offset": 1, **ORDERS.insert((1, 20), {"id": "2", "note": "big"})},  # three records: offsets 1, 2, 3
    {"offset": 4, "kind": "ddl", "db": "shop", "ddl": "ALTER TABLE orders ADD more INT", **position(1, 25)},
    {"offset": 5, "kind": "heartbeat", "info": {"at": "5"}, **position(1, 26)},
    {"offset": 6, "kind": "error", "reason": "not a message", "lineage": "1"},
    {"offset": 7, **ORDERS.insert((1, 30), {"id": "3", "note": "beside an error"})},
    {
        "offset": 7,
        "entry_index": 1,
        "kind": "error",
        "reason": "half a row",
        "db": "shop",
        "table": "orders",
        "lineage": "1",
    },
    {"offset": 8, **SECRET.insert((1, 31), {"id": "1"})},
    {"offset": 9, **SECRET.insert((1, 32), {"id": "2"})},
    {
        "offset": 9,
        "entry_index": 1,
        **ORDERS.update((1, 33), {"id": "1", "note": None}, {"id": "1", "note": ""}),
    },
    {"offset": 10, **ORDERS.insert((1, 10), {"id": "1", "note": None})},  # as offset 0
    {"offset": 11, "kind": "skip", "reason": "tombstone", "lineage": "1"},
    {"offset": 12, **WIDER.stated(), "lineage": "1"},
    {"offset": 12, "entry_index": 1, **ORDERS.stated(), "lineage": "1"},
    {"offset": 12, "entry_index": 2, "kind": "begin", **position(1, 34)},
    {"offset": 12, "entry_index": 3, "kind": "commit", **position(1, 35)},
    {"offset": 12, "entry_index": 4, "kind": "checkpoint", "info": {"p": "1"}, **position(1, 36)},
    {"offset": 13, **ORDERS.delete((1, 37), {"id": "2", "note": "big"})},  # a key change in two events
    {"offset": 13, "entry_index": 1, **ORDERS.insert((1, 37), {"id": "9", "note": "big"})},
]
CONTROL = [
    {"offset": 14, "kind": "heartbeat", "lineage": None},
    {"offset": 15, "kind": "commit", **position(1, 40)},
    {"offset": 15, "entry_index": 1, "kind": "rollback", "info": {"type": "XAROLLBACK"}, **position(1, 41)},
]
REPLAY = [
    *({**e, "offset": e["offset"] + 16} for e in BACKLOG if e["offset"] in (0, 1, 9, 13)),
    {"offset": 30, **ORDERS.insert((1, 20), {"id": "2", "note": "other"})},  # same place, other content
    {"offset": 31, **ORDERS.insert((1, 90), {"id": "4", "note": "new"})},
    {"offset": 32, **ORDERS.insert((1, 5), {"id": "5", "note": "another server"}, lineage="2")},
]


@pytest.fixture(scope="module")
def caught_up(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, Feed, Any]:
    """Three batches of a source whose format splits messages; beside it one that only sent control events."""
    from cdc_platform.config import parse_config

    folder = tmp_path_factory.mktemp("changelog")
    config = parse_config(
        {
            "lake": str(folder / "lake"),
            "sources": [
                {
                    "name": "shop",
                    "format": "tencent_dts",
                    "topics": ["t"],
                    "max_bytes_per_batch": "1",
                    "tables": {"include": ["shop.*"], "exclude": ["*.secret*"]},
                },
                {"name": "quiet", "format": "debezium", "topics": ["q"]},
            ],
        },
        folder / "cdc.yaml",
    )
    feed, quiet = Feed(spark, config, "shop"), Feed(spark, config, "quiet")
    envelopes = delta_sql.ensure(tables.ENVELOPES, tables.ENVELOPES.at(stores.lake(config), source="shop"))
    split = [("t", 0, 1, 3), ("t", 0, 0, 1), ("t", 1, 1, 7), ("t", 0, 17, 3)]
    parts = spark.createDataFrame(split, "topic STRING, partition INT, offset BIGINT, parts INT")
    parts.write.format("delta").mode("append").save(envelopes.uri())
    feed.say(*BACKLOG)
    feed.say(*CONTROL)
    quiet.say({"kind": "heartbeat"}, {"kind": "heartbeat"})
    results = [feed.unify()]
    quiet.unify()
    feed.say(*REPLAY)
    kill_before_ledger(feed, folder)
    results.append(feed.unify())
    return feed, quiet, results


def kill_before_ledger(feed: Feed, folder: Path) -> None:
    """A batch that writes its changelog and ends without its ledger."""
    (folder / "file").touch()
    lake = stores.lake(feed.config)
    paths = {name: t.at(lake) for name, t in OUTPUTS.items()} | {"ledger": store_at(folder / "file" / "none")}
    paths["lineages"] = tables.LINEAGES.at(lake)
    paths["erasures"] = tables.ERASURES.at(lake)
    paths["envelopes"] = tables.ENVELOPES.at(lake, source=feed.name)
    changes = tables.CHANGES.at(lake, format=feed.source.format, source=feed.name)
    with pytest.raises(Exception, match="none"):
        batches.for_each(
            feed.spark,
            changes,
            "1",
            tables.CHECKPOINT.at(stores.lake(feed.config), room="changelog", source=feed.name),
            files_writer(feed.source, paths, changes),
        )
    assert ledger(feed, 2) == {}
    assert feed.rows(tables.CHANGELOG)[-1]["offset"] == 32, "the changelog was written"


def ledger(feed: Feed, batch: int) -> dict[str, int]:
    return {r["outcome"]: r["records"] for r in feed.rows(tables.OFFSET_LEDGER) if r["batch"] == batch}


def test_row_changes_land_in_the_changelog_once(caught_up: Any) -> None:
    rows = caught_up[0].rows(tables.CHANGELOG)
    at = [(r["offset"], r["entry_index"], r["op"], r["after"]) for r in rows]
    assert at == [
        (0, 1, "insert", {"id": "1", "note": None}),
        (1, 0, "insert", {"id": "2", "note": "big"}),
        (7, 0, "insert", {"id": "3", "note": "beside an error"}),
        (9, 1, "update", {"id": "1", "note": ""}),
        (13, 0, "delete", None),
        (13, 1, "insert", {"id": "9", "note": "big"}),
        (30, 0, "insert", {"id": "2", "note": "other"}),
        (31, 0, "insert", {"id": "4", "note": "new"}),
        (32, 0, "insert", {"id": "5", "note": "another server"}),
    ]
    first = rows[0]
    told = {
        k: first[k]
        for k in (
            "source",
            "format",
            "topic",
            "partition",
            "db",
            "table",
            "key",
            "before",
            "schema_version",
            "txn_id",
            "txn_seq",
            "txn_last",
            "binlog_file",
            "binlog_pos",
        )
    }
    assert told == {
        "source": "shop",
        "format": "tencent_dts",
        "topic": "t",
        "partition": 0,
        "db": "shop",
        "table": "orders",
        "key": {"id": "1"},
        "before": None,
        "schema_version": ORDERS.version,
        "txn_id": "x",
        "txn_seq": 1,
        "txn_last": True,
        "binlog_file": "mysql-bin.000001",
        "binlog_pos": Decimal(10),
    }
    assert first["decoder_version"]
    assert first["order_key"] == {
        "epoch": 0,
        "file": 1,
        "pos": Decimal(10),
        "event": 0,
        "row": 1 << 20,
        "landed": 0,
    }
    assert [r["order_key"]["epoch"] for r in rows[-3:]] == [1, 1, 2], "what goes back and isn't stored is a newer log"


def test_schema_versions_are_kept_once_and_ddl_always(caught_up: Any) -> None:
    found = [(r["offset"], r["kind"], r["schema_version"], r["ddl"]) for r in caught_up[0].rows(tables.SCHEMA_HISTORY)]
    assert found == [
        (0, "message", ORDERS.version, None),
        (4, "ddl", None, "ALTER TABLE orders ADD more INT"),
        (12, "message", WIDER.version, None),
    ]


def test_control_events_and_errors_land_in_their_tables(caught_up: Any) -> None:
    control = [(r["offset"], r["kind"], r["info"]) for r in caught_up[0].rows(tables.CONTROL_EVENTS)]
    assert control == [
        (5, "heartbeat", {"at": "5"}),
        (12, "begin", None),
        (12, "commit", None),
        (12, "checkpoint", {"p": "1"}),
        (14, "heartbeat", None),
        (15, "commit", None),
        (15, "rollback", {"type": "XAROLLBACK"}),
    ]
    bad = [
        (r["offset"], r["entry_index"], r["reason"], r["table"], r["room"])
        for r in caught_up[0].rows(tables.QUARANTINE)
    ]
    assert bad[:2] == [(6, 0, "not a message", None, "changes"), (7, 1, "half a row", "orders", "changes")]
    (_, _, reason, _, _) = bad[2]
    assert bad[2:] == [(15, 1, reason, None, "changes")]
    assert "took a transaction back" in reason


def test_every_offset_has_exactly_one_outcome(caught_up: Any) -> None:
    """Batch 2 was killed once: its own rows must not count as repeats of themselves."""
    feed, _, results = caught_up
    assert ledger(feed, 0) == {
        "quarantined": 2,  # 6 and 7: a message with one bad row counts as quarantined
        "applied": 7,  # 0, 1..3 (one message of three records), 4 (DDL), 9 (beside a filtered row), 13
        "filtered": 1,  # 8
        "duplicate": 1,  # 10
        "control": 3,  # 5, 11, 12
    }
    assert ledger(feed, 1) == {"control": 1, "quarantined": 1}  # 15: a transaction that was taken back
    assert ledger(feed, 2) == {
        "filtered": 1,  # 25: a filtered row beside a repeated one
        "duplicate": 5,  # 16, 17..19 (three records again), 29
        "applied": 3,  # 30, 31, 32
    }
    ranges = {
        r["outcome"]: (r["from_offset"], r["to_offset"]) for r in feed.rows(tables.OFFSET_LEDGER) if r["batch"] == 0
    }
    assert ranges["applied"] == (0, 13)
    assert [r.batches for r in results] == [2, 1]
    for result, done in zip(results, ([0, 1], [2]), strict=True):
        total = sum((Counter(ledger(feed, b)) for b in done), Counter())
        assert {k: int(v) for k, v in result.metrics.items() if v} == dict(total)


def test_a_source_that_only_sends_control_events_is_accounted_for(caught_up: Any) -> None:
    _, quiet, _ = caught_up
    assert (quiet.rows(tables.CHANGELOG), ledger(quiet, 0)) == ([], {"control": 2})
    assert [r["kind"] for r in quiet.rows(tables.CONTROL_EVENTS)] == ["heartbeat", "heartbeat"]


def test_a_batch_done_again_changes_nothing(caught_up: Any) -> None:
    feed, _, _ = caught_up
    before = {name: feed.rows(t) for name, t in OUTPUTS.items()}
    assert feed.unify().batches == 0, "nothing new"
    feed.forget_last_commit("changelog")
    assert feed.unify().batches == 1
    assert {name: feed.rows(t) for name, t in OUTPUTS.items()} == before
