"""Servers that catch what is sent."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as Messages
from aiosmtpd.smtp import AuthResult, LoginPassword

from cdc_platform.setup.ports import free_port
from tests.automation.conftest import _impatient, dagster_home, instance, stages  # noqa: F401


@dataclass
class Caught:
    """What came by HTTP: (path, headers, body). answer: status and body of the next answers."""

    url: str = ""
    came: list[tuple[str, Any, Any]] = field(default_factory=list)
    answer: tuple[int, dict[str, Any]] = (200, {"ok": True})

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.came]


@pytest.fixture
def web() -> Iterator[Caught]:
    """An HTTP server on the loopback."""
    caught = Caught()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            caught.came.append((self.path, self.headers, json.loads(body) if body[:1] == b"{" else body.decode()))
            status, answer = caught.answer
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.send_header("Location", caught.url + "/elsewhere")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    caught.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield caught
    server.shutdown()
    server.server_close()


class _Kept(Messages):
    def __init__(self) -> None:
        super().__init__()
        self.mails: list[Message] = []
        self.refused = ""

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address == self.refused:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    def handle_message(self, message: Message) -> None:
        self.mails.append(message)


@dataclass
class Mailbox:
    port: int
    kept: _Kept

    @property
    def mails(self) -> list[Message]:
        return self.kept.mails


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost, signed by itself, with its key in the same file."""
    file = tmp_path_factory.mktemp("certificate") / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", f"{file}.key", "-out", f"{file}"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return file


@pytest.fixture
def mail_server(certificate: Path) -> Iterator[Callable[..., Mailbox]]:
    """`mail_server(tls=True)`: an SMTP server on the loopback; with TLS it wants STARTTLS and the login cdc/right."""
    running: list[Controller] = []

    def start(tls: bool = False) -> Mailbox:
        import ssl

        kept, more = _Kept(), {}
        if tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate, f"{certificate}.key")

            def login(server: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
                right = isinstance(given, LoginPassword) and given == LoginPassword(b"cdc", b"right")
                return AuthResult(success=right, handled=False)

            more = {"tls_context": context, "require_starttls": True, "authenticator": login, "auth_required": True}
        controller = Controller(kept, hostname="127.0.0.1", port=free_port(), **more)
        controller.start()
        running.append(controller)
        return Mailbox(controller.port, kept)

    yield start
    for controller in running:
        controller.stop()
