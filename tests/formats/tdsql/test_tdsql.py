"""Messages of TDSQL → EVENT rows. A fixture `<scenario>.json` holds options and messages, the file
`<scenario>.expected.json` beside it the events, without null columns. The tables' columns come from the fixture's
schema file and from all DDL among its messages."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_platform.errors import ConfigError
from cdc_platform.formats.contract import EVENT, MESSAGE
from cdc_platform.formats.tdsql import FORMAT, TdsqlOptions, decode
from tests.formats.contexts import context_of

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tdsql"
SCENARIOS = sorted(p.name.removesuffix(".expected.json") for p in FIXTURES.glob("*.expected.json"))
LANDED = datetime(2026, 11, 20, tzinfo=UTC)


def raw(part):
    """null, {"json": any}, {"text": str} or {"base64": str} → bytes of a Kafka value."""
    if part is None:
        return None
    if "json" in part:
        return json.dumps(part["json"], ensure_ascii=False, separators=(",", ":")).encode()
    return part["text"].encode() if "text" in part else base64.b64decode(part["base64"])


def messages(values):
    """Kafka values → MESSAGE batch, offsets from 0."""
    rows = [
        {"topic": "c", "partition": 0, "offset": i, "timestamp": LANDED, "value": v, "landed_at": LANDED}
        for i, v in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


def context(batch, options):
    """What the driver would tell the executors, had it seen all of `batch`."""
    return context_of(FORMAT, options, decode(batch, options))


def plain(batch):
    """EVENT batch → dicts without nulls, topic, partition and landed_at; all as JSON can say it."""
    events = []
    for row in batch.to_pylist(maps_as_pydicts="strict"):
        assert (row.pop("landed_at"), row.pop("topic"), row.pop("partition")) == (LANDED, "c", 0)
        event = {k: v for k, v in row.items() if v is not None}
        if "source_time" in event:
            event["source_time"] = event["source_time"].isoformat()
        if "binlog_pos" in event:
            event["binlog_pos"] = str(event["binlog_pos"])
        if "columns" in event:
            event["columns"] = {
                c["name"]: c["type"] + (" KEY" if c["key"] else "") for c in json.loads(event["columns"])
            }
        events.append(event)
    return events


def load(name):
    told = json.loads((FIXTURES / f"{name}.json").read_text())
    return messages([raw(m) for m in told["messages"]]), TdsqlOptions(**told.get("options", {}))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name):
    batch, options = load(name)
    found = decode(batch, options, context(batch, options))
    found.validate(full=True)
    assert found.schema == EVENT
    assert plain(found) == json.loads((FIXTURES / f"{name}.expected.json").read_text())


@pytest.mark.parametrize("name", SCENARIOS)
def test_message_by_message_gives_the_same_events(name):
    batch, options = load(name)
    told = context(batch, options)
    one = [decode(batch.slice(i, 1), options, told) for i in range(len(batch))]
    alone = [e for events in one for e in plain(events) if e["kind"] != "schema"]
    assert alone == [e for e in plain(decode(batch, options, told)) if e["kind"] != "schema"]


TYPES = "id int primary key, i int, u int unsigned, d decimal(30,6), t varchar(99), b varbinary(99), e enum('a','b')"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda v: v != "##isnull##")


def signed(v):
    return str(v) if v >= 0 else f"{v} ({v + 2**64})"


VALUES = {  # column → strategy of (TDSQL's literal, canonical text)
    "i": st.integers(-(2**31), 2**31 - 1).map(lambda v: (signed(v), str(v))),
    "u": st.integers(0, 2**32 - 1).map(lambda v: (signed(v if v < 2**31 else v - 2**32), str(v))),
    "d": st.decimals(-(10**20), 10**20, places=6).map(lambda v: (f"{v:f}", f"{v:f}")),
    "t": TEXT.map(lambda v: (f"'{v}'", v)),
    "b": st.binary(max_size=20).map(lambda v: (f"x'{v.hex()}'", base64.b64encode(v).decode())),
    "e": st.sampled_from([("1", "a"), ("2", "b"), ("'b'", "b"), ("0", "")]),
}
NULL = st.sampled_from([("'##isnull##'", None), ("NULL", None)])
ROWS = st.fixed_dictionaries({name: NULL | values for name, values in VALUES.items()})


def change(op, where, field):
    told = {"logtype": "mysqlbinlog", "eventtypestr": op, "db": "d", "table": "t", "begintime": 5}
    return json.dumps({**told, "where": where, "field": field}, ensure_ascii=False).encode()


def image(key, row, which):
    return [str(key), *(row[name][which] for name in VALUES)]


@pytest.fixture(scope="module")
def told():
    create = {"topic": "c", "partition": 0, "offset": -1, "source_time": None, "gtid": None, "event_no": None}
    return FORMAT.context.build(TdsqlOptions(), [{**create, "db": "d", "ddl": f"create table t ({TYPES})"}])


@settings(max_examples=150, deadline=None)
@given(changes=st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=4))
def test_both_images_come_back(told, changes):
    values = [change("update", image(k, a, 0), image(k, b, 0)) for k, (a, b) in enumerate(changes)]
    rows = [e for e in plain(decode(messages(values), TdsqlOptions(), told)) if e["kind"] != "schema"]
    names = ["id", *VALUES]
    assert [list(r["before"].items()) for r in rows] == [
        list(zip(names, image(k, a, 1), strict=True)) for k, (a, _) in enumerate(changes)
    ]
    assert [list(r["after"].items()) for r in rows] == [
        list(zip(names, image(k, b, 1), strict=True)) for k, (_, b) in enumerate(changes)
    ]
    assert [r["key"] for r in rows] == [{"id": str(k)} for k in range(len(changes))]


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=5), bad=st.integers(0, 4))
def test_a_bad_row_takes_no_other_with_it(told, rows, bad):
    literals = [image(key, row, 0) for key, row in enumerate(rows)]
    literals[bad % len(rows)][-1] = "99"
    events = plain(decode(messages([change("insert", [], x) for x in literals]), TdsqlOptions(), told))
    assert [e["offset"] for e in events if e["kind"] == "error"] == [bad % len(rows)]
    assert sum(e["kind"] == "row" for e in events) == len(rows) - 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"time_zone": "Mars/Base"}, "unknown time zone 'Mars/Base'"),
        ({"escapes": "both"}, "backslash"),
        ({"order": "clock"}, "gtid"),
    ],
)
def test_bad_options_say_what_would_do(options, reason):
    with pytest.raises(ValidationError, match=reason):
        FORMAT.options(**options)


def test_a_schema_file_that_is_missing_is_told():
    with pytest.raises(ConfigError, match=r"'/no/such\.sql' can't be read"):
        FORMAT.context.build(TdsqlOptions(schema_file="/no/such.sql"), [])
