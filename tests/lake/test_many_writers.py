"""Several processes that commit to the same shared tables at once, while upkeep puts their files together: every
commit is in the table, once, and the sums by outcome are those that were told."""

import subprocess
import sys

import pytest

from cdc_platform.lake import delta_table, log_state, new_tables
from cdc_platform.tables import OFFSET_LEDGER
from tests.lakes import plain

_WRITER = """
import sys
from cdc_platform.config import Storage
from cdc_platform.lake import delta_table, stores
from cdc_platform.tables import OFFSET_LEDGER

root, storage, source, commits = sys.argv[1:]
at = OFFSET_LEDGER.at(stores.of(root, Storage.model_validate_json(storage)))
told = {"source": source, "room": "landing", "topic": "t", "partition": 0}
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(commits)):
    rows = [{**told, "batch": n, "outcome": o, "from_offset": n, "to_offset": n, "records": 1}
            for o in ("landed", "applied")]
    delta_table.append_rows(at, rows, once=(f"race-{source}", n))
    if n % 50 == 49:
        delta_table.compact(at, 1, source=source)
print("done", delta_table.version(at), flush=True)
"""


def race(store, writers: int, commits: int) -> None:
    """Each of the writers makes so many commits to the ledger, all at the same time."""
    at = OFFSET_LEDGER.at(store)
    new_tables.create(at, OFFSET_LEDGER)
    words = [sys.executable, "-c", _WRITER, store.uri(), plain(store.storage)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    run = [subprocess.Popen([*words, f"s{i}", str(commits)], **pipes) for i in range(writers)]
    try:
        for process in run:
            assert process.stdout.readline() == "ready\n"
        for process in run:
            process.stdin.write("\n")
            process.stdin.flush()
        ended = [process.stdout.readline().split() for process in run]
        assert [words[0] for words in ended] == ["done"] * writers
    finally:
        for process in run:
            process.kill()
            process.wait()
    found = delta_table.ask(
        "SELECT source, outcome, count(*) AS rows, count(DISTINCT batch) AS batches, sum(records) AS records FROM {t} "
        "GROUP BY source, outcome ORDER BY source, outcome",
        t=at,
    )
    all_of_them = {"rows": commits, "batches": commits, "records": commits}
    assert found == [
        {"source": f"s{i}", "outcome": o, **all_of_them} for i in range(writers) for o in ("applied", "landed")
    ]
    assert delta_table.version(at) >= writers * commits


def test_what_two_processes_commit_at_once_is_there(store):
    race(store, 2, 25)


_LATE = """
import sys
from cdc_platform.config import Storage
from cdc_platform.lake import delta_table, stores
from cdc_platform.tables import OFFSET_LEDGER

root, storage, batch = sys.argv[1:]
at = OFFSET_LEDGER.at(stores.of(root, Storage.model_validate_json(storage)))
row = {"source": "s", "room": "changelog", "topic": "t", "partition": 0, "outcome": "applied", "batch": int(batch)}
delta_table.append_rows(at, [{**row, "from_offset": 0, "to_offset": 9, "records": 10}])
"""


@pytest.mark.parametrize(("late", "there"), [(5, {5: 10}), (4, {4: 10, 5: 10})])
def test_rows_of_a_batch_that_another_wrote_late_are_not_written_again(store, late, there):
    """A holder's last commit arrives after the next one's stage has looked at the table, of the batch that this one
    repeats or of another."""
    at = OFFSET_LEDGER.at(store)
    new_tables.create(at, OFFSET_LEDGER)
    row = {"source": "s", "room": "changelog", "topic": "t", "partition": 0, "outcome": "applied", "batch": 5}
    with log_state.looked_at_once(store):
        delta_table.ask("SELECT count(*) AS rows FROM {t}", t=at)
        subprocess.run([sys.executable, "-c", _LATE, store.uri(), plain(store.storage), str(late)], check=True)
        of = "source = 's' AND room = 'changelog' AND batch = 5"
        for _ in range(2):
            delta_table.append_rows(at, [{**row, "from_offset": 0, "to_offset": 9, "records": 10}], of=of)
    found = delta_table.ask("SELECT batch, sum(records) AS records FROM {t} GROUP BY batch", t=at)
    assert {f["batch"]: f["records"] for f in found} == there


@pytest.mark.thorough
@pytest.mark.parametrize("writers", [2, 3, 4])
def test_of_two_thousand_commits_at_once_none_is_lost(store, writers):
    race(store, writers, 2000 // writers)
