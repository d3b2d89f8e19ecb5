"""Up to which position and set of GTIDs a source is complete, by what its format sends."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform import tables
from cdc_platform.config import Config, parse_config
from cdc_platform.feeds.tencent_dts import items
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.lake import watermarks
from cdc_platform.lake.watermarks import Complete
from cdc_platform.snapshots.cuts import positions
from tests.lakes import store_at
from tests.rows import add

START = datetime(2026, 11, 20, tzinfo=UTC)
A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
KINDS = ("begin", "commit", "rollback", "heartbeat", "checkpoint")


def source_of(folder: Path, name: str) -> Config:
    raw = {"lake": str(folder / "lake"), "sources": [{"name": "s", "format": name, "topics": ["t"]}]}
    return parse_config(raw, folder / "cdc.yaml")


def told(config: Config, ends: dict[int, int], before: Complete | None = None) -> tuple[Any, ...]:
    """Position, GTIDs and why one is lacking, of partition → first offset that isn't complete."""
    of = {("t", partition): end for partition, end in ends.items()}
    found = positions.reached(config, config.sources[0], of, before)
    at = found["binlog_file"] and f"{found['binlog_file']}:{found['binlog_pos']}"
    return at, found["gtid"], found["position_reason"]


def say(config: Config, *events: tuple[str, str | None], first: int = 0) -> None:
    """Control events with a set of GTIDs each, one per offset; position 10 times the offset."""
    add(
        config.lake,
        tables.CONTROL_EVENTS,
        *(
            {
                **{"source": "s", "topic": "t", "partition": 0, "offset": offset, "entry_index": 0},
                **{"kind": kind, "info": [("gtid_set", text)] if text else []},
                **{"binlog_file": "mysql-bin.000001", "binlog_pos": Decimal(10 * offset)},
            }
            for offset, (kind, text) in enumerate(events, first)
        ),
    )


def dts(config: Config, partition: int, messages: Iterable[list[pb.Entry]]) -> int:
    """Messages of Tencent DTS as its decoder reads them, their control events kept; the next offset."""
    values = [items(entries) for entries in messages]
    rows = [
        {"topic": "t", "partition": partition, "offset": offset, "value": value, "timestamp": START, "landed_at": START}
        for offset, value in enumerate(values)
    ]
    form = FORMATS["tencent_dts"]
    events = form.decode(pa.RecordBatch.from_pylist(rows, MESSAGE), form.options()).to_pylist()
    assert {e["kind"] for e in events} <= {*KINDS, "row", "schema"}
    names = set(tables.CONTROL_EVENTS.names)
    kept = [{k: v for k, v in e.items() if k in names} for e in events if e["kind"] in KINDS]
    add(config.lake, tables.CONTROL_EVENTS, *({**e, "source": "s"} for e in kept))
    return len(values)


def entry(kind: pb.MessageType, pos: int, **event: Any) -> pb.Entry:
    header = pb.Header(
        version=1, sourceType=pb.MYSQL, messageType=kind, timestamp=1_795_000_000, fileName="mysql-bin.000003"
    )
    header.position = pos
    return pb.Entry(header=header, event=pb.Event(**event))


def checkpoint(pos: int, gtids: str) -> pb.Entry:
    body = pb.CheckpointEvent(syncedGtid=gtids, fileName="mysql-bin.000003", position=pos)
    return entry(pb.CHECKPOINT, pos, checkpointEvent=body)


def transaction(pos: int) -> list[pb.Entry]:
    begin = entry(pb.BEGIN, pos, beginEvent=pb.BeginEvent(transactionId="8"))
    return [begin, entry(pb.COMMIT, pos + 9, commitEvent=pb.CommitEvent(transactionId="8"))]


def test_the_set_of_a_dts_checkpoint_stays_when_transactions_follow(tmp_path: Path):
    config = source_of(tmp_path, "tencent_dts")
    end = dts(config, 0, [transaction(100), [checkpoint(110, f"{A}:1-7")], transaction(200), transaction(300)])
    assert told(config, {0: end}) == ("mysql-bin.000003:309", f"{A}:1-7", None)
    assert told(config, {0: 2}) == ("mysql-bin.000003:110", f"{A}:1-7", None)
    at, gtids, why = told(config, {0: 1})  # the checkpoint is behind what isn't complete
    assert (at, gtids, why) == ("mysql-bin.000003:109", None, "no set of GTIDs: t/0 tells none")


def test_of_several_partitions_what_their_sets_have_in_common_and_no_position(tmp_path: Path):
    config = source_of(tmp_path, "tencent_dts")
    one = dts(config, 0, [[checkpoint(110, f"{A}:1-7,{B}:1-3")], transaction(200)])
    two = dts(config, 1, [[checkpoint(90, f"{A}:1-5,{B}:1-3")]])
    why = "no position: its 2 partitions have positions of their own"
    assert told(config, {0: one, 1: two}) == (None, f"{A}:1-5,{B}:1-3", why)
    assert told(config, {0: one, 1: two, 2: 4}) == (
        None,
        None,
        "no position: its 3 partitions have positions of their own; no set of GTIDs: t/2 tells none",
    )
    three = dts(config, 2, [[checkpoint(90, "0-1-5")]])
    assert told(config, {0: one, 1: two, 2: three})[1:] == (
        None,
        "no position: its 3 partitions have positions of their own; no set of GTIDs: those of its partitions can't be "
        "compared",
    )


def test_canal_s_set_at_a_beginning_has_the_transaction_that_follows(tmp_path: Path):
    config = source_of(tmp_path, "canal")
    whole = [(kind, f"{A}:1-7") for kind in ("checkpoint", "begin", "commit")]
    say(config, *whole, ("checkpoint", f"{A}:1-8"), ("begin", f"{A}:1-8"), ("commit", f"{A}:1-8"), ("heartbeat", None))
    sets = [told(config, {0: end})[1] for end in range(1, 8)]
    assert sets == [None, None, *[f"{A}:1-7"] * 3, *[f"{A}:1-8"] * 2]


def test_canal_json_s_set_stands_in_a_column(tmp_path: Path):
    config = source_of(tmp_path, "canal_json")
    row = {"source": "s", "topic": "t", "partition": 0, "entry_index": 0, "kind": "checkpoint", "info": []}
    rows = [{**row, "offset": i, "gtid": f"{A}:1-{7 + i}"} for i in range(2)]
    add(config.lake, tables.CONTROL_EVENTS, *rows)
    assert told(config, {0: 2}) == (None, f"{A}:1-7", "no position: its format tells none")


def test_a_set_that_is_no_longer_near_holds_for_one_partition(tmp_path: Path):
    config = source_of(tmp_path, "canal")
    say(config, ("commit", f"{A}:1-7"))
    say(config, ("commit", None), first=200_000)
    before = Complete(1, START, True, None, {}, "mysql-bin.000001", 0, f"{A}:1-7")
    assert told(config, {0: 200_001}, before) == ("mysql-bin.000001:2000000", f"{A}:1-7", None)
    assert told(config, {0: 200_001})[1] is None
    assert told(config, {0: 200_001, 1: 1}, before)[:2] == (None, None)


def test_debezium_s_position_is_that_of_its_newest_row_and_not_of_a_load(tmp_path: Path):
    config = source_of(tmp_path, "debezium")
    row = {
        "source": "s",
        "topic": "t",
        "partition": 0,
        "entry_index": 0,
        "row_index": 0,
        "binlog_file": "binlog.000002",
    }
    rows = [
        {**row, "offset": i, "op": op, "binlog_pos": Decimal(i)} for i, op in enumerate(("insert", "update", "read"))
    ]
    add(config.lake, tables.CHANGELOG, *rows)
    why = "no set of GTIDs: its format tells none"
    assert told(config, {0: 3}) == ("binlog.000002:1", None, why)
    assert told(config, {0: 1}) == ("binlog.000002:0", None, why)
    assert told(config, {0: 0}) == (None, None, f"no position: no event tells one; {why}")


def test_a_number_of_transactions_is_no_position(tmp_path: Path):
    config = source_of(tmp_path, "tdsql")  # binlog_pos is the number of a GTID
    say(config, ("commit", None))
    assert told(config, {0: 1}) == (
        None,
        None,
        "no position: its format tells none; no set of GTIDs: its format tells none",
    )


@pytest.mark.parametrize("reason", [None, "no position: its 2 partitions have positions of their own"])
def test_a_publication_tells_them(tmp_path: Path, reason: str | None):
    place = {"binlog_file": "b.1", "binlog_pos": Decimal(4), "gtid": f"{A}:1-7", "position_reason": reason}
    row = {"source": "s", "scope": "source", "batch": 1, "source_time": START, "proven": True, "at": START}
    add(tmp_path, tables.WATERMARKS, {**row, **place, "behind": [{"db": "d", "table": "t", "reason": "why"}]})
    found = watermarks.complete(tables.WATERMARKS.at(store_at(str(tmp_path))), "s")
    assert found is not None
    assert (found.position, found.gtid, found.position_reason) == ("b.1:4", f"{A}:1-7", reason)
    assert (found.position_of(("d", "t")), found.gtids(("d", "t"))) == (None, None)
    assert found.position_of(("d", "u")) == "b.1:4"
