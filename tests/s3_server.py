"""An S3 server for tests in a process of its own (delta-rs keeps the interpreter's lock while it waits for one): moto,
with faults that a test asks for, and a list of the requests.

`with running() as server:` starts one on a free port of the loopback.
"""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import requests

from cdc_platform.setup.ports import free_port

_CONTROL = "/_test"
KEY, SECRET, BUCKET = "test-key", "test-secret-canary", "lake"

Do = Literal["503", "503_after", "drop", "drop_after", "delay", "stale", "unconditional", "409", "twice"]
"""What becomes of a request: refused and not done (503, 409); done and then answered by 503, or by nothing (drop_after:
the connection ends); not done and answered by nothing (drop); late by `seconds`; answered as the same request was
before (stale: a listing that is late); done without its condition; done twice."""


@dataclass
class Server:
    """A running server."""

    endpoint: str

    def fault(
        self, do: Do, *, method: str = "", path: str = "", skip: int = 0, times: int = 1, seconds: float = 0
    ) -> None:
        """From now on some of the requests of a method, whose path and query match a pattern: after the next `skip` of
        them so many."""
        rule = {"do": do, "method": method, "path": path, "skip": skip, "times": times, "seconds": seconds}
        requests.post(f"{self.endpoint}{_CONTROL}", json=rule, timeout=10).raise_for_status()

    def reset(self) -> list[str]:
        """No faults any more. Returns the requests since the last time: method, path and query."""
        return requests.delete(f"{self.endpoint}{_CONTROL}", timeout=10).json()

    def make_bucket(self, name: str) -> None:
        """An empty bucket."""
        requests.put(f"{self.endpoint}/{name}", timeout=10).raise_for_status()

    def keys(self, bucket: str, prefix: str) -> set[str]:
        """Names of all objects there, by another client than the platform's."""
        text = requests.get(f"{self.endpoint}/{bucket}?list-type=2&prefix={prefix}", timeout=10).text
        return set(re.findall("<Key>([^<]*)</Key>", text))

    def uploads(self, bucket: str) -> list[str]:
        """Names of unfinished uploads in parts."""
        text = requests.get(f"{self.endpoint}/{bucket}?uploads", timeout=10).text
        return re.findall("<Key>([^<]*)</Key>", text)


@contextmanager
def running() -> Iterator[Server]:
    """A server of one's own with the bucket `lake`."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.s3_server", str(port)])
    server = Server(f"http://127.0.0.1:{port}")
    try:
        _wait(process, server)
        server.make_bucket(BUCKET)
        yield server
    finally:
        process.terminate()
        process.wait(10)


def _wait(process: "subprocess.Popen[bytes]", server: Server) -> None:
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        try:
            server.reset()
            return
        except requests.ConnectionError:
            time.sleep(0.1)
    raise RuntimeError("the S3 server didn't start")


# -- in the server's process ---------------------------------------------------------------------------------------

Response = tuple[str, list[tuple[str, str]], bytes]


@dataclass
class Faults:
    """A WSGI application before another one."""

    app: Callable[..., Iterable[bytes]]
    rules: list[dict[str, Any]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    answers: dict[str, Response] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    conditional: threading.Lock = field(default_factory=threading.Lock)
    """moto looks whether an object is there and then makes it: under load two requests at once both made it."""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """As WSGI has it."""
        if environ["PATH_INFO"] == _CONTROL:
            return self._control(environ, start)
        query = environ.get("QUERY_STRING")
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}" + (f"?{query}" if query else "")
        with self.lock:
            self.log.append(request)
            do, seconds = self._taken(request)
        time.sleep(seconds)
        if do in ("503", "409"):
            return _refused(start, do)
        if do == "drop":
            return _dropped(environ)
        if do == "unconditional":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if do == "twice":
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            self._asked({**environ, "wsgi.input": _Body(body)})
            environ["wsgi.input"] = _Body(body)
        earlier = self.answers.get(request)
        status, headers, body = earlier if do == "stale" and earlier else self._asked(environ)
        if request.startswith("GET") and "list-type" in request and do != "stale":
            self.answers[request] = (status, headers, body)
        if do == "503_after":
            return _refused(start, "503")
        if do == "drop_after":
            return _dropped(environ)
        start(status, headers)
        return [body]

    def _taken(self, request: str) -> tuple[str, float]:
        for rule in self.rules:
            if rule["times"] <= 0 or not request.startswith(rule["method"]) or not re.search(rule["path"], request):
                continue
            if rule["skip"] > 0:
                rule["skip"] -= 1
                continue
            rule["times"] -= 1
            return rule["do"], rule["seconds"]
        return "", 0

    def _asked(self, environ: dict[str, Any]) -> Response:
        told: list[Any] = []
        with self.conditional if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
            body = b"".join(self.app(environ, lambda status, headers, _why=None: told.extend((status, headers))))
        return told[0], told[1], body

    def _control(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self.lock:
            answer, log = b"{}", self.log
            if environ["REQUEST_METHOD"] == "POST":
                self.rules.append(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
            else:
                self.rules, self.log, self.answers = [], [], {}
                answer = json.dumps(log).encode()
        start("200 OK", [("Content-Length", str(len(answer))), ("Content-Type", "application/json")])
        return [answer]


class _Body:
    """A request's body that was read already."""

    def __init__(self, data: bytes):
        self._data = data

    def read(self, size: int = -1) -> bytes:
        """As a file."""
        size = len(self._data) if size is None or size < 0 else size
        found, self._data = self._data[:size], self._data[size:]
        return found

    def readline(self, _size: int = -1) -> bytes:
        """As a file."""
        line, end, self._data = self._data.partition(b"\n")
        return line + end


def _refused(start: Callable[..., Any], status: str) -> Iterable[bytes]:
    body = b"<Error><Code>" + (b"SlowDown" if status == "503" else b"ConditionalRequestConflict") + b"</Code></Error>"
    start(f"{status} Refused", [("Content-Length", str(len(body))), ("Content-Type", "application/xml")])
    return [body]


def _dropped(environ: dict[str, Any]) -> Iterable[bytes]:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


def main() -> None:
    """Serves until it is ended."""
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    app = Faults(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    main()
