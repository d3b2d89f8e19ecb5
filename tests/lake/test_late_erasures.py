"""Erasures that are decided by a process that was overtaken, and those that one begins and another ends."""

import json
import math

import pytest
from pyroaring import BitMap64

from cdc_platform.errors import LeaseLost
from cdc_platform.lake import commits, deletion_vectors, delta_table, erasing, lease, new_tables
from cdc_platform.lake.erasing import ANEW, IN_PLACE, Rewritten
from cdc_platform.tables import ERASURES
from tests.lake.test_erasing import OWN, SHARED, append, dying, ids, write


def of_own(path):
    return [(r["id"], r["name"]) for r in delta_table.ask("SELECT id, name FROM {t} ORDER BY id, name", t=path)]


@pytest.fixture
def own(store, monkeypatch):
    """Its rows may be marked in vectors. 1 is the subject."""
    monkeypatch.setattr(lease, "_last", {})
    path, told = store.at("own"), {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    lines = [json.loads(line) for line in new_tables.first_commit(OWN).splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **told}
        if "metaData" in line:
            line["metaData"]["configuration"][commits.VECTORS] = "true"
    new_tables.made(path, lines)
    append(path, [{"id": 1, "name": "subject"}, {"id": 2, "name": "old"}, {"id": 3, "name": "deleted later"}])
    return path


def without_subject(path):
    [add] = erasing.current(path).values()
    new = write(path, [{"id": 2, "name": "old"}, {"id": 3, "name": "deleted later"}])[1]
    return Rewritten("own", {}, ANEW, {add["path"]: new})


def marks(path):
    """A run: 2 has another name now, 3 is gone."""
    now = commits.live(path)
    with deletion_vectors.Vectors(path) as vectors:
        gone = commits.Marked(now.adds[0], vectors.add(BitMap64([1, 2])))
    assert commits.commit(path, now, [write(path, [{"id": 2, "name": "new"}])[1]], [gone], {"operation": "MERGE"})


def writes_anew(path):
    """The same, of a table that is small."""
    now = commits.live(path)
    new = write(path, [{"id": 1, "name": "subject"}, {"id": 2, "name": "new"}])[1]
    assert commits.commit(path, now, [new], [commits.Marked(now.adds[0], None)], {"operation": "MERGE"})


def taken_over(store, run):
    """Another process has the source, and a run of it comes in between."""
    mine, lease._held[:] = list(lease._held), []
    assert store.put_new(f"_leases/s/{2:020d}", b'{"released": true}')
    erasing.finish(store, "s")
    run()
    lease._held[:] = mine


def next_one(store):
    lease._last.clear()
    with lease.held(store, "s", "s", 1.0):
        erasing.finish(store, "s")
    return erasing.pending(store, "s")


@pytest.mark.parametrize("run", [marks, writes_anew])
@pytest.mark.parametrize("looks", [True, False], ids=["it looks", "a machine that was paused"])
def test_what_was_decided_too_late_brings_no_row_back(store, own, monkeypatch, run, looks):
    """The process stops right behind its look at the lease."""
    with lease.held(store, "s", "s", 1.0) as mine:
        found = without_subject(own)
        check = lease.check
        monkeypatch.setattr(lease, "check", lambda: (check(), monkeypatch.undo(), taken_over(store, lambda: run(own))))
        erasing.decide(store, "s", [found], number=1)
        after = of_own(own)
        if looks:
            mine._renewed = -math.inf
            with pytest.raises(LeaseLost):
                erasing.finish(store, "s")
        else:
            mine._renewed = math.inf
            erasing.finish(store, "s")
    assert next_one(store)["stage"] == erasing.LATE
    assert of_own(own) == after == [(1, "subject"), (2, "new")]
    [subject] = [name for name, add in erasing.current(own).items() if "subject" in add["stats"]]
    left = [] if run is marks else [{"id": 2, "name": "new"}]
    erasing.decide(store, "s", [Rewritten("own", {}, ANEW, {subject: write(own, left)[1]})], number=1)
    assert next_one(store)["stage"] == "applied"
    assert of_own(own) == [(2, "new")]


def test_what_was_decided_in_time_is_done_by_the_next_one(store, own):
    with lease.held(store, "s", "s", 1.0):
        erasing.decide(store, "s", [without_subject(own)], number=1)
    lease._last.clear()
    with lease.held(store, "s", "s", 1.0):
        append(own, [{"id": 4, "name": "beside"}])  # touches no file that is written anew
    assert next_one(store)["stage"] == "applied"
    assert [i for i, _ in of_own(own)] == [2, 3, 4]


def test_what_was_begun_is_done_by_the_next_one(store, own, monkeypatch):
    """Of one of two tables, whose files aren't as they were when it was decided."""
    new_tables.create(store.at("shared"), SHARED)
    first = append(store.at("shared"), [{"id": 1, "name": "subject"}], source="s")
    files = {first: write(store.at("shared"), [], source="s")[1]}
    rewritten = [without_subject(own), Rewritten("shared", {"source": "s"}, IN_PLACE, files)]
    with lease.held(store, "s", "s", 1.0), monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        erasing.decide(store, "s", rewritten, number=1)
        patch.setattr(erasing, "_apply", dying(erasing._apply, 1))
        erasing.finish(store, "s")
    next_one(store)
    assert erasing.pending(store, "s")["stage"] == "applied"
    assert [i for i, _ in of_own(own)] == [2, 3] and ids(store.at("shared"), "s") == []


def test_a_note_that_comes_once_more_is_forgotten(store, own):
    """A request for it had been sent twice, and the second one was late."""
    new_tables.create(ERASURES.at(store), ERASURES)
    told = {"source": "s", "number": 1, "salt": "5a"}
    with lease.held(store, "s", "s", 1.0):
        erasing.decide(store, "s", [without_subject(own)], number=1, row={**told, "stage": "begun"})
        note = store.read("_erasures/s.json")
        erasing.finish(store, "s")
        once = erasing.once("s", 1, done=True)
        delta_table.append_rows(ERASURES.at(store), [{**told, "stage": "done"}], once=once)
        erasing.done(store, "s")
        [old] = erasing.current(own)
        writes_anew(own)
        own.remove([old])
    store.put("_erasures/s.json", note)
    assert next_one(store) is None
    assert of_own(own) == [(1, "subject"), (2, "new")]


def test_one_whose_number_another_one_has_taken_is_late_and_not_forgotten(store, own):
    """Its note was on its way while another process, which saw none, took the source over and erased another key."""
    new_tables.create(ERASURES.at(store), ERASURES)
    told = {"source": "s", "number": 1}
    with lease.held(store, "s", "s", 1.0):
        erasing.decide(store, "s", [without_subject(own)], number=1, row={**told, "salt": "5a", "stage": "begun"})
        done = {**told, "salt": "77", "stage": "done"}
        delta_table.append_rows(ERASURES.at(store), [done], once=erasing.once("s", 1, done=True))
    assert next_one(store)["stage"] == erasing.LATE
    assert of_own(own)[0] == (1, "subject")
    assert (erasing.noted(store), erasing.underway(store), erasing.others(store, "t")) == (["s"], [], [])
