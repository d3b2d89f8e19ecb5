"""The changelog made by workers, file by file, is the one that Spark makes: table by table, row by row."""

import random
import zlib
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform import tables
from cdc_platform.changelog import order, unify
from cdc_platform.changelog import run as changelog
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.file_stats import Touched
from cdc_platform.changelog.order_key import ORDER, Clock, lowest, order_key, placed, those
from cdc_platform.changelog.outcomes import Messages
from cdc_platform.changes.file_stats import ENTRIES, Summary
from cdc_platform.config import parse_config
from cdc_platform.config.tables import Tables
from cdc_platform.formats.events import event_batch
from cdc_platform.lake import stores
from cdc_platform.spark import delta_sql
from tests.changelog.feed import LANDED, Feed, SourceTable, as_event, position
from tests.changelog.test_run import OUTPUTS

SHOP = [SourceTable("shop", f"t{i}", [("id", "int"), ("v", "text")]) for i in range(3)]
WIDER = SourceTable("shop", "t1", [*SHOP[1].columns, ("more", "int")])
NO_KEY = SourceTable("shop", "audit", [("a", "int"), ("b", "text")], ())
HIDDEN = SourceTable("secret", "t", [("id", "int")])


def events(seed, count):
    """Events of all kinds in Kafka's order over three partitions of two topics, some of two servers."""
    dice = random.Random(seed)
    offsets = dict.fromkeys((("t", 0), ("t", 1), ("u", 0)), 0)
    pos = 0
    out = []
    for _ in range(count):
        place = dice.choice(list(offsets))
        offsets[place] += dice.choice((1, 1, 1, 4))
        for entry in range(dice.choice((1, 1, 1, 3))):
            pos += dice.choice((1, 100, 10**9))
            told = _event(dice, pos)
            where = {"topic": place[0], "partition": place[1], "offset": offsets[place], "entry_index": entry}
            lineage = {"lineage": dice.choice(["1"] * 9 + ["2"])} if told.get("lineage") else {}
            out.append({**told, **where, **lineage, "landed_at": LANDED + timedelta(seconds=offsets[place] // 10)})
    return out


def _event(dice, pos):
    kind = dice.choices(
        ("row", "schema", "ddl", "control", "error", "untold", "audit", "rolled"), (20, 3, 1, 3, 2, 2, 3, 1)
    )[0]
    table = dice.choice([*SHOP, *SHOP, WIDER, HIDDEN])
    row = {n: dice.choice(("1", "2", "3")) if n == "id" else dice.choice((None, "", "é")) for n, _ in table.columns}
    at = (1 + pos // 10**11, pos)
    change = dice.choice(("insert", "update", "delete"))
    of = dice.choice(({}, {"db": "shop", "table": "t1"}, {"db": "secret", "table": "t"}))
    control = dice.choice(("begin", "commit", "heartbeat", "checkpoint"))
    return {
        "row": table.update(at, row, row) if change == "update" else getattr(table, change)(at, row),
        "schema": {**table.stated(), "lineage": "1"},
        "ddl": {"kind": "ddl", "db": "shop", "ddl": f"ALTER TABLE t1 ADD c{pos} INT", **position(1, pos)},
        "control": {"kind": control, "info": {"p": str(pos)}, "source_time": LANDED, **position(1, pos)},
        "error": {"kind": "error", "reason": "broken", **of},
        "untold": table.insert((None, None), row, lineage=None),
        "audit": NO_KEY.insert(at, {"a": str(pos % 5), "b": "x"}),
        "rolled": {"kind": dice.choice(("rollback", "skip")), "reason": "empty", **position(1, pos)},
    }[kind]


def errors():
    """Errors that tell more or less of the row, and a rollback, whose `info` is its own."""
    told = [
        {"db": "shop", "schema": "dbo", "reason": "no table"},
        {"db": "shop", "table": "t1", "reason": "v", "key": {"id": "1", "b": "2"}, "info": {"column": "v"}},
        {"db": "shop", "table": "t1", "reason": "w", "key": {"id": "1"}, "info": {"note": "x"}},
        {"db": "secret", "table": "t", "reason": "v", "key": {"id": "1"}, "info": {"column": "v"}},
        {"kind": "rollback", "db": "shop", "info": {"column": "no"}},
    ]
    address = {"topic": "v", "partition": 0, "landed_at": LANDED}
    return [{"kind": "error", **e, **address, "offset": i} for i, e in enumerate(told)]


def feed(spark, folder, name):
    source = {
        "name": "shop",
        "format": "tencent_dts",
        "topics": ["t"],
        "tables": {"include": ["shop.*"], "keys": {"shop.audit": ["b", "a"]}},
    }
    config = parse_config({"lake": str(folder / name), "sources": [source]}, folder / "cdc.yaml")
    found = Feed(spark, config, "shop")
    envelopes = delta_sql.ensure(tables.ENVELOPES, tables.ENVELOPES.at(stores.lake(config), source="shop"))
    split = spark.createDataFrame(
        [("t", 0, o, 4) for o in range(0, 400, 3)], "topic STRING, partition INT, offset BIGINT, parts INT"
    )
    split.write.format("delta").mode("append").save(envelopes.uri())
    return found


def everything(feed):
    def plain(row):
        return {k: sorted(v.items()) if isinstance(v, dict) and k != "order_key" else v for k, v in row.items()}

    told = {name: [plain(r) for r in feed.rows(t)] for name, t in OUTPUTS.items()}
    for row in told["quarantine"]:
        assert row.pop("quarantined_at") is not None
    return {name: sorted(map(repr, rows)) for name, rows in told.items()}


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_workers_and_spark_make_the_same_changelog(spark, tmp_path, monkeypatch, seed):
    by_files, by_rows = feed(spark, tmp_path, "files"), feed(spark, tmp_path, "rows")
    every = [*events(seed, 150), *errors()]
    halves = every[: len(every) // 2], every[len(every) // 2 :]
    for half in halves:
        for one in (by_files, by_rows):
            one.say(*half)
        by_files.unify()
        with monkeypatch.context() as elsewhere:
            # as a batch with repeated events: Spark joins and writes it
            elsewhere.setattr(changelog, "_by_spark", lambda *_: True)
            by_rows.unify()
    expected = everything(by_rows)
    assert len(expected["changelog"]) > 50
    assert all(expected.values())
    held = [
        (r["schema"], r["table"], r["key"], r["column"]) for r in by_rows.rows(tables.QUARANTINE) if r["topic"] == "v"
    ]
    assert sorted(held, key=str) == [
        ("dbo", None, None, None),
        (None, "t1", {"id": "1", "b": "2"}, "v"),
        (None, "t1", {"id": "1"}, None),
        (None, None, None, None),
    ]
    found = everything(by_files)
    for name, rows in expected.items():
        assert set(found[name]) ^ set(rows) == set(), name
    assert found == expected


ARRIVALS = Arrivals({}, {}, {"1": 0})


def changed(*places, op="update", lineage="1"):
    rows = [
        {**SHOP[0].insert((file, pos), {"id": "1", "v": ""}, lineage=lineage), "op": op_, "row_no": row}
        for file, pos, row, op_ in ((*p, op)[:4] for p in places)
    ]
    return event_batch([as_event({"offset": i, **r}) for i, r in enumerate(rows)])


def noted(*parts):
    summary = Summary()
    for part in parts:
        summary.add(part)
    return summary.told()


@pytest.mark.parametrize(
    ("files", "apart"),
    [
        ([[changed((1, 5, 0), (1, 5, 1), (1, 6, 0), (2, 1, 0))]], True),
        ([[changed((1, 5, 0)), changed((1, 5, 1))]], True),
        ([[changed((1, 5, 0)), changed((1, 5, 0))]], False),
        ([[changed((1, 5, 1), (1, 5, 0))]], False),
        ([[changed((1, 5, 0), (1, 5, 0))]], False),
        ([[changed((1, 5, 0, "delete"), (1, 5, 0, "insert"), (1, 6, 0))]], True),
        ([[changed((1, 5, 0, "delete")), changed((1, 5, 0, "insert"))]], True),
        ([[changed((1, 5, 0, "delete"), (1, 5, 0, "insert"), (1, 5, 0, "delete"))]], False),
        ([[changed((1, 5, 0, "delete"), (1, 5, 0, "insert")), changed((1, 5, 0, "delete"))]], False),
        ([[changed((1, 5, 0))], [changed((1, 6, 0))]], True),
        ([[changed((1, 6, 0))], [changed((1, 5, 0))]], True),
        ([[changed((1, 5, 0), (1, 9, 0))], [changed((1, 6, 0))]], False),
        ([[changed((1, 5, 0))], [changed((1, 5, 0))]], False),
        ([[changed((1, 5, 0)), changed((1, 6, 0), lineage="2")]], False),
        ([[changed((1, 5, 0))], [changed((1, 6, 0), lineage="2")]], False),
        ([[changed((None, None, 0), (None, None, 0))]], True),
        ([[changed((1, 2**63, 0))]], False),
    ],
)
def test_when_no_row_can_be_there_twice(files, apart):
    assert order.apart([noted(*parts) for parts in files]) is apart


def test_a_message_counts_once_however_its_events_are_cut_into_batches():
    told = [("a", 0, 1), ("a", 0, 1), ("a", 0, 2), ("b", 3, 1), ("a", 0, 4)]
    outcomes = ["applied", "quarantined", "filtered", "control", "filtered"]
    for cut in range(len(told) + 1):
        messages = Messages({("a", 0, 4): 3})
        for part in (slice(0, cut), slice(cut, None)):
            rows = [dict(zip(("topic", "partition", "offset"), r, strict=True)) for r in told[part]]
            messages.add(event_batch(rows), pa.array(outcomes[part], pa.string()))
        assert messages.told() == {
            "ledger": [
                ["a", 0, "quarantined", 1, 1, 1],
                ["a", 0, "filtered", 2, 4, 4],
                ["b", 3, "control", 1, 1, 1],
            ],
            "apart": True,
        }


def test_a_message_that_stands_in_two_places_is_told():
    messages = Messages({})
    rows = [{"topic": "a", "partition": 0, "offset": o} for o in (1, 2, 1)]
    messages.add(event_batch(rows), pa.array(["applied"] * 3))
    assert messages.told()["apart"] is False


def test_configured_keys_are_of_the_row_before():
    rows = event_batch(
        [
            as_event({**NO_KEY.update((1, 1), {"a": "1"}, {"a": "2", "b": "y"}), "offset": 0}),
            as_event({**SHOP[0].insert((1, 2), {"id": "7", "v": None}), "offset": 1}),
            as_event({**NO_KEY.delete((1, 3), {"a": None, "b": "z"}), "offset": 2}),
        ]
    )
    found = unify.with_keys(rows, Tables(keys={"shop.audit": ["b", "a"]})).column("key").to_pylist()
    assert found == [[("b", "y"), ("a", "1")], [("id", "7")], [("b", "z"), ("a", None)]]
    assert unify.with_keys(rows, Tables()).equals(rows)


def test_names_are_joined_as_spark_does():
    columns = {
        "db": ["a", None, "a", None, "a", "a", "a", ""],
        "schema": [None, None, None, None, "s", "", "x.y", None],
        "table": ["x", "y", None, None, "x", "x", "z", ""],
    }
    names = unify._names(pa.RecordBatch.from_pydict({n: pa.array(c, pa.string()) for n, c in columns.items()}))
    assert names.to_pylist() == ["a.x", "y", "a", "", "a.s.x", "a.x", "a.x.y.z", "."]


def test_orders_that_no_64_bits_hold_are_not_noted():
    touched = Touched(Tables())
    touched.add(placed(changed((1, 5, 0)), ARRIVALS))
    assert touched.told() == [
        {
            "db": "shop",
            "schema": None,
            "table": "t0",
            "schema_version": SHOP[0].version,
            "n": 1,
            "low": [0, 1, 5, 0, 0, 0],
            "newest": [0, 1, 5, 0, 0, 0],
            "told_keys": True,
            "plain": None,
        }
    ]
    touched.add(placed(changed((1, 2**63, 0)), ARRIVALS))
    assert touched.told() is None


def test_files_note_which_changes_are_plain():
    touched = Touched(Tables())
    touched.state(event_batch([as_event({"offset": 0, **SHOP[0].stated()})]))
    touched.add(placed(changed((1, 5, 0), (1, 9, 0, "delete"), (1, 7, 0)), ARRIVALS))
    [group] = touched.told()
    assert group["plain"] == {
        "names": ["id", "v"],
        "keys": ["id"],
        "spelled": ["^(0|-?[1-9][0-9]*)$"],
        "dates": [],
        "changes": 3,
        "deletes": 1,
        "truncates": 0,
        "truncated": None,
        "orders": [[0, 1, 5, 0, 0, 0], [0, 1, 9, 1, 0, 1]],
        "keys_range": [1, 1],
        "untied": True,
        "spans": [],
    }
    assert (group["low"], group["newest"]) == tuple(group["plain"]["orders"])
    whole = changed((1, 10, 0))
    cut = whole.set_column(whole.schema.get_field_index("after"), whole.schema.field("after"), whole.column("key"))
    touched.add(placed(cut, ARRIVALS))
    touched.add(placed(changed((1, 11, 0)), ARRIVALS))
    [group] = touched.told()
    assert (group["n"], group["plain"]) == (5, False)


def test_a_truncate_is_noted_though_it_tells_no_columns():
    touched = Touched(Tables())
    truncate = {**SHOP[0].change("truncate", (1, 5)), "key": None, "schema_version": None}
    touched.add(placed(event_batch([as_event({**truncate, "offset": 0})]), ARRIVALS))
    [group] = touched.told()
    at = [0, 1, 5, 0, 0, 0]
    told = {"changes": 1, "deletes": 0, "truncates": 1, "truncated": at, "orders": [at, at], "keys_range": None}
    told |= {"untied": True, "spans": []}
    assert (group["schema_version"], group["plain"]) == (None, told)
    untold = {**SHOP[0].insert((1, 6), {"id": "7", "v": None}), "schema_version": None}
    touched.add(placed(event_batch([as_event({**untold, "offset": 1})]), ARRIVALS))
    assert touched.told()[0]["plain"] is None


def test_tables_without_a_key_are_noted_as_such():
    touched = Touched(Tables())
    touched.state(event_batch([as_event({"offset": 0, **NO_KEY.stated()})]))
    rows = event_batch([as_event({"offset": 1, **NO_KEY.insert((1, 1), {"a": "1", "b": "x"})})])
    touched.add(placed(rows, ARRIVALS))
    assert touched.told()[0]["plain"]["keys"] == []
    touched = Touched(Tables(keys={"shop.audit": ["a"]}))
    touched.state(event_batch([as_event({"offset": 0, **NO_KEY.stated()})]))
    touched.add(placed(unify.with_keys(rows, Tables(keys={"shop.audit": ["a"]})), ARRIVALS))
    assert touched.told()[0]["plain"]["keys"] == ["a"]


def test_order_keys_are_numbers_of_the_position_or_the_offset():
    rows = event_batch(
        [
            as_event({**SHOP[0].insert((3, 70, 5), {"id": "1"}, lineage="b"), "offset": 9}),
            as_event({"kind": "heartbeat", "offset": 10, "entry_index": 2, "lineage": None}),
        ]
    )
    before = {"a": 0, "b": 1, None: 4}
    found = order_key(rows, Arrivals({}, {}, before, by_position=True)).to_pylist()
    untold = (-1, Decimal(10), (10 << 16) + (zlib.crc32(b"t") & 0xFFFF), 2 << 20, 10)
    assert [tuple(o.values()) for o in found] == [(1, 3, Decimal(70), 0, 5, 9), (4, *untold)]
    starts = {("t", 0): ((0, 2), (10 * ENTRIES + 2, 3))}
    found = order_key(rows, Arrivals(starts, {}, before)).to_pylist()
    assert [tuple(o.values()) for o in found] == [(2, 3, Decimal(70), 9, 0, 9), (3, *untold)]


def test_without_positions_source_times_relate_partitions_and_never_go_back():
    def said(partition, offset, seconds):
        told = {"source_time": None if seconds is None else LANDED + timedelta(seconds=seconds)}
        where = {"partition": partition, "offset": offset}
        return as_event({**SHOP[0].insert((None, None), {"id": "1"}, lineage=None), **told, **where})

    now = int(LANDED.timestamp() * 1000)
    arrivals = Arrivals({}, {}, {}, {("t", 1): ((-1, 0), (4 * ENTRIES, now + 2000))})
    clock = Clock(arrivals.clocks)
    parts = [said(0, 7, 5), said(0, 8, 3), said(1, 4, 1)], [said(0, 9, None), said(0, 10, 9), said(1, 5, 4)]
    found = [o for p in parts for o in order_key(event_batch(p), arrivals, clock).to_pylist()]
    assert [int(o["pos"]) - now for o in found] == [5000, 5000, 2000, 5000, 9000, 4000]
    first = zlib.crc32(b"t")
    assert [(o["event"] >> 16, (o["event"] - first) % (1 << 16)) for o in found] == [
        (7, 0),
        (8, 0),
        (4, 1),
        (9, 0),
        (10, 0),
        (5, 1),
    ]


@given(st.lists(st.tuples(*[st.integers(-2, 2)] * 6), min_size=1))
def test_the_lowest_order_is_the_first_when_sorted(orders):
    column = pa.array([dict(zip(ORDER.names, o, strict=True)) for o in orders], ORDER)
    assert lowest(column) == list(min(orders))


@given(st.lists(st.sampled_from([True, False, None])))
def test_some_events_are_the_same_with_and_without_a_copy(which):
    events = pa.record_batch({"n": pa.array(range(len(which)), pa.int64())})
    assert those(events, pa.array(which, pa.bool_())).column("n").to_pylist() == [i for i, w in enumerate(which) if w]
