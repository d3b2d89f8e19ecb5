"""A topic that begins at a time or at a binlog position."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.bridge.begin import BinlogPosition, LeftOut, Start
from cdc_platform.bridge.errors import CanalBeginsElsewhere
from cdc_platform.config.bridges import Bridge
from cdc_platform.formats.pb import canal_entry_pb2 as entry_pb
from cdc_platform.formats.pb import canal_protocol_pb2 as pb
from cdc_platform.kafka.broker import BrokerInfo
from tests.bridge.conftest import Setup
from tests.bridge.double import CanalDouble, cut
from tests.bridge.test_run import carry, entries
from tests.bridge.test_state import HEARTBEAT, seen
from tests.bridge.test_state import entry as plain

TIME = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
MS = 1_700_000_000_000
FILE = "mysql-bin.000007"


def entry(position: int, s: float = 0, kind: int = entry_pb.ROWDATA, file: str = FILE) -> bytes:
    """An entry at a place, of a time in seconds after TIME."""
    found = entry_pb.Entry.FromString(plain(position, file, MS + int(s * 1000)))
    found.entryType = kind  # pyright: ignore[reportAttributeAccessIssue]
    return found.SerializeToString()


LOG = [entry(4, -2), entry(200, -1), HEARTBEAT, entry(300), entry(400, 1), entry(4, 2, file="mysql-bin.000008")]
AT = {"file": FILE, "position": 300}


@pytest.mark.broker
@pytest.mark.parametrize(
    "begin",
    [{"file": FILE, "position": 250}, {"time": TIME.isoformat()}, pytest.param(AT, marks=pytest.mark.thorough)],
)
def test_the_topic_begins_at_the_place(begin: dict[str, Any], broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    canal.feed = list(LOG)
    config = setup(broker.bootstrap_servers, begin=begin)
    totals = carry(config)
    assert entries(broker.bootstrap_servers, config.bridges[0].topic) == LOG[3:]
    assert (totals.entries, totals.left_out) == (3, 3)
    assert (seen(config).left_out, seen(config).begun_at) == (3, MS)
    canal.feed = [entry(500, 3, file="mysql-bin.000008"), entry(4, 4, file="mysql-bin.000001")]  # RESET MASTER
    more = list(canal.feed)
    carry(config)
    assert entries(broker.bootstrap_servers, config.bridges[0].topic) == LOG[3:] + more


@pytest.mark.broker
def test_what_is_sent_again_after_a_crash_is_left_out_again(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    canal.feed, canal.per_batch = list(LOG), 5
    canal.lost = [pb.CLIENTACK]  # Kafka has the batch, the server doesn't know
    config = setup(broker.bootstrap_servers, begin=AT)
    carry(config)
    found = entries(broker.bootstrap_servers, config.bridges[0].topic)
    assert found == [*LOG[3:5], *LOG[3:]]


@pytest.mark.broker
def test_a_run_that_ended_before_the_place_goes_on(broker: BrokerInfo, canal: CanalDouble, setup: Setup):
    canal.feed = LOG[:2]
    config = setup(broker.bootstrap_servers, begin={"file": FILE, "position": 250})
    assert carry(config).left_out == 2
    canal.feed, canal.plan = LOG[3:], [(pb.GET, cut(2))]
    carry(config)
    assert entries(broker.bootstrap_servers, config.bridges[0].topic) == LOG[3:]


@pytest.mark.broker
@pytest.mark.parametrize(
    ("begin", "words"),
    [
        ({"file": FILE, "position": 250}, "is at mysql-bin.000007:300, later than `begin`"),
        ({"time": (TIME - timedelta(days=1)).isoformat()}, "canal.instance.master.journal.name"),
        ({"file": "binlog.000007", "position": 4}, "of `begin` isn't known"),
    ],
)
def test_a_server_that_begins_later_is_refused(
    begin: dict[str, Any], words: str, broker: BrokerInfo, canal: CanalDouble, setup: Setup
):
    canal.feed = LOG[3:]
    config = setup(broker.bootstrap_servers, begin=begin)
    with pytest.raises(CanalBeginsElsewhere, match=words):
        carry(config)
    assert canal.feed == LOG[3:] and entries(broker.bootstrap_servers, config.bridges[0].topic) == []
    assert seen(config).state == "ended"


def _start(begin: dict[str, Any], **known: Any) -> Start:
    bridge = Bridge.model_validate({"name": "b", "servers": ["h"], "destination": "d", "topic": "t", "begin": begin})
    return Start(bridge, "h:1", empty=known.pop("empty", True), known=LeftOut(**known))


def test_a_transaction_that_was_open_at_the_time_is_left_out_as_a_whole() -> None:
    begin, end = entry_pb.TRANSACTIONBEGIN, entry_pb.TRANSACTIONEND
    log = [entry(4, -1, begin), entry(100, -1), entry(200, 1), entry(300, 1, end), entry(400, 2, begin), entry(500, 2)]
    start = _start({"time": TIME.isoformat()})
    assert [start.before(log[:2]), start.before(log[2:3]), start.before(log[3:])] == [2, 1, 1]
    assert start.left_out == LeftOut(True, BinlogPosition(FILE, 4), MS + 2000, BinlogPosition(FILE, 400))


BEGUN = {"any": True, "first": BinlogPosition(FILE, 100), "begun_at": MS, "begun": BinlogPosition(FILE, 300)}


@pytest.mark.parametrize("begin", [AT, {"time": TIME.isoformat()}], ids=["place", "time"])
def test_only_what_can_have_been_left_out_before_is_left_out_of_a_topic_with_records(begin: dict[str, Any]) -> None:
    """RESET MASTER after the topic began: positions below the place, times after it. A session that sets its clock:
    times before it, positions behind the place."""
    again = [entry(100, -2), entry(200, -1)]
    assert _start(begin, empty=False, **BEGUN).before(again) == 2
    others = (
        *(entry(4, 5, file="mysql-bin.000001"), entry(500, -9), entry(4, -9, file="mysql-bin.000001")),
        *(entry(200, 5), entry(200, -9, file="other-bin.000007")),
    )
    for other in others:
        assert _start(begin, empty=False, **BEGUN).before([other]) == 0
    for unknown in ("first", "begun", "begun_at"):  # the state file is gone, or of an earlier version
        start = _start(begin, empty=False, **{**BEGUN, unknown: None})
        assert start.over and start.before(LOG[:2]) == 0


def test_a_place_in_another_file_is_not_the_place() -> None:
    """Files begin alike: with one server's GTIDs the first event of each is at the same offset."""
    with pytest.raises(CanalBeginsElsewhere, match=r"is at mysql-bin.000009:300, later than `begin`"):
        _start(AT).before([entry(300, 5, file="mysql-bin.000009")])
    assert _start(AT).before([entry(300)]) == 0


@given(st.integers(0, 12), st.lists(st.integers(1, 4), min_size=1, max_size=20))
def test_however_the_log_is_cut_into_batches_the_same_is_carried(at: int, sizes: list[int]) -> None:
    log = [entry(100 * i, i) for i in range(12)]
    start, carried, n = _start({"file": FILE, "position": 100 * at}, any=True), [], 0
    for size in sizes:
        batch = log[n : n + size]
        carried += batch[start.before(batch) :]
        n += size
    assert carried == log[at:n]
