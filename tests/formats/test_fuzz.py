"""A small share of `make fuzz`, and that the fuzzer finds what it is there to find."""

import dataclasses
import json
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc_platform.formats import FORMATS, canal_json
from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from tests.formats import fuzz, mutations
from tests.formats.contexts import decode_with_context


@pytest.mark.parametrize("times", [500, pytest.param(1500, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", FORMATS)
def test_broken_messages_break_nothing(name, times):
    kinds = fuzz.fuzz(name, times)
    assert kinds["error"] > times / 10
    assert kinds["row"] > times / 20, "broken beyond reading is too easy"


@pytest.mark.parametrize("name", FORMATS)
def test_seeds_are_messages_that_decode(name):
    seeds = fuzz.seeds(name)
    assert len(seeds) >= 10
    records = [(s.topic, s.key, s.value) for s in seeds if s.options == FORMATS[name].options()]
    found = decode_with_context(FORMATS[name], fuzz._batch(records), FORMATS[name].options())
    kinds = found.column("kind").to_pylist()
    assert kinds.count("row") > kinds.count("error")


def test_equal_seeds_break_equally():
    data = json.dumps({"a": [1, {"b": "x"}], "c": "2"}).encode()
    one, two = ([mutations.broken(random.Random(i), data, [data]) for i in range(300)] for _ in range(2))
    assert one == two
    assert len(set(one)) > 150


def test_protobuf_fields_are_read_and_written_back():
    entries = pb.Entries(items=[pb.Entry(header=pb.Header(version=1, fileName="b.1", position=2**40))])
    fields = mutations.read_fields(entries.SerializeToString())
    assert fields is not None
    assert pb.Entries.FromString(mutations.write_fields(fields)) == entries
    assert mutations.read_fields(b"\x0a\xff\xff\xff\xff\x07") is None


def raises(batch, options, *_context):
    raise RuntimeError("boom")


def forgets(batch, options, *_context):
    events = canal_json.decode(batch, options)
    return events.filter(pc.not_equal(events.column("offset"), 7))


def guesses(batch, options, *_context):
    events = canal_json.decode(batch, options)
    kind = pc.if_else(pc.equal(events.column("kind"), "error"), "heartbeat", events.column("kind"))
    return events.set_column(events.schema.get_field_index("kind"), "kind", kind)


def leans_on_its_neighbours(batch, options, *_context):
    events = canal_json.decode(batch, options)
    at = events.schema.get_field_index("txn_id")
    return events if len(batch) == 1 else events.set_column(at, EVENT.field(at), pa.repeat("x", len(events)))


@pytest.mark.parametrize(
    ("decode", "told"),
    [
        (raises, "RuntimeError: boom"),
        (forgets, "no event for"),
        (guesses, "another parser can't read it"),
        (leans_on_its_neighbours, "among others"),
    ],
)
def test_a_faulty_decoder_is_found(decode, told, monkeypatch):
    faulty = dataclasses.replace(FORMATS["canal_json"], decode=decode, context=None)
    monkeypatch.setattr(canal_json, "FORMAT", faulty)
    with pytest.raises(fuzz.Finding, match=told):
        fuzz.fuzz("canal_json", 1000)
