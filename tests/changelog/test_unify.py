"""What workers make of files of events, held against the rules in plain Python."""

import random
import zlib
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.changelog import order, unify
from cdc_platform.changelog.arrivals import Arrivals
from cdc_platform.changelog.file_stats import TableStatistics
from cdc_platform.changelog.order_key import ORDER, Clock, lowest, order_key, placed, those
from cdc_platform.changelog.outcomes import RANK, Accounting, overlaps
from cdc_platform.changelog.packed import Packed
from cdc_platform.changes.file_stats import ENTRIES, KINDS, ROLLED_BACK, Summary
from cdc_platform.changes.files import CHANGE
from cdc_platform.config.tables import Tables
from cdc_platform.formats.events import event_batch
from tests.changelog.feed import LANDED, SourceTable, as_event, position
from tests.properties import examples

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


class Collected:
    """An output that keeps its rows."""

    def __init__(self):
        self.rows, self.note = [], None

    def write(self, batch):
        self.rows += batch.to_pylist(maps_as_pydicts="strict")


ARRIVALS = Arrivals({}, {}, {"1": 0})
TABLES = Tables(include=["shop.*"], keys={"shop.audit": ["b", "a"]})
SAID = unify.Said("tencent_dts", "7", 5)


def expected_outcome(event, used):
    named = event.get("db") is not None and event.get("table") is not None
    name = ".".join(x for x in (event.get("db"), event.get("schema") or None, event.get("table")) if x is not None)
    kind = event["kind"]
    if (kind == "row" or (kind == "error" and named)) and not TABLES.wanted_name(name):
        return "filtered"
    if kind in ("error", "rollback"):
        return "quarantined"
    found = "applied" if kind in ("row", "ddl") else "control"
    return "duplicate" if address(event) in used else found


def address(event):
    kept = [event.get(n) for n in ("topic", "partition", "offset", "entry_index", "row_index")]
    return *kept, event["kind"]


def expected_ledger(every, parts, retold, used, held):
    """(topic, partition, outcome, below 0) → first and last offset, records."""
    now = {}
    for event in every:
        at = event["topic"], event["partition"], event["offset"]
        now.setdefault(at, []).append(RANK.index(expected_outcome(event, used)))
    found = {}
    for (topic, partition, offset), ranks in now.items():
        outcome, n = RANK[min(ranks)], parts.get((topic, partition, offset), 1)
        said = [(outcome, n)]
        if (topic, partition, offset) in retold:
            left_out = outcome == "filtered" and (topic, partition, offset) not in held
            said.append(("filtered" if left_out else "quarantined", -n))
        for of, records in said:
            key = topic, partition, of, records < 0
            low, high, before = found.get(key, (offset, offset, 0))
            found[key] = min(low, offset), max(high, offset), before + records
    return [[*key[:3], *told] for key, told in sorted(found.items())]


def addressed(rows):
    names = ("topic", "partition", "offset", "entry_index", "row_index", "kind")
    schema = pa.schema([*(CHANGE.field(n) for n in names)])
    told = [dict(zip(names, r, strict=True)) for r in sorted(rows, key=str)]
    return Packed.of_table(pa.Table.from_pylist(told, schema))


def packed_parts(parts):
    columns = zip(*((*at, n) for at, n in sorted(parts.items())), strict=True)
    names = ("topic", "partition", "offset", "parts")
    return Packed.of_table(pa.table(dict(zip(names, columns, strict=True)))) if parts else Packed({})


def told_again(retold, held):
    rows = [dict(zip(("topic", "partition", "offset"), at, strict=True), held=at in held) for at in sorted(retold)]
    return Packed.of_table(pa.Table.from_pylist(rows)) if rows else Packed({})


def noted_of(rows):
    return noted(event_batch([as_event(e) for e in rows]))


def batches(rows, retold):
    """A file's batches, some rows each."""
    for at in range(0, len(rows), 7):
        some = rows[at : at + 7]
        again = [(e["topic"], e["partition"], e["offset"]) in retold for e in some]
        yield event_batch([as_event(e) for e in some]).append_column("retold", pa.array(again))


@pytest.mark.parametrize("apart", [True, False], ids=["each message in a file", "messages over several files"])
@examples(30)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 3), st.booleans())
def test_every_event_goes_where_its_outcome_says(apart, seed, count, files, again):
    every = [
        {"entry_index": 0, "row_index": 0 if e["kind"] == "row" else None, **e}
        for e in [*events(seed, count), *errors()]
    ]
    dice = random.Random(seed)
    messages = sorted({(e["topic"], e["partition"], e["offset"]) for e in every})
    parts = {at: 4 for at in messages if dice.random() < 0.3}
    retold = {at for at in messages if again and dice.random() < 0.4}
    told_anew = [e for e in every if (e["topic"], e["partition"], e["offset"]) in retold]
    used = {address(e) for e in told_anew if e["kind"] in ("row", "ddl", "commit") and dice.random() < 0.5}
    split = [[] for _ in range(files)]
    for e in every:
        where = zlib.crc32(repr((e["topic"], e["partition"], e["offset"])).encode()) if apart else dice.randrange(files)
        split[where % files].append(e)
    versions = frozenset({t.version for t in (*SHOP, WIDER) if dice.random() < 0.7})
    held = {at for at in messages if dice.random() < 0.5}
    accounting = Accounting(packed_parts(parts), overlaps(map(noted_of, split)), told_again(retold, held))
    work = unify.Unify(SAID, TABLES, ARRIVALS, versions, accounting, unify.Known(None, addressed(used)))
    out = {n: Collected() for n in ("changelog", "control_events", "quarantine")}
    told = [work(batches(rows, retold), out) for rows in split]
    assert accounting.entries(told) == expected_ledger(every, parts, retold, used, held)
    outcomes = [(e, expected_outcome(e, used)) for e in every]
    applied = [e for e, o in outcomes if e["kind"] == "row" and o == "applied"]
    assert sorted(map(_row, out["changelog"].rows)) == sorted(map(_row, applied))
    control = [e for e, o in outcomes if e["kind"] in KINDS["control"] and o != "duplicate"]
    assert sorted(_place(r) for r in out["control_events"].rows) == sorted(map(_place, control))
    bad = {_place(e): e for e, o in outcomes if o == "quarantined"}
    assert sorted(_place(r) for r in out["quarantine"].rows) == sorted(bad)
    for row in out["quarantine"].rows:
        said = bad[_place(row)]
        column = (said.get("info") or {}).get("column") if said["kind"] == "error" else None
        reason = ROLLED_BACK if said["kind"] == "rollback" else said["reason"]
        assert (row["reason"], row["column"], row["key"]) == (reason, column, said.get("key"))
        assert (row["room"], row["format"], row["decoder_version"]) == ("changes", "tencent_dts", "7")
    statements = [s for t in told for s in t["statements"]]
    ddl = [e for e, o in outcomes if e["kind"] == "ddl" and o == "applied"]
    assert sorted(s["ddl"] for s in statements if s["kind"] == "ddl") == sorted(e["ddl"] for e in ddl)
    stated = {e["schema_version"] for e in every if e["kind"] == "schema"} & versions
    assert {s["schema_version"] for s in statements if s["kind"] == "schema"} == stated
    for version in versions:
        mine = [e for e in every if e["kind"] == "row" and e["schema_version"] == version]
        assert any(version in t["placed"] for t in told) is bool(mine)


def _place(row):
    return row["topic"], row["partition"], row["offset"], row["entry_index"]


def _row(row):
    key = row["key"]
    if row["table"] == "audit":  # the configuration gives it, of the row before
        key = {n: ((row["after"] or {}) | (row["before"] or {}))[n] for n in ("b", "a")}
    told = {n: sorted(row[n].items()) if row[n] else row[n] for n in ("before", "after")}
    return repr((*(row[n] for n in ("topic", "partition", "offset", "entry_index", "op", "db", "table")), key, told))


def test_quarantine_says_what_is_known_of_a_row():
    out = Collected()
    work = unify.Unify(SAID, TABLES, ARRIVALS, frozenset(), Accounting(), unify.Known())
    work(iter([event_batch([as_event(e) for e in errors()])]), {"quarantine": out})
    assert [(r["schema"], r["table"], r["key"], r["column"]) for r in out.rows] == [
        ("dbo", None, None, None),
        (None, "t1", {"id": "1", "b": "2"}, "v"),
        (None, "t1", {"id": "1"}, None),
        (None, None, None, None),
    ]


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
    return summary.to_json()


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


def test_configured_keys_are_of_the_row_before():
    rows = event_batch(
        [
            as_event({**NO_KEY.update((1, 1), {"a": "1"}, {"a": "2", "b": "y"}), "offset": 0}),
            as_event({**SHOP[0].insert((1, 2), {"id": "7", "v": None}), "offset": 1}),
            as_event({**NO_KEY.delete((1, 3), {"a": None, "b": "z"}), "offset": 2}),
            as_event({**NO_KEY.update((1, 4), {"b": "w"}, {"a": "2", "b": "y"}), "offset": 3}),  # a minimal image
            as_event({**NO_KEY.insert((1, 5), {"a": "3", "b": None}), "offset": 4}),
        ]
    )
    found = unify.with_keys(rows, TABLES).column("key").to_pylist()
    audit = [{"b": "y", "a": "1"}, {"b": "z", "a": None}, {"b": "w", "a": "2"}, {"b": None, "a": "3"}]
    first, *others = (list(k.items()) for k in audit)
    assert found == [first, [("id", "7")], *others]
    assert unify.with_keys(rows, Tables()).equals(rows)


def test_names_leave_out_what_they_lack():
    columns = {
        "db": ["a", None, "a", None, "a", "a", "a", ""],
        "schema": [None, None, None, None, "s", "", "x.y", None],
        "table": ["x", "y", None, None, "x", "x", "z", ""],
    }
    names = unify._names(pa.RecordBatch.from_pydict({n: pa.array(c, pa.string()) for n, c in columns.items()}))
    assert names.to_pylist() == ["a.x", "y", "a", "", "a.s.x", "a.x", "a.x.y.z", "."]


def test_orders_that_no_64_bits_hold_are_not_noted():
    touched = TableStatistics(Tables())
    touched.add(placed(changed((1, 5, 0)), ARRIVALS))
    assert touched.to_json() == [
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
    assert touched.to_json() is None


def test_files_note_which_changes_are_plain():
    touched = TableStatistics(Tables())
    touched.state(event_batch([as_event({"offset": 0, **SHOP[0].stated()})]))
    touched.add(placed(changed((1, 5, 0), (1, 9, 0, "delete"), (1, 7, 0)), ARRIVALS))
    [group] = touched.to_json()
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
    [group] = touched.to_json()
    assert (group["n"], group["plain"]) == (5, False)


def test_a_truncate_is_noted_though_it_tells_no_columns():
    touched = TableStatistics(Tables())
    truncate = {**SHOP[0].change("truncate", (1, 5)), "key": None, "schema_version": None}
    touched.add(placed(event_batch([as_event({**truncate, "offset": 0})]), ARRIVALS))
    [group] = touched.to_json()
    at = [0, 1, 5, 0, 0, 0]
    told = {"changes": 1, "deletes": 0, "truncates": 1, "truncated": at, "orders": [at, at], "keys_range": None}
    told |= {"untied": True, "spans": []}
    assert (group["schema_version"], group["plain"]) == (None, told)
    untold = {**SHOP[0].insert((1, 6), {"id": "7", "v": None}), "schema_version": None}
    touched.add(placed(event_batch([as_event({**untold, "offset": 1})]), ARRIVALS))
    assert touched.to_json()[0]["plain"] is None


def test_tables_without_a_key_are_noted_as_such():
    touched = TableStatistics(Tables())
    touched.state(event_batch([as_event({"offset": 0, **NO_KEY.stated()})]))
    rows = event_batch([as_event({"offset": 1, **NO_KEY.insert((1, 1), {"a": "1", "b": "x"})})])
    touched.add(placed(rows, ARRIVALS))
    assert touched.to_json()[0]["plain"]["keys"] == []
    touched = TableStatistics(Tables(keys={"shop.audit": ["a"]}))
    touched.state(event_batch([as_event({"offset": 0, **NO_KEY.stated()})]))
    touched.add(placed(unify.with_keys(rows, Tables(keys={"shop.audit": ["a"]})), ARRIVALS))
    assert touched.to_json()[0]["plain"]["keys"] == ["a"]


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
