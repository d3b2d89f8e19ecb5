"""Which records make one message, against a naive reading of the same rules."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.envelopes.reassemble import META, VERDICT, classify_partition
from tests.properties import examples

HOUR = 3_600_000


def meta(records, carried=0):
    """(total, index, digest[, at[, seq]]) in order of offset → META; the first `carried` are carried."""
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "shard": "",
            "offset": 100 + i,
            "total": r[0],
            "index": r[1],
            "digest": r[2],
            "at": r[3] if len(r) > 3 else 0,
            "carried": i < carried,
            "seq": r[4] if len(r) > 4 else -1,
        }
        for i, r in enumerate(records)
    ]
    return pa.Table.from_pylist(rows, META)


def verdicts(records, timeout_ms=HOUR, carried=0):
    """Offset (from 0) → (verdict, message)."""
    found = classify_partition(meta(records, carried), timeout_ms)
    assert found.schema == VERDICT
    rows = found.to_pylist()
    assert len({r["offset"] for r in rows}) == len(rows)
    first = {None: None}
    return {r["offset"] - 100: (r["verdict"], first.get(r["message"], (r["message"] or 0) - 100)) for r in rows}


def naive(records, timeout_ms=HOUR):
    """The rules, one record after the other: what `classify` must say."""
    out, opened, done = {}, [], []

    def same(record, parts):
        total, index, digest = record[:3]
        return index < len(parts) and parts[index][1][0] == total and parts[index][1][2] == digest

    def follows(record):
        last = opened[-1][1]
        gap = len(record) > 4 and record[4] >= 0 and last[4] >= 0 and record[4] - last[4] not in (0, 1)
        return record[0] == last[0] and record[1] == len(opened) and not gap

    def end(verdict):
        for i, _ in opened:
            out[i] = (verdict, opened[0][0] if verdict == "complete" else None)
        opened.clear()

    for i, record in enumerate(records):
        total, index = record[:2]
        earlier = opened or (done if index > 0 else [])
        if total > 1 and earlier and same(record, earlier):
            out[i] = ("duplicate", None)
        else:
            if opened and not follows(record):
                end("torn")
            if total > 1 and index != len(opened):
                out[i] = ("torn", None)
            elif total > 1:
                opened.append((i, record))
                if len(opened) == total:
                    done = list(opened)
                    end("complete")
    times = [r[3] if len(r) > 3 else 0 for r in records]
    if opened and max(times) - times[opened[0][0]] > timeout_ms:
        end("torn")
    end("waiting")
    return out


def message(total, name, at=0, seq=None):
    """The parts of one message, numbered from `seq` on; the bytes of each are told by message and index."""
    return [(total, i, name * 100 + i, at, -1 if seq is None else seq + i) for i in range(total)]


_EITHER = st.booleans()


@st.composite
def streams(draw, numbered=_EITHER):
    """Messages of one shard, whole or split, with parts dropped, sent twice, swapped, or begun anew;
    `numbered`: whether the vendor's running number is told."""
    out, seq = [], 1
    told = draw(numbered)
    for name in range(draw(st.integers(0, 6))):
        parts = message(draw(st.integers(1, 5)), name, draw(st.integers(0, 3 * HOUR)), seq if told else None)
        seq += len(parts)
        match draw(st.sampled_from(("fine", "fine", "drop", "twice", "swap", "restart", "again"))):
            case "drop":
                parts.pop(draw(st.integers(0, len(parts) - 1)))
            case "twice":
                i = draw(st.integers(0, len(parts) - 1))
                parts.insert(draw(st.integers(i, len(parts))), parts[i])
            case "swap":
                i, j = (draw(st.integers(0, len(parts) - 1)) for _ in "ij")
                parts[i], parts[j] = parts[j], parts[i]
            case "restart":  # the sender died after some parts and sends all again
                parts = parts[: draw(st.integers(0, len(parts)))] + parts
            case "again":
                parts = parts + parts
        out += parts
    return out


@given(streams())
@examples(200)
def test_it_says_what_the_naive_reading_says(records):
    assert verdicts(records) == naive(records)


@given(streams())
@examples(200)
def test_every_part_of_a_split_message_gets_exactly_one_verdict(records):
    assert verdicts(records).keys() == {i for i, r in enumerate(records) if r[0] > 1}


@given(streams(numbered=st.just(True)))
@examples(200)
def test_a_complete_message_is_consecutive_full_and_of_one_message(records):
    found = verdicts(records)
    joined = {m: [i for i, v in found.items() if v == ("complete", m)] for _, m in found.values() if m is not None}
    for first, offsets in joined.items():
        parts = [records[i] for i in sorted(offsets)]
        assert [p[1] for p in parts] == list(range(parts[0][0]))
        assert {p[0] for p in parts} == {len(parts)}
        assert len({p[2] // 100 for p in parts}) == 1, "parts of two messages were joined"
        between = set(range(first, max(offsets) + 1)) - set(offsets)
        assert all(found.get(i) == ("duplicate", None) for i in between)
    assert {i for i, v in found.items() if v[0] == "complete"} == {i for o in joined.values() for i in o}


@given(streams())
@examples(200)
def test_a_message_that_came_whole_and_in_order_is_never_lost(records):
    """Wherever a full run of parts stands undisturbed, its message is completed, there or just before."""
    found = verdicts(records)
    for start, (total, index, digest, *_) in enumerate(records):
        run = [(r[0], r[1], r[2] // 100) for r in records[start : start + total]]
        if total > 1 and index == 0 and run == [(total, i, digest // 100) for i in range(total)]:
            name = digest // 100
            done = [i for i, v in found.items() if v[0] == "complete" and records[i][2] // 100 == name]
            assert len(done) >= total


@given(streams(), st.data())
@examples(200)
def test_cuts_between_batches_change_nothing(records, data):
    """What waits is carried over: any cut gives the same messages as one sweep."""
    cut = data.draw(st.integers(0, len(records)))
    never = 10**15
    first = verdicts(records[:cut], never)
    waiting = [i for i, v in first.items() if v[0] == "waiting"]
    kept = [*waiting, *range(cut, len(records))]
    second = verdicts([records[i] for i in kept], never, len(waiting))
    joined = {i: v[0] for i, v in first.items() if i not in waiting}
    joined |= {kept[i]: v[0] for i, v in second.items()}
    whole = {i: v[0] for i, v in verdicts(records, never).items()}
    complete = {i for i, v in whole.items() if v == "complete"}
    assert {i for i, v in joined.items() if v == "complete"} == complete
    # The last part sent twice right at a cut has nothing left to compare with: torn instead of duplicate.
    for i in joined.keys() - complete:
        assert joined[i] == whole[i] or (joined[i], whole[i]) == ("torn", "duplicate")


CASES = {
    "whole records need no verdict": ([(1, 0, 1), (1, 0, 2)], {}),
    "three parts": (message(3, 1), {0: ("complete", 0), 1: ("complete", 0), 2: ("complete", 0)}),
    "not all parts yet": (message(3, 1)[:2], {0: ("waiting", None), 1: ("waiting", None)}),
    "a part sent twice": (
        [message(2, 1)[0], message(2, 1)[0], message(2, 1)[1]],
        {0: ("complete", 0), 1: ("duplicate", None), 2: ("complete", 0)},
    ),
    "the last part sent twice": (
        [*message(2, 1), message(2, 1)[1]],
        {0: ("complete", 0), 1: ("complete", 0), 2: ("duplicate", None)},
    ),
    "restart with other bytes": (
        [message(3, 1)[0], message(3, 1)[1], *message(3, 2)],
        {0: ("torn", None), 1: ("torn", None), **dict.fromkeys((2, 3, 4), ("complete", 2))},
    ),
    "an orphan": ([(3, 1, 5)], {0: ("torn", None)}),
    "a part missing": ([message(3, 1)[0], message(3, 1)[2]], {0: ("torn", None), 1: ("torn", None)}),
    "the end of one message and the beginning of the next left out": (
        [message(2, 1, seq=1)[0], message(2, 2, seq=3)[1]],
        {0: ("torn", None), 1: ("torn", None)},
    ),
    "parts that share their message's number": (
        [(2, 0, 1, 0, 7), (2, 1, 2, 0, 7)],
        {0: ("complete", 0), 1: ("complete", 0)},
    ),
    "a number told for one part only": (
        [(2, 0, 1, 0, 7), (2, 1, 2, 0, -1)],
        {0: ("complete", 0), 1: ("complete", 0)},
    ),
    "numbers that begin anew between messages": (
        [*message(2, 1, seq=9), *message(2, 2, seq=1)],
        {**dict.fromkeys((0, 1), ("complete", 0)), **dict.fromkeys((2, 3), ("complete", 2))},
    ),
    "numbers that leave a gap between messages": (
        [*message(2, 1, seq=1), *message(2, 2, seq=9)],
        {**dict.fromkeys((0, 1), ("complete", 0)), **dict.fromkeys((2, 3), ("complete", 2))},
    ),
    "torn by a whole record": ([message(2, 1)[0], (1, 0, 9)], {0: ("torn", None)}),
    "other total in the middle": ([message(2, 1)[0], (3, 1, 7)], {0: ("torn", None), 1: ("torn", None)}),
}


@pytest.mark.parametrize("case", CASES)
def test_scenario(case):
    records, expected = CASES[case]
    assert verdicts(records) == expected


def test_an_unfinished_message_is_torn_once_kafka_time_has_passed_it():
    open_part = (2, 0, 1, 0)
    assert verdicts([open_part, (1, 0, 2, HOUR)])[0] == ("torn", None)  # torn by the record behind it
    assert verdicts([open_part], HOUR, 1)[0] == ("waiting", None)
    late = classify_partition(meta([open_part, (2, 0, 1, HOUR + 1)]), HOUR).to_pylist()  # a repeat moves time on
    assert [r["verdict"] for r in late] == ["torn", "duplicate"]
    assert "3600 s" in late[0]["reason"]


def test_a_shard_that_fell_silent_times_out_by_the_records_of_the_others():
    records = meta([(2, 0, 1, 0), (1, 0, 2, HOUR), (1, 0, 3, HOUR + 1)])
    shards = records.set_column(2, "shard", pa.array(["a", "b", "b"]))
    assert [r["verdict"] for r in classify_partition(shards.slice(0, 2), HOUR).to_pylist()] == ["waiting"]
    assert [r["verdict"] for r in classify_partition(shards, HOUR).to_pylist()] == ["torn"]


def test_shards_of_one_partition_are_put_together_apart():
    records = meta([(2, 0, 1), (2, 0, 5), (2, 1, 6), (2, 1, 2)])
    shards = records.set_column(2, "shard", pa.array(["a", "b", "b", "a"]))
    found = {r["offset"]: r["message"] for r in classify_partition(shards, HOUR).to_pylist()}
    assert found == {100: 100, 101: 101, 102: 101, 103: 100}


def test_reasons_name_part_and_total():
    rows = classify_partition(meta([*message(3, 1)[:1], (2, 1, 7)]), HOUR).to_pylist()
    assert "part 1 of 3 never came" in rows[0]["reason"]
    assert rows[1]["reason"] == "part 1 of 2 without the parts before it"


def test_rows_may_come_in_any_order():
    table = meta(message(5, 1) + message(4, 2))
    shuffled = table.take(pa.array(np.random.default_rng(1).permutation(len(table))))
    assert (
        classify_partition(shuffled, HOUR).sort_by("offset").equals(classify_partition(table, HOUR).sort_by("offset"))
    )


def test_carried_marks_are_kept():
    rows = classify_partition(meta(message(3, 1), carried=2), HOUR).to_pylist()
    assert [r["carried"] for r in rows] == [True, True, False]


def test_nothing_in_nothing_out():
    assert classify_partition(meta([]), HOUR).num_rows == 0


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "not numbered"])
def test_parts_on_either_side_of_a_seam_are_not_one_message(numbered):
    """Records are missing there, or are another topic's."""
    parts = meta([(2, 0, 1, 1), (2, 1, 2, 2)])
    seq = pa.array([7, 8] if numbered else [-1, -1], META.field("seq").type)
    parts = parts.set_column(META.get_field_index("seq"), META.field("seq"), seq)
    first, second = parts.column("offset").to_pylist()
    found = classify_partition(parts, HOUR, [second]).to_pylist()
    assert [(r["verdict"], r["message"]) for r in found] == [("torn", None)] * 2
    for seams in ([], [first], [second + 1]):
        assert {r["verdict"] for r in classify_partition(parts, HOUR, seams).to_pylist()} == {"complete"}
