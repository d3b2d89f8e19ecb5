"""A canal server of our own: a real TCP server with the state and the answers of canal's SessionHandler,
and faults at the points where real ones happen.

What it does as canal 1.1.7 does: a wrong password is answered with an error *and* then with an ACK; rollback and
client ack have no answer, a refused client ack answers in place of the next answer; acks must come in the order of
the batches; batch ids begin at 1 again after a restart, positions stay.
"""

import hashlib
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from cdc_platform.bridge.frames import HEADER
from cdc_platform.formats.pb import canal_protocol_pb2 as pb

SEED = bytes(range(8))
# (connection, the frame that would be sent) → whether the connection goes on
Fault = Callable[[socket.socket, bytes], bool]


def packet(kind: int, body: bytes, **more: int) -> bytes:
    """A frame with one Packet."""
    data = pb.Packet(type=kind, body=body, **more).SerializeToString()
    return HEADER.pack(len(data)) + data


def ack(code: int = 0, text: str = "") -> bytes:
    """A frame with an ACK."""
    return packet(pb.ACK, pb.Ack(error_code=code or None, error_message=text).SerializeToString(), version=1)


@dataclass
class CanalDouble:
    """`feed`: entries not yet acked, in order. `plan`: faults by request kind, each used once, in order. `lost`: kinds
    of requests that are lost with the connection before the server has acted on them, each used once."""

    password: str = "a secret"
    username: str = "canal"
    destination: str = "shop"
    per_batch: int = 2
    raw: bool = True
    feed: list[bytes] = field(default_factory=list)
    plan: list[tuple[int, Fault]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)  # kinds of the requests, in order
    acked: list[int] = field(default_factory=list)  # batch ids
    filters: list[str] = field(default_factory=list)
    port: int = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._lock = threading.RLock()
        self._open: list[socket.socket] = []
        self._batches: dict[int, int] = {}  # id → number of entries; insertion order is the order of acks
        self._taken, self._next_id = 0, 1
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, args=(self._listener,), daemon=True)]
        self._threads[0].start()

    def stop(self) -> None:
        """Ends at once, as a killed process."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in list(self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def wait(self, condition: Callable[[], bool], seconds: float = 10) -> None:
        """Waits until the condition holds; fails otherwise."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, (self.seen, self.acked, len(self.feed))
            time.sleep(0.01)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, suppress(OSError, EOFError):
            greeting = packet(pb.HANDSHAKE, pb.Handshake(seeds=SEED).SerializeToString(), version=1)
            going = self._answer(sock, pb.HANDSHAKE, greeting)
            while going:
                (length,) = HEADER.unpack(_exactly(sock, HEADER.size))
                request = pb.Packet.FromString(_exactly(sock, length))
                with self._lock:
                    self.seen.append(request.type)
                    if request.type in self.lost:
                        self.lost.remove(request.type)
                        return
                    answers = _HANDLERS[request.type](self, request.body)
                for answer in answers:
                    going = going and self._answer(sock, request.type, answer)

    def _answer(self, sock: socket.socket, kind: int, frame: bytes) -> bool:
        for i, (when, fault) in enumerate(self.plan):
            if when == kind:
                del self.plan[i]
                return fault(sock, frame)
        sock.sendall(frame)
        return True

    def _login(self, body: bytes) -> list[bytes]:
        auth = pb.ClientAuth.FromString(body)
        stored = hashlib.sha1(hashlib.sha1(self.password.encode()).digest()).digest()  # canal.passwd
        salted = hashlib.sha1(SEED + stored).digest()
        token = bytes.fromhex(auth.password.decode())
        once = bytes(a ^ b for a, b in zip(token, salted, strict=False))
        if auth.username == self.username and hashlib.sha1(once).digest() == stored:
            return [ack()]
        return [ack(400, f"auth failed for user:{auth.username}"), ack()]

    def _subscribe(self, body: bytes) -> list[bytes]:
        sub = pb.Sub.FromString(body)
        if sub.destination != self.destination:
            return [ack(400, f"something goes wrong with channel, exception=no instance {sub.destination}\n\tat x.y.Z")]
        self.filters.append(sub.filter)
        return [ack()]

    def _unsubscribe(self, body: bytes) -> list[bytes]:
        return [ack()]

    def _get(self, body: bytes) -> list[bytes]:
        get = pb.Get.FromString(body)
        assert not get.auto_ack
        part = self.feed[self._taken : self._taken + self.per_batch]
        if not part:
            time.sleep(min(get.timeout, 20) / 1000)
            return [packet(pb.MESSAGES, pb.Messages(batch_id=-1).SerializeToString(), version=1)]
        number, self._next_id = self._next_id, self._next_id + 1
        self._batches[number] = len(part)
        self._taken += len(part)
        messages = pb.Messages(batch_id=number, messages=part).SerializeToString()
        return [packet(pb.MESSAGES, messages) if self.raw else packet(pb.MESSAGES, messages, version=1)]

    def _client_ack(self, body: bytes) -> list[bytes]:
        number = pb.ClientAck.FromString(body).batch_id
        if next(iter(self._batches), None) != number:
            return [ack(400, f"exception=ack error , clientId:1001 batchId:{number} is not exist , please check\n\tat")]
        count = self._batches.pop(number)
        del self.feed[:count]
        self._taken -= count
        self.acked.append(number)
        return []

    def _rollback(self, body: bytes) -> list[bytes]:
        assert pb.ClientRollback.FromString(body).batch_id == 0
        self._batches.clear()
        self._taken = 0
        return []


_HANDLERS: dict[int, Callable[[CanalDouble, bytes], list[bytes]]] = {
    pb.CLIENTAUTHENTICATION: CanalDouble._login,
    pb.SUBSCRIPTION: CanalDouble._subscribe,
    pb.UNSUBSCRIPTION: CanalDouble._unsubscribe,
    pb.GET: CanalDouble._get,
    pb.CLIENTACK: CanalDouble._client_ack,
    pb.CLIENTROLLBACK: CanalDouble._rollback,
}


def _exactly(sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = sock.recv(size - len(got))
        if not part:
            raise EOFError
        got += part
    return got


def cut(keep: int) -> Fault:
    """The connection dies after `keep` bytes of the answer."""

    def fault(sock: socket.socket, frame: bytes) -> bool:
        sock.sendall(frame[:keep])
        return False

    return fault


def instead(answer: bytes) -> Fault:
    """Another answer; the connection goes on."""

    def fault(sock: socket.socket, frame: bytes) -> bool:
        sock.sendall(answer)
        return True

    return fault


def before(extra: bytes) -> Fault:
    """Something comes before the answer."""

    def fault(sock: socket.socket, frame: bytes) -> bool:
        sock.sendall(extra + frame)
        return True

    return fault


def late(seconds: float) -> Fault:
    """The answer takes its time."""

    def fault(sock: socket.socket, frame: bytes) -> bool:
        time.sleep(seconds)
        sock.sendall(frame)
        return True

    return fault


def twice(sock: socket.socket, frame: bytes) -> bool:
    """The answer comes twice: everything after it is one answer late."""
    sock.sendall(frame + frame)
    return True


def silence(sock: socket.socket, frame: bytes) -> bool:
    """No answer; the connection stays."""
    return True


def trickle(sock: socket.socket, frame: bytes) -> bool:
    """Byte by byte."""
    for i in range(len(frame)):
        sock.sendall(frame[i : i + 1])
        time.sleep(0.0005)
    return True
