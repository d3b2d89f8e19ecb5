"""Behind which record one feed can go on for another, from what was decoded of either; and when that isn't certain."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from cdc_platform.shadow import seam
from cdc_platform.shadow.cutover import Cutover
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.tables import CHANGES, LOADED, LOG_EPOCHS, OFFSET_LEDGER, WATERMARKS
from tests.rows import add

SERVER = "aaaa"
PARTITION = {"scope": "partition", "partition": 0, "batch": 0, "at": datetime(2026, 11, 20, 12, 0, tzinfo=UTC)}


def feeds(make_config: Any, **by: Any) -> Any:
    sources = [{"name": n, "format": "canal_json", "topics": [n]} for n in ("a", "b")]
    sources[1] |= by
    return make_config(sources, shadow={"of": "a", "by": "b"})


@pytest.fixture
def config(make_config):
    return feeds(make_config)


def change(config, source: str, offset: int, number: int, **more: Any) -> None:
    """A change of transaction `number`, which stands at 10 times that."""
    row = {
        **{"topic": source, "partition": 0, "offset": offset, "entry_index": 0, "row_index": 0, "kind": "row"},
        **{"db": "d", "table": "t", "op": "insert", "gtid": f"{SERVER}:1-{number}", "lineage": SERVER},
        **{"file_no": 1, "binlog_pos": Decimal(10 * number), "retold": False, **more},
    }
    add(config.lake, CHANGES, row, format="canal_json", source=source)


def come(config, until: int, **more: Any) -> None:
    """Both come by one partition; `a` up to transaction `until`, in whose log nothing goes back."""
    for source in ("a", "b"):
        add(config.lake, WATERMARKS, {**PARTITION, "source": source, "topic": source})
    epoch = {
        **{"source": "a", "batch": 0, "topic": "a", "partition": 0, "first": 0, "last": 1 << 40, "epoch": 0},
        **{"replay": False, "low_file": 1, "low_pos": Decimal(0), "high_file": 1, "high_pos": Decimal(10 * until)},
        "servers": [SERVER],
    }
    add(config.lake, LOG_EPOCHS, {**epoch, **more})


def found(config) -> seam.Seam:
    return seam.find(config, config.shadow_of("a"))


def refused(config, match: str) -> None:
    with pytest.raises(ShadowRefused, match=match):
        found(config)


def both(config, last: int, further: int = 0) -> None:
    """`a` has transactions up to one, `b` some more, three records later."""
    for number in range(1, last + 1):
        change(config, "a", number, number)
    for number in range(1, last + further + 1):
        change(config, "b", number + 3, number)
    come(config, last)


def test_behind_the_last_transaction_that_both_have(config):
    both(config, 3, further=2)
    assert found(config) == seam.Seam(("a", 0), ("b", 0), 7, f"{SERVER}:3")


def test_its_end_tells_that_it_is_whole(config):
    both(config, 3)
    refused(config, f"b doesn't tell yet that {SERVER}:3 is whole")
    change(config, "b", 7, 3, kind="commit", op=None)
    assert found(config).offset == 8


def load(config, source: str, offset: int, number: int, **more: Any) -> None:
    """A row that was loaded, in the view behind transaction `number`."""
    place = {"binlog_pos": Decimal(10 * number + 1), "lineage": f"{source}/0/1/0", "entry_index": 2}
    change(config, source, offset, number, **{"topic": LOADED, "op": "read", **place, **more})


LOADS = {
    "the new feed, before all that matters": lambda c: load(c, "b", 20_000, 0),
    "the new feed, at the last transaction": lambda c: load(c, "b", 50, 3),
    "an empty table: a list of columns alone": lambda c: load(c, "b", 50, 3, kind="schema", op=None),
    "the feed in use, at its last transaction": lambda c: load(c, "a", 0, 3),
    "the feed in use, ahead of it": lambda c: load(c, "a", 20_000, 5),
}


@pytest.mark.parametrize("which", LOADS)
def test_rows_that_were_loaded_say_nothing_of_the_feed(config, which):
    both(config, 3, further=2)
    LOADS[which](config)
    assert found(config) == seam.Seam(("a", 0), ("b", 0), 7, f"{SERVER}:3")


def test_a_load_behind_it_does_not_tell_that_it_is_whole(config):
    both(config, 3)
    load(config, "b", 50, 4)
    refused(config, f"b doesn't tell yet that {SERVER}:3 is whole")
    load(config, "b", 51, 3, kind="schema", op=None)
    change(config, "b", 7, 3, kind="commit", op=None)
    assert found(config).offset == 8


def test_what_came_by_another_topic_before_does_not_count(config):
    """Of either: `shadow cutover` was there before."""
    both(config, 3, further=2)
    for source in ("a", "b"):
        change(config, source, 90_000, 3, topic="before", row_index=7)
    assert found(config).offset == 7


def elsewhere(config, **other: Any) -> None:
    """The last transaction is another in `b`."""
    both(config, 2)
    change(config, "a", 9, 5, binlog_pos=Decimal(20))
    change(config, "b", 9, 5, **{"binlog_pos": Decimal(20), **other})


def apart(config) -> None:
    """A partition more."""
    both(config, 2, further=1)
    add(config.lake, WATERMARKS, {**PARTITION, "source": "b", "topic": "b", "partition": 1})


CASES = {
    "b hasn't come to aaaa:3, which a has": lambda c: both(c, 3, further=-1),
    "aaaa:2 has other rows": lambda c: (both(c, 2, further=2), change(c, "b", 5, 2, row_index=1)),
    "aaaa:5 has other rows": lambda c: elsewhere(c, op="delete"),
    "aaaa:5 .*stands at other places of the log": lambda c: elsewhere(c, lineage="other"),
    "or stands at other places": lambda c: elsewhere(c, binlog_pos=Decimal(30)),
    "another transaction begins": lambda c: (both(c, 2, further=1), change(c, "b", 5, 4, entry_index=1)),
    "the last change of a tells no GTID": lambda c: (both(c, 2), change(c, "a", 9, 7, gtid="")),
    "tells no GTID and place": lambda c: (both(c, 2), change(c, "a", 9, 7, file_no=None)),
    "in different orders": lambda c: (both(c, 3, further=1), change(c, "b", 1, 9), change(c, "a", 2, 9, entry_index=1)),
    "a is sending again": lambda c: (both(c, 2), come(c, 2, replay=True, first=1 << 41, last=1 << 42)),
    "an earlier log of a .* had places beyond": lambda c: (both(c, 2), come(c, 9, epoch=-1, first=-9, last=-1)),
    "b comes by 2 partitions": apart,
}


@pytest.mark.parametrize("why", CASES)
def test_what_is_not_certain(config, why):
    CASES[why](config)
    refused(config, why)


def test_a_partition_that_another_took_the_place_of_is_none(config):
    both(config, 3, further=1)
    add(config.lake, WATERMARKS, {**PARTITION, "source": "a", "topic": "z"})
    refused(config, "a comes by 2 partitions")
    gone = {"source": "a", "batch": 1, "room": "landing", "topic": "z", "partition": 0, "from_offset": -1}
    add(config.lake, OFFSET_LEDGER, {**gone, "to_offset": -2, "outcome": "landed", "records": 0})
    assert found(config).offset == 7


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ({"format": "debezium"}, "a is canal_json, b debezium: what was landed couldn't be decoded any more"),
        ({"options": {"time_zone": "Asia/Shanghai"}}, "the sources have different options"),
        ({"kafka": {"bootstrap.servers": "elsewhere:9092"}}, "the sources have different `kafka` settings"),
    ],
)
def test_sources_that_are_unlike(make_config, by, why):
    config = feeds(make_config, **by)
    with pytest.raises(ShadowRefused, match=why):
        Cutover(config, config.shadow_of("a"), lambda _: None).plan()
