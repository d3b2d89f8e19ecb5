"""Where landing goes on with partitions that began again, that had gone, or that another source reads."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.explain import message
from cdc_platform.explain.records import Address
from cdc_platform.kafka import offsets
from cdc_platform.kafka.offsets import NO_ID, PartitionState, losses, numbered
from cdc_platform.kafka.reader import Range
from cdc_platform.lake import queries, sequences, stores
from cdc_platform.landing import erased, positions
from cdc_platform.landing.positions import GENERATION, LostPartition, position
from cdc_platform.tables import ERASURES, LANDING, OFFSET_LEDGER
from tests.rows import add

BASE = 10**9
WHERE = ("t", 0)


@pytest.fixture
def config(make_config: Any) -> Any:
    return make_config([{"name": "a", "format": "canal_json", "topics": ["t"]}])


def ledger(config: Any, batch: int, first: int, last: int, outcome: str = "landed", **more: Any) -> None:
    row = {"source": "a", "batch": batch, "room": "landing", "topic": "t", "partition": 0, "outcome": outcome}
    records = last - first + 1 if last >= first else 1
    add(config.lake, OFFSET_LEDGER, {**row, "from_offset": first, "to_offset": last, "records": records, **more})


def made_again(config: Any) -> None:
    """Of 5 records that had landed nothing is left; 20 of the new topic have landed."""
    ledger(config, 0, 0, 4)
    ledger(config, GENERATION - 1, 5, BASE - 1, "lost", base=BASE, topic_id="B", records=1)
    ledger(config, GENERATION, BASE, BASE + 19)


def now(config: Any) -> positions.Position:
    return position(OFFSET_LEDGER.at(stores.lake(config)), config.sources[0])


def in_kafka(begin: int, end: int, topic_id: str) -> PartitionState:
    return PartitionState(*WHERE, topic_id, begin, end)


def back(config: Any, state: PartitionState, *known: str) -> tuple[int, bool]:
    """Where landing goes on, and whether that is sure."""
    found = positions.back(now(config), [state], {"t": known} if known else {})
    return {**found.same, **found.new}[WHERE], WHERE not in found.unsure


def test_a_topic_that_was_left_out_goes_on_and_one_that_was_made_again_begins(config: Any) -> None:
    ledger(config, 0, 0, 49)
    ledger(config, GENERATION - 1, 50, -2, "lost", topic_id="A")
    assert now(config).gone == {WHERE: LostPartition(50, "A")}
    assert back(config, in_kafka(0, 80, "A"), "A") == (50, True)
    assert back(config, in_kafka(0, 80, "B"), "A") == (BASE, True)
    # Its topic was made again with fewer partitions and landed under the new id; now it has this partition, too.
    assert back(config, in_kafka(0, 80, "B"), "A", "B") == (BASE, True)
    assert back(config, in_kafka(0, 80, ""), "A") == (BASE, False)  # the broker tells no ids


def test_what_an_earlier_version_noted_tells_less(config: Any) -> None:
    ledger(config, 0, 0, 99)
    ledger(config, GENERATION - 1, 100, -2, "lost")
    assert back(config, in_kafka(0, 150, "A"), "A") == (100, True)
    ledger(config, GENERATION, 0, 19)  # made again, at offsets that were there
    ledger(config, 2 * GENERATION - 1, 20, -2, "lost")
    assert now(config).gone == {WHERE: LostPartition(20, None)}
    assert back(config, in_kafka(0, 150, "B"), "A", "B") == (BASE, False)
    assert back(config, in_kafka(0, 150, "C"), "A", "B") == (BASE, True)
    assert back(config, in_kafka(0, 150, "C")) == (BASE, False)  # no ids were told then


def test_a_ledger_of_an_earlier_version_has_no_bases(config: Any) -> None:
    added = ("base", "topic_id")
    schema = pa.schema([f for f in OFFSET_LEDGER.arrow() if f.name not in added])
    row = {"source": "a", "batch": 0, "room": "landing", "topic": "t", "partition": 0, "outcome": "landed"}
    rows = pa.Table.from_pylist([{**row, "from_offset": 0, "to_offset": 4, "records": 5}], schema)
    path = OFFSET_LEDGER.at(stores.lake(config))
    write_deltalake(path.uri(), rows, partition_by=["source"])
    assert now(config)[:3] == (0, {WHERE: 5}, 0)
    assert (positions.bases(config, config.sources[0]), positions.seams(path, config.sources[0])) == ({}, {})


def test_a_run_that_was_killed_before_the_topics_id_was_noted_tells_no_loss(config: Any) -> None:
    made_again(config)
    nothing = positions.Back({}, {}, frozenset())
    state = numbered([in_kafka(0, 20, "B")], now(config).bases)
    assert losses(state, now(config).before({"t": ["A"]}, nothing)) == []
    [lost] = losses([replace(s, topic_id="C") for s in state], now(config).before({"t": ["A"]}, nothing))
    assert (lost["base"], lost["topic_id"]) == (2 * BASE, "C")


def test_zeros_are_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def describe_topics(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"t": self}

        def result(self) -> Any:
            return self

        topic_id = NO_ID

    assert offsets._topic_ids(Client(), ["t"]) == {"t": ""}  # type: ignore[arg-type]


def test_which_records_kafka_may_still_have(config: Any) -> None:
    [source] = config.sources
    made_again(config)
    of = positions.numberings(config, source)[WHERE]
    there = in_kafka(2, 20, "B")
    assert [positions.may_be_there(o, there, of) for o in (0, 4, BASE, BASE + 1, BASE + 2, BASE + 20)] == [
        *(False, False, False, False, True, False)
    ]
    # Its end was lost from offset 10 on, and others came: what is before it is there still.
    ledger(config, 2 * GENERATION - 1, BASE + 20, 2 * BASE + 9, "lost", base=2 * BASE, records=1)
    of = positions.numberings(config, source)[WHERE]
    there = in_kafka(2, 30, "B")
    asked = (4, BASE + 1, BASE + 2, BASE + 9, BASE + 10, 2 * BASE + 10, 2 * BASE + 30)
    assert [positions.may_be_there(o, there, of) for o in asked] == [False, False, True, True, False, True, False]


def test_a_source_that_goes_on_with_a_partition_which_it_read_before(config: Any) -> None:
    """As another source reads it. A cutover and one back."""
    by = in_kafka(0, 40, "A")
    assert positions.base_here(now_of_nothing(), by, ["A"]) == 0
    assert positions.base_here(now_of_nothing(), numbered([by], {WHERE: BASE})[0], []) == BASE
    ledger(config, 0, 0, 59)
    assert positions.base_here(now(config), by, ["A"]) == 0
    assert positions.base_here(now(config), by, ["other"]) == BASE  # made again since
    assert positions.base_here(now(config), numbered([by], {WHERE: 5 * BASE})[0], ["other"]) == 6 * BASE
    assert positions.base_here(now(config), by, ["A", "B"]) == BASE  # which of them it was isn't told
    ledger(config, GENERATION - 1, 60, BASE - 1, "lost", base=BASE, topic_id="B", records=1)
    assert positions.base_here(now(config), in_kafka(0, 40, "B"), ["A", "B"]) == BASE


def now_of_nothing() -> positions.Position:
    return positions.Position(0, {}, 0, {}, {}, {}, {})


def test_what_is_said_of_offsets_between(config: Any) -> None:
    [source] = config.sources
    made_again(config)
    told = message.look(config, source, Address("t", 0, 7))
    assert told["outcome"] == "lost" and told["why"] == (
        f"the topic was made again, or lost its end: what was there from 5 on isn't known; what Kafka has at offset 7 "
        f"now is t/0/{BASE + 7}"
    )
    assert sequences.began_again(config, source) == frozenset()
    assert queries.landed(config, source) == {WHERE: BASE + 20}
    ledger(config, 2 * GENERATION - 1, BASE + 20, -2, "lost", topic_id="B")
    assert sequences.began_again(config, source) == frozenset()
    assert positions.seams(OFFSET_LEDGER.at(stores.lake(config)), source) == {WHERE: [BASE]}


def test_what_was_erased_does_not_land_from_a_copy_of_the_topic_either(config: Any) -> None:
    [source] = config.sources
    made_again(config)
    salt = b"salt"
    record = {"topic": "t", "partition": 0, "digest": erased.digest(salt, b"row"), "shared": False}
    erasure = {"source": "a", "number": 1, "stage": "begun", "salt": salt.hex()}
    add(config.lake, ERASURES, {**erasure, "records": [{**record, "offset": o} for o in (3, BASE + 5)]})
    add(config.lake, LANDING, {"topic": "t", "partition": 0, "offset": 3}, source="a")
    path = LANDING.at(stores.lake(config), source="a")
    for base in (0, BASE, 2 * BASE):
        said = [{"topic": "t", "partition": 0, "offset": base + o, "value": v} for o, v in ((3, b"row"), (4, b"row"))]
        batch = pa.RecordBatch.from_pylist(said, LANDING.arrow())
        known = erased.among(config, source, path, [Range("t", 0, base, base + 9, base)])
        assert sorted(known) == [("t", 0, base + 3), ("t", 0, base + 5)]
        assert erased.without_erased(batch, known).column("value").to_pylist() == [None, b"row"]


def test_two_erased_records_with_one_offset_of_a_topic_made_again_are_both_known_in_a_copy(config: Any) -> None:
    [source] = config.sources
    made_again(config)
    salt, told = b"salt", ((3, b"first"), (BASE + 3, b"second"))
    records = [
        {"topic": "t", "partition": 0, "offset": at, "digest": erased.digest(salt, value), "shared": False}
        for at, value in told
    ]
    erasure = {"source": "a", "number": 1, "stage": "begun", "salt": salt.hex()}
    add(config.lake, ERASURES, {**erasure, "records": records})
    add(config.lake, LANDING, {"topic": "t", "partition": 0, "offset": 3}, source="a")
    path, base = LANDING.at(stores.lake(config), source="a"), 2 * BASE
    known = erased.among(config, source, path, [Range("t", 0, base, base + 9, base)])
    for value, left in ((b"first", None), (b"second", None), (b"another", b"another")):
        said = [{"topic": "t", "partition": 0, "offset": base + 3, "value": value}]
        batch = pa.RecordBatch.from_pylist(said, LANDING.arrow())
        assert erased.without_erased(batch, known).column("value").to_pylist() == [left]
