"""What `status` tells of a bridge: from the file that it writes, and whether its process lives."""

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.bridge import state
from cdc_platform.bridge.errors import CanalLoginRefused
from cdc_platform.bridge.run import run, unsubscribe
from cdc_platform.bridge.state import State, look
from cdc_platform.cli import status
from cdc_platform.config import Config
from cdc_platform.formats.pb import canal_entry_pb2 as entry_pb
from cdc_platform.kafka.broker import BrokerInfo
from tests.bridge.conftest import Setup
from tests.bridge.double import CanalDouble
from tests.bridge.test_run import carry, wait_for

NOWHERE = "127.0.0.1:1"


def entry(position: int, file: str = "mysql-bin.000007", ms: int = 1_700_000_000_000) -> bytes:
    """An entry at a place of the binlog."""
    header = entry_pb.Header(logfileName=file, logfileOffset=position, executeTime=ms, gtid="u:1-5")
    return entry_pb.Entry(header=header, entryType=entry_pb.ROWDATA).SerializeToString()


HEARTBEAT = entry_pb.Entry(
    header=entry_pb.Header(eventType=entry_pb.MHEARTBEAT), entryType=entry_pb.HEARTBEAT
).SerializeToString()


def seen(config: Config) -> State:
    return look(config, config.bridges[0])


def file(config: Config) -> Path:
    return config.state_dir / "bridges" / "shop.json"


def test_one_that_never_ran_leaves_nothing_behind_when_looked_at(setup: Setup):
    config = setup(NOWHERE)
    assert seen(config) == State(state="never run")
    assert not config.state_dir.exists()


@pytest.mark.broker
def test_position_and_time_are_the_last_acked_batch_s(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    canal.feed = [b"no entry", entry(4), entry(300), HEARTBEAT, HEARTBEAT]
    config = setup(broker.bootstrap_servers)
    carry(config)
    found = seen(config)
    assert (found.state, found.reason, found.failures) == ("stopped", None, 0)
    assert (found.batch, found.entries) == (3, 5)  # the third batch has a heartbeat only: the second's place stays
    assert (found.position, found.gtid) == ("mysql-bin.000007:300", "u:1-5")
    assert found.source_time == "2023-11-14T22:13:20+00:00"
    assert found.acked_at and found.caught_up_at and found.since
    assert found.acked_at <= found.caught_up_at <= found.since


@pytest.mark.broker
def test_the_next_run_knows_where_the_last_one_was(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    canal.feed = [entry(300)]
    config = setup(broker.bootstrap_servers)
    carry(config)
    first = seen(config)
    carry(config)
    assert seen(config).position == first.position and seen(config).acked_at == first.acked_at
    assert seen(config).entries == 0
    unsubscribe(config, config.bridges[0])
    assert seen(config) == State(state="never run")


@pytest.mark.broker
def test_running_failing_and_running_again_are_told_while_it_lives(
    broker: BrokerInfo, canal: CanalDouble, setup: Setup
):
    config, stop = setup(broker.bootstrap_servers), threading.Event()
    thread = threading.Thread(target=run, args=(config, config.bridges[0], stop.is_set, lambda _: None))
    thread.start()
    try:
        wait_for(lambda: seen(config).state == "running")
        assert seen(config).server == canal.address
        canal.stop()
        wait_for(lambda: seen(config).failures >= 2)
        failing = seen(config)
        assert failing.state == "failing" and "can't be reached" in (failing.reason or "")
        wait_for(lambda: seen(config).failures > failing.failures)
        assert seen(config).since == failing.since  # since the first failure
        canal.start()
        wait_for(lambda: seen(config).state == "running")
        assert seen(config).reason is None and seen(config).since > failing.since
    finally:
        stop.set()
        thread.join(10)
    assert seen(config).state == "stopped"


@pytest.mark.broker
def test_an_error_that_no_retry_mends_stays_to_be_seen(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    config = setup(broker.bootstrap_servers)
    canal.password = "changed"
    with pytest.raises(CanalLoginRefused):
        carry(config)
    assert seen(config).state == "ended" and "refused the login" in (seen(config).reason or "")
    assert "a secret" not in file(config).read_text()


def test_a_killed_one_has_died(setup: Setup, tmp_path: Path):
    config = setup(NOWHERE)
    bridge = {"name": "shop", "servers": ["h"], "destination": "d", "topic": "t"}
    raw: dict[str, Any] = {"lake": "l", "sources": [{"name": "s", "format": "debezium", "topics": ["s"]}]}
    code = (
        "import json, sys, time\nfrom pathlib import Path\n"
        "from cdc_platform.bridge import state\nfrom cdc_platform.config import parse_config\n"
        "config = parse_config(json.loads(sys.argv[1]), Path(sys.argv[2]))\n"
        "with state.one_process(config, config.bridges[0]):\n"
        "    state.Journal(config, config.bridges[0]).enter('running')\n    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    arguments = [json.dumps({**raw, "bridges": [bridge]}), str(config.file)]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
    try:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        assert seen(config).state == "running"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    found = seen(config)
    assert (found.state, found.reason) == ("died", "its process is gone; last it was running")
    assert found.since and abs(datetime.fromisoformat(found.since).timestamp() - time.time()) < 60


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"state": "stopped", "from": "the future"}'])
def test_a_broken_file_breaks_nothing(setup: Setup, broken: bytes):
    config = setup(NOWHERE)
    file(config).parent.mkdir(parents=True)
    file(config).write_bytes(broken)
    assert seen(config).state == ("stopped" if b"stopped" in broken else "never run")
    state.Journal(config, config.bridges[0])
    assert json.loads(file(config).read_text())["state"] == "starting"


def test_a_full_disk_does_not_stop_the_bridge(setup: Setup):
    config = setup(NOWHERE)
    config.state_dir.mkdir()
    (config.state_dir / "bridges").write_text("in the way")
    state.Journal(config, config.bridges[0]).enter("running")


def test_status_shows_bridges_and_which_need_attention(setup: Setup, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cdc_platform.automation.observe.KAFKA_TIMEOUT_S", 0.3)
    config = setup(NOWHERE)
    assert status.look(config)["bridges"][0]["state"] == "never run"
    with state.one_process(config, config.bridges[0]):
        journal = state.Journal(config, config.bridges[0])
        for name, told in (("running", None), ("failing", "is failing: no answer"), ("stopped", None)):
            journal.enter(name, "no answer" if told else None)
            data = status.look(config)
            assert data["bridges"][0]["state"] == name
            assert [p for p in data["problems"] if "bridge" in p] == ([f"bridge shop {told}"] if told else [])
        journal.enter("ended", "wrong password")
    data = status.look(config)
    assert "bridge shop has ended: wrong password" in data["problems"]
    assert data["bridges"][0] == {
        **{"bridge": "shop", "destination": "shop", "topic": config.bridges[0].topic},
        **asdict(seen(config)),
    }
