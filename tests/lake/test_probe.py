"""At a lake's first use, at each place, its store is raced: one that lets two writers win, or lists late, is
refused."""

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc_platform.config.storage import Storage
from cdc_platform.errors import ConfigError, StorageError
from cdc_platform.lake import probe
from cdc_platform.lake.folder import Folder
from cdc_platform.lake.object_store import ObjectStore


class LooksThenFolder(Folder):
    """Looks whether a file is there, and then writes it."""

    def put_new(self, path: str, data: bytes) -> bool:
        there = self.exists(path)
        time.sleep(0.002)  # a request's time
        if not there:
            self.put(path, data)
        return not there


class LooksThenObjects(ObjectStore):
    """The same on an object store, with no other delay than the requests'."""

    def put_new(self, path: str, data: bytes) -> bool:
        if there := self.exists(path):
            return not there
        self.put(path, data)
        return True


class TellsNobody(Folder):
    """Makes the file and says that somebody else did."""

    def put_new(self, path: str, data: bytes) -> bool:
        super().put_new(path, data)
        return False


class KeepsTheLast(Folder):
    """One is told that it won, and the last one's data is there."""

    def put_new(self, path: str, data: bytes) -> bool:
        won = super().put_new(path, data)
        if not won:
            self.put(path, data)
        return won


class ListsLate(Folder):
    """A listing shows what was made a moment ago."""

    def names(self, folder: str, *, after: str = "") -> list[tuple[str, int]]:
        there = [(self.uri(f"{folder}/{name}"), (name, size)) for name, size in super().names(folder, after=after)]
        return [told for path, told in there if time.time() - os.stat(path).st_mtime > 0.2]


@pytest.fixture(autouse=True)
def fresh():
    probe._check.cache_clear()
    yield
    probe._check.cache_clear()


def test_a_store_that_excludes_is_raced_once(store):
    probe.check(store)
    assert [n for n, _ in store.names("_store")] == ["probed.json"]
    before = store.read("_store/probed.json")
    probe._check.cache_clear()
    probe.check(store)
    assert store.read("_store/probed.json") == before


def used_again(lake) -> bool:
    """Whether another process's use of a lake races its store."""
    raced = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(probe, "race", lambda *_: raced.append(1))
        probe._check.cache_clear()
        probe.check(lake)
    return bool(raced)


def test_a_copy_is_raced_where_it_is_now(tmp_path):
    """The record of the race goes with the lake (docs/backup.md)."""
    probe.check(Folder(str(tmp_path / "lake"), Storage()))
    shutil.copytree(tmp_path / "lake", tmp_path / "moved")
    with pytest.raises(ConfigError, match="can't hold a lake"):
        probe.check(LooksThenFolder(str(tmp_path / "moved"), Storage()))
    moved = Folder(str(tmp_path / "moved"), Storage())
    assert used_again(moved)
    assert not used_again(moved)


def test_a_lake_is_raced_once_on_each_file_system(tmp_path, monkeypatch):
    """As one path has another disk after a restore; or as two machines see one lake."""
    lake = Folder(str(tmp_path), Storage())
    probe.check(lake)
    for _ in range(2):
        assert not used_again(Folder(str(tmp_path), Storage()))
    assert (
        lake.file_system() == Folder(str(tmp_path), Storage()).file_system() != Folder("/proc", Storage()).file_system()
    )
    of = Folder.file_system
    for n in range(30):
        monkeypatch.setattr(Folder, "file_system", lambda _, n=n: f"nfs4 server:/{n} 0")
        assert (used_again(lake), used_again(lake)) == (True, False)
    monkeypatch.setattr(Folder, "file_system", lambda _: "nfs4 server:/15 0")
    assert not used_again(lake)
    assert len(json.loads(lake.read("_store/probed.json"))["passed"]) == 20
    monkeypatch.setattr(Folder, "file_system", of)
    assert used_again(lake), "long ago"


@pytest.mark.s3
def test_a_bucket_of_another_address_is_raced(s3_store):
    probe.check(s3_store)
    told = json.loads(s3_store.read("_store/probed.json"))
    assert told["passed"][0]["endpoint"] == s3_store.storage.endpoint
    told["passed"][0]["endpoint"] = "https://s3.example.com"
    s3_store.put("_store/probed.json", json.dumps(told).encode())
    assert (used_again(s3_store), used_again(s3_store)) == (True, False)


def test_a_record_that_names_no_place_is_of_another_one(store):
    store.put("_store/probed.json", b'{"at": "2026-11-01T00:00:00+00:00", "names": 60, "writers": 6}')
    assert (used_again(store), used_again(store)) == (True, False)


@pytest.mark.s3
def test_a_known_lake_costs_a_request_and_then_none(s3, s3_store):
    probe.check(s3_store)
    probe._check.cache_clear()
    s3.reset()
    probe.check(s3_store)
    probe.check(s3_store)
    assert len(s3.reset()) == 1


@pytest.mark.thorough
def test_several_may_use_a_lake_for_the_first_time_at_once(store):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: probe._check.__wrapped__(store), range(2)))
    assert [n for n, _ in store.names("_store")] == ["probed.json"]


@pytest.mark.parametrize("kind", [LooksThenFolder, TellsNobody, KeepsTheLast, ListsLate])
def test_a_folder_that_lets_two_win_is_refused(kind, tmp_path):
    is_refused(kind(str(tmp_path), Storage()))


@pytest.mark.s3
def test_a_store_that_looks_and_then_writes_is_refused(s3_store):
    is_refused(LooksThenObjects(s3_store.root, s3_store.storage))


@pytest.mark.thorough
@pytest.mark.s3
def test_a_server_that_ignores_conditions_is_refused(s3, s3_store):
    s3.fault("unconditional", method="PUT", times=10**9)
    is_refused(s3_store)


def is_refused(lake) -> None:
    with pytest.raises(ConfigError) as caught:
        probe.check(lake)
    assert caught.value.key == "lake"
    assert "can't hold a lake" in str(caught.value)
    assert "If-None-Match" in str(caught.value)
    assert lake.names("_store") == []
    with pytest.raises(ConfigError):
        probe.check(lake)


@pytest.mark.thorough
@pytest.mark.s3
@pytest.mark.usefixtures("impatient")
def test_a_store_that_fails_is_no_verdict(s3, s3_store):
    s3.fault("503", method="PUT", path="probe-", skip=20, times=10**9)
    with pytest.raises(StorageError):
        probe.check(s3_store)
    assert not s3_store.exists("_store/probed.json")
    s3.reset()
    probe.check(s3_store)
    assert s3_store.exists("_store/probed.json")
