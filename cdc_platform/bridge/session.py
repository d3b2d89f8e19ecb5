"""One connection to a canal server, from the greeting to the good-bye: the socket edge of the bridge."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from cdc_platform.bridge import frames
from cdc_platform.bridge.errors import CanalOutOfStep, CanalRefused, CanalUnreachable
from cdc_platform.config.bridges import Bridge, address
from cdc_platform.formats.pb import canal_protocol_pb2 as pb

_CHUNK = 1024 * 1024  # memory follows the bytes that came, not the length that a header announces
_CONNECT_S = 10.0
_GOODBYE_S = 2.0


class Session:
    """A subscribed connection on which the next GET begins at the first batch without ack.

    Made by `open_session`. Every method raises an error of `bridge.errors`; after one, only `close` is of use:
    requests and answers can't be matched again on the same connection.
    """

    def __init__(self, bridge: Bridge, server: str, sock: socket.socket):
        self._bridge, self._sock, self.server = bridge, sock, server
        self._pending: int | None = None  # batch that was got and neither acked nor rolled back

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def log_in(self) -> None:
        """Greeting and login. Raises CanalLoginRefused for a wrong user or password."""
        packet, _ = self._receive()
        self._send(frames.login(self._bridge, frames.seeds(packet, self.server)))
        packet, _ = self._receive()
        frames.check_login(packet, self._bridge, self.server)

    def subscribe(self) -> None:
        """Subscribes, and rolls back what an earlier connection has left without ack."""
        self._send(frames.subscription(self._bridge))
        packet, _ = self._receive()
        frames.check_ack(packet, f"the subscription to {self._bridge.destination!r}", self.server)
        self.rollback()

    def unsubscribe(self) -> None:
        """Makes the server forget this client and its position."""
        self._send(frames.unsubscription(self._bridge))
        packet, _ = self._receive()
        frames.check_ack(packet, "the unsubscription", self.server)

    def get(self) -> frames.Batch:
        """The next batch; its `id` is None where nothing is new. One at a time: ack it or roll it back first."""
        if self._pending is not None:
            raise AssertionError(f"batch {self._pending} is neither acked nor rolled back")
        self._send(frames.get(self._bridge))
        packet, data = self._receive()
        batch = frames.batch(packet, data, self.server)
        self._pending = batch.id
        return batch

    def ack(self) -> None:
        """Tells the server that the batch got last is safe. A refusal comes with the next answer."""
        if self._pending is None:
            raise AssertionError("there is no batch to ack")
        self._send(frames.client_ack(self._bridge, self._pending))
        self._pending = None

    def rollback(self) -> None:
        """Has the server send everything without ack again."""
        self._send(frames.rollback(self._bridge))
        self._pending = None

    def close(self) -> None:
        """Rolls back a batch without ack and hangs up; never raises."""
        with suppress(CanalUnreachable):
            if self._pending is not None:
                self.rollback()
        with suppress(OSError):
            # Closing with unread bytes resets the connection, and the server may lose an ack it hasn't read.
            self._sock.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + _GOODBYE_S
            while (left := deadline - time.monotonic()) > 0:
                self._sock.settimeout(left)
                if not self._sock.recv(65536):
                    break
        self._sock.close()

    def _send(self, data: bytes) -> None:
        try:
            self._sock.settimeout(self._bridge.timeout_s)
            self._sock.sendall(data)
        except OSError as error:
            raise CanalUnreachable(self.server, f"the connection broke: {error}") from None

    def _receive(self) -> tuple[pb.Packet, bytes]:
        """The next packet that is no heartbeat, and its bytes."""
        # Idle or not, `wait_ms` is time the server may take before it answers.
        deadline = time.monotonic() + self._bridge.timeout_s + self._bridge.wait_ms / 1000
        while True:
            header = self._read(frames.HEADER.size, deadline)
            length = frames.frame_length(header, self._bridge.max_frame_bytes, self.server)
            data = self._read(length, deadline)
            packet = frames.parse_packet(data, self.server)
            if not frames.is_heartbeat(packet):
                return packet, data

    def _read(self, size: int, deadline: float) -> bytes:
        got = bytearray()
        while len(got) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise CanalUnreachable(self.server, f"no answer within {self._bridge.timeout_s:g} s")
            self._sock.settimeout(left)
            try:
                part = self._sock.recv(min(size - len(got), _CHUNK))
            except TimeoutError:
                continue  # told above
            except OSError as error:
                raise CanalUnreachable(self.server, f"the connection broke: {error}") from None
            if not part:
                where = f"in the middle of a frame ({len(got)} of {size} bytes)" if got else "between two frames"
                raise CanalUnreachable(self.server, f"the server closed the connection {where}")
            got += part
        return bytes(got)


@contextmanager
def open_session(bridge: Bridge) -> Iterator[Session]:
    """A subscribed session with the first of the bridge's servers that takes it; closed in the end.

    Raises what the last server said; CanalLoginRefused and CanalUnsupported at once.
    """
    session = _first(bridge)
    with session:
        yield session


def _first(bridge: Bridge) -> Session:
    for i, server in enumerate(bridge.servers):
        try:
            return _connected(bridge, server)
        except (CanalUnreachable, CanalRefused, CanalOutOfStep):  # a standby refuses what another server runs
            if i + 1 == len(bridge.servers):
                raise
    raise AssertionError("a bridge has at least one server")


def _connected(bridge: Bridge, server: str) -> Session:
    try:
        sock = socket.create_connection(address(server), timeout=min(_CONNECT_S, bridge.timeout_s))
    except OSError as error:
        raise CanalUnreachable(server, f"can't be reached: {error}") from None
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small requests, each waiting for its answer
    session = Session(bridge, server, sock)
    try:
        session.log_in()
        session.subscribe()
    except BaseException:
        session.close()
        raise
    return session
