"""Values read where they lie give the events that a parser's reading gives."""

import random

import pyarrow as pa
import pytest

from cdc_platform.feeds.generators import bench_records
from cdc_platform.formats.canal import CanalOptions, decode, plain
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net
from tests.formats.canal_fixtures import entry, load, message_batch, scenarios, value
from tests.formats.mutations import broken

COLUMNS = {"id": "bigint(20) key", "v": "varchar(99)"}
CHANGES = [{"after": {"id": "1", "v": "é"}}, {"after": {"id": "2", "v": None}}]
ROW = {"event": "INSERT", "columns": COLUMNS, "rows": CHANGES}
PLAIN = [
    value({"entries": [ROW, ROW]}),
    value({"batch_id": 7, "packet": {"version": 1, "compression": "NONE"}, "entries": [ROW]}),
    value({"entries": [{"begin": {"threadId": 5}}, ROW, {"end": {"transactionId": "9"}}]}),
    value({"entries": [{"pair": {"key": "gtid", "value": "a:1"}}, {"type": None, **ROW}]}),
]


@pytest.fixture
def by_parser(monkeypatch):
    """Decodes without reading anything as plain."""

    def decoded(values, options):
        with monkeypatch.context() as patched:
            patched.setattr(plain, "read", lambda values: None)
            patched.setattr(plain, "body", lambda values, message: None)
            return decode(message_batch(values), options)

    return decoded


def is_plain(values):
    return plain.read(pa.array(values, pa.binary())) is not None


def test_what_canal_writes_is_plain():
    assert is_plain(PLAIN)
    assert is_plain([r.value for r in bench_records("canal", 200, 100)])
    assert is_plain([value({"entry": ROW})] * 2), "bare entries"
    assert is_plain([])


@pytest.mark.parametrize(
    "odd",
    [
        None,
        b"",
        b"{}",
        value({"entries": []}),
        value({"entry": ROW}),
        value({"entries": [None]}),
        value({"entries": [{**ROW, "header": None}]}),
        value({"packet": {"version": 2}, "entries": [ROW]}),
        value({"packet": {"compression": "GZIP"}, "entries": [ROW]}),
        value({"entries": [ROW], "cut": 1}),
        PLAIN[0] + b"\xa2\x06\x02hi",
        net.Packet(type=net.ACK).SerializeToString(),
    ],
)
def test_what_is_odd_is_left_to_the_parser(odd, by_parser):
    values = [PLAIN[0], odd, PLAIN[2]]
    assert not is_plain(values)
    assert decode(message_batch(values), CanalOptions()).equals(by_parser(values, CanalOptions()))


@pytest.mark.parametrize("field", ["logfileName", "serverenCode", "gtid"])
def test_a_header_that_is_no_utf8_is_an_error(field):
    good = entry({**ROW, "header": {field: "abcdefgh"}})
    events = decode(message_batch([good.replace(b"abcdefgh", b"abcdefg\xff")]), CanalOptions())
    assert events.column("kind").to_pylist() == ["error"]


@pytest.mark.parametrize("scenario", scenarios())
def test_scenarios_by_either_reading(scenario, by_parser):
    values, options, _ = load(scenario)
    options = CanalOptions(**options)
    for some in (values, *([v] for v in values)):
        assert decode(message_batch(some), options).equals(by_parser(some, options))


def test_the_benchmark_by_either_reading(by_parser):
    values = [r.value for r in bench_records("canal", 3000, 600)]
    assert is_plain(values)
    assert decode(message_batch(values), CanalOptions()).equals(by_parser(values, CanalOptions()))


def changed(rng, spec):
    """An entry with some fields changed, as another writer might have written it."""
    out = pb.Entry.FromString(entry(spec))
    header = out.header
    rng.choice(
        [
            lambda: setattr(header, "executeTime", rng.choice((0, -1, 2**62, 253_402_300_800_000))),
            lambda: setattr(header, "logfileOffset", rng.choice((0, -5, 2**63 - 1))),
            lambda: setattr(header, "sourceType", rng.choice((0, 1, 2, 9))),
            lambda: setattr(header, "eventType", rng.choice((0, 1, 2, 3, 99))),
            lambda: header.ClearField(rng.choice([f.name for f in header.DESCRIPTOR.fields])),
            lambda: header.props.add(key="curtGtid", value="ü" * rng.randrange(90)),
            lambda: setattr(out, "entryType", rng.choice((0, 1, 2, 3, 4, 5, 77))),
            lambda: out.ClearField(rng.choice(("entryType", "storeValue", "header"))),
        ]
    )()
    return out.SerializeToString()


@pytest.mark.parametrize("times", [120, pytest.param(400, marks=pytest.mark.thorough)])
def test_changed_and_broken_messages_by_either_reading(by_parser, times):
    rng, seen = random.Random(5), 0
    for _ in range(times):
        body = net.Messages(messages=[entry(ROW), changed(rng, ROW)]).SerializeToString()
        one = net.Packet(type=net.MESSAGES, body=body).SerializeToString()
        values = [PLAIN[2], one if rng.random() < 0.6 else broken(rng, one, PLAIN)]
        seen += is_plain(values)
        assert decode(message_batch(values), CanalOptions()).equals(by_parser(values, CanalOptions())), values
    assert times / 4 < seen < times * 0.95
