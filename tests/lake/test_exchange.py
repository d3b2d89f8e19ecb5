"""Rows that take the place of others in several tables: who may decide it, and what keeps their files."""

import math
import os
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest

from cdc_platform import tables
from cdc_platform.config import Config, parse_config
from cdc_platform.errors import LeaseLost
from cdc_platform.lake import commits, delta_table, erasing, exchange, lease, stores, writer_lock
from cdc_platform.lake.data_files import Output
from cdc_platform.lake.exchange import Exchanged
from cdc_platform.lake.store import Store
from cdc_platform.maintenance import run as upkeep
from cdc_platform.maintenance.run import Kept
from cdc_platform.spark import delta_sql

TABLE = tables.OFFSET_LEDGER


@pytest.fixture
def config(tmp_path: Path) -> Config:
    sources = [{"name": n, "format": "canal", "topics": [n]} for n in ("s", "other")]
    return parse_config({"lake": str(tmp_path / "lake"), "sources": sources}, tmp_path / "cdc.yaml")


@pytest.fixture
def lake(config: Config, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(lease, "_last", {})
    found = stores.lake(config)
    path = delta_sql.ensure(TABLE, TABLE.at(found))
    for source in ("s", "other"):
        delta_table.append_rows(path, [row(source, 1)])
    return found


def row(source: str, batch: int) -> dict[str, object]:
    told = {"room": "landing", "topic": "t", "partition": 0, "outcome": "landed", "from_offset": 0, "to_offset": 9}
    return {**told, "source": source, "batch": batch, "records": 10}


def batches(lake: Store) -> list[int]:
    found = delta_table.ask("SELECT batch FROM {t} WHERE source = 's' ORDER BY batch", t=TABLE.at(lake))
    return [r["batch"] for r in found]


def as_they_are(lake: Store) -> Exchanged:
    """The source's rows, written anew."""
    sink = delta_table.sink(TABLE.at(lake), source="s")
    out = Output(sink)
    rows = delta_table.rows(TABLE.at(lake)).cast(TABLE.arrow()).filter(pc.field("source") == "s")
    for batch in rows.select([f.name for f in sink.schema]).cast(sink.schema).to_batches():
        out.write(batch)
    written = out.close()
    assert written is not None
    return Exchanged(TABLE.path, {"source": "s"}, [written])


def taken_over(lake: Store) -> None:
    """Another process has the source, and brings rows."""
    mine, lease._held[:] = list(lease._held), []
    assert lake.put_new(f"_leases/s/{2:020d}", b'{"released": true}')
    delta_table.append_rows(TABLE.at(lake), [row("s", 2)])
    lease._held[:] = mine


def next_run(lake: Store) -> None:
    with lease.held(lake, "s", "s", 1.0) as mine:
        writer_lock._finish(lake, "s", mine.number)


def test_who_was_overtaken_decides_nothing(lake: Store) -> None:
    with pytest.raises(LeaseLost), lease.held(lake, "s", "s", 1.0):
        found = as_they_are(lake)
        taken_over(lake)
        exchange.decide(lake, "s", [found], {})
    next_run(lake)
    assert batches(lake) == [1, 2]


def test_what_was_decided_between_the_question_and_the_answer_is_not_done(
    lake: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stops right behind its look at the lease."""
    with pytest.raises(LeaseLost), lease.held(lake, "s", "s", 1.0) as mine:
        found = as_they_are(lake)
        look = lease.check
        monkeypatch.setattr(lease, "check", lambda: (look(), monkeypatch.undo(), taken_over(lake)))
        exchange.decide(lake, "s", [found], {})
        mine._renewed = -math.inf  # it stopped for longer than that
        exchange.finish(lake, "s")
    lease._last.clear()
    next_run(lake)
    assert batches(lake) == [1, 2]
    assert exchange.noted(lake) == []


@pytest.mark.parametrize("begun", [False, True], ids=["decided", "begun"])
def test_what_a_killed_process_decided_is_done_by_the_next_one(
    lake: Store, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    class Killed(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Killed

    with pytest.raises(Killed), lease.held(lake, "s", "s", 1.0), monkeypatch.context() as killed:
        found = as_they_are(lake)
        delta_table.append_rows(TABLE.at(lake), [row("s", 7)])
        exchange.decide(lake, "s", [found], {})
        killed.setattr(commits, "replace", dies)
        if begun:
            exchange.finish(lake, "s")
        dies()
    with lease.held(lake, "s", "s", 1.0):
        pass  # whoever came next was killed before it did anything
    next_run(lake)
    assert batches(lake) == [1]


@pytest.mark.parametrize("note", ["exchange", "erasure"])
def test_upkeep_of_another_source_keeps_the_files_of_what_is_decided(lake: Store, config: Config, note: str) -> None:
    found = as_they_are(lake)
    [file] = found.files
    path = TABLE.at(lake)
    if note == "exchange":
        exchange.decide(lake, "s", [found], {})
    else:
        erasing.decide(lake, "s", [erasing.Rewritten(TABLE.path, {"source": "s"}, erasing.ANEW, {"gone": file})])
    old = time.time() - 30 * 86400
    os.utime(f"{path.uri()}/{file.path}", (old, old))
    upkeep._look_after(None, config, Kept(TABLE.path, path, True, "other"))  # type: ignore[arg-type]  # without Spark
    assert path.exists(file.path)
    lake.remove(f"{of}/{p}" for of in ("_exchanges", "_erasures") for p in lake.below(of))
    upkeep._look_after(None, config, Kept(TABLE.path, path, True, "other"))  # type: ignore[arg-type]
    assert not path.exists(file.path)
