"""A canal server's port to snapshots: what the bridge writes, twice where a connection breaks, ends as the truth."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cdc_platform.bridge.run import run
from cdc_platform.config import Config
from cdc_platform.feeds.canal import CanalEncoder
from cdc_platform.feeds.compare import compare
from cdc_platform.feeds.shop import ITEMS
from cdc_platform.feeds.workload import Transaction, Workload
from cdc_platform.formats.pb import canal_protocol_pb2 as pb
from cdc_platform.kafka.broker import BrokerInfo
from cdc_platform.snapshots.target import Target
from tests.bridge.double import CanalDouble, cut, twice
from tests.bridge.test_run import entries, first_seen
from tests.e2e.e2e_shop import facts, run_stages, unaccounted

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e]

TOPIC = "canal-to-snapshot"
LOST_ACKS = 3
SMALL = {"max_records_per_batch": 4, "max_bytes_per_batch": "1"}


def of_items(transactions: list[Transaction]) -> list[Transaction]:
    """The same transactions with the changes of one table only: every further table costs seconds."""
    return [
        replace(tx, events=tuple(e for e in tx.events if e.table is ITEMS))
        for tx in transactions
        if tx.ddl is None or tx.ddl.target == (ITEMS.db, ITEMS.name)
    ]


def entries_of(encoder: CanalEncoder, transactions: list[Transaction]) -> list[bytes]:
    """What the server holds for its clients: the entries alone, its batches are the double's."""
    packets = [pb.Packet.FromString(record.value or b"") for record in encoder.encode(of_items(transactions))]
    return [entry for packet in packets for entry in pb.Messages.FromString(packet.body).messages]


def bridged(make_config: Callable[..., Config], canal: CanalDouble, broker: BrokerInfo) -> Config:
    """A cdc.yaml with the bridge and the source that reads its topic."""
    bridge: dict[str, Any] = {
        "name": "shop",
        "servers": [canal.address],
        "destination": canal.destination,
        "topic": TOPIC,
        "username": canal.username,
        "password": "${CANAL_PASSWORD}",
        "timeout_s": 1,
        "wait_ms": 10,
        "max_backoff_s": 0.1,
    }
    return make_config(
        [{"name": "shop", "format": "canal", "topics": [TOPIC], **SMALL}],
        kafka={"bootstrap.servers": broker.bootstrap_servers},
        bridges=[bridge],
    )


@pytest.mark.thorough
def test_batches_that_come_twice_and_cut_otherwise_end_as_the_truth(
    broker: BrokerInfo, spark: Any, make_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
):
    workload, encoder, said = Workload(1, 10), CanalEncoder("unused"), []
    with CanalDouble(per_batch=7, feed=entries_of(encoder, workload.transactions)) as canal:
        monkeypatch.setenv("CANAL_PASSWORD", canal.password)
        config = bridged(make_config, canal, broker)
        sent = list(canal.feed)

        def hear(line: str) -> None:
            said.append(line)
            canal.per_batch += 4 * ("rolled back" in line)  # what comes again is cut at other places

        def carry() -> None:
            run(config, config.bridges[0], lambda: False, hear, until_idle_s=0.7)
            assert canal.feed == canal.lost == canal.plan == []

        # Kafka has the batch and the server doesn't know: it comes again.
        canal.lost = [pb.CLIENTACK] * LOST_ACKS
        canal.plan = [(pb.GET, cut(9)), (pb.GET, twice)]
        carry()
        # A server that lost its position sends what is long applied, and news behind it.
        canal.feed = sent[-30:] + entries_of(encoder, workload.advance(5))
        canal.lost = [pb.CLIENTACK]
        sent += canal.feed
        carry()

    arrived = entries(broker.bootstrap_servers, TOPIC)
    assert first_seen(arrived) == first_seen(sent)
    assert len(arrived) >= len(sent) + 7 * (LOST_ACKS + 1), "no batch has come twice: nothing was tried"
    assert sum("rolled back" in line for line in said) >= LOST_ACKS + 2
    done = run_stages(spark, config)
    assert done["shop", "changelog"].batches > 1  # repetitions of one's own batch and of an earlier one
    snapshot = Target.of(config, "shop", ITEMS.db, ITEMS.name).snapshot
    assert compare(ITEMS, workload.truth[ITEMS.full_name], snapshot.uri()).describe() == []
    found = facts(config)
    assert unaccounted(found["outcomes"]) == {} and found["quarantine"] == []
