"""canal's protobuf → EVENT rows. Scenarios: tests/fixtures/canal, written as `canal_fixtures` says."""

import base64
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_platform.formats.canal import FORMAT, CanalOptions, decode, entries
from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net
from tests.formats.canal_fixtures import HEADER, load, message_batch, readable, scenarios, value
from tests.properties import examples

COLUMNS = {"id": "bigint(20) key", "v": "varchar(99)"}


def decoded(values, **options):
    batch = decode(message_batch(values), CanalOptions(**options))
    batch.validate(full=True)
    assert batch.schema.equals(EVENT)
    return readable(batch)


def rows(*changes, event="INSERT", columns=COLUMNS, **more):
    return {"event": event, "columns": columns, "rows": list(changes), **more}


def only(events, kind="row"):
    return [e for e in events if e["kind"] == kind]


@pytest.mark.parametrize("scenario", scenarios())
def test_scenario_gives_the_expected_events(scenario):
    values, options, expected = load(scenario)
    assert decoded(values, **options) == expected


@pytest.mark.parametrize("scenario", scenarios())
def test_messages_decode_alike_alone_and_together(scenario):
    values, options, expected = load(scenario)
    alone = [{**e, "offset": i} for i, v in enumerate(values) for e in decoded([v], **options) if e["kind"] != "schema"]
    assert alone == [e for e in expected if e["kind"] != "schema"]


def test_no_messages_give_no_events():
    assert decoded([]) == []


def test_raw_built_and_bare_values_hold_the_same_rows():
    spec = rows({"after": {"id": "1", "v": "a"}}, {"after": {"id": "2", "v": None}})
    raw = value({"batch_id": 7, "entries": [spec]})
    built = value({"packet": {"version": 1}, "entries": [spec]})
    bare = value({"entry": spec})
    one, two, three = (decoded([m]) for m in (raw, built, bare))
    assert one == two == three
    assert [e["after"] for e in only(one)] == [{"id": "1", "v": "a"}, {"id": "2", "v": None}]


def test_batches_larger_than_a_piece_come_out_in_order():
    spec = rows({"after": {"id": "1", "v": "x" * 5_000_000}}, columns={"id": "int key", "v": "longtext"})
    values = [value({"entries": [spec]})] * 8
    events = decoded(values)
    assert [e["offset"] for e in only(events)] == list(range(8))
    assert len(only(events, "schema")) == 1, "columns are told once per batch"


def test_an_unknown_field_is_no_error():
    spec = rows({"after": {"id": "1", "v": "a"}})
    assert len(only(decoded([(value({"entry": spec}) or b"") + b"\xa2\x06\x02hi"]))) == 1


@pytest.mark.parametrize("name", ["ZLIB", "GZIP", "LZF"])
def test_compression_is_refused_by_name(name):
    [event] = decoded([value({"packet": {"compression": name}, "entries": [rows({"after": {"id": "1", "v": "a"}})]})])
    assert event["kind"] == "error" and name in event["reason"]


@pytest.mark.parametrize("number", range(30))
def test_every_event_and_entry_type_is_an_event_of_a_known_kind(number):
    change = pb.RowChange(eventType=number, sql="ALTER TABLE t ADD c INT", isDdl=True).SerializeToString()
    header = pb.Header(**{**HEADER, "sourceType": pb.MYSQL})
    entry = pb.Entry(header=header, entryType=number, storeValue=change)
    [event] = decoded([entry.SerializeToString()])
    assert (event["kind"] == "error") == (number not in pb.EntryType.values() or number == 0 or "reason" in event)
    entry.entryType = pb.ROWDATA
    kinds = {e["kind"] for e in decoded([entry.SerializeToString()])}
    assert kinds <= {"ddl", "row", "commit", "rollback", "error"}


# -- bounds ------------------------------------------------------------------------------------------------


def bombs():
    entry = pb.Entry(header=pb.Header(eventType=pb.MHEARTBEAT), entryType=pb.HEARTBEAT).SerializeToString()
    header = pb.Header(**{**HEADER, "sourceType": pb.MYSQL})

    def change(store):
        return pb.Entry(header=header, entryType=pb.ROWDATA, storeValue=store).SerializeToString()

    def packet(messages):
        return net.Packet(type=net.MESSAGES, body=messages).SerializeToString()

    columns = b"\x0a\x00" * 2_000_000
    size = bytes((len(columns) & 0x7F | 0x80, len(columns) >> 7 & 0x7F | 0x80, len(columns) >> 14 & 0x7F | 0x80, 1))
    return {
        "empty entries": packet(b"\x12\x00" * 2_000_000),
        "tiny entries": packet((b"\x12" + bytes((len(entry),)) + entry) * (entries.MOST + 1)),
        "rows without columns": change(b"\x62\x00" * 2_000_000),
        "columns without end": change(b"\x62" + size + columns),
        "a length beyond the end": b"\x18\x07\x2a\xff\xff\xff\xff\x07",
        "groups within groups": b"\x18\x07" + b"\x33" * 1_000_000,
        "a varint without end": b"\x18" + b"\xff" * 1_000_000,
    }


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_is_one_error_in_bounded_time_and_memory(name):
    bomb = bombs()[name]
    started, before = time.monotonic(), pa.total_allocated_bytes()
    batch = decode(message_batch([bomb]), CanalOptions())
    assert time.monotonic() - started < 10
    assert batch.column("kind").to_pylist() == ["error"]
    assert batch.column("reason")[0].as_py()
    assert batch.nbytes < 10_000 and pa.total_allocated_bytes() - before < 10_000_000


# -- values ------------------------------------------------------------------------------------------------

TYPES = {
    "id": "bigint(20) unsigned key", "t": "text", "b": "varbinary(99)", "d": "decimal(30,10)", "f": "double",
    "e": "enum('a','it''s','x,y')", "s": "set('a','b','c')", "bit": "bit(64)", "tm": "time(6)", "j": "json",
}  # fmt: skip
DECIMALS = st.decimals(-(10**19), 10**19, allow_nan=False, allow_infinity=False, places=10)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def clock(v):
    return f"{'-' * (v.days < 0)}{abs(v.days) % 838:02d}:00:{v.seconds % 60:02d}.{v.microseconds:06d}"


ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2**64 - 1).map(str),
        "t": st.none() | TEXTS,
        "b": st.none() | st.binary(max_size=20).map(lambda v: v.decode("latin-1")),
        "d": st.none() | DECIMALS.map(lambda v: f"{v:f}"),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False).map(repr),
        "e": st.none() | st.integers(0, 3).map(str),
        "s": st.none() | st.integers(0, 7).map(str),
        "bit": st.none() | st.integers(0, 2**64 - 1).map(str),
        "tm": st.none() | st.timedeltas().map(clock),
        "j": st.none() | st.just('{"a": 1.10}'),
    }
)  # fmt: skip


def truth(row):
    """Canonical text by rules written here once more."""
    out = dict(row)
    if row["b"] is not None:
        out["b"] = base64.b64encode(row["b"].encode("latin-1")).decode()
    if row["f"] is not None:
        out["f"] = repr(float(row["f"]))
    if row["e"] is not None:
        out["e"] = ["", "a", "it's", "x,y"][int(row["e"])]
    if row["s"] is not None:
        out["s"] = ",".join(c for i, c in enumerate("abc") if int(row["s"]) >> i & 1)
    if row["tm"] is not None:
        out["tm"] = row["tm"].rstrip("0").rstrip(".")
    return out


@examples(60)
@given(st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=8))
def test_values_come_out_in_canonical_text(changes):
    specs = [{"before": b, "after": {**a, "id": b["id"]}} for b, a in changes]
    events = decoded([value({"entries": [rows(*specs, event="UPDATE", columns=TYPES)]})])
    assert [e.get("reason") for e in only(events, "error")] == []
    got = only(events)
    assert [e["before"] for e in got] == [truth(s["before"]) for s in specs]
    assert [e["after"] for e in got] == [truth(s["after"]) for s in specs]
    assert [e["row_no"] for e in got] == list(range(len(specs)))


@examples(200)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(junk):
    for data in (junk, b"\x18\x07\x2a" + junk, b"\x0a\x00" + junk):
        assert decoded([data])


@pytest.mark.parametrize(
    "bad",
    [{"time_zone": "Mars/Base"}, {"columns": {"a.b": {"c": "no type"}}}, {"binary": "rot13"}, {"database": "x"}],
)
def test_bad_options_are_refused(bad):
    with pytest.raises(ValidationError):
        CanalOptions(**bad)


def test_the_format_says_what_it_is():
    assert FORMAT.options is CanalOptions and FORMAT.part is None


@pytest.mark.parametrize("packet", [{"magic_number": 17}, {}, {"magic_number": 18}])
def test_a_packet_of_another_protocol_is_refused(packet):
    spec = rows({"after": {"id": "1", "v": "a"}})
    events = decoded([value({"packet": packet, "entries": [spec]})])
    refused = [e["reason"] for e in only(events, "error")]
    assert refused == (["Packet with magic number 18; canal's is 17"] if packet.get("magic_number") == 18 else [])


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"version": 2}, "Header of version 2; only 1 is known"),
        ({"serverenCode": "GBK"}, "serverenCode 'GBK'; text is read as UTF-8 alone"),
        ({"version": 1, "serverenCode": "UTF-8"}, None),
    ],
)
def test_an_entry_of_another_version_or_encoding_is_refused_and_its_neighbours_are_not(header, reason):
    plain, other = (rows({"after": {"id": n, "v": "a"}}, **h) for n, h in (("1", {}), ("2", {"header": header})))
    events = decoded([value({"entries": [plain, other, plain]})])
    assert [e["reason"] for e in only(events, "error")] == ([reason] if reason else [])
    assert len(only(events)) == (2 if reason else 3)
