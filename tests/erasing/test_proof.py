"""How a lake is looked through for a subject's bytes: what is asked of the store, and how much is read at once."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_platform.erasing import proof
from cdc_platform.erasing.quotes import Quotes, parts
from cdc_platform.lake import stores
from cdc_platform.lake.folder import Folder
from cdc_platform.lake.object_store import ObjectStore
from tests import calls

SECRET = "abcdefghijk"
TABLES = 12
NOTHING = proof.Payloads(b"x", frozenset(), frozenset())


@pytest.fixture
def config(make_config, store):
    """Of a lake with a data file and a commit of each of some tables; every fourth of either has the text."""
    made = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])
    for i in range(TABLES):
        text = SECRET if i % 4 == 0 else "other"
        with store.open_output(f"snapshots/s/d/t{i:02}/part.parquet") as out:
            pq.write_table(pa.table({"v": ["x", text]}), out.file)
        store.put(f"snapshots/s/d/t{i:02}/_delta_log/{0:020}.json", text.encode())
    return made.model_copy(update={"lake": store.uri(), "storage": store.storage})


def looked_through(config, but=()):
    return proof.look_through(config, config.source("s"), Quotes(tuple(parts(SECRET))), NOTHING, but)


def test_all_files_are_looked_through_in_their_order(config, store):
    but = {"snapshots/s/d/t04/part.parquet"}
    found = looked_through(config, but)
    every = {
        f"snapshots/s/{p}": size for p, size in store.sizes("snapshots/s").items() if f"snapshots/s/{p}" not in but
    }
    assert (found.files, found.bytes, found.rows) == (2 * TABLES - 1, sum(every.values()), 2 * (TABLES - 1))
    with_it = [p for p in sorted(every) if int(p.split("/t")[1][:2]) % 4 == 0]
    assert found.found == [p if p.endswith(".json") else f"{p}: v" for p in with_it]
    assert found.left == len(found.found) == 5


@pytest.mark.s3
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_file_of_an_object_store_takes_one_request_and_sixteen_are_asked_for_at_once(config, s3, monkeypatch):
    s3.reset()
    looked_through(config)
    of_files = [r for r in s3.reset() if "part.parquet" in r or ".json" in r]
    assert len(of_files) == 2 * TABLES and {r.split()[0] for r in of_files} == {"GET"}, of_files
    calls.meet(monkeypatch, ObjectStore, "open_input", TABLES)
    looked_through(config)


@pytest.mark.parametrize("store", ["folder"], indirect=True)
def test_large_files_are_looked_through_one_after_another(config, monkeypatch):
    size = max(size for path, size in stores.lake(config).sizes("snapshots").items() if path.endswith("parquet"))
    monkeypatch.setattr(proof, "_BYTES", size)
    under_way = calls.most(monkeypatch, proof, "_parquet")
    assert looked_through(config).left == 6
    assert under_way() == 1


@pytest.mark.parametrize("store", ["folder"], indirect=True)
@pytest.mark.parametrize("gone", ["part.parquet", f"_delta_log/{0:020}.json"])
def test_a_file_that_is_removed_meanwhile_is_none(config, monkeypatch, gone):
    there = Folder.sizes

    def listed(store, folder):
        found = there(store, folder)
        store.remove([f"{folder}/d/t00/{gone}"])
        return found

    monkeypatch.setattr(Folder, "sizes", listed)
    found = looked_through(config)
    assert (found.files, found.left) == (2 * TABLES - 1, 5)
