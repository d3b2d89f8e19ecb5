"""Unity Catalog for tests: the open server itself, and a stand-in that answers as it does (both take the same tests).

Maven has no package of the open server. To run it, build it (`build/sbt package` in its repository, 0.6.0), put its jar
and those of `server/target/classpath` into a folder, and name that in CDC_TEST_UNITY.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

import requests

from cdc_platform.setup.java import find_java
from cdc_platform.setup.ports import free_port

API = "/api/2.1/unity-catalog"
PAGE = 2
"""Tables that the stand-in lists at once."""


@dataclass
class Unity:
    """A running server. token: the administrator's."""

    uri: str
    token: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What a client of its own is answered."""
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = requests.request(method, self.uri + API + path, json=body, headers=headers, timeout=30)
        assert answer.ok, answer.text
        return answer.json() if method != "DELETE" else {}

    def tables(self, catalog: str, schema: str) -> dict[str, dict[str, Any]]:
        """Name → table, whole."""
        names, page = [], ""
        while True:
            told = self.ask("GET", f"/tables?catalog_name={catalog}&schema_name={schema}{page}")
            names += [t["name"] for t in told["tables"]]
            if not (token := told.get("next_page_token")):
                break
            page = f"&page_token={token}"
        return {n: self.ask("GET", f"/tables/{catalog}.{schema}.{n}") for n in names}


@contextmanager
def open_server(jars: Path, folder: Path) -> Iterator[Unity]:
    """The open server, with tokens asked for. folder: an empty one."""
    conf = folder / "etc" / "conf"
    conf.mkdir(parents=True)
    (conf / "server.properties").write_text(
        "server.env=test\nserver.authorization=enable\nserver.allowed-issuers=internal\nserver.audiences=none\n"
    )
    (conf / "server.log4j2.properties").write_text(
        "appender.console.type=Console\nappender.console.name=C\nappender.console.layout.type=PatternLayout\n"
        "rootLogger.level=warn\nrootLogger.appenderRef.console.ref=C\n"
    )
    classpath = os.pathsep.join(str(f) for f in sorted(jars.glob("*.jar")))
    port, log, source = free_port(), folder / "server.log", Path(__file__).with_name("UnityServer.java")
    command = [str(find_java().binary), "-Xmx512m", "-cp", classpath, str(source), str(port)]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 120
        while b"ready\n" not in log.read_bytes():
            assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-3000:]
            time.sleep(0.2)
        yield Unity(f"http://127.0.0.1:{port}", (conf / "token.txt").read_text())
    finally:
        process.terminate()
        process.wait(30)


@dataclass
class StandIn:
    """What the stand-in holds, and how it behaves. asked: requests so far."""

    catalogs: set[str] = field(default_factory=set)
    schemas: set[str] = field(default_factory=set)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    delta_api: bool = True
    broken: tuple[int, str] | None = None


@contextmanager
def stand_in(state: StandIn) -> Iterator[Unity]:
    """A server of the parts of the API that the platform uses."""
    token = "stand-in-" + uuid4().hex

    class Handler(_Handler):
        held, expected = state, f"Bearer {token}"

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Unity(f"http://127.0.0.1:{server.server_address[1]}", token)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str):
        self.status, self.body = status, {"error_code": code, "message": message}


class _Handler(BaseHTTPRequestHandler):
    held: StandIn
    expected: str

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        path = unquote(urlsplit(self.path).path).removeprefix(API)
        self.held.asked.append(f"{self.command} {path}")
        try:
            if self.held.broken:
                return self._send(self.held.broken[0], self.held.broken[1].encode())
            if self.headers.get("Authorization") != self.expected:
                raise _Refused(401, "UNAUTHENTICATED", "Invalid access token.")
            told = self._do(path, {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}, body)
        except _Refused as error:
            return self._send(error.status, json.dumps(error.body).encode())
        return self._send(200, b"200 OK" if self.command == "DELETE" else json.dumps(told).encode())

    do_GET = do_POST = do_DELETE = _answer

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _do(self, path: str, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        if (self.command, path) == ("GET", "/tables"):
            return self._page(f"{query['catalog_name']}.{query['schema_name']}", int(query.get("page_token", 0)))
        if self.command == "POST" and path in ("/catalogs", "/schemas", "/tables"):
            return self._make(path, body)
        if (found := re.fullmatch(r"/(catalogs|schemas|tables)/([^/]+)", path)) is not None:
            return self._one(found[1], found[2])
        found = re.fullmatch("/delta/v1/catalogs/([^/]+)/schemas/([^/]+)/tables/([^/]+)", path)
        if found is None or not self.held.delta_api:
            raise _Refused(404, "", "")  # as servers do that lack a part of the API
        return self._update(self.held.tables[".".join(found.groups())], body)

    def _one(self, kind: str, name: str) -> dict[str, Any]:
        there: Any = getattr(self.held, kind)
        if name not in there:
            raise _Refused(404, f"{kind[:-1].upper()}_NOT_FOUND", f"{kind[:-1]} not found")
        found = there[name] if kind == "tables" else {}
        if self.command == "DELETE":
            del there[name]
        return found

    def _update(self, table: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        assert body["requirements"] == [{"type": "assert-table-uuid", "uuid": table["table_id"]}]
        (update,) = body["updates"]
        assert update["action"] == "set-columns"
        table["columns"] = [
            {"name": f["name"], "position": i, "type_json": json.dumps(f), "comment": f["metadata"].get("comment")}
            for i, f in enumerate(update["columns"]["fields"])
        ]
        return {"metadata": {}}

    def _page(self, schema: str, start: int) -> dict[str, Any]:
        if schema.split(".", maxsplit=1)[0] not in self.held.catalogs:
            raise _Refused(404, "CATALOG_NOT_FOUND", "Catalog not found: " + schema.split(".", maxsplit=1)[0])
        if schema not in self.held.schemas:
            raise _Refused(404, "SCHEMA_NOT_FOUND", "Schema not found: " + schema)
        found = sorted(n for n in self.held.tables if n.rpartition(".")[0] == schema)
        more = str(start + PAGE) if len(found) > start + PAGE else None
        return {"tables": [self.held.tables[n] for n in found[start : start + PAGE]], "next_page_token": more}

    def _make(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        full = ".".join(body[k] for k in ("catalog_name", "schema_name", "name") if k in body)
        if path == "/tables":
            if full in self.held.tables:
                raise _Refused(400, "TABLE_ALREADY_EXISTS", "Table already exists: " + full)
            self.held.tables[full] = {**body, "table_id": str(uuid4())}
        else:
            getattr(self.held, path[1:]).add(full)
        return body
