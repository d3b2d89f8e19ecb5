"""One connection, against the double over real sockets."""

import time
from collections.abc import Callable

import pytest

from cdc_platform.bridge.errors import (
    CanalLoginRefused,
    CanalOutOfStep,
    CanalRefused,
    CanalUnreachable,
    CanalUnsupported,
)
from cdc_platform.bridge.session import open_session
from cdc_platform.config.bridges import Bridge
from cdc_platform.errors import CdcError
from cdc_platform.formats.pb import canal_protocol_pb2 as pb
from tests.bridge.double import HEADER, CanalDouble, Fault, ack, before, cut, instead, packet, silence, trickle, twice

Make = Callable[..., Bridge]
HEARTBEAT = packet(pb.HEARTBEAT, b"", version=1)
ZIPPED = packet(pb.MESSAGES, b"zip", compression=pb.ZLIB)


def test_batches_come_in_order_and_acks_free_them(canal: CanalDouble, make_bridge: Make):
    entries: list[bytes] = []
    with open_session(make_bridge()) as session:
        while (batch := session.get()).id is not None:
            entries += batch.entries
            session.ack()
    canal.wait(lambda: not canal.feed)
    assert entries == [b"entry-%d" % i for i in range(5)]
    assert canal.acked == [1, 2, 3]
    assert canal.seen[:3] == [pb.CLIENTAUTHENTICATION, pb.SUBSCRIPTION, pb.CLIENTROLLBACK]


def test_a_batch_without_ack_comes_again(canal: CanalDouble, make_bridge: Make):
    with open_session(make_bridge()) as session:
        first = session.get()
        session.rollback()
        second = session.get()
    with open_session(make_bridge()) as session:
        third = session.get()
    assert list(first.entries) == list(second.entries) == list(third.entries) == [b"entry-0", b"entry-1"]
    assert canal.acked == []


def test_closing_rolls_back(canal: CanalDouble, make_bridge: Make):
    with open_session(make_bridge()) as session:
        session.get()
    canal.wait(lambda: canal.seen[-1] == pb.CLIENTROLLBACK)
    assert canal.seen.count(pb.CLIENTROLLBACK) == 2


def test_the_filter_is_subscribed_with(canal: CanalDouble, make_bridge: Make):
    with open_session(make_bridge(filter=r"shop\..*,crm\.users")):
        assert canal.filters == [r"shop\..*,crm\.users"]


def test_unsubscribe(canal: CanalDouble, make_bridge: Make):
    with open_session(make_bridge()) as session:
        session.unsubscribe()
    assert canal.seen[-1] == pb.UNSUBSCRIPTION


@pytest.mark.parametrize("wrong", [{"password": "other"}, {"username": "someone"}, {"password": ""}])
def test_a_wrong_login_is_final_and_keeps_the_password_to_itself(make_bridge: Make, wrong: dict[str, str]):
    with pytest.raises(CanalLoginRefused) as caught, open_session(make_bridge(**wrong)):
        pass
    assert not caught.value.retriable
    assert "canal.passwd" in str(caught.value)
    assert "other" not in str(caught.value).replace("another", "")


def test_a_login_that_meets_no_seed_is_worth_a_retry(canal: CanalDouble, make_bridge: Make):
    canal.plan.append((pb.CLIENTAUTHENTICATION, instead(ack(400, "auth failed for seed is null"))))
    with pytest.raises(CanalRefused) as caught, open_session(make_bridge()):
        pass
    assert caught.value.retriable


def test_an_unknown_destination_is_told_in_one_line(make_bridge: Make):
    with pytest.raises(CanalRefused, match="no instance nope") as caught, open_session(make_bridge(destination="nope")):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault", [before(HEARTBEAT), before(HEARTBEAT * 3), trickle])
def test_heartbeats_and_slow_bytes_are_no_fault(canal: CanalDouble, make_bridge: Make, fault: Fault):
    canal.plan.append((pb.GET, fault))
    with open_session(make_bridge(timeout_s=5)) as session:
        assert list(session.get().entries) == [b"entry-0", b"entry-1"]


_FAULTS: dict[str, tuple[Fault, type[CdcError], str]] = {
    "cut in the header": (cut(2), CanalUnreachable, r"middle of a frame \(2 of 4"),
    "cut in the body": (cut(10), CanalUnreachable, r"middle of a frame \(6 of"),
    "cut before it": (cut(0), CanalUnreachable, "between two frames"),
    "error ack": (instead(ack(400, "exception=store is down\n\tat x")), CanalRefused, "store is down"),
    "late ack": (before(ack()), CanalOutOfStep, "an ACK that nothing waits for"),
    "silence": (silence, CanalUnreachable, "no answer within 0.5 s"),
    "wrong kind": (instead(packet(pb.SHUTDOWN, b"")), CanalOutOfStep, "SHUTDOWN instead of MESSAGES"),
    "no packet": (instead(HEADER.pack(3) + b"\xff\xff\xff"), CanalOutOfStep, "3 bytes that are no Packet"),
    "compressed": (instead(ZIPPED), CanalUnsupported, "compression ZLIB"),
    "oversize": (instead(HEADER.pack(2**31 - 1)), CanalUnsupported, "2147483647 bytes, over max_frame_bytes"),
    "heartbeats only": (instead(HEARTBEAT), CanalUnreachable, "no answer within"),
}


@pytest.mark.parametrize("name", _FAULTS)
def test_a_fault_is_named_and_costs_nothing(canal: CanalDouble, make_bridge: Make, name: str):
    fault, kind, words = _FAULTS[name]
    canal.plan.append((pb.GET, fault))
    started = time.monotonic()
    with pytest.raises(kind, match=words) as caught, open_session(make_bridge()) as session:
        session.get()
    assert time.monotonic() - started < 5
    assert caught.value.retriable is (kind is not CanalUnsupported)
    with open_session(make_bridge()) as session:  # it all comes again
        assert list(session.get().entries) == [b"entry-0", b"entry-1"]


def test_a_refused_ack_shows_in_the_next_answer(canal: CanalDouble, make_bridge: Make):
    canal.plan.append((pb.GET, twice))
    with open_session(make_bridge()) as session:
        session.get()
        session.ack()
        duplicate = session.get()  # the second copy of batch 1, whose own answer is still on its way
        session.ack()
        assert list(duplicate.entries) == [b"entry-0", b"entry-1"]
        with pytest.raises((CanalRefused, CanalOutOfStep)):
            for _ in range(3):
                session.get()
                session.ack()
    assert canal.acked[0] == 1


def test_a_program_that_is_no_canal_server_is_told_apart(canal: CanalDouble, make_bridge: Make):
    canal.plan.append((pb.HANDSHAKE, instead(b"SSH-2.0-OpenSSH_9.2\r\n")))
    with pytest.raises(CanalUnsupported, match="max_frame_bytes"), open_session(make_bridge()):
        pass
    canal.plan.append((pb.HANDSHAKE, instead(ack())))
    with pytest.raises(CanalUnsupported, match="ACK instead of HANDSHAKE"), open_session(make_bridge()):
        pass


def test_the_next_server_is_tried_when_one_is_down(canal: CanalDouble, make_bridge: Make):
    with CanalDouble() as gone:
        pass
    with open_session(make_bridge(servers=[gone.address, canal.address])) as session:
        assert session.server == canal.address
    with pytest.raises(CanalUnreachable, match="can't be reached"), open_session(make_bridge(servers=[gone.address])):
        pass


def test_a_restarted_server_sends_what_was_not_acked(canal: CanalDouble, make_bridge: Make):
    with open_session(make_bridge()) as session:
        session.get()
        session.ack()
        canal.wait(lambda: canal.acked == [1])
        session.get()
        canal.stop()
        canal.start()
        with pytest.raises(CanalUnreachable):
            session.ack()
            session.get()
    with open_session(make_bridge()) as session:
        batch = session.get()
        assert (batch.id, list(batch.entries)) == (1, [b"entry-2", b"entry-3"])
