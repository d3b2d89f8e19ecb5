"""`erase`: a subject's bytes out of the lake of a source. First it is found and the new files are written; then it is
decided (lake/erasing.py); then all files are looked through; then the old ones are removed."""

import getpass
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform import chain
from cdc_platform.changelog import erased_events
from cdc_platform.config import Config, Source
from cdc_platform.erasing import ledger, proof, shadows, subject, values
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.erasing.search import Search, Told
from cdc_platform.erasing.tables import Tables
from cdc_platform.explain import records
from cdc_platform.explain.table import Table, find, parse_key
from cdc_platform.lake import checkpoints, commits, delta_table, erasing, folders
from cdc_platform.lake.erasing import Rewritten
from cdc_platform.lake.store import File, Store
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.landing import erased
from cdc_platform.replay import side
from cdc_platform.results import Stopwatch
from cdc_platform.snapshots import state
from cdc_platform.spark import delta_sql
from cdc_platform.spark.session import leased
from cdc_platform.tables import (
    CHECKPOINT,
    ENVELOPES,
    ERASURES,
    LANDING,
    TABLE_STATE,
    WAITING,
    name_columns,
)
from cdc_platform.units import count

_SALT_BYTES = 16


class Erasure(Search):
    """`plan` changes nothing; `erase` does what is found, or finishes what was begun."""

    @staticmethod
    def of(config: Config, source: Source, table: str, key: str, *, follow: bool, told: Told) -> "Erasure":
        """Raises ConfigError for a table or key that can't be meant, EraseRefused for a table without a key, or a name
        that a table has no more."""
        found = _table(config, source, table)
        return Erasure(config, found, parse_key(found, key), follow, told)

    def plan(self) -> dict[str, Any]:
        """source, table, key, and what would be done (Prepared.data, Search.unread), with `kafka`: how many of the
        records Kafka still has. Of an erasure that was begun `unfinished` is its number, and nothing is looked for; one
        that was decided too late is none.
        Raises EraseRefused."""
        note = erasing.pending(self.lake, self.source.name)
        if note is not None:
            self._check_mine(note)
        if note is not None and note["stage"] != erasing.LATE:
            return {**self._head(), "unfinished": note["number"], "messages": [], "tables": []}
        who = self.find()
        found = self.prepared(who, bytes(_SALT_BYTES), write=False)
        places = [(a.topic, a.partition, a.offset) for a in found.addresses]
        return {**self._head(), **found.data(), **self.unread(), "kafka": self.in_kafka(places)}

    def _head(self) -> dict[str, Any]:
        return {"source": self.source.name, "table": self.table.text, "key": dict(self.key)}

    # -- doing it ------------------------------------------------------------------------------------------

    def erase(self, spark: SparkSession) -> dict[str, Any]:
        """Does it, or finishes it. Returns source, table, number, records (whose bytes are gone), rows (path of a table
        → rows), removed (old files), proof (Looked.data; values, payloads: that were looked for; elsewhere: other rows
        that have some of the values; kafka, not_read, waiting as in a plan), seconds. Raises EraseRefused, and
        what the stages raise."""
        watch = Stopwatch()
        with (
            source_lock(self.config, self.source) as mine,
            leased(spark, mine),
            shadows.alone(self.config, self.source),
            side.held(self.config, self.source),  # until nothing of it is read any more
        ):
            for table in (LANDING, ENVELOPES):
                path = table.at(self.lake, source=self.source.name)
                if delta_table.exists(path):
                    delta_sql.ensure(table, path)
            path = delta_sql.ensure(ERASURES, ERASURES.at(self.lake))
            note = erasing.pending(self.lake, self.source.name)
            if note is not None:
                self._check_mine(note)
            if note is not None and note["stage"] != erasing.LATE:
                self.told(f"erasure {note['number']} goes on")
            else:
                self._caught_up(spark)
                self._look_again()
                note = self._decided(spark, path)
            told = self._finished(spark, path, note)
        return {**told, "seconds": watch.seconds}

    def _caught_up(self, spark: SparkSession) -> None:
        self.told("bringing the tables up to what is landed")
        for stage in (chain.reassemble, chain.decode, chain.unify, chain.snapshot):
            stage(spark, self.config, self.source)
        if records.splits(self.source):
            _, newest = checkpoints.newest(CHECKPOINT.at(self.lake, room="envelopes", source=self.source.name))
            waiting = WAITING.at(self.lake, source=self.source.name)
            if delta_table.exists(waiting):
                delta_table.delete(waiting, f"batch < {int(newest)}")

    def _look_again(self) -> None:
        """Takes the table as what was just brought in has left it. Raises EraseRefused where another is meant now."""
        now = _table(self.config, self.source, self.table.text)
        if now.keys != self.table.keys:
            problem = f"the key of {now.text} has become {', '.join(now.keys)}"
            raise EraseRefused(self.source.name, problem, ["this once more, with that key"])
        self.table = now

    def _decided(self, spark: SparkSession, path: Store) -> dict[str, Any]:
        """Raises EraseRefused."""
        self._check_alone()
        who = self.find()
        salt = os.urandom(_SALT_BYTES)
        found = self.prepared(who, salt, write=True)
        if not any(d.rows or d.files for d in found.done):
            erasing.done(self.lake, self.source.name)  # one that was decided too late
            before = erased.erased_before(self.config, self.source.name, self.table.names, self.key)
            why = f"nothing of this key of {self.table.text} is in the lake"
            if before is not None:
                why = f"it is gone already: erasure {before['number']} did it"
            raise EraseRefused(self.source.name, why)
        if self.lake.exists(f"{side.FOLDER}/{self.source.name}/{side.RECORD}"):
            side.discard(self.config, self.source)
        row = {
            **{"source": self.source.name, "number": self._number(path), "stage": "begun"},
            **name_columns(self.table.name),
            **{"key_digest": erased.key_digest(salt, self.key), "keys": len(who.keys), "by": _by(), "salt": salt.hex()},
            "records": [
                {**a._asdict(), "digest": d, "shared": found.shared(a)} for a, d in sorted(found.tables.digests.items())
            ],
            "transactions": sorted({e["txn_id"] for e in who.events if e["txn_id"] and e["txn_seq"] is not None}),
            "rows": {d.table.path: d.rows for d in found.done if d.rows},
            "events": erased_events.kept_events(spark, who.events, salt.hex()),
        }
        entries = ledger.corrections(self.config, self.source, who, found.messages)
        self.told("decided: what is erased is gone from here on")
        rewritten = [d.table for d in found.done]
        told = {"number": row["number"], "row": row, "ledger": entries, "keys": sorted(found.tables.keys)}
        note = erasing.decide(self.lake, self.source.name, rewritten, **told)
        try:
            self._check_alone()
        except EraseRefused:
            erasing.done(self.lake, self.source.name)
            raise
        return note

    def _check_alone(self) -> None:
        """Raises EraseRefused where one of another source isn't finished: both would write old commits of the tables
        that sources share, and the second would undo what the first took out."""
        if beside := erasing.others(self.lake, self.source.name):
            problem = f"an erasure of source {beside[0]} isn't finished"
            raise EraseRefused(self.source.name, problem, ["this once more, when it is"])

    def _finished(self, spark: SparkSession, path: Store, note: dict[str, Any]) -> dict[str, Any]:
        """Raises EraseRefused."""
        row, number, name = note["row"], note["number"], self.source.name
        erasing.finish(self.lake, name)
        found = erasing.pending(self.lake, name)
        if found is None:
            raise EraseRefused(name, f"it is gone already: erasure {number} did it")
        if found["stage"] == erasing.LATE:
            raise EraseRefused(name, "others wrote to its files before it was decided", ["this once more"])
        note = found
        ledger.append(self.config, self.source, number, note["ledger"])
        if note["stage"] == "applied":
            note = erasing.reached(self.lake, name, note, "scanned", proof=self._scanned(note))
        tables = [Rewritten.of(t) for t in note["tables"]]
        removed = sum(
            erasing.remove(self.lake.at(t.path), t) for t in tables if delta_table.exists(self.lake.at(t.path))
        )
        self.told(f"{count(removed, 'old file')} removed")
        there = [p for t in tables for p in erasing.unneeded(self.lake.at(t.path), t)]
        shown = {
            **note["proof"],
            "left": note["proof"]["left"] + len(there),
            "found": [*note["proof"]["found"], *there],
        }
        self._noted(number, tables)
        chain.snapshot(spark, self.config, self.source)  # its cut is of versions that can be read
        told = {**row, "stage": "done", "proof": json.dumps(shown, sort_keys=True)}
        delta_table.append_rows(path, [told], once=erasing.once(name, number, done=True))
        erasing.done(self.lake, name)
        return {
            **{"source": name, "table": self.table.text, "number": number, "records": len(row["records"])},
            **{"rows": row["rows"], "removed": removed, "proof": shown},
        }

    def _scanned(self, note: Mapping[str, Any]) -> dict[str, Any]:
        """Looks through all files but those that are about to be removed."""
        tables = [Rewritten.of(t) for t in note["tables"]]
        old = {f"{t.path}/{p}" for t in tables for p in erasing.unneeded(self.lake.at(t.path), t)}
        changes = self.changes()
        before = [
            changes.uri().removeprefix(f"{self.lake.uri()}/") + "/" + p
            for t in tables
            for p in t.files
            if self.lake.at(t.path) == changes
        ]
        files = [File(self.lake, p) for p in before if self.lake.exists(p)]
        who = subject.of(self.table, self.key, files, follow=True)
        now = [File(changes, name) for name in delta_table.files(changes)]
        told = values.values_of(who, now, self.known())
        payloads = proof.Payloads.of(note)
        digests = payloads.values
        self.told(
            f"looking through all files for {count(told.looked_for, 'value')} and {count(len(digests), 'payload')}"
        )
        looked = proof.look_through(self.config, self.source, told.own, payloads, old)
        again = Tables(self.config, who, [], told.own, payloads.salt, write=False)
        for one in again.each():
            for _ in range(one.rows):
                looked.note(f"{one.table.path}: a row")
        places = [(r["topic"], r["partition"], r["offset"]) for r in note["row"]["records"]]
        return {
            **looked.data(),
            **{
                **told.data(),
                "doubts": self.doubts(who),
                "elsewhere": len(told.elsewhere),
                "payloads": len(digests),
                "kafka": self.in_kafka(places),
            },
            **self.unread(),
        }

    def _noted(self, number: int, tables: list[Rewritten]) -> None:
        """That snapshots hold fewer rows."""
        path, rows = TABLE_STATE.at(self.lake), []
        for name, was in state.now(path, self.source).items():
            snapshot = folders.snapshot(self.lake, self.source.name, name)
            if any(t.files and self.lake.at(t.path) == snapshot for t in tables):
                now = commits.live(snapshot)
                said = {
                    "source": self.source.name,
                    **name_columns(name),
                    "changes": 0,
                    "invalid_dates": 0,
                    "partial": 0,
                }
                said |= {c: was[c] for c in ("batch", "state", "reason", "rebuild")}
                rows.append({**said, "rows": None if now is None else commits.counted(now)})
        delta_table.append_rows(path, rows, once=(f"erasure {self.source.name}", number))

    # -- which one -----------------------------------------------------------------------------------------

    def _is_mine(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of ERASURES is of this key of this table."""
        return erased.is_of(row, self.table.names, self.key)

    def _check_mine(self, note: Mapping[str, Any]) -> None:
        """Raises EraseRefused where another erasure isn't finished."""
        if not self._is_mine(note["row"]):
            problem = f"erasure {note['number']}, of another key, was begun and isn't finished"
            raise EraseRefused(self.source.name, problem, ["its command once more"])

    def _number(self, path: Store) -> int:
        sql = f"SELECT max(\"number\") AS n FROM {{t}} WHERE source = '{self.source.name}'"
        return int(delta_table.ask(sql, t=path)[0]["n"] or 0) + 1


def _table(config: Config, source: Source, given: str) -> Table:
    """The table that is meant, by its name of today. Raises ConfigError, EraseRefused."""
    found = find(config, source, given)
    if found.renamed is not None:
        today = ".".join(found.renamed)
        raise EraseRefused(source.name, f"{found.text} is called {today} since", [f"this once more, for {today}"])
    if not found.keys:
        raise EraseRefused(source.name, f"{found.text} has no key: its rows can't be told apart")
    return found


def _by() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
