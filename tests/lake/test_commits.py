"""A table's log: which data files it names, what is left to Spark, and commits that mark rows of them."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyroaring import BitMap64

from cdc_platform.errors import LakeChanged, LakeNotShared
from cdc_platform.lake import commits, deletion_vectors, handles, metadata_commits, new_tables
from cdc_platform.lake.commits import Marked
from cdc_platform.lake.data_files import Output, Sink
from cdc_platform.tables import Table
from cdc_platform.tables.columns import STRING, Column
from tests.lakes import store_at

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.decimal128(38, 18))])
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "5"}
HISTORY = {"operation": "MERGE", "operationMetrics": {"numOutputRows": "1"}}


LOG = "_delta_log/{:020d}.json"


def rows(*ids):
    return pa.table({"id": list(ids), "price": [f"{i}.{'3' * 18}" for i in ids]}).cast(SCHEMA)


FEATURES = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "invariants"]}


def made(path, **changes):
    """A table as Spark makes it: with features; and with other things, by kind of action."""
    DeltaTable.create(path.uri(), SCHEMA, configuration=PROPERTIES, storage_options=path.options)
    actions = [json.loads(line) for line in path.read(LOG.format(0)).splitlines()]
    changes = {"protocol": {}, **changes}
    changes["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **FEATURES, **changes["protocol"]}
    for action in actions:
        for kind, more in changes.items():
            if kind in action:
                action[kind].update(more)
    path.put(LOG.format(0), "\n".join(map(json.dumps, actions)).encode())


@pytest.fixture
def table(store):
    path = store.at("t")
    made(path)
    for some in (rows(*range(10)), rows(10, 11)):
        write_deltalake(path.uri(), some, mode="append", storage_options=path.options)
    return path


def there(path):
    """Ids as delta-rs reads them."""
    found = QueryBuilder().register("t", handles.opened(path)).execute("SELECT id FROM t ORDER BY id").read_all()
    return pa.table(found)["id"].to_pylist()


def file_with(path, *ids):
    out = Output(Sink(path, SCHEMA, ("id", "price"), ()))
    for batch in rows(*ids).to_batches():
        out.write(batch)
    return out.close()


def of(live, rows_):
    [found] = [a for a in live.adds if json.loads(a["stats"])["numRecords"] == rows_]
    return found


def marked(path, add, *gone):
    with deletion_vectors.Vectors(path) as new:
        return Marked(add, new.add(BitMap64(gone)))


def test_rows_are_marked_and_others_written_in_one_commit(table):
    before = commits.live(table)
    assert before is not None
    assert before.version == 2
    new = [file_with(table, 12, 13, 14)]
    assert commits.commit(table, before, new, [marked(table, of(before, 10), 3, 4)], HISTORY)
    assert there(table) == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    after = commits.live(table)
    assert after is not None
    assert after.version == 3
    assert json.loads(of(after, 10)["stats"])["tightBounds"] is False
    assert handles.opened(table).history(1)[0]["operation"] == "MERGE"
    # More rows of the same file, one of the new one, and a file of which nothing is left.
    more = [marked(table, of(after, 10), 0, 3, 4), marked(table, of(after, 3), 1), Marked(of(after, 2), None)]
    assert commits.commit(table, after, [], more, HISTORY)
    assert there(table) == [1, 2, 5, 6, 7, 8, 9, 12, 14]
    now = commits.live(table)
    assert now is not None
    assert sorted(json.loads(a["stats"])["numRecords"] for a in now.adds) == [3, 10]
    assert "14.333333333333333333" in of(now, 3)["stats"]  # every digit


def test_who_comes_second_is_told_and_nothing_is_done(table):
    before = commits.live(table)
    write_deltalake(table.uri(), rows(99), mode="append", storage_options=table.options)
    assert not commits.commit(table, before, [file_with(table, 12)], [marked(table, of(before, 10), 3)], HISTORY)
    assert there(table) == [*range(12), 99]
    assert [path for path in table.below("_delta_log") if not path.endswith(".json")] == []


def test_a_file_that_the_driver_does_not_see_is_in_no_commit(tmp_path):
    """As where executors write to disks of their own."""
    table = store_at(tmp_path)
    made(table)
    before, version = commits.live(table), handles.opened(table).version()
    written = file_with(table, 12)
    Path(table.uri(), written.path).unlink()
    with pytest.raises(LakeNotShared, match=written.path):
        commits.commit(table, before, [written], [], HISTORY)
    with pytest.raises(LakeNotShared, match=written.path):
        commits.append_files(Sink(table, SCHEMA, (), ()), [written], ("app", 1))
    assert handles.opened(table).version() == version


def test_what_a_checkpoint_tells_is_what_commits_tell(table):
    before = commits.live(table)
    assert commits.commit(table, before, [], [marked(table, of(before, 10), 3)], HISTORY)
    told = commits.live(table)
    handles.opened(table).create_checkpoint()
    table.remove(f"_delta_log/{n}" for n in table.below("_delta_log") if n.endswith(".json"))
    found = commits.live(table)
    assert found is not None
    assert found.version == told.version
    shown = [[{k: v for k, v in a.items() if v != {}} for a in live.adds] for live in (found, told)]
    for adds in shown:
        for add in adds:
            add.pop("dataChange")
            add["stats"] = json.loads(add["stats"])
    key = str
    assert sorted(shown[0], key=key) == sorted(shown[1], key=key)


def test_every_so_many_commits_there_is_a_checkpoint(table):
    for _ in range(4):
        assert commits.commit(table, commits.live(table), [file_with(table, 50)], [], HISTORY)
    checkpoints = sorted(n[:20] for n in table.below("_delta_log") if n.endswith(".checkpoint.parquet"))
    assert [int(c) for c in checkpoints] == [5]
    assert there(table) == [*range(12), 50, 50, 50, 50]


def test_a_log_whose_beginning_only_a_checkpoint_of_parts_tells_is_left_to_spark(tmp_path):
    table = store_at(tmp_path)
    made(table)
    for some in (rows(*range(10)), rows(10, 11)):
        write_deltalake(table.uri(), some, mode="append")
    handles.opened(table).create_checkpoint()
    log = Path(table.uri(), "_delta_log")
    hint = log / "_last_checkpoint"
    hint.write_text(json.dumps({**json.loads(hint.read_text()), "parts": 1}))
    number = f"{1:010d}"
    (log / f"{2:020d}.checkpoint.parquet").rename(log / f"{2:020d}.checkpoint.{number}.{number}.parquet")
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    assert there(table) == [*range(12)]
    assert commits.live(table) is None


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": {"writerFeatures": ["deletionVectors", "changeDataFeed"]}},
        {"protocol": {"writerFeatures": ["deletionVectors", "rowTracking"]}},
        {"metaData": {"partitionColumns": ["id"]}},
        {"metaData": {"configuration": {**PROPERTIES, "delta.appendOnly": "true"}}},
        {"metaData": {"configuration": {**PROPERTIES, "delta.enableChangeDataFeed": "true"}}},
    ],
)
def test_what_is_not_kept_to_is_left_to_spark(store, change):
    made(store.at("same"))
    assert commits.live(store.at("same")) is not None
    made(store.at("t"), **change)
    assert commits.live(store.at("t")) is None


@pytest.mark.parametrize(
    "more", [{"path": "file:/elsewhere/x.parquet"}, {"path": "/elsewhere/x.parquet"}, {"stats": None}]
)
def test_files_of_other_places_and_without_statistics_are_left_to_spark(table, more):
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    table.put(LOG.format(3), json.dumps({"add": {**add, "stats": '{"numRecords":1}'}}).encode())
    assert commits.live(table) is not None
    table.put(LOG.format(3), json.dumps({"add": {**add, "stats": '{"numRecords":1}', **more}}).encode())
    assert commits.live(table) is None


def test_a_file_that_is_told_twice_is_left_to_spark(table):
    """As of a writer whose `remove` lacks the vector that the file had: rows would be there twice."""
    before = commits.live(table)
    first = marked(table, of(before, 10), 3)
    assert commits.commit(table, before, [], [first], HISTORY)
    stays = of(commits.live(table), 10)
    second = {**stays, "deletionVector": marked(table, stays, 3, 4).vector}
    lines = [{"remove": {k: v for k, v in stays.items() if k != "deletionVector"}}, {"add": second}]
    table.put(LOG.format(4), "\n".join(map(json.dumps, lines)).encode())
    assert commits.live(table) is None


def test_no_vectors_where_they_are_not_enabled(store):
    """Some readers don't look for any there."""
    path = store.at("t")
    made(path, metaData={"configuration": {**PROPERTIES, "delta.enableDeletionVectors": "false"}})
    write_deltalake(path.uri(), rows(1, 2), mode="append", storage_options=path.options)
    before = commits.live(path)
    with pytest.raises(LakeChanged, match="don't enable"):
        commits.commit(path, before, [], [marked(path, of(before, 2), 0)], HISTORY)
    assert commits.commit(path, before, [file_with(path, 3)], [Marked(of(before, 2), None)], HISTORY)
    assert there(path) == [3]


def test_a_property_is_set_and_taken_away_in_commits_of_their_own(table):
    before = commits.live(table)
    assert metadata_commits.configure(table, {"cdc.limits": "ü, 'x'", "other": "1"})
    assert metadata_commits.configure(table, {"cdc.limits": "ü, 'x'"})  # it is so already
    opened = handles.opened(table)
    assert opened.version() == before.version + 1
    kept = opened.metadata().configuration
    assert (kept["cdc.limits"], kept["other"]) == ("ü, 'x'", "1")
    assert metadata_commits.configure(table, {"other": None})
    assert "other" not in handles.opened(table).metadata().configuration
    assert there(table) == [*range(12)]
    assert commits.live(table).adds == before.adds


def test_a_property_of_a_checkpointed_table_is_set_and_its_columns_stay(table):
    handles.opened(table).create_checkpoint()
    columns = handles.opened(table).schema().to_json()
    assert metadata_commits.configure(table, {"a": "b"})
    assert handles.opened(table).schema().to_json() == columns
    assert handles.opened(table).metadata().configuration["a"] == "b"


def test_a_table_of_an_unknown_feature_keeps_its_properties(table):
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["rowTracking"]}
    table.put(LOG.format(3), json.dumps({"protocol": protocol}).encode())
    assert not metadata_commits.configure(table, {"a": "b"})
    assert table.read(LOG.format(4)) is None


@pytest.mark.parametrize("name", ["a\u2028b", "a\x85b", "a b", "ü"])
def test_a_table_is_made_whatever_its_columns_are_called(store, name):
    path = store.at("odd")
    new_tables.create(
        path, Table("", "about it", (Column(name, STRING, "a comment"),), settings={"delta.checkpointInterval": "5"})
    )
    opened = handles.opened(path)
    assert [f.name for f in opened.schema().fields] == [name]
    told = opened.metadata()
    assert (told.description, told.configuration) == ("about it", {"delta.checkpointInterval": "5"})
    assert opened.schema().fields[0].metadata == {"comment": "a comment"}
