"""Frames, scramble and Kafka values, without a socket."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.bridge import frames
from cdc_platform.bridge.errors import CanalOutOfStep, CanalUnsupported
from cdc_platform.formats.pb import canal_protocol_pb2 as pb
from tests.bridge.double import packet


def _batch(entries: list[bytes], number: int = 7) -> frames.Batch:
    body = pb.Messages(batch_id=number, messages=entries).SerializeToString()
    data = packet(pb.MESSAGES, body)[4:]
    return frames.batch(frames.parse_packet(data, "s"), data, "s")


@given(st.text(min_size=1), st.binary(min_size=8, max_size=8))
def test_scramble_is_what_the_server_can_check_with_the_hash_alone(password: str, seed: bytes):
    stored = hashlib.sha1(hashlib.sha1(password.encode()).digest()).digest()
    token = bytes.fromhex(frames.scramble(password, seed).decode())
    once = bytes(a ^ b for a, b in zip(token, hashlib.sha1(seed + stored).digest(), strict=True))
    assert hashlib.sha1(once).digest() == stored


def test_the_default_hash_of_canals_own_configuration_belongs_to_its_default_password():
    # canal.passwd = E3619321C1A937C46A0D8BD1DAC39F93B27D4458 is "canal" in canal.properties
    stored = bytes.fromhex("E3619321C1A937C46A0D8BD1DAC39F93B27D4458")
    token = bytes.fromhex(frames.scramble("canal", b"12345678").decode())
    once = bytes(a ^ b for a, b in zip(token, hashlib.sha1(b"12345678" + stored).digest(), strict=True))
    assert hashlib.sha1(once).digest() == stored


def test_no_password_sends_no_token():
    assert frames.scramble("", b"12345678") == b""


@pytest.mark.parametrize("number", [2, 3, 4, 9])
def test_every_compression_is_refused_by_name_or_number(number: int):
    data = pb.Packet(type=pb.MESSAGES, compression=number).SerializeToString()
    name = {2: "ZLIB", 3: "GZIP", 4: "LZF"}.get(number, str(number))
    with pytest.raises(CanalUnsupported, match=f"compression {name}; only NONE"):
        frames.parse_packet(data, "s")


def test_version_2_is_refused():
    with pytest.raises(CanalUnsupported, match="version 2"):
        frames.parse_packet(pb.Packet(type=pb.ACK, version=2).SerializeToString(), "s")


def test_another_magic_number_is_refused():
    with pytest.raises(CanalUnsupported, match="magic number 18"):
        frames.parse_packet(pb.Packet(type=pb.ACK, version=1, magic_number=18).SerializeToString(), "s")
    frames.parse_packet(pb.Packet(type=pb.ACK, version=1, magic_number=17).SerializeToString(), "s")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_packet_or_a_clear_error(data: bytes):
    try:
        packet = frames.parse_packet(data, "s")
        frames.batch(packet, data, "s")
    except (CanalOutOfStep, CanalUnsupported, frames.CanalRefused) as error:
        assert error.server == "s"


@pytest.mark.parametrize("header", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"HTTP"])
def test_lengths_that_no_canal_server_sends_are_refused(header: bytes):
    with pytest.raises(CanalUnsupported, match="frame of"):
        frames.frame_length(header, 1000, "s")


def test_a_batch_that_fits_goes_out_as_it_came():
    batch = _batch([b"one", b"two"])
    assert frames.records(batch, 1000) == [batch.packet]


def test_the_values_bytes_are_those_of_canals_own_raw_form():
    # Packet: 3=7, 5=body and nothing else; Messages: 1=batch id, 2*=entries (CanalMessageSerializerUtil.serializer)
    assert _batch([b"one"]).packet == b"\x18\x07\x2a\x07\x08\x07\x12\x03one"


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=30), st.integers(100, 2000))
def test_a_long_batch_is_cut_between_entries_without_loss(entries: list[bytes], limit: int):
    batch = _batch(entries)
    values = [pb.Packet.FromString(v) for v in frames.records(batch, limit)]
    parts = [pb.Messages.FromString(v.body) for v in values]
    assert [e for p in parts for e in p.messages] == entries
    assert all(v.type == pb.MESSAGES and not v.HasField("compression") for v in values)
    assert all(v.ByteSize() <= limit or len(p.messages) == 1 for v, p in zip(values, parts, strict=True))
    assert {p.batch_id for p in parts} == {7}


def test_a_batch_without_entries_gives_no_record():
    assert frames.records(_batch([]), 1000) == []


def test_a_batch_that_can_not_be_acked_is_refused():
    with pytest.raises(CanalOutOfStep, match="without id"):
        _batch([b"one"], 0)
    with pytest.raises(CanalOutOfStep, match="1 entries in batch -1"):
        _batch([b"one"], -1)
