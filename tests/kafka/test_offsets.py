"""Loss is told by name from what Kafka holds and what was landed."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc_platform.config import parse_config
from cdc_platform.errors import KafkaUnreachable
from cdc_platform.kafka import offsets
from cdc_platform.kafka.offsets import Before, PartitionState, first_offsets, losses, numbered, raised

BASE = 10**9


def state(begin, end, partition=0, topic_id="A"):
    return PartitionState("t", partition, topic_id, begin, end)


def lost(states, landed, topic_ids=("A",), **before):
    return losses(states, Before(landed, {"t": topic_ids}, **before))


def found(states, landed, topic_ids=("A",), **before):
    rows = lost(states, landed, topic_ids, **before)
    return [(r["topic"], r["partition"], r["from_offset"], r["to_offset"], r["restart"]) for r in rows]


def test_nothing_is_lost_while_reading_can_go_on():
    assert found([state(0, 9)], {}) == []
    assert found([state(500, 900)], {}) == []  # before the first landing everything may begin anywhere
    assert found([state(3, 9)], {("t", 0): 3}) == []
    assert found([state(9, 9)], {("t", 0): 9}) == []
    assert found([state(0, 5), state(0, 5, 1)], {("t", 0): 5}) == []  # a new partition


def test_retention_before_landing_is_a_loss_of_that_range():
    assert found([state(7, 9)], {("t", 0): 3}) == [("t", 0, 3, 7, 7)]


def test_a_new_partition_that_no_longer_begins_at_zero_has_lost_its_first_records():
    assert found([state(0, 5), state(4, 9, 1)], {("t", 0): 5}) == [("t", 1, 0, 4, 4)]


def test_a_topic_that_is_added_begins_wherever_kafka_does():
    """One that fits a pattern was meant since it was made, and one that was seen before is no new one."""
    more = PartitionState("u", 0, "B", 5000, 5009)
    before = Before({("t", 0): 5}, {"t": ["A"]})
    assert losses([state(0, 5), more], before, ["t", "u"]) == []
    for known, named in ((before, ()), (Before({("t", 0): 5}, {"t": ["A"], "u": ["B"]}), ["t", "u"])):
        [gone] = losses([state(0, 5), more], known, named)
        assert (gone["topic"], gone["from_offset"], gone["to_offset"]) == ("u", 0, 5000)


def test_a_shrunk_partition_is_a_loss():
    assert found([state(0, 2)], {("t", 0): 5}) == [("t", 0, 5, 6, BASE + 2)]  # what comes at 2 to 4 are other records


def test_a_topic_made_again_is_a_loss_whatever_its_offsets():
    for end in (2, 5, 9):
        assert found([state(0, end, topic_id="B")], {("t", 0): 5}) == [("t", 0, 5, 6, BASE)]
    assert found([state(0, 9, topic_id="B")], {("t", 0): 5}, ("A", "B")) == []  # landed under both
    assert found([state(0, 9, topic_id="B")], {("t", 0): 5}, ids={("t", 0): "B"}) == []  # a run was killed since


def test_what_begins_again_has_offsets_above_all_that_were_landed():
    assert [raised(at) for at in (0, 5, BASE - 1, BASE, 7 * BASE + 3)] == [BASE, BASE, BASE, 2 * BASE, 8 * BASE]
    [once] = lost([state(3, 9, topic_id="B")], {("t", 0): 5})
    assert (once["base"], once["restart"], once["topic_id"]) == (BASE, BASE + 3, "B")
    again = numbered([state(1, 9, topic_id="C")], {("t", 0): BASE})
    assert [(s.begin, s.end, s.base) for s in again] == [(BASE + 1, BASE + 9, BASE)]
    assert numbered(again, {}) == again  # those of others stay
    [twice] = lost(again, {("t", 0): BASE + 9}, ("A", "B"))
    assert (twice["base"], twice["restart"]) == (2 * BASE, 2 * BASE + 1)
    [cut] = lost(numbered([state(0, 4)], {("t", 0): BASE}), {("t", 0): BASE + 6})
    assert (cut["base"], cut["restart"], cut["topic_id"]) == (2 * BASE, 2 * BASE + 4, None)
    [old] = lost(numbered([state(8, 9)], {("t", 0): BASE}), {("t", 0): BASE + 6})  # retention
    assert (old["base"], old["restart"]) == (None, BASE + 8)
    # A lake of an earlier version, in which a topic went back to 0 once.
    [far] = lost([state(0, 9, topic_id="B")], {("t", 0): 5}, reached={("t", 0): 3 * BASE})
    assert far["base"] == 4 * BASE


def test_a_topic_that_had_gone_and_is_there_again_is_no_loss_but_for_what_retention_took():
    new = frozenset({("t", 0)})
    back = numbered([state(0, 9, topic_id="B")], {("t", 0): BASE})
    assert lost(back, {("t", 0): BASE}, new=new) == []
    [one] = lost(numbered([state(2, 9, topic_id="B")], {("t", 0): BASE}), {("t", 0): BASE}, new=new)
    assert (one["from_offset"], one["restart"], one["base"], one["topic_id"]) == (BASE, BASE + 2, BASE, "B")
    [asked] = lost(back, {("t", 0): BASE}, new=new, unsure=new)
    assert "nothing tells" in asked["why"] and (asked["restart"], asked["base"]) == (BASE, BASE)


def test_which_topic_a_partition_was_lost_with():
    [gone] = lost([], {("t", 0): 5}, ("A", "B"))
    assert gone["topic_id"] == "B"
    [gone] = lost([], {("t", 0): 5}, ("A", "B"), ids={("t", 0): "C"})  # noted by the ledger alone as yet
    assert gone["topic_id"] == "C"


def test_a_broker_that_tells_no_topic_ids_is_judged_by_offsets():
    assert found([state(0, 9, topic_id="")], {("t", 0): 5}) == []


def test_an_absent_partition_is_a_loss_without_restart():
    assert found([], {("t", 0): 5}) == [("t", 0, 5, 6, None)]


def test_first_offsets_follow_the_setting():
    states = [state(3, 9), state(0, 4, 1)]
    assert first_offsets(states, "earliest") == {("t", 0): 3, ("t", 1): 0}
    assert first_offsets(states, "latest") == {("t", 0): 9, ("t", 1): 4}


@pytest.mark.parametrize(
    ("code", "fails"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError._UNSUPPORTED_FEATURE, False),
        (KafkaError._TIMED_OUT, True),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, True),
    ],
)
def test_whether_a_topic_is_compacted_is_asked_again_later_but_where_the_cluster_never_tells(
    tmp_path, monkeypatch, code, fails
):
    class Client:
        def describe_configs(self, asked, **_):
            answer = Future()
            answer.set_exception(KafkaException(KafkaError(code)))
            return dict.fromkeys(asked, answer)

    told = {"lake": str(tmp_path), "kafka": {"bootstrap.servers": "kafka:9092"}}
    config = parse_config({**told, "sources": [{"name": "s", "format": "canal", "topics": ["t"]}]}, tmp_path / "c")
    monkeypatch.setattr(offsets, "reach", lambda *_: (Client(), None))
    if fails:
        with pytest.raises(KafkaUnreachable):
            offsets.compacted(config, config.source("s"), ["t"])
    else:
        assert offsets.compacted(config, config.source("s"), ["t"]) == []
