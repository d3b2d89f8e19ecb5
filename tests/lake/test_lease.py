"""A source's lease: one process has it, on whatever machine, and who lost it commits no more."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from cdc_platform.config.storage import Storage
from cdc_platform.errors import LeaseLost, RunInProgress
from cdc_platform.lake import lease, new_tables, stores
from tests.lakes import plain

_ELSEWHERE = {"machine": ["another boot", "pid:[1]"], "host": "b", "pid": 1, "started": 1.0}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Every test is a process of its own."""
    monkeypatch.setattr(lease, "_last", {})
    monkeypatch.setattr(lease, "_still", {})
    monkeypatch.setattr(lease, "_POLL_S", 0.02)


def numbers(store) -> list[int]:
    return [int(name) for name, _ in store.names("_leases/s")]


def record(store, number: int, **told) -> None:
    text = {"holder": _ELSEWHERE, "length_s": 45.0, "beat": 0, "released": False, **told}
    store.put(f"_leases/s/{number:020d}", json.dumps(text).encode())


def held(store, wait_s: float = 0, length_s: float = 45.0):
    return lease.held(store, "s", "s", wait_s, length_s)


def test_each_holder_has_a_higher_number(store):
    for number in (1, 2, 3):
        with held(store) as mine:
            assert mine.number == number
            lease.check()
            assert numbers(store)[-1] == number
    with held(store) as mine, pytest.raises(RunInProgress), held(store):
        pass
    lease._last.clear()
    with held(store):
        assert numbers(store) == [1, 2, 3, 4, 5]


def test_old_records_go(store):
    for number in range(1, 42):
        record(store, number, released=True)
    with held(store):
        assert numbers(store) == list(range(22, 43))


def test_of_several_that_want_it_one_has_it(store):
    """Sixteen threads, each a process of its own as far as the lake shows."""
    inside: list[int] = []

    def work(_: int) -> None:
        with held(store, 60) as mine:
            inside.append(mine.number)
            assert len(inside) == 1
            time.sleep(0.01)
            inside.remove(mine.number)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert numbers(store)[-1] == 16


def test_another_machines_lease_is_over_when_its_record_does_not_change(store):
    record(store, 7, length_s=0.5)
    started = time.monotonic()
    with held(store, 10) as mine:
        assert mine.number == 8
        assert time.monotonic() - started > 0.5


def test_a_lease_that_is_renewed_is_not_over(store):
    record(store, 7, length_s=0.5)
    ended = threading.Event()

    def renew() -> None:
        beat = 0
        while not ended.wait(0.1):
            record(store, 7, length_s=0.5, beat=(beat := beat + 1))

    other = threading.Thread(target=renew)
    other.start()
    try:
        with pytest.raises(RunInProgress), held(store, 2):
            pass
    finally:
        ended.set()
        other.join()


def test_the_holder_renews(store):
    with held(store, length_s=0.5):
        record_1 = store.read(f"_leases/s/{1:020d}")
        time.sleep(0.3)
        assert store.read(f"_leases/s/{1:020d}") != record_1
        with pytest.raises(RunInProgress), held(store, 1.5):
            pass


def test_who_looks_sees_whether_a_process_has_it_on_any_machine(store):
    assert not lease.is_held(store, "s")
    with held(store):
        assert lease.is_held(store, "s")
    assert not lease.is_held(store, "s")
    record(store, 7, length_s=1)
    assert not lease.is_held(store, "s"), "nobody renews it"
    started = time.monotonic()
    assert not lease.is_held(store, "s")
    assert time.monotonic() - started < 0.2, "it is known"
    later = threading.Timer(0.1, record, (store, 7), {"length_s": 1, "beat": 1})
    record(store, 7, length_s=1)
    lease._still.clear()
    later.start()
    assert lease.is_held(store, "s")
    later.join()
    record(store, 7, released=True)
    assert not lease.is_held(store, "s")


def test_what_was_given_back_is_free_at_once(store):
    record(store, 7, released=True)
    with held(store) as mine:
        assert mine.number == 8


def test_a_process_of_this_machine_that_has_ended_holds_nothing(store):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    record(store, 7, holder={**lease._holder(), "pid": ended.pid, "started": 1.0})
    assert not lease.is_held(store, "s")
    with held(store) as mine:
        assert mine.number == 8
    lease._last.clear()
    mine = lease._holder()
    record(store, 9, holder={**mine, "started": f"{mine['started']}0"})  # its number is another process's now
    with held(store):
        pass


def test_a_process_that_a_version_before_noted_is_waited_for(store):
    """By the time at which it started, which may have been told differently then."""
    mine = lease._holder()
    for machine in (mine["machine"], mine["machine"][:2]):
        record(store, 7, length_s=0.5, holder={**mine, "machine": machine, "started": 1.0})
        with pytest.raises(RunInProgress), held(store):
            pass
    with held(store, 10) as lease_:
        assert lease_.number == 8


_HOLDS = """
import sys
from cdc_platform.config.storage import Storage
from cdc_platform.lake import lease, stores
lake = stores.of(sys.argv[1], Storage())
with lease.held(lake, "s", "s", 0):
    print("held", flush=True)
    sys.stdin.readline()
    lease.check()
"""


@contextmanager
def running(script: str, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    """A process of Python, and what it prints."""
    ends = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=Path(__file__).parents[2],
        stdin=ends,
        stdout=ends,
        stderr=ends,
        text=True,
    )
    try:
        assert process.stdout
        yield process, process.stdout
    finally:
        process.kill()


def test_a_clock_that_is_set_takes_no_lease_from_a_process_of_this_machine(tmp_path, clock_set):
    with running(_HOLDS, str(tmp_path)) as (process, told):
        assert told.readline() == "held\n"
        clock_set(1)
        with pytest.raises(RunInProgress), held(stores.of(str(tmp_path), Storage()), 0.1):
            pass
        process.communicate("\n", timeout=60)
        assert process.returncode == 0


def test_who_was_overtaken_commits_no_more_and_is_told(store):
    with pytest.raises(LeaseLost, match="another one has taken the source over") as caught, held(store) as mine:
        mine._renewed = lease._clock()
        record(store, 2)
        lease.check()  # sure of it so shortly after a renewal
        mine._renewed -= 40
        raise ValueError("cdc-platform: the lease 1 is over, another process has 2")
    assert isinstance(caught.value.__context__, ValueError)
    with pytest.raises(RunInProgress), held(store):  # it didn't give back what another one has
        pass
    lease.check()  # no lease, no question


def test_a_record_made_after_its_number_was_overtaken_is_no_lease(store):
    """One that was stopped between its look and its record."""
    lease._last[store.root, "_leases/s"] = 1
    record(store, 5)
    with pytest.raises(RunInProgress), held(store):
        pass
    assert numbers(store) == [5], "it left none"


def test_a_number_that_was_pruned_is_not_taken_again(store):
    """One process had a lease; others had it so often since that its next number is free again."""
    with held(store):
        pass
    last = dict(lease._last)
    for number in range(2, 62):
        record(store, number, released=True)
    lease._last.clear()
    with held(store):
        assert numbers(store)[0] == 42
    lease._last.update(last)
    with held(store) as mine:
        lease.check()
        assert mine.number == 63
        assert numbers(store) == list(range(42, 64))
        record(store, 64)
        mine._renewed -= 40
        with pytest.raises(LeaseLost):
            lease.check()


@pytest.mark.s3
@pytest.mark.usefixtures("impatient")
def test_a_lease_that_could_not_be_looked_at_is_given_back(s3, s3_store):
    with held(s3_store):
        pass
    s3.fault("503", method="GET", times=2)
    with held(s3_store) as mine:
        lease.check()
        assert mine.number == 2
    with held(s3_store) as mine:
        assert mine.number == 3


@pytest.mark.s3
def test_who_had_it_last_takes_it_with_two_requests_and_is_sure_of_it(s3, s3_store):
    with held(s3_store):
        pass
    s3.reset()
    with held(s3_store):
        lease.check()
        assert [request.split()[0] for request in s3.reset()] == ["PUT", "GET"]


_STOPPED = """
import sys
from cdc_platform.config.storage import Storage
from cdc_platform.lake import delta_table, lease, stores
root, storage, table = sys.argv[1:]
lake = stores.of(root, Storage.model_validate_json(storage))
with lease.held(lake, "s", "s", 0, 1.5):
    for n in range(10 ** 6):
        delta_table.append_rows(stores.of(table, Storage()), [{"source": "stopped", "row_index": 0, "offset": n}])
        print(n, flush=True)
"""


def test_a_process_stopped_for_longer_than_its_lease_commits_no_more(store, tmp_path):
    from deltalake import DeltaTable

    from cdc_platform import tables

    path = str(tmp_path / "quarantine")
    new_tables.create(stores.of(path, Storage()), tables.QUARANTINE)
    with running(_STOPPED, store.root, plain(store.storage), path) as (process, told):
        while int(told.readline()) < 3:
            pass
        os.kill(process.pid, signal.SIGSTOP)
        with held(store, 20) as mine:
            assert mine.number == 2
            before = DeltaTable(path).version()
            os.kill(process.pid, signal.SIGCONT)
            _, said = process.communicate(timeout=60)
            assert "LeaseLost: source s: this process was stopped" in said
            assert DeltaTable(path).version() - before <= 1  # one that had looked, and was stopped before it committed
