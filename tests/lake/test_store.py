"""A lake's store: the same operations on a folder and on S3; faults of the S3 server on the way."""

import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_platform.config.storage import Storage
from cdc_platform.errors import ConfigError, StorageError
from cdc_platform.lake import object_files, stores
from cdc_platform.lake.folder import Folder
from cdc_platform.lake.store import commit_name
from tests.disk import mounted
from tests.s3_server import BUCKET, SECRET

ROWS = pa.table(
    {"id": pa.array(range(200_000), pa.int64()), "text": [f"row {i * 7919 % 200_000}" for i in range(200_000)]}
)
ODD = "source=a b/100%25 #ü?&+=[x]{y}~*.json"


def test_a_file_is_as_it_was_put(store):
    assert store.read("a/b.json") is None
    assert not store.exists("a/b.json")
    store.put("a/b.json", b"one")
    store.put("a/b.json", b"")
    assert store.read("a/b.json") == b""
    store.put("a/b.json", b"two")
    assert store.read("a/b.json") == b"two"
    assert store.exists("a/b.json")
    assert not store.exists("a")
    assert store.read("a") is None


def test_put_new_makes_a_file_once(store):
    assert store.put_new("log/0.json", b"first")
    assert not store.put_new("log/0.json", b"second")
    assert not store.put_new("log/0.json", b"first")
    assert store.read("log/0.json") == b"first"
    assert store.names("log") == [("0.json", 5)]


def test_any_name_may_stand_for_a_file(store):
    assert store.put_new(ODD, b"x")
    assert store.read(ODD) == b"x"
    assert store.names("source=a b") == [(ODD.split("/")[1], 1)]
    store.remove([ODD])
    assert not store.exists(ODD)


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../b", "a\n", "./a"])
def test_a_path_stays_in_the_lake(store, path):
    with pytest.raises(ValueError, match="no path"):
        store.put(path, b"x")


def test_names_are_those_right_in_a_folder_in_order(store):
    assert store.names("log") == []
    for name in ("3", "20", "1", "sub/4", "1x", "ä"):
        store.put(f"log/{name}", name.encode())
    store.put("logs/9", b"")
    store.put("log/.hidden", b"")
    assert store.names("log") == [("1", 1), ("1x", 2), ("20", 2), ("3", 1), ("ä", 2)]
    assert [n for n, _ in store.names("log", after="1x")] == ["20", "3", "ä"]
    assert [n for n, _ in store.names("log", after="2")] == ["20", "3", "ä"]
    assert store.names("log", after="ä") == []
    assert store.at("log").names("sub") == [("4", 5)]


@pytest.mark.parametrize("count", [1, pytest.param(1001, marks=pytest.mark.thorough)])
def test_long_listings_are_whole(store, count):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.put(f"log/{n:05d}", b"x"), range(count)))
    assert [n for n, _ in store.names("log")] == [f"{n:05d}" for n in range(count)]
    assert len(store.names("log", after="00000")) == count - 1


def test_the_lake_itself_has_names(store):
    store.put("a", b"x")
    assert store.names("") == [("a", 1)]
    assert store.at("below").names("") == []


def test_remove_takes_what_is_there(store):
    store.remove([])
    store.put("a/1", b"")
    store.put("a/2", b"")
    store.remove(["a/1", "a/none", "b/none", "a/2"])
    assert store.names("a") == []


def test_a_place_below(store):
    store.at("t").at("_delta_log").put("0.json", b"x")
    assert store.read("t/_delta_log/0.json") == b"x"
    assert (
        store.at("t").uri("_delta_log/0.json")
        == store.uri("t/_delta_log/0.json")
        == f"{store.root}/t/_delta_log/0.json"
    )


# -- files of Parquet ----------------------------------------------------------------------------------------------


def written(store, path: str, rows: pa.Table = ROWS, **options) -> int:
    with store.open_output(path) as out:
        with pq.ParquetWriter(out.file, rows.schema, **options) as writer:
            writer.write_table(rows, row_group_size=50_000)
        return out.close()


def test_parquet_is_written_and_read(store):
    size = written(store, "t/source=a b/f.parquet", compression="none")
    assert store.names("t/source=a b") == [("f.parquet", size)]
    assert size > 1 << 20
    assert pq.read_metadata(store.open_input("t/source=a b/f.parquet")).num_rows == ROWS.num_rows
    for options in ({"pre_buffer": True}, {"buffer_size": 1 << 16}):
        file = pq.ParquetFile(store.open_input("t/source=a b/f.parquet"), **options)
        assert file.read().equals(ROWS)
        assert file.read_row_group(2, columns=["text"])["text"][0].as_py() == ROWS["text"][100_000].as_py()
        batches = list(file.iter_batches(9_999, row_groups=[1, 3]))
        assert pa.Table.from_batches(batches)["id"].to_pylist() == [*range(50_000, 100_000), *range(150_000, 200_000)]


def test_a_file_is_read_anywhere(store):
    data = os.urandom(200_000)
    store.put("f", data)
    with store.open_input("f") as file:
        assert file.size() == len(data)
        for start, size in (
            (0, 10),
            (199_990, 100),
            (100_000, 90_000),
            (134_464, 1),
            (134_463, 2),
            (5, 0),
            (200_000, 5),
        ):
            file.seek(start)
            assert file.read(size) == data[start : start + size]
            assert file.tell() == min(start + size, len(data))
        file.seek(-4, os.SEEK_END)
        assert file.read() == data[-4:]
        file.seek(7)
        assert file.read() == data[7:]
    store.put("small", b"12")
    assert store.open_input("small").read() == b"12"
    store.put("empty", b"")
    assert store.open_input("empty").read() == b""


def test_a_file_that_is_not_there_cannot_be_opened(store):
    with pytest.raises(FileNotFoundError):
        store.open_input("none")
    with pytest.raises(FileNotFoundError):
        pq.read_metadata(store.open_input("a/none"))


def test_a_new_file_is_there_only_once_it_is_closed(store):
    out = store.open_output("a/b/f")
    out.file.write(b"12345")
    assert not store.exists("a/b/f")
    assert store.names("a/b") == []
    assert out.close() == 5
    assert store.read("a/b/f") == b"12345"
    out.discard()
    assert store.exists("a/b/f")


def test_a_discarded_file_leaves_nothing(store, request):
    out = store.open_output("a/f")
    out.file.write(b"x" * (20 << 20))
    out.discard()
    out.discard()
    with pytest.raises(RuntimeError), store.open_output("a/g") as out:
        out.file.write(b"x")
        raise RuntimeError
    assert store.names("a") == []
    if isinstance(store, Folder):
        assert os.listdir(store.uri("a")) == []


# -- where it is ---------------------------------------------------------------------------------------------------


def test_a_store_travels_and_keeps_its_secrets_to_itself(store):
    store.put("a", b"x")
    there = pickle.loads(pickle.dumps(store))
    assert there == store
    assert hash(there) == hash(store)
    assert there.read("a") == b"x"
    assert SECRET not in repr(store) + str(store) + repr(store.storage) + str(store.storage)


@pytest.mark.parametrize(
    ("uri", "delta", "spark"),
    [
        ("/data/lake/", "/data/lake/t", "/data/lake/t"),
        ("file:///data/my%20lake", "/data/my lake/t", "/data/my lake/t"),
        ("s3a://b/x/y/", "s3://b/x/y/t", "s3a://b/x/y/t"),
        ("S3://b", "s3://b/t", "s3a://b/t"),
    ],
)
def test_readers_get_the_uris_that_they_take(uri, delta, spark):
    store = stores.of(uri, Storage())
    assert (store.uri("t"), store.spark_uri("t"), store.at("t").uri()) == (delta, spark, delta)


@pytest.mark.parametrize("uri", ["hdfs://n/x", "https://b/x", "lake", "s3://", "s3:b/x", "s3://b/../x", "s3://b/a%20b"])
def test_what_is_no_store_is_refused(uri):
    with pytest.raises(ConfigError) as caught:
        stores.of(uri, Storage())
    assert caught.value.key == "lake"


def test_the_valid_schemes_are_named():
    with pytest.raises(ConfigError, match=r"hdfs: is no store.*s3://…"):
        stores.of("hdfs://n/x", Storage())


# -- S3 with faults ------------------------------------------------------------------------------------------------


@pytest.mark.s3
@pytest.mark.parametrize("do", ["503_after", "drop_after", "503", "drop", "409", "twice"])
def test_a_put_whose_answer_was_lost_is_recognised(s3, s3_store, do):
    s3.fault(do, method="PUT", path="0.json")
    assert s3_store.put_new("log/0.json", b"mine")
    seen = [r.split()[0] for r in s3.reset()]
    assert len(seen) > 1, "the fault was met"
    assert "HEAD" in seen or do in ("503", "drop")
    assert s3_store.read("log/0.json") == b"mine"
    assert not s3_store.put_new("log/0.json", b"mine"), "equal data of another writer isn't ours"


@pytest.mark.s3
@pytest.mark.parametrize("do", ["503", "drop", "503_after", "drop_after"])
def test_a_put_whose_answer_was_lost_is_not_mistaken_for_ours(s3, s3_store, do):
    assert s3_store.put_new("log/0.json", b"same")
    s3.fault(do, method="PUT", path="0.json")
    assert not s3_store.put_new("log/0.json", b"same")


@pytest.mark.s3
@pytest.mark.usefixtures("impatient")
def test_a_put_that_hangs_is_recognised(s3, s3_store):
    s3.fault("delay", method="PUT", path="0.json", seconds=6)
    assert s3_store.put_new("log/0.json", b"mine")


@pytest.mark.s3
@pytest.mark.parametrize("do", ["503", "drop"])
def test_reads_and_listings_are_asked_again(s3, s3_store, do):
    s3_store.put("a/1", b"x")
    for ask in (
        lambda: s3_store.read("a/1") == b"x",
        lambda: s3_store.names("a") == [("1", 1)],
        lambda: s3_store.names("a", after="0") == [("1", 1)],
        lambda: s3_store.exists("a/1"),
        lambda: s3_store.open_input("a/1").read() == b"x",
    ):
        s3.fault(do)
        assert ask()


@pytest.mark.s3
def test_a_late_listing_commits_nothing_over_another(s3, s3_store):
    s3_store.put_new("log/0", b"a")
    assert [n for n, _ in s3_store.names("log")] == ["0"]
    s3_store.put_new("log/1", b"b")
    s3.fault("stale", method="GET", path="list-type")
    assert [n for n, _ in s3_store.names("log")] == ["0"]
    assert not s3_store.put_new("log/1", b"c")


@pytest.mark.s3
@pytest.mark.usefixtures("impatient")
def test_a_store_that_stays_away_is_an_error_that_a_retry_may_mend(s3, s3_store):
    s3.fault("503", times=1000)
    for ask in (lambda: s3_store.put("a", b""), lambda: s3_store.read("a"), lambda: s3_store.names("b")):
        error = failed(ask)
        assert error.retriable
        assert "SlowDown" in str(error)
        assert s3_store.root in str(error)
    assert failed(lambda: s3_store.put_new("a", b"")).retriable


@pytest.mark.s3
@pytest.mark.parametrize("do", ["503_after", "drop_after", "503"])
def test_a_large_file_goes_up_in_parts(s3, s3_store, do):
    data = os.urandom(40 << 20)
    s3.fault(do, method="PUT", path="partNumber=2")
    s3.fault(do, method="POST", path="uploadId=")
    with s3_store.open_output("big") as out:
        out.file.write(data)
    assert s3_store.read("big") == data
    assert s3.uploads(BUCKET) == []


@pytest.mark.s3
def test_an_upload_that_fails_is_aborted(s3, s3_store, monkeypatch):
    monkeypatch.setitem(object_files._RETRIES, "max_retries", 1)
    object_files._client.cache_clear()
    s3.fault("503", method="PUT", path="partNumber=2", times=1000)
    out = s3_store.open_output("bad")
    out.file.write(b"x" * (40 << 20))
    assert failed(out.close).retriable
    object_files._client.cache_clear()
    assert not s3_store.exists("bad")
    assert s3.uploads(BUCKET) == []


@pytest.mark.s3
def test_footers_cost_a_request(s3, s3_store):
    written(s3_store, "f.parquet", ROWS.slice(0, 1000))
    s3.reset()
    file = pq.ParquetFile(s3_store.open_input("f.parquet"), pre_buffer=True)
    assert file.metadata.num_rows == 1000
    assert file.read().num_rows == 1000
    assert len(s3.reset()) == 1
    assert pq.read_metadata(s3_store.open_input("f.parquet")).num_rows == 1000
    assert len(s3.reset()) == 0, "a file of data never changes"
    written(s3_store, "_delta_log/0.checkpoint.parquet", ROWS.slice(0, 1000))
    s3.reset()
    for _ in range(2):
        pq.read_metadata(s3_store.open_input("_delta_log/0.checkpoint.parquet"))
    assert len(s3.reset()) == 2, "a checkpoint may be written once more"
    written(s3_store, "g.parquet", compression="none")
    s3.reset()
    file = pq.ParquetFile(s3_store.open_input("g.parquet"), pre_buffer=True)
    assert len(s3.reset()) == 1
    assert file.read_row_group(1).num_rows == 50_000
    assert len(s3.reset()) <= 2


@pytest.mark.s3
@pytest.mark.usefixtures("impatient")
def test_a_reader_tells_what_went_wrong_in_the_middle(s3, s3_store):
    written(s3_store, "f.parquet", compression="none")
    for options in ({"pre_buffer": True}, {"buffer_size": 1 << 16}):
        file = pq.ParquetFile(s3_store.open_input("f.parquet"), **options)
        s3.fault("503", times=1000)
        assert failed(file.read).retriable
        s3.reset()


@pytest.mark.s3
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"endpoint": "http://no-such-host.invalid"}, "storage.endpoint"),
        ({"endpoint": "https://{host}"}, "storage.endpoint"),
        ({"bucket": "none"}, "no such bucket"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_a_wrong_address_is_told_and_not_retried(s3, s3_storage, change, says):
    endpoint = change.get("endpoint", s3.endpoint).format(host=s3.endpoint.removeprefix("http://"))
    store = stores.of(f"s3://{change.get('bucket', BUCKET)}/x", s3_storage.model_copy(update={"endpoint": endpoint}))
    for ask in (
        lambda: store.read("a"),
        lambda: store.put_new("a", b""),
        lambda: store.put("a", b""),
        lambda: store.names(""),
    ):
        error = failed(ask)
        assert says in str(error)
        assert not error.retriable


@pytest.mark.s3
def test_wrong_keys_are_told_without_them(s3, make_private):
    storage = make_private({"access_key": "AKIDWRONG-canary", "secret_key": "other-canary"})
    error = failed(lambda: stores.of(f"s3://{BUCKET}/x", storage).read("a"))
    assert "InvalidAccessKeyId" in str(error)
    assert "credentials under `storage:`" in str(error)
    assert not error.retriable
    assert "canary" not in str(error) + repr(error) + str(vars(error))


@pytest.fixture
def make_private(s3):
    """Makes a Storage of a server that checks who asks, as moto does on demand."""
    import requests

    requests.post(f"{s3.endpoint}/moto-api/reset-auth", data="0", timeout=10).raise_for_status()
    yield lambda keys: Storage.model_validate({"endpoint": s3.endpoint, "region": "us-east-1", **keys})
    requests.post(f"{s3.endpoint}/moto-api/reset-auth", data="inf", timeout=10).raise_for_status()


@pytest.mark.s3
def test_what_is_not_given_comes_from_the_environment(s3, s3_store, monkeypatch):
    s3_store.put("a", b"x")
    for name, value in (
        ("ENDPOINT_URL", s3.endpoint),
        ("ACCESS_KEY_ID", "k"),
        ("SECRET_ACCESS_KEY", "s"),
        ("REGION", "x"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    object_files._client.cache_clear()
    try:
        assert stores.of(s3_store.root, Storage()).read("a") == b"x"
    finally:
        object_files._client.cache_clear()


@pytest.mark.s3
def test_an_address_of_the_environment_goes_with_the_task(s3, s3_store, monkeypatch):
    """An executor's environment has none, or another; its keys are its own."""
    s3_store.put("a", b"x")
    for name, value in (
        ("ENDPOINT_URL", f"{s3.endpoint}/"),
        ("REGION", "eu-west-9"),
        ("SECRET_ACCESS_KEY", "driver's"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    task = pickle.dumps(stores.of(s3_store.root, Storage()))
    assert b"driver's" not in task
    script = "import pickle, sys; store = pickle.load(sys.stdin.buffer); print(store.read('a'), store.storage.region)"
    for there in ({}, {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "AWS_REGION": "x"}):
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        env |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", **there}
        told = subprocess.run([sys.executable, "-c", script], input=task, env=env, capture_output=True, check=False)
        assert told.stdout == b"b'x' eu-west-9\n", told.stderr.decode()[-2000:]


@pytest.mark.s3
def test_the_address_of_the_configuration_wins(s3, s3_store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    object_files._client.cache_clear()
    s3_store.put("a", b"x")
    assert s3_store.read("a") == b"x"


# -- races and faults of folders -----------------------------------------------------------------------------------


def test_no_name_is_won_twice(store):
    writers, names, lock = 6, 60, threading.Lock()
    start, won = threading.Barrier(writers), {}

    def write(writer: int) -> None:
        for n in range(names):
            start.wait()
            if store.put_new(f"race/{n}", f"{writer}".encode()):
                with lock:
                    won.setdefault(n, []).append(writer)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    assert [len(won.get(n, [])) for n in range(names)] == [1] * names
    assert [store.read(f"race/{n}") for n in range(names)] == [f"{won[n][0]}".encode() for n in range(names)]


def test_what_a_folder_was_given_is_on_the_disk(tmp_path, monkeypatch):
    """Before its name is there: a power loss leaves no commit whose files are empty."""
    store, flushed, fsync = stores.of(str(tmp_path), Storage()), [], os.fsync

    def seen(file):
        flushed.append((os.fstat(file).st_ino, os.fstat(file).st_size, os.path.exists(tmp_path / "t/f.parquet")))
        fsync(file)

    monkeypatch.setattr(os, "fsync", seen)
    size = written(store, "t/f.parquet")
    store.put("kept", b"x")
    store.put_new("new", b"yy")
    assert [s[1:] for s in flushed] == [(size, False), (1, True), (2, True)]
    assert flushed[0][0] == os.stat(tmp_path / "t/f.parquet").st_ino


def test_delta_rs_works_by_the_same_options(store):
    from deltalake import DeltaTable, write_deltalake

    place, threads = store.at("t"), 3
    write_deltalake(place.uri(), ROWS.slice(0, 1), storage_options=place.options)

    def append(n: int) -> None:
        for _ in range(5):
            write_deltalake(place.uri(), ROWS.slice(n, 1), mode="append", storage_options=place.options)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(append, range(threads)))
    table = DeltaTable(place.uri(), storage_options=place.options)
    assert table.version() == 15
    assert len(table.to_pyarrow_table()) == 16
    assert [n for n, _ in place.names("_delta_log", after="0" * 19 + "9")][:6] == [
        f"{n:020d}.json" for n in range(9, 15 + 1)
    ][:6]


def test_a_full_disk_is_told(tmp_path):
    with mounted(tmp_path / "small", "64k") as disk:
        store = stores.of(str(disk.path), Storage())
        store.put("kept", b"x")
        for ask in (lambda: store.put("kept", b"y" * 100_000), lambda: store.put_new("new", b"y" * 100_000)):
            error = failed(ask)
            assert "No space left" in str(error)
            assert error.retriable
        with pytest.raises(OSError, match="No space"), store.open_output("f") as out:
            out.file.write(b"y" * 100_000)
        assert os.listdir(disk.path) == ["kept"]
        assert store.read("kept") == b"x"


def test_a_folder_without_hard_links_is_refused(tmp_path, monkeypatch):
    def refused(_from, _to):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    error = failed(lambda: stores.of(str(tmp_path), Storage()).put_new("a", b"x"))
    assert "no hard links" in str(error)
    assert os.listdir(tmp_path) == []


def test_a_folder_recognises_a_link_whose_answer_was_lost(tmp_path, monkeypatch):
    link = os.link

    def twice(made, name):
        link(made, name)
        link(made, name)

    monkeypatch.setattr(os, "link", twice)
    store = stores.of(str(tmp_path), Storage())
    assert store.put_new("a", b"x")
    assert not store.put_new("a", b"x")


def failed(ask) -> StorageError:
    with pytest.raises(StorageError) as caught:
        ask()
    assert SECRET not in str(caught.value)
    return caught.value


def test_files_of_folders_in_a_folder_are_listed(store):
    for path in ("c/metadata", "c/offsets/0", "c/offsets/.0.crc", "c/commits/0", "other/1", "c2/1"):
        store.put(path, b"x")
    assert store.below("c") == ["commits/0", "metadata", "offsets/0"]
    assert store.at("c").below("") == ["commits/0", "metadata", "offsets/0"]
    assert store.below("none") == []
    assert store.sizes("c") == {"commits/0": 1, "metadata": 1, "offsets/0": 1} == store.at("c").sizes("")
    assert store.sizes("none") == {}


def test_a_commit_that_was_made_again_isnt_taken_for_the_one_before(store):
    for version in (0, 1, 2):
        store.put(commit_name(version), b"x")
    store.put("_delta_log/00000000000000000001.checkpoint.parquet", b"x")
    before = store.commits(1)
    assert (before.keys(), store.commits(1), store.commits(3)) == ({1, 2}, before, {})
    time.sleep(1.1)  # an object store tells seconds
    store.put(commit_name(2), b"y")
    assert (store.commits(1)[1], store.commits(1)[2] == before[2]) == (before[1], False)
