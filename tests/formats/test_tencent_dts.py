import base64
import datetime as dt
import struct

import pyarrow as pa
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_platform.formats.contract import EVENT, PART
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.formats.protobuf import arrow
from cdc_platform.formats.protobuf.arrow import parse
from cdc_platform.formats.tencent_dts import FORMAT, Options, decode, parse_part
from tests.formats.dts_fixtures import entry, load, message_batch, readable, scenarios
from tests.properties import examples

GOOD = pb.Entries(
    items=[entry({"dml": {"type": "INSERT", "columns": ["id int key"], "rows": [{"new": [{"INT32": "7"}]}]}})]
).SerializeToString()


def decoded(values, **options):
    batch = decode(message_batch(values), Options(**options))
    batch.validate(full=True)
    assert batch.schema.equals(EVENT)
    return readable(batch)


@pytest.mark.parametrize("scenario", scenarios())
def test_scenario_gives_the_expected_events(scenario):
    batch, expected = load(scenario)
    out = FORMAT.decode(batch, Options())
    out.validate(full=True)
    assert readable(out) == expected


@pytest.mark.parametrize("scenario", scenarios())
def test_messages_decode_alike_alone_and_together(scenario):
    """Pieces of a batch don't touch each other: only the schema events are told again."""
    batch, expected = load(scenario)
    alone = [readable(decode(batch.slice(i, 1), Options())) for i in range(len(batch))]
    told = [e for one in alone for e in one if e["kind"] != "schema"]
    assert told == [e for e in expected if e["kind"] != "schema"]


def test_no_messages_give_no_events():
    assert decoded([]) == []


UNKNOWN = b"\xa2\x06\x02hi"  # field 100, as of a newer version


def _field(number: int, data: bytes) -> bytes:
    assert len(data) < 2**14
    return bytes((number << 3 | 2, len(data) & 0x7F | 0x80, len(data) >> 7)) + data


def test_unknown_fields_are_skipped_wherever_they_stand():
    [item] = pb.Entries.FromString(GOOD).items
    whole = decoded([GOOD])
    assert decoded([GOOD + UNKNOWN]) == whole
    assert decoded([_field(1, item.SerializeToString() + UNKNOWN)]) == whole


def test_an_envelope_with_properties_or_unknown_fields_is_read():
    plain = envelope(data=b"x")
    more = pb.Envelope(version=1, total=1, data=b"x", properties=[pb.KVPair(key="a", value="b")]).SerializeToString()
    assert len(more) > len(plain)
    assert [p["error"] for p in parts([more, plain + UNKNOWN])] == [None, None]
    assert parts([more, plain + UNKNOWN]) == parts([plain, plain])


def test_times_in_another_name_of_utc_are_taken_as_they_are():
    batch = message_batch([GOOD])
    zone = pa.array([0], pa.timestamp("us", "Etc/UTC"))
    batch = batch.set_column(batch.schema.get_field_index("landed_at"), "landed_at", zone)
    landed = decode(batch, Options()).column("landed_at")
    assert landed.type == EVENT.field("landed_at").type
    assert landed.cast(pa.int64()).to_pylist() == [0, 0]


def test_a_batch_larger_than_a_piece_keeps_its_order_and_tells_a_schema_once(monkeypatch):
    monkeypatch.setattr(arrow, "_PIECE_BYTES", 2 * len(GOOD))
    events = decoded([GOOD] * 5)
    assert [e["kind"] for e in events] == ["schema"] + ["row"] * 5
    assert [e["offset"] for e in events] == [0, 0, 1, 2, 3, 4]


def test_timestamp_without_offset_is_read_in_the_zone_of_the_options():
    item = {"columns": ["id int key", "ts timestamp"], "type": "INSERT"}
    texts = [
        "2021-05-17 07:22:42",
        "2021-05-17 07:22:42 +00:00",
        "2021-11-07 01:30:00",
        "2021-03-14 02:30:00",
    ]
    rows = [{"new": [{"INT32": str(i)}, {"STRING": t}]} for i, t in enumerate(texts)]
    events = decoded(
        [pb.Entries(items=[entry({"dml": {**item, "rows": rows}})]).SerializeToString()],
        time_zone="America/New_York",
    )
    assert [e["kind"] for e in events] == [
        "schema",
        "row",
        "row",
        "error",
        "error",
    ]  # clock turned back, forward
    assert [e["after"]["ts"] for e in events[1:3]] == ["2021-05-17 11:22:42Z", "2021-05-17 07:22:42Z"]


def test_unknown_time_zone_is_refused_with_valid_examples():
    with pytest.raises(ValidationError, match=r"Mars/Base.*Asia/Shanghai"):
        Options(time_zone="Mars/Base")


def test_every_option_is_described():
    assert all(field.description for field in Options.model_fields.values())


# --- parts ----------------------------------------------------------------------------------------


def parts(values, headers=None):
    batch = parse_part(message_batch(values, headers))
    batch.validate(full=True)
    assert batch.schema.equals(PART)
    return batch.to_pylist()


def envelope(**fields) -> bytes:
    return pb.Envelope(**{"version": 1, "total": 1, **fields}).SerializeToString()


def test_part_tells_place_payload_shard_and_sequence():
    headers = [("ps", b"18446744073709551615"), ("ShardId", b"set_1")]
    (part,) = parts([envelope(total=3, index=2, data=b"xyz")], [headers])
    assert (part["total"], part["index"], part["data"], part["error"]) == (3, 2, b"xyz", None)
    assert (part["shard"], int(part["seq"])) == ("set_1", 2**64 - 1)


def test_part_without_headers_has_no_shard_and_no_sequence():
    (part,) = parts([envelope(data=b"x")])
    assert (part["shard"], part["seq"], part["error"]) == ("", None, None)


def test_part_with_zeros_left_out_is_a_whole_message():
    (part,) = parts([pb.Envelope(version=1).SerializeToString()])
    assert (part["total"], part["index"], part["data"], part["error"]) == (1, 0, b"", None)


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (None, [], "no value, so no Envelope"),
        (b"", [], "no value, so no Envelope"),
        (b"\xff\xff", [], "not an Envelope: "),
        (b'{"type":"INSERT"}', [], "not an Envelope: "),
        (envelope(version=2), [], "Envelope version 2; only 1 is known"),
        (envelope(total=2, index=2), [], "Envelope says part 2 of 2"),
        (envelope(total=0, index=1), [], "Envelope says part 1 of 0"),
        (envelope(), [("ps", b"-1")], "Kafka header ps is no decimal number of up to 20 digits"),
        (envelope(), [("ps", b"")], "Kafka header ps is no decimal number of up to 20 digits"),
        (envelope(), [("ps", b"\xff")], "Kafka header ps is no decimal number of up to 20 digits"),
        (envelope(), [("ShardId", b"\xff")], "Kafka header ShardId is no UTF-8 text"),
    ],
)
def test_bad_part_says_why_and_leaves_its_neighbours_alone(value, headers, reason):
    before, bad, after = parts([envelope(data=b"a"), value, envelope(data=b"b")], [[], headers, []])
    assert bad["error"].startswith(reason)
    assert bad["data"] is None
    assert (before["data"], before["error"], after["data"], after["error"]) == (b"a", None, b"b", None)


def test_parts_of_a_slice_are_those_of_its_rows():
    batch = message_batch([envelope(data=b"a"), envelope(data=b"b")], [[("ps", b"1")], [("ps", b"2")]]).slice(1)
    (part,) = parse_part(batch).to_pylist()
    assert (part["data"], int(part["seq"])) == (b"b", 2)


@given(st.binary(min_size=1, max_size=300), st.data())
def test_joined_parts_are_the_cut_message(data, draws):
    cuts = sorted(draws.draw(st.lists(st.integers(0, len(data)), max_size=5)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    found = parts([envelope(total=len(pieces), index=i, data=p) for i, p in enumerate(pieces)])
    assert [p["error"] for p in found] == [None] * len(pieces)
    assert [p["index"] for p in found] == list(range(len(pieces)))
    assert b"".join(p["data"] for p in found) == data


# --- values: what goes in is what comes out -------------------------------------------------------


def _number(kind, low, high):
    return st.integers(low, high).map(lambda n: (pb.Data(dataType=kind, sv=str(n)), str(n)))


def _text(text: str, codec: str, charset: str):
    return pb.Data(dataType=pb.STRING, charset=charset, bv=text.encode(codec)), text


def _fraction(moment) -> str:
    return f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""


def _datetime(moment: dt.datetime):
    text = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d} {moment:%H:%M:%S}"
    return pb.Data(dataType=pb.STRING, bv=f"{text}.{moment.microsecond:06d}".encode()), text + _fraction(moment)


def _timestamp(moment: dt.datetime):
    utc = moment.astimezone(dt.UTC)
    wire = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond:06d} {moment:%z}"
    wire = f"{wire[:-2]}:{wire[-2:]}"
    return pb.Data(dataType=pb.STRING, bv=wire.encode()), f"{utc:%Y-%m-%d %H:%M:%S}{_fraction(utc)}Z"


EPOCH = dt.datetime(1970, 1, 2)
ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
ZONES = st.integers(-12 * 60, 14 * 60).map(lambda m: dt.timezone(dt.timedelta(minutes=m)))
TYPES = {
    "tinyint(4)": _number(pb.INT8, -128, 127),
    "bigint(20)": _number(pb.INT64, -(2**63), 2**63 - 1),
    "bigint(20) unsigned": _number(pb.UINT64, 0, 2**64 - 1),
    "bit(64)": _number(pb.INT64, 0, 2**64 - 1),
    "decimal(65,30)": st.decimals(allow_nan=False, allow_infinity=False, places=8).map(
        lambda d: (pb.Data(dataType=pb.DECIMAL, sv=f"{d:f}"), f"{d:f}")
    ),
    "double": st.floats(allow_nan=False, allow_infinity=False).map(
        lambda x: (pb.Data(dataType=pb.FLOAT64, sv=repr(x)), repr(x))
    ),
    "float": st.floats(allow_nan=False, allow_infinity=False, width=32).map(
        lambda x: (pb.Data(dataType=pb.FLOAT32, sv=repr(x)), x)
    ),
    "varchar(20)": ANY_TEXT.map(lambda t: _text(t, "utf-8", "utf8mb4")),
    "text": ANY_TEXT.map(lambda t: (pb.Data(dataType=pb.BYTES, bv=t.encode()), t)),
    "char(20)": st.text(st.characters(codec="gbk"), max_size=20).map(lambda t: _text(t, "gbk", "gbk")),
    "blob": st.binary(max_size=40).map(
        lambda b: (pb.Data(dataType=pb.BYTES, bv=b), base64.b64encode(b).decode())
    ),
    "datetime(6)": st.datetimes().map(_datetime),
    "timestamp(6)": st.datetimes(EPOCH, dt.datetime(2038, 1, 1), timezones=ZONES).map(_timestamp),
    "json": ANY_TEXT.map(lambda t: (pb.Data(dataType=pb.BYTES, bv=t.encode()), t)),
}  # fmt: skip
CELL = {name: st.one_of(st.just((pb.Data(), None)), st.just((pb.Data(dataType=pb.NA), "absent")), s)
        for name, s in TYPES.items()}  # fmt: skip
KEY = _number(pb.UINT32, 0, 2**32 - 1)


@st.composite
def dml_entries(draw):
    """One DML entry and the rows (op, before, after) it means."""
    types = draw(st.lists(st.sampled_from(list(TYPES)), max_size=5))
    event = pb.DMLEvent(dmlEventType=draw(st.sampled_from((pb.INSERT, pb.UPDATE, pb.DELETE))))
    event.columns.add(name="id", originalType="int(10) unsigned", isKey=True)
    for i, name in enumerate(types):
        event.columns.add(name=f"c{i}", originalType=name)
    wanted = []
    for _ in range(draw(st.integers(1, 4))):
        row, images = event.rows.add(), {}
        for side, cells, ops in (("before", row.oldColumns, (1, 2)), ("after", row.newColumns, (0, 1))):
            if event.dmlEventType in ops:
                drawn = [draw(KEY), *(draw(CELL[name]) for name in types)]
                cells.extend(data for data, _ in drawn)
                names = ["id", *(f"c{i}" for i in range(len(types)))]
                images[side] = {n: text for n, (_, text) in zip(names, drawn, strict=True) if text != "absent"}
        wanted.append((pb.DMLType.Name(event.dmlEventType).lower(), images.get("before"), images.get("after")))
    item = entry({"header": {"messageType": "DML"}})
    item.event.dmlEvent.CopyFrom(event)
    return item, wanted


def _same(found, wanted) -> bool:
    if not isinstance(wanted, float):
        return found == wanted
    return found is not None and struct.pack("f", float(found)) == struct.pack("f", wanted)


@examples(80)
@given(st.lists(st.lists(dml_entries(), max_size=3), max_size=4))
def test_random_rows_come_back_cell_by_cell(messages):
    values = [pb.Entries(items=[item for item, _ in m]).SerializeToString() for m in messages]
    wanted = [row for m in messages for _, rows in m for row in rows]
    rows = [e for e in decoded(values) if e["kind"] not in ("schema", "skip")]
    assert len(rows) == len(wanted)
    for event, (op, before, after) in zip(rows, wanted, strict=True):
        assert (event["kind"], event["op"]) == ("row", op)
        assert event["key"] == {"id": (before or after)["id"]}
        for found, image in ((event.get("before"), before), (event.get("after"), after)):
            assert (found is None) == (image is None)
            if image is not None:
                assert list(found) == list(image)
                assert [n for n in image if not _same(found[n], image[n])] == []


# --- bytes that nobody promised -------------------------------------------------------------------


def _mutated(draw) -> bytes:
    items = [item for item, _ in draw(st.lists(dml_entries(), max_size=2))]
    data = bytearray(pb.Entries(items=items).SerializeToString())
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


BROKEN = st.one_of(st.none(), st.binary(max_size=80), st.composite(_mutated)())


@examples(120)
@given(st.lists(BROKEN, max_size=6))
def test_any_bytes_give_events_and_spare_the_neighbours(values):
    mixed = [GOOD, *(v for value in values for v in (value, GOOD))]
    events = decoded(mixed)
    assert {e["offset"] for e in events} == set(range(len(mixed)))
    assert all(e.get("reason") for e in events if e["kind"] in ("error", "skip"))
    good = [e for e in events if e["offset"] % 2 == 0 and e["kind"] != "schema"]
    assert [(e["kind"], e["after"]) for e in good] == [("row", {"id": "7"})] * (len(values) + 1)
    for part in parts(mixed):
        assert part["error"] is not None or part["data"] is not None


ODD_TYPES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["bit(0)", "bit(99)", "int(", "int)", "enum(", "enum('a", "binary(99999)", "decimal(1,2,3)",
         "float(99)", "varchar(20) character set gbk", "BIGINT(20) UNSIGNED",
         "boolean", "timestamp", "year", "date",
         "geometry"]
    ),
)  # fmt: skip
ODD_CELLS = st.builds(
    pb.Data,
    dataType=st.integers(-1, 20),
    charset=st.sampled_from(["", "binary", "gbk", "utf8mb4", "ucs2", "nonsense"]),
    sv=st.sampled_from(["", "0", "-1", "1e999", "nan", "0x1F", "1.50", "9" * 60]),
    bv=st.sampled_from([b"", b"\xff", b"2021-02-31 00:00:00 +25:99", b"-00:00:00", b"12:61", b"{}"]),
)


@examples(150)
@given(st.lists(ODD_TYPES, min_size=1, max_size=4), st.data())
def test_any_type_with_any_cell_gives_a_row_or_an_error(types, draws):
    event = pb.DMLEvent()
    event.columns.extend(pb.Column(name=f"c{i}", originalType=t) for i, t in enumerate(types))
    for cells in draws.draw(st.lists(st.lists(ODD_CELLS, min_size=len(types), max_size=len(types)), max_size=3)):
        event.rows.add().newColumns.extend(cells)
    item = entry({"header": {"messageType": "DML"}})
    item.event.dmlEvent.CopyFrom(event)
    events = [e for e in decoded([pb.Entries(items=[item]).SerializeToString(), GOOD]) if e["kind"] != "schema"]
    assert len(events) == max(len(event.rows), 1) + 1
    assert events[-1]["after"] == {"id": "7"}


@examples(100)
@given(BROKEN.filter(lambda v: v is not None))
def test_bulk_parser_reads_what_python_protobuf_reads(value):
    batch, errors = parse(pa.array([value], pa.binary()), pb.Entries)
    try:
        whole = pb.Entries.FromString(value)
    except DecodeError:
        assert errors
        return
    if not errors:  # the bulk parser also refuses wrong wire types, which Python skips as unknown fields
        found = batch.to_pylist()[0]["items"]
        assert len(found) == len(whole.items)
        for ours, theirs in zip(found, whole.items, strict=True):
            assert _plain(ours) == _plain(
                MessageToDict(theirs, preserving_proto_field_name=True, use_integers_for_enums=True)
            )


def _plain(value):
    """Without zero values, which one side spells out and the other leaves away. Presence is kept."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if v not in (None, 0, "", b"", [], False, "0")}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


DML = {"dml": {"type": "INSERT", "columns": ["id int key"], "rows": [{"new": [{"INT32": "1"}]}]}}
BEGIN = {"header": {"messageType": "BEGIN", "sourceType": "ORACLE"}, "event": {"beginEvent": {}}}


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"sourceType": "MARIADB"}, None),
        ({"version": 2}, "Header.version 2; only 1 is known"),
        ({"sourceType": "PGSQL"}, "sourceType 2 (PGSQL); only MYSQL and MARIADB are understood"),
        ({"sourceType": "ORACLE"}, "sourceType 0 (ORACLE or not told; option untold_source"),
    ],
)
def test_rows_of_another_protocol_or_database_are_refused(header, reason):
    whole = pb.Entries(items=[entry(DML), entry({**DML, "header": header}), entry(BEGIN)]).SerializeToString()
    events = decoded([whole])
    refused = [e for e in events if e["kind"] == "error"]
    assert [e["reason"].startswith(reason or "") for e in refused] == ([True] if reason else [])
    assert len([e for e in events if e["kind"] == "row"]) == (1 if reason else 2)
    assert len([e for e in events if e["kind"] == "begin"]) == 1


def test_untold_sources_are_mysqls_where_the_option_says_so():
    whole = pb.Entries(items=[entry({**DML, "header": {"sourceType": "ORACLE"}})]).SerializeToString()
    events = readable(decode(message_batch([whole]), Options(untold_source=True)))
    assert [e["kind"] for e in events] == ["schema", "row"]
