"""The bridge against canal's own Java server, which reads a MariaDB. Alone, and only when asked for:
`pytest -m canal_server tests/bridge`."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cdc_platform.bridge import frames
from cdc_platform.bridge.errors import CanalLoginRefused, CanalRefused
from cdc_platform.bridge.run import Totals, run
from cdc_platform.bridge.session import open_session
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.feeds.shop import Column
from cdc_platform.formats.pb import canal_protocol_pb2 as pb
from cdc_platform.kafka.broker import BrokerInfo
from cdc_platform.setup.ports import free_port
from cdc_platform.snapshots.target import Target
from cdc_platform.tables import QUARANTINE
from tests.bridge.canal_server import PASSWORD, USERNAME, CanalServer, Database, Missing, database
from tests.bridge.conftest import SOURCES
from tests.bridge.test_run import entries, first_seen, wait_for
from tests.e2e.e2e_shop import run_stages
from tests.oracle.catalog import Text
from tests.oracle.dml import DML
from tests.oracle.lake import compared
from tests.oracle.server import Server
from tests.oracle.tables import TABLES
from tests.oracle.workload import Workload

pytestmark = [pytest.mark.canal_server, pytest.mark.broker]
DESTINATION = "shop"
CHANGES = 300


def as_sent(_column: Column, text: Text) -> Text:
    """All cells come whole."""
    return text


@pytest.fixture(scope="module")
def asked_for(request: pytest.FixtureRequest) -> None:
    expression = request.config.getoption("-m") or ""
    if not re.search(r"(?<!not )\bcanal_server\b", expression):
        pytest.skip("starts canal's Java server and a MariaDB; runs when asked for: pytest -m canal_server")


@pytest.fixture(scope="module")
def shop(asked_for: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, CanalServer]]:
    """A database with one table, and canal reading it."""
    folder = tmp_path_factory.mktemp("canal")
    try:
        with database(folder, free_port()) as db:
            db.run("CREATE DATABASE shop; CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(60))")
            server = CanalServer(folder, free_port(), db.port, DESTINATION)
            try:
                server.start()
                yield db, server
            finally:
                server.kill()
    except Missing as error:
        pytest.fail(str(error))


def _config(make_config, bootstrap: str, server: CanalServer, topic: str, sources=SOURCES, **changes):
    bridge = {"name": "shop", "servers": [f"127.0.0.1:{server.port}"], "destination": DESTINATION, "topic": topic}
    bridge |= {"username": USERNAME, "password": "${CANAL_PASSWORD}", "max_backoff_s": 1, **changes}
    return make_config(sources, kafka={"bootstrap.servers": bootstrap}, bridges=[bridge])


def _notes(found: list[bytes]) -> list[str]:
    return [note.decode() for entry in first_seen(found) for note in re.findall(rb"note-\d{4}", entry)]


@contextmanager
def _carrying(config, said: list[str], ended: list[Totals]) -> Iterator[None]:
    """The bridge runs within."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: ended.append(run(config, config.bridges[0], stop.is_set, said.append)))
    thread.start()
    try:
        wait_for(lambda: bool(said), 30)
        yield
    finally:
        stop.set()
        thread.join(30)


@pytest.mark.thorough
def test_rows_arrive_in_order_across_a_killed_server(shop, broker: BrokerInfo, make_config, monkeypatch):
    db, server = shop
    monkeypatch.setenv("CANAL_PASSWORD", PASSWORD)
    config = _config(make_config, broker.bootstrap_servers, server, "canal-real", batch_size=2)
    said, ended = [], []
    with _carrying(config, said, ended):
        for i in range(100):
            db.run(f"INSERT INTO shop.orders VALUES ({i}, 'note-{i:04}')")
        server.kill()
        for i in range(100, 150):
            db.run(f"INSERT INTO shop.orders VALUES ({i}, 'note-{i:04}')")
        server.start()
        wait_for(lambda: "note-0149" in _notes(entries(broker.bootstrap_servers, "canal-real")), 60)
    arrived = list(dict.fromkeys(_notes(entries(broker.bootstrap_servers, "canal-real"))))
    assert arrived == [f"note-{i:04}" for i in range(150)]
    totals: Totals = ended[0]
    assert totals.failures >= 1 and totals.batches > 10


def test_rollback_filter_login_and_destination_as_the_real_server_has_them(
    shop, broker: BrokerInfo, make_config, monkeypatch
):
    db, server = shop
    monkeypatch.setenv("CANAL_PASSWORD", PASSWORD)

    def bridge(**changes):
        return _config(make_config, broker.bootstrap_servers, server, "unused", client_id=1002, **changes).bridges[0]

    with open_session(bridge(wait_ms=3000)) as session:
        db.run("INSERT INTO shop.orders VALUES (1000, 'note-1000')")
        first = session.get()
        session.rollback()
        again = session.get()
        assert list(first.entries) == list(again.entries) != []
        assert first.packet.startswith(b"\x18\x07\x2a")  # the raw form: no version
    with open_session(bridge(wait_ms=3000)) as session:  # not acked: it comes again
        assert next(iter(session.get().entries)) == first.entries[0]
        session.ack()
        session.unsubscribe()
    monkeypatch.setenv("CANAL_PASSWORD", "wrong")
    with pytest.raises(CanalLoginRefused, match="auth failed for user:canal"), open_session(bridge()):
        pass
    monkeypatch.setenv("CANAL_PASSWORD", PASSWORD)
    refused = pytest.raises(CanalRefused, match="refused the subscription to 'nope'")
    with refused, open_session(bridge(destination="nope")):
        pass


def test_the_server_can_not_be_asked_for_a_place(shop, broker: BrokerInfo, make_config, monkeypatch):
    """Why `begin` leaves out what comes: docs/bridges.md."""
    db, server = shop
    monkeypatch.setenv("CANAL_PASSWORD", PASSWORD)
    config = _config(make_config, broker.bootstrap_servers, server, "unused", client_id=1003, wait_ms=3000)
    bridge = config.bridges[0]
    with open_session(bridge) as session:
        db.run("INSERT INTO shop.orders VALUES (2000, 'note-2000')")
        first = session.get()
    login = frames.login

    def with_time(bridge, seed):
        auth = pb.ClientAuth.FromString(pb.Packet.FromString(login(bridge, seed)[frames.HEADER.size :]).body)
        auth.start_timestamp = 32_503_680_000_000  # the year 3000: nothing would come
        return frames.frame(pb.CLIENTAUTHENTICATION, auth)

    monkeypatch.setattr(frames, "login", with_time)
    with open_session(bridge) as session:
        assert next(iter(session.get().entries)) == first.entries[0]
    monkeypatch.setattr(frames, "login", login)
    place = b"\x0a\x10mysql-bin.000001\x10\x04"  # canal's Dump: 1 journal, 2 position
    dump = pb.Packet(type=pb.DUMP, version=1, body=place).SerializeToString()
    dump = frames.HEADER.pack(len(dump)) + dump
    with open_session(bridge) as session:
        monkeypatch.setattr(frames, "get", lambda _: dump)
        with pytest.raises(CanalRefused, match="packet type=DUMP is NOT supported"):
            session.get()
        session.unsubscribe()


def test_a_topic_begins_at_a_place_of_the_real_binlog(shop, broker: BrokerInfo, make_config, monkeypatch):
    db, server = shop
    monkeypatch.setenv("CANAL_PASSWORD", PASSWORD)
    topic = "canal-begin"
    config = _config(make_config, broker.bootstrap_servers, server, topic, client_id=1004)
    with open_session(config.bridges[0]) as session:  # from here on the server keeps a place for the client
        db.run("INSERT INTO shop.orders VALUES (3000, 'note-3000')")
        session.rollback()
    file, position = db.ask("SHOW MASTER STATUS").split()[:2]
    db.run("INSERT INTO shop.orders VALUES (3001, 'note-3001')")
    begin = {"file": file, "position": int(position)}
    config = _config(make_config, broker.bootstrap_servers, server, topic, client_id=1004, begin=begin)
    said, ended = [], []
    with _carrying(config, said, ended):
        wait_for(lambda: "note-3001" in _notes(entries(broker.bootstrap_servers, topic)), 60)
    assert set(_notes(entries(broker.bootstrap_servers, topic))) == {"note-3001"}
    assert ended[0].left_out > 0


@pytest.mark.spark
def test_a_random_workload_s_snapshots_are_the_database_s_own_rows(
    shop, broker: BrokerInfo, spark, make_config, monkeypatch
):
    """canal's own bytes, not our encoder's, from binlog to snapshot."""
    db, server = shop
    monkeypatch.setenv("CANAL_PASSWORD", PASSWORD)
    monkeypatch.delitem(TABLES, "odd `keys`")  # canal stops at a table's name with a backtick
    # canal reads all text as UTF-8
    monkeypatch.setitem(TABLES, "texts", re.sub(r" CHARACTER SET (latin1|gbk)", "", TABLES["texts"]))
    topic, said, ended = "canal-stages", [], []
    sources = [{"name": "real", "format": "canal", "topics": [topic], "tables": {"include": ["oracle.*"]}}]
    config = _config(make_config, broker.bootstrap_servers, server, topic, sources, batch_size=4)
    with _carrying(config, said, ended):
        workload = Workload(Server(str(db.socket), db.port), 20261121, frozenset(DML))
        workload.run(CHANGES // 2, 0)
        db.run("INSERT INTO shop.orders VALUES (8888, 'note-8888')")
        wait_for(lambda: "note-8888" in _notes(entries(broker.bootstrap_servers, topic)), 60)
        # canal writes positions down every 100 ms (meta.dat); killed before the first time, it would go on at the end
        # of the binlog.
        wait_for(lambda: '"position"' in server.positions())
        server.kill()
        told = workload.run(CHANGES, 0)
        server.start()
        db.run("INSERT INTO shop.orders VALUES (9999, 'note-9999')")
        wait_for(lambda: "note-9999" in _notes(entries(broker.bootstrap_servers, topic)), 120)
    run_stages(spark, config)
    found = []
    for name, (table, rows) in told.checkpoints[-1].tables.items():
        snapshot = read_snapshot(Target.of(config, "real", table.db, name).snapshot.uri())
        found += [f"{name}: {problem}" for problem in compared(table, rows, snapshot, as_sent, True)]
    assert found == []
    assert ended[0].failures >= 1
    quarantined = read_snapshot(QUARANTINE.at(config.lake)).column("reason").to_pylist()
    assert Counter(quarantined) == {}
