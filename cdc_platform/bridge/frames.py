"""canal's TCP protocol as bytes: frames, requests, answers. No sockets here.

Facts: alibaba/canal, protocol/…/CanalProtocol.proto; server/…/netty/handler/{HandshakeInitialization,
ClientAuthentication,Session}Handler.java; client/…/SimpleCanalConnector.java; protocol/…/SecurityUtil.java.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from cdc_platform.bridge.errors import CanalLoginRefused, CanalOutOfStep, CanalRefused, CanalUnsupported
from cdc_platform.config.bridges import Bridge
from cdc_platform.formats.pb import canal_protocol_pb2 as pb

MAGIC = 17  # Packet.magic_number
HEADER = struct.Struct(">i")  # length of the Packet that follows, a Java int
IDLE_MS = 60 * 60 * 1000  # what canal's own client asks for; GETs come far more often
_NO_BATCH = -1  # batch id of an answer without data
_VERSIONS = (0, 1)  # absent: servers before proto3 leave out the default, 1
_PLAIN = (pb.COMPRESSIONCOMPATIBLEPROTO2, pb.NONE)  # absent or NONE
_M = TypeVar("_M", bound=Message)
_MILLISECONDS = 2  # Get.unit: ordinal of java.util.concurrent.TimeUnit
_PACKET_OVERHEAD = 64  # tags and lengths of Packet and Messages, and the batch id, at most


@dataclass(frozen=True)
class Batch:
    """An answer to GET. `id` None: nothing new. `packet`: the bytes as the server sent them."""

    id: int | None
    entries: Sequence[bytes]
    packet: bytes


def frame(kind: pb.PacketType, body: Message) -> bytes:
    """One request as it goes over the wire."""
    packet = pb.Packet(type=kind, version=1, body=body.SerializeToString()).SerializeToString()
    return HEADER.pack(len(packet)) + packet


def frame_length(header: bytes, limit: int, server: str) -> int:
    """Length of the packet that a 4-byte header announces. Raises CanalUnsupported over `limit` and below 1."""
    (length,) = HEADER.unpack(header)
    if length < 1:
        raise CanalUnsupported(server, f"sent a frame of length {length}: this is no canal server")
    if length > limit:
        raise CanalUnsupported(
            server,
            f"sent a frame of {length} bytes, over max_frame_bytes ({limit}). If it is a canal server (and not "
            f"another program on that port: the header reads {header!r}), raise max_frame_bytes or lower batch_size",
        )
    return length


def parse_packet(data: bytes, server: str) -> pb.Packet:
    """The envelope of every message. Raises CanalOutOfStep for no Packet, CanalUnsupported for another magic number or
    version and for any compression (canal's own client has none either)."""
    packet = _parse(pb.Packet, data, server)
    if packet.HasField("magic_number") and packet.magic_number != MAGIC:
        raise CanalUnsupported(server, f"sent a packet with magic number {packet.magic_number}; canal's is {MAGIC}")
    if packet.version not in _VERSIONS:
        raise CanalUnsupported(server, f"speaks version {packet.version} of the protocol; this bridge speaks 1")
    if packet.compression not in _PLAIN:
        raise CanalUnsupported(
            server,
            f"sent a packet with compression {_name(pb.Compression, packet.compression)}; only NONE is supported",
        )
    return packet


def is_heartbeat(packet: pb.Packet) -> bool:
    """Whether it is a sign of life only, and no answer."""
    return packet.type == pb.HEARTBEAT


def seeds(packet: pb.Packet, server: str) -> bytes:
    """Seeds of the server's greeting; empty from servers before 1.1.4, which check no password."""
    if packet.type != pb.HANDSHAKE:
        raise CanalUnsupported(
            server, f"greets with {_name(pb.PacketType, packet.type)} instead of HANDSHAKE: this is no canal server"
        )
    # What it offers as supported_compressions is an offer; nothing is asked for, and a packet that comes
    # compressed all the same is refused.
    return _parse(pb.Handshake, packet.body, server).seeds


def scramble(password: str, seed: bytes) -> bytes:
    """MySQL's scramble411 as hex text: SHA1(seed + SHA1(SHA1(password))) XOR SHA1(password); no password: nothing."""
    if not password:
        return b""
    once = hashlib.sha1(password.encode()).digest()  # noqa: S324  the protocol's choice
    twice = hashlib.sha1(once).digest()  # noqa: S324
    salted = hashlib.sha1(seed + twice).digest()  # noqa: S324
    return bytes(a ^ b for a, b in zip(salted, once, strict=True)).hex().encode()


def login(bridge: Bridge, seed: bytes) -> bytes:
    """CLIENTAUTHENTICATION. Destination stays empty: the subscription is a request of its own."""
    body = pb.ClientAuth(
        username=bridge.username,
        password=scramble(bridge.password.get_secret_value(), seed),
        net_read_timeout=IDLE_MS,
        net_write_timeout=IDLE_MS,
    )
    return frame(pb.CLIENTAUTHENTICATION, body)


def check_login(packet: pb.Packet, bridge: Bridge, server: str) -> None:
    """The answer to the login. Raises CanalLoginRefused, CanalRefused, CanalOutOfStep."""
    try:
        check_ack(packet, "the login", server)
    except CanalRefused as error:
        # The server stores the seed after it has sent it; an answer that is quicker meets none (a race of its own).
        if "seed is null" in error.problem:
            raise
        raise CanalLoginRefused(server, bridge.username, error.problem) from None


def check_ack(packet: pb.Packet, what: str, server: str) -> None:
    """An ACK packet with error code 0. Raises CanalRefused, CanalOutOfStep."""
    if packet.type != pb.ACK:
        raise CanalOutOfStep(server, f"answered {what} with {_name(pb.PacketType, packet.type)} instead of ACK")
    ack = _parse(pb.Ack, packet.body, server)
    if ack.error_code:
        raise CanalRefused(server, what, ack.error_code, ack.error_message)


def subscription(bridge: Bridge) -> bytes:
    """SUBSCRIPTION. An empty filter leaves the server's own in force."""
    return frame(pb.SUBSCRIPTION, pb.Sub(**_client(bridge), filter=bridge.filter))


def unsubscription(bridge: Bridge) -> bytes:
    """UNSUBSCRIPTION. The server forgets this client's position."""
    return frame(pb.UNSUBSCRIPTION, pb.Unsub(**_client(bridge)))


def get(bridge: Bridge) -> bytes:
    """GET without auto-ack."""
    body = pb.Get(
        **_client(bridge), fetch_size=bridge.batch_size, timeout=bridge.wait_ms, unit=_MILLISECONDS, auto_ack=False
    )
    return frame(pb.GET, body)


def client_ack(bridge: Bridge, batch_id: int) -> bytes:
    """CLIENTACK. The server answers only when it refuses, and then in place of the next answer."""
    return frame(pb.CLIENTACK, pb.ClientAck(**_client(bridge), batch_id=batch_id))


def rollback(bridge: Bridge) -> bytes:
    """CLIENTROLLBACK of all batches without ack (id 0). The server doesn't answer."""
    return frame(pb.CLIENTROLLBACK, pb.ClientRollback(**_client(bridge), batch_id=0))


def batch(packet: pb.Packet, data: bytes, server: str) -> Batch:
    """The answer to GET; `data` is the packet's own bytes. Raises CanalRefused, CanalOutOfStep."""
    if packet.type == pb.ACK:
        check_ack(packet, "a request (GET, or the acknowledgement before it)", server)
        raise CanalOutOfStep(server, "answered GET with an ACK that nothing waits for")
    if packet.type != pb.MESSAGES:
        raise CanalOutOfStep(server, f"answered GET with {_name(pb.PacketType, packet.type)} instead of MESSAGES")
    messages = _parse(pb.Messages, packet.body, server)
    if messages.batch_id == _NO_BATCH:
        if messages.messages:
            raise CanalOutOfStep(server, f"sent {len(messages.messages)} entries in batch -1, which can't be acked")
        return Batch(None, (), data)
    if messages.batch_id == 0:  # acking 0 is error 402
        raise CanalOutOfStep(server, "sent a batch without id, which can't be acked")
    return Batch(messages.batch_id, messages.messages, data)


def without_first(batch: Batch, count: int) -> Batch:
    """A batch without some of its first entries."""
    rest = batch.entries[count:]
    return Batch(batch.id, rest, _messages(batch.id or 0, rest)) if count else batch


def records(batch: Batch, limit: int) -> list[bytes]:
    """Kafka values of a batch, as canal's own producer writes them with flatMessage=false.

    The server's packet as it is (its raw form is that producer's raw form), when it has at most `limit` bytes. A
    longer one is cut between entries, in order; an entry over `limit` gets a value of its own. No entries: no value.
    """
    if not batch.entries:
        return []
    if len(batch.packet) <= limit:
        return [batch.packet]
    return [_messages(batch.id or 0, part) for part in _parts(batch.entries, limit - _PACKET_OVERHEAD)]


def _parts(entries: Sequence[bytes], limit: int) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for entry in entries:
        cost = len(entry) + 6  # tag and a length of at most 5 bytes
        if part and size + cost > limit:
            yield part
            part, size = [], 0
        part.append(entry)
        size += cost
    yield part


def _messages(batch_id: int, entries: Sequence[bytes]) -> bytes:
    body = pb.Messages(batch_id=batch_id, messages=entries).SerializeToString()
    return pb.Packet(type=pb.MESSAGES, body=body).SerializeToString()


def _client(bridge: Bridge) -> dict[str, str]:
    return {"destination": bridge.destination, "client_id": str(bridge.client_id)}


def _parse(kind: type[_M], data: bytes, server: str) -> _M:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise CanalOutOfStep(server, f"sent {len(data)} bytes that are no {kind.__name__}") from None


def _name(enum: object, value: int) -> str:
    try:
        return enum.Name(value)  # type: ignore[attr-defined]
    except ValueError:
        return str(value)
