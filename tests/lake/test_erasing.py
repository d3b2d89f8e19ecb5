"""Files of tables put in place of others in all versions of their logs, in a folder and in a bucket."""

import itertools

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_platform.lake import commits, delta_table, erasing, handles, new_tables, small_files
from cdc_platform.lake.data_files import Output
from cdc_platform.lake.erasing import ANEW, IN_PLACE, Rewritten
from cdc_platform.tables import Table
from cdc_platform.tables.columns import BIGINT, STRING, Column
from tests.lakes import Process

SHARED = Table(
    "shared",
    "",
    (Column("source", STRING, "s"), Column("id", BIGINT, "i"), Column("name", STRING, "n")),
    partition_by=("source",),
    settings={"delta.appendOnly": "true", "delta.checkpointInterval": "4"},
)
OWN = Table("own", "", SHARED.columns[1:], settings={"delta.checkpointInterval": "4"})


def write(path, rows, **partition):
    out = Output(delta_table.sink(path, **partition))
    out.write(pa.RecordBatch.from_pylist(rows, out.sink.schema))
    written = out.close(empty=True)
    assert written is not None
    return out.sink, written


def append(path, rows, **partition):
    sink, written = write(path, rows, **partition)
    commits.append_files(sink, [written])
    return written.path


def decided(store, rewritten):
    note = erasing.decide(store, "a", [rewritten], number=1)
    erasing.finish(store, "a")
    assert erasing.pending(store, "a") == {**note, "stage": "applied"}


def dying(function, call):
    """The process is killed before this call of a function."""
    calls = itertools.count()

    def called(*given):
        if next(calls) == call:
            raise KeyboardInterrupt
        return function(*given)

    return called


def logs(path):
    return b"\n".join(path.read(f"_delta_log/{name}") or b"" for name, _ in path.names("_delta_log"))


def test_every_version_has_what_is_left(store):
    path = store.at("shared")
    new_tables.create(path, SHARED)
    paths = {}
    for i in range(9):
        paths[i] = append(path, [{"id": i, "name": f"name {i}"}, {"id": 100 + i, "name": "other"}], source="a")
        append(path, [{"id": i, "name": f"name {i}"}], source="b")
    versions = [handles.opened(path, v).to_pyarrow_table().num_rows for v in (7, 18)]
    files = {}
    for i in (2, 8):
        rows = [] if i == 8 else [{"id": 102, "name": "other"}]
        files[paths[i]] = write(path, rows, source="a")[1]
    before = handles.opened(path)
    decided(store, Rewritten("shared", {"source": "a"}, IN_PLACE, files, versions=False))
    for name in erasing.unneeded(path, Rewritten("shared", {"source": "a"}, IN_PLACE, files, versions=False)):
        assert name in (paths[2], paths[8])
    assert erasing.remove(path, Rewritten("shared", {"source": "a"}, IN_PLACE, files, versions=False)) == 2
    old = [handles.opened(path, v).to_pyarrow_table() for v in (7, 18)]
    assert [t.num_rows for t in old] == [versions[0] - 1, versions[1] - 3]
    found = delta_table.ask("SELECT source, id FROM {t} WHERE id IN (2, 8, 108) ORDER BY id", t=path)
    assert found == [{"source": "b", "id": 2}, {"source": "b", "id": 8}]
    before.update_incremental()
    assert before.to_pyarrow_table().num_rows == old[1].num_rows
    append(path, [{"id": 50, "name": "later"}], source="a")
    assert delta_table.ask("SELECT count(*) AS n FROM {t}", t=path) == [{"n": old[1].num_rows + 1}]


def test_of_a_table_that_sources_share_files_that_no_commit_names_yet_stay(store):
    path = store.at("shared")
    new_tables.create(path, SHARED)
    first = append(path, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], source="a")
    files = {first: write(path, [{"id": 2, "name": "b"}], source="a")[1]}
    rewritten = Rewritten("shared", {"source": "a"}, IN_PLACE, files)
    decided(store, rewritten)
    sink, beside = write(path, [{"id": 3, "name": "c"}], source="a")  # somebody's who has no lease
    assert erasing.unneeded(path, rewritten) == [first]
    assert erasing.remove(path, rewritten) == 1
    commits.append_files(sink, [beside])
    assert [r["id"] for r in delta_table.ask("SELECT id FROM {t} ORDER BY id", t=path)] == [2, 3]


def test_an_erasure_of_another_source_is_told(store):
    assert erasing.others(store, "a") == []
    for source in ("a", "b"):
        erasing.decide(store, source, [], number=1)
    assert (erasing.others(store, "a"), erasing.others(store, "b")) == (["b"], ["a"])
    erasing.done(store, "b")
    assert erasing.others(store, "a") == []


def test_old_versions_tell_nothing_any_more(store):
    path = store.at("own")
    new_tables.create(path, OWN)
    first = append(path, [{"id": 1, "name": "AAA the subject"}, {"id": 2, "name": "b"}])
    for i in range(6):
        append(path, [{"id": 10 + i, "name": f"c{i}"}])
    assert b"AAA the subject" in logs(path)
    files = {first: write(path, [{"id": 2, "name": "b"}])[1]}
    rewritten = Rewritten("own", {}, ANEW, files)
    decided(store, rewritten)
    assert erasing.remove(path, rewritten) == 1
    assert b"AAA the subject" not in logs(path)
    ids = {r["id"] for r in delta_table.ask("SELECT id FROM {t}", t=path)}
    assert ids == {2, *range(10, 16)}
    with pytest.raises(Exception, match=r"(?i)not ?found|no such|404"):
        handles.opened(path, 3).to_pyarrow_table()
    append(path, [{"id": 99, "name": "z"}])
    assert DeltaTable(path.uri(), storage_options=path.options).version() == 9


# -- who knows the table already ---------------------------------------------------------------------------


def ids(path, source="a"):
    return [r["id"] for r in delta_table.ask(f"SELECT id FROM {{t}} WHERE source = '{source}' ORDER BY id", t=path)]


def read_by(process, path):
    with process.running():
        return ids(path)


@pytest.fixture
def shared(store):
    new_tables.create(store.at("shared"), SHARED)
    return store.at("shared")


def test_who_knows_the_table_learns_of_files_that_no_checkpoint_names(store, shared):
    follows = Process()
    for i in range(9):
        last = append(shared, [{"id": i, "name": "other"}, {"id": 100 + i, "name": f"name {i}"}], source="a")
    with follows.running():
        append(shared, [{"id": 1000, "name": "b"}], source="b")
        assert 108 in ids(shared)
    known, before = delta_table.version(shared), ids(shared)
    rewritten = Rewritten("shared", {"source": "a"}, IN_PLACE, {last: write(shared, [{"id": 8}], source="a")[1]})
    decided(store, rewritten)
    assert delta_table.version(shared) == known + 1
    assert erasing.remove(shared, rewritten) == 1
    left = [i for i in before if i != 108]
    for _ in range(3):
        assert read_by(follows, shared) == ids(shared) == left
        with follows.running():
            append(shared, [{"id": 1001, "name": "b"}], source="b")
    assert read_by(Process(), shared) == left


def test_who_knows_the_table_puts_no_old_file_together_with_others(store, shared):
    """As a run does that goes on beside, for an hour."""
    follows = Process()
    with follows.running():
        for i in range(3):
            delta_table.append_rows(shared, [{"source": "a", "id": i, "name": "the subject" if i == 1 else "other"}])
        assert ids(shared) == [0, 1, 2]
    [subject] = [p for p, add in erasing.named(shared).items() if "the subject" in add["stats"]]
    rewritten = Rewritten("shared", {"source": "a"}, IN_PLACE, {subject: write(shared, [], source="a")[1]})
    decided(store, rewritten)
    assert erasing.remove(shared, rewritten) == 1
    later = [0, 2, *range(10, 30)]
    with follows.running():
        for i in later[2:]:
            delta_table.append_rows(shared, [{"source": "a", "id": i, "name": "other"}])
        assert ids(shared) == later
    assert read_by(Process(), shared) == later
    assert subject not in erasing.current(shared)
    assert len(delta_table.files(shared)) < small_files.MANY


@pytest.mark.parametrize("killed", [0, 1, 2, 3, None])
def test_files_that_others_took_the_place_of_stay_out(store, shared, monkeypatch, killed):
    """Of rows that were written anew before, as a replay's: who begins at a checkpoint or the first commit, or goes on
    from any version, finds each row once, also where it reads in the midst of an erasure."""
    processes, subject = [Process()], {"name": "subject"}
    paths = [append(shared, [{"id": i, "name": "other"}, {"id": 100 + i, **subject}], source="a") for i in (1, 2)]
    for i in range(3, 5):
        append(shared, [{"id": i, "name": "other"}], source="a")  # the checkpoint
        processes.append(Process())
        read_by(processes[-1], shared)
    together = write(shared, [{"id": i, "name": "other"} for i in (1, 101, 2, 102)], source="a")[1]
    commits.replace(delta_table.sink(shared, source="a"), paths, [together])
    read_by(processes[0], shared)
    append(shared, [{"id": 5, "name": "other"}], source="a")
    assert ids(shared) == [1, 2, 3, 4, 5, 101, 102]
    new = [write(shared, [{"id": i, "name": "other"}], source="a")[1] for i in (1, 2)]
    new.append(write(shared, [{"id": 1, "name": "other"}, {"id": 2, "name": "other"}], source="a")[1])
    files = dict(zip([*paths, together.path], new, strict=True))
    rewritten = Rewritten("shared", {"source": "a"}, IN_PLACE, files, versions=False)
    erasing.decide(store, "a", [rewritten], number=1)
    if killed is not None:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(type(store), "put", dying(type(store).put, 1 + killed))  # behind the note that it is begun
            erasing.finish(store, "a")
        fresh = Process()
        assert read_by(fresh, shared) == [1, 2, 3, 4, 5]
        processes.append(fresh)
    erasing.finish(store, "a")
    erasing.remove(shared, rewritten)
    for process in (*processes, Process()):
        assert read_by(process, shared) == [1, 2, 3, 4, 5]
    handles.forget(shared)
    told = [handles.opened(shared, v).to_pyarrow_table()["id"].to_pylist() for v in range(2, 8)]
    assert [sorted(t) for t in told] == [[1, 2], [1, 2, 3], *([[1, 2, 3, 4]] * 2), *([[1, 2, 3, 4, 5]] * 2)]
