"""Points at which runs are killed, and how one sees in a lake's files that a run came to them."""

import json
from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from cdc_platform.lake import delta_table, stores
from cdc_platform.tables import CHANGELOG, CHANGES, CHECKPOINT, LANDING, OFFSET_LEDGER, SNAPSHOT_PATH, WAITING


class Delta:
    """A Delta table by its files."""

    def __init__(self, store):
        self.store = store

    def version(self):
        return max((int(name[:20]) for name in self._commits()), default=-1)

    def commit(self, version):
        """URI of a commit's file."""
        return self.store.uri(f"_delta_log/{version:020d}.json")

    def let_rows_be_marked(self):
        """Enables deletion vectors, in a commit as Spark makes it."""
        told = {kind: of for action in self._actions() for kind, of in action.items()}
        configuration = {**told["metaData"]["configuration"], "delta.enableDeletionVectors": "true"}
        named = {
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors", "appendOnly", "invariants"],
        }
        actions = (
            {"metaData": {**told["metaData"], "configuration": configuration}},
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **named}},
        )
        lines = "\n".join(map(json.dumps, actions))
        assert self.store.put_new(f"_delta_log/{self.version() + 1:020d}.json", lines.encode())

    def data_files(self):
        """Data files and deletion vectors, committed or not."""
        found = (PurePath(path) for path in self.store.below(""))
        return {p.name for p in found if p.suffix in (".parquet", ".bin") and "_delta_log" not in p.parts}

    def added(self):
        """Data files that commits name."""
        return {PurePath(a["add"]["path"]).name for a in self._actions() if "add" in a}

    def committed(self, app):
        """Highest txnVersion of an application."""
        told = (a["txn"] for a in self._actions() if "txn" in a)
        return max((txn["version"] for txn in told if txn["appId"] == app), default=-1)

    def _commits(self):
        return [name for name, _ in self.store.names("_delta_log") if name[:20].isdigit() and name[20:] == ".json"]

    def _actions(self):
        for name in self._commits():
            for line in (self.store.read(f"_delta_log/{name}") or b"").splitlines():
                yield json.loads(line)


class Lake:
    """The tables and checkpoints that the points look at, and how they were before the run."""

    def __init__(self, config):
        self.store = lake = stores.lake(config)
        self.landing = Delta(LANDING.at(lake, source="dts"))
        self.waiting = Delta(WAITING.at(lake, source="dts"))
        self.changes = Delta(CHANGES.at(lake, format="tencent_dts", source="dts"))
        self.changelog, self.ledger = Delta(CHANGELOG.at(lake)), Delta(OFFSET_LEDGER.at(lake))
        self.orders = Delta(SNAPSHOT_PATH.at(lake, source="dts", db="shop", table="orders"))
        tables = (self.landing, self.waiting, self.changes, self.changelog, self.ledger, self.orders)
        self.versions = {t: t.version() for t in tables}
        self.files = {t: t.data_files() for t in tables}

    def grown(self, table):
        return table.version() > self.versions[table]

    def new_files(self, table):
        return table.data_files() - self.files[table]

    def batches(self, stage, which):
        """Batches that a stage's checkpoint names under `offsets` (planned) or `commits` (done)."""
        checkpoint = CHECKPOINT.at(self.store, room=stage, source="dts.0" if stage == "landing" else "dts")
        return {int(name) for name, _ in checkpoint.names(which) if name.isdigit()}

    def pending(self, stage):
        return self.batches(stage, "offsets") - self.batches(stage, "commits")

    def accounted(self):
        """Newest batch of the changelog that the ledger has."""
        told = "SELECT max(batch) AS batch FROM {t} WHERE source = 'dts' AND room = 'changelog'"
        return delta_table.ask(told, t=self.ledger.store)[0]["batch"]


def files_without_commit(lake):
    return bool(lake.new_files(lake.landing)) and not lake.grown(lake.landing)


def commit_without_checkpoint(lake):
    return lake.grown(lake.landing) and bool(lake.pending("landing"))


def half_a_message(lake):
    return lake.grown(lake.waiting) and bool(lake.pending("envelopes"))


def changelog_without_ledger(lake):
    """Of the batch that isn't done."""
    batch = lake.changelog.committed("changelog dts")
    return lake.grown(lake.changelog) and batch in lake.pending("changelog") and batch > lake.accounted()


def changelog_without_checkpoint(lake):
    return lake.grown(lake.changelog) and {lake.accounted()} == lake.pending("changelog")


def changes_without_commit(lake):
    return bool(lake.new_files(lake.changes)) and not lake.grown(lake.changes)


def merge_without_commit(lake):
    new = {f for f in lake.new_files(lake.orders) if f.endswith(".parquet")}
    return bool(new) and not new & lake.orders.added()


class Point(NamedTuple):
    """files: what the lake's files look like there. stages: that the killed run works on; those before them are
    undisturbed. call: instead of which the run kills itself (driver.KILL); None: a watcher kills it, where the work is
    Spark's."""

    files: Callable[[Lake], bool]
    stages: tuple[str, ...]
    call: tuple[str, ...] | None = None


COMMIT, NOTE, APPEND = (
    f"cdc_platform.{function}"
    for function in ("lake.commits.append_files", "lake.checkpoints.note", "lake.delta_table.append_rows")
)
CHAIN = ("landing", "envelopes", "changes", "changelog")

POINTS = {
    "landing: files written, not committed": Point(files_without_commit, CHAIN[:1], (COMMIT, "landing/dts")),
    "landing: committed, checkpoint not yet": Point(
        commit_without_checkpoint, CHAIN[:1], (NOTE, "landing/dts.0", "'commits'")
    ),
    "envelopes: half of a split message waits": Point(half_a_message, CHAIN[:2], (NOTE, "envelopes/dts", "'commits'")),
    "changes: files written, not committed": Point(changes_without_commit, CHAIN[:3], (COMMIT, "changes/")),
    "changelog: committed, ledger not yet": Point(
        changelog_without_ledger, CHAIN, (APPEND, "offset_ledger", "room = 'changelog'")
    ),
    "changelog: all written, checkpoint not yet": Point(
        changelog_without_checkpoint, CHAIN, (NOTE, "changelog/dts", "'commits'")
    ),
    "snapshots: MERGE has written files, not committed": Point(merge_without_commit, ("snapshots",)),
}
