"""Spark's commits: of several writers of one version one wins, and only who holds the lease makes any."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.spark.log_store import LogStore, launch, options

_NAME = f"{7:020d}.json"


@pytest.fixture(scope="module")
def jvm():
    gateway = launch()
    yield gateway
    gateway.shutdown()


@pytest.fixture
def log_store(jvm, store):
    return LogStore(jvm, store.spark_uri("t/_delta_log"), options(store.root, store.storage))


def race(store, names: int) -> None:
    """Two processes are asked for the same commit at one instant, the same one first every other time."""
    folder, hadoop = store.spark_uri("t/_delta_log"), json.dumps(options(store.root, store.storage))
    run = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.log_store", folder, hadoop, me],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for me in "ab"
    ]
    try:
        assert [p.stdout.readline().strip() for p in run] == ["made", "made"]
        won = [0, 0]
        for n in range(names):
            for process in run if n % 2 else reversed(run):
                process.stdin.write(f"{n:020d}.json\n")
            told = [p.stdout.readline().strip() for p in run]
            made = [i for i in (0, 1) if told[i] == "made"]
            assert len(made) == 1, (n, told)
            assert "java.nio.file.FileAlreadyExistsException" in told[1 - made[0]]
            assert store.read(f"t/_delta_log/{n:020d}.json") == f"{'ab'[made[0]]}\n".encode()
            won[made[0]] += 1
        assert min(won) > names / 50  # they met
    finally:
        for process in run:
            process.stdin.close()
            process.wait(30)


def test_of_two_jvms_one_makes_a_commit(store):
    race(store, 20)


@pytest.mark.thorough
def test_of_two_jvms_one_makes_each_of_600_commits(store):
    race(store, 600)


def test_a_commit_is_made_once(store, log_store):
    assert log_store.write(_NAME, "{}", "ü") == "made"
    assert store.read(f"t/_delta_log/{_NAME}") == "{}\nü\n".encode()
    assert "java.nio.file.FileAlreadyExistsException" in log_store.write(_NAME, "{}", "other")
    assert "java.nio.file.FileAlreadyExistsException" in log_store.write(_NAME, "{}")
    assert store.read(f"t/_delta_log/{_NAME}") == "{}\nü\n".encode()
    assert log_store.write("_last_checkpoint", "1", overwrite=True) == "made"
    assert log_store.write("_last_checkpoint", "2", overwrite=True) == "made"
    assert store.read("t/_delta_log/_last_checkpoint") == b"2\n"
    assert [n for n, _ in store.names("t/_delta_log")] == [_NAME, "_last_checkpoint"]


@pytest.mark.s3
@pytest.mark.parametrize("do", ["drop_after", pytest.param("503_after", marks=pytest.mark.thorough)])
def test_a_commit_whose_answer_is_lost_is_ones_own(jvm, s3, s3_store, do):
    made = LogStore(jvm, s3_store.spark_uri("t/_delta_log"), options(s3_store.root, s3_store.storage))
    s3.fault(do, method="PUT", path=_NAME)
    assert made.write(_NAME, "mine") == "made"
    assert sum(_NAME in request and request.startswith("PUT") for request in s3.reset()) == 2
    assert s3_store.read(f"t/_delta_log/{_NAME}") == b"mine\n"


def test_a_link_whose_answer_is_lost_is_ones_own(jvm, tmp_path):
    """As on NFS: the name is there when the link is asked for again, and it is the file's own."""
    folder, ended = tmp_path / "_delta_log", threading.Event()
    made = LogStore(jvm, str(folder), {})

    def link_before() -> None:
        while not ended.is_set():
            for file in folder.glob(f".{_NAME}.*.tmp"):
                os.link(file, folder / _NAME)
                return

    other = threading.Thread(target=link_before)
    other.start()
    try:
        text = "x" * (64 << 20)
        assert made.write(_NAME, text) == "made"
    finally:
        ended.set()
        other.join()
    assert (folder / _NAME).stat().st_size == len(text) + 1
    assert [f.name for f in folder.iterdir()] == [_NAME]
    assert "java.nio.file.FileAlreadyExistsException" in made.write(_NAME, "mine")


def test_only_who_holds_the_lease_commits(store, log_store):
    token = f"{4:020d}"
    log_store.conf.set("cdc.lease", store.spark_uri(f"leases/s/{token}"))
    store.put_new(f"leases/s/{token}", b"{}")
    store.put_new(f"leases/s/{3:020d}", b"{}")
    assert log_store.write("1.json", "x") == "made"
    store.put_new(f"leases/s/{5:020d}", b"{}")
    assert f"another process has {5:020d}" in log_store.write("2.json", "x")
    store.remove([f"leases/s/{n:020d}" for n in (3, 4)])
    assert "is gone" in log_store.write("2.json", "x")
    assert [n for n, _ in store.names("t/_delta_log")] == ["1.json"]
