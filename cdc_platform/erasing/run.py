"""`erase`: a subject's bytes out of the lake of a source. First it is found and the new files are written; then it is
decided (lake/erasing.py); then all files are looked through; then the old ones are removed."""

import getpass
import hmac
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform import chain
from cdc_platform.config import Config, Source
from cdc_platform.erasing import ledger, messages, proof, subject
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.erasing.subject import Key, Message, Subject
from cdc_platform.erasing.tables import Done, Tables
from cdc_platform.errors import CdcError
from cdc_platform.explain import records
from cdc_platform.explain.table import Table, find, parse_key
from cdc_platform.kafka.offsets import kafka_state
from cdc_platform.lake import checkpoints, commits, delta_table, erasing, queries, stores
from cdc_platform.lake.erasing import Rewritten
from cdc_platform.lake.store import File, Store
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.replay import side
from cdc_platform.results import Stopwatch
from cdc_platform.snapshots import state
from cdc_platform.spark import delta_sql
from cdc_platform.spark.session import leased
from cdc_platform.tables import (
    CHANGES,
    CHECKPOINT,
    ENVELOPES,
    ERASURES,
    LANDING,
    QUARANTINE,
    SCHEMA_HISTORY,
    SNAPSHOT_PATH,
    TABLE_STATE,
    WAITING,
    name_columns,
)
from cdc_platform.units import count

Told = Callable[[str], None]
_SALT_BYTES = 16


@dataclass
class Erasure:
    """One subject of one table. `plan` changes nothing; `erase` does it, or finishes what was begun."""

    config: Config
    table: Table
    key: Key
    follow: bool = False
    told: Told = lambda _: None

    @staticmethod
    def of(config: Config, source: Source, table: str, key: str, *, follow: bool, told: Told) -> "Erasure":
        """Raises ConfigError for a table or key that can't be meant."""
        found = find(config, source, table)
        if not found.keys:
            raise EraseRefused(source.name, f"{found.text} has no key: its rows can't be told apart")
        return Erasure(config, found, parse_key(found, key), follow, told)

    @property
    def source(self) -> Source:
        return self.table.source

    @property
    def lake(self) -> Store:
        return stores.lake(self.config)

    # -- plan ----------------------------------------------------------------------------------------------

    def plan(self) -> dict[str, Any]:
        """What would be done: see `_told`. Raises EraseRefused."""
        if note := erasing.pending(self.lake, self.source.name):
            self._check_mine(note)
            return {**self._head(), "unfinished": note["number"], "messages": [], "tables": []}
        who = self._subject()
        found = self._prepared(who, bytes(_SALT_BYTES), write=False)
        return {**self._head(), **self._told(found)}

    def _head(self) -> dict[str, Any]:
        return {"source": self.source.name, "table": self.table.text, "key": dict(self.key)}

    def _told(self, found: "_Prepared") -> dict[str, Any]:
        """keys, messages (address, records, shared, others: rows and statements, with: the first of their tables and keys), tables (path, rows, files), values (looked for as text), elsewhere (other rows, by table and key, that have some of its values: up to 20),
        alive (the snapshot holds the row), not_read, waiting, kafka, doubts, unfinished (number, or None)."""
        return {
            "unfinished": None,
            "keys": [dict(k) for k in found.subject.keys],
            "messages": [
                {"address": str(m.address), "records": len(m.offsets), "shared": m.shared, "others": m.others, "with": m.rows_of}
                for m in found.messages
            ],
            "tables": [
                {"table": d.table.path, "rows": d.rows, "files": list(d.files)} for d in found.done if d.rows or d.files
            ],
            "values": len(found.texts.own),
            "elsewhere": [{"table": table, "key": key} for table, key in found.texts.elsewhere],
            "alive": any(d.rows for d in found.done if d.table.path.startswith("snapshots/")),
            **self._unread(),
            "kafka": self._kafka([(a.topic, a.partition, a.offset) for a in found.addresses]),
            "doubts": found.subject.doubts,
        }

    def _unread(self) -> dict[str, Any]:
        """not_read: records in quarantine of which no key is told and that may be of this table; waiting: parts that
        wait for the rest of their message."""
        names = ", ".join(queries.text(n[-1]) for n in sorted(self.table.names))
        held = queries.query(
            f"SELECT count(*) AS n FROM t WHERE source = {queries.text(self.source.name)} AND resolved_at IS NULL "
            f'AND ("table" IS NULL OR ("table" IN ({names}) AND key IS NULL))',
            t=QUARANTINE.at(self.lake),
        )
        waiting = len(records.waiting_parts(self.config, self.source)) if records.splits(self.source) else 0
        return {"not_read": int(held[0]["n"]) if held else 0, "waiting": waiting}

    def _kafka(self, addresses: list[tuple[str, int, int]]) -> int | None:
        """How many of these records Kafka still has; None: it can't be asked."""
        try:
            state = {(s.topic, s.partition): s.begin for s in kafka_state(self.config, self.source)}
        except CdcError:
            return None
        return sum(offset >= state.get((topic, partition), 1 << 62) for topic, partition, offset in addresses)

    # -- finding it ----------------------------------------------------------------------------------------

    def _changes(self) -> Store:
        return CHANGES.at(self.lake, format=self.source.format, source=self.source.name)

    def _subject(self, files: list[File] | None = None) -> Subject:
        path = self._changes()
        if files is None:
            if not delta_table.exists(path):
                raise EraseRefused(self.source.name, "nothing of it has been decoded yet", ["`cdc-platform run`"])
            files = [File(path, name) for name in erasing.named(path) if path.exists(name)]
        self.told(f"looking for the key in {count(len(files), 'file')} of decoded events")
        return subject.of(self.table, self.key, files, follow=self.follow)

    def _prepared(self, who: Subject, salt: bytes, *, write: bool) -> "_Prepared":
        found = messages.of(self.config, who)
        self.told(f"{count(len(who.events), 'change')} in {count(len(found), 'message')}")
        path = self._changes()
        current = [File(path, name) for name in delta_table.files(path)]
        texts = subject.texts_of(who, current, self._known())
        tables = Tables(self.config, who, found, texts.own, salt, write)
        done = []
        for one in tables.each():
            done.append(one)
            if one.files:
                self.told(f"{one.table.path}: {count(one.rows, 'row')} in {count(len(one.files), 'file')}")
        return _Prepared(who, found, texts, tables, done)

    def _known(self) -> list[str]:
        """Texts that aren't the subject's: names, columns and statements of the source."""
        rows = queries.query(
            f"SELECT DISTINCT ddl, columns FROM t WHERE source = {queries.text(self.source.name)}",
            t=SCHEMA_HISTORY.at(self.lake),
        )
        told = [text for r in rows or [] for text in r.values() if text]
        topics = {r["topic"] for r in queries.ledger(self.config, [self.source])}
        return [*told, *topics, self.source.name, self.source.format, *(".".join(n) for n in self.table.names)]

    # -- doing it ------------------------------------------------------------------------------------------

    def erase(self, spark: SparkSession) -> dict[str, Any]:
        """Does it, or finishes it. Returns what `_proof` tells. Raises EraseRefused, and what the stages raise."""
        watch = Stopwatch()
        with source_lock(self.config, self.source) as mine, leased(spark, mine):
            for table in (LANDING, ENVELOPES):
                path = table.at(self.lake, source=self.source.name)
                if delta_table.exists(path):
                    delta_sql.ensure(table, path)
            path = delta_sql.ensure(ERASURES, ERASURES.at(self.lake))
            note = erasing.pending(self.lake, self.source.name)
            if note is not None:
                self._check_mine(note)
                self.told(f"erasure {note['number']} goes on")
            else:
                self._caught_up(spark)
                note = self._decided(path)
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

    def _decided(self, path: Store) -> dict[str, Any]:
        """Raises EraseRefused."""
        who = self._subject()
        salt = os.urandom(_SALT_BYTES)
        found = self._prepared(who, salt, write=True)
        if not any(d.rows for d in found.done) and (before := self._done_before()) is None:
            raise EraseRefused(self.source.name, f"nothing of this key of {self.table.text} is in the lake")
        elif not any(d.rows for d in found.done):
            raise EraseRefused(self.source.name, f"it is gone already: erasure {before} did it")
        if self.lake.exists(f"{side.FOLDER}/{self.source.name}/{side.RECORD}"):
            with side.held(self.config, self.source):
                side.discard(self.config, self.source)
        row = {
            **{"source": self.source.name, "number": self._number(path), "stage": "begun"},
            **name_columns(self.table.name),
            **{"key_digest": self._digest(salt), "keys": len(who.keys), "by": _by(), "salt": salt.hex()},
            "records": [
                {**a._asdict(), "digest": d, "shared": found.shared(a)} for a, d in sorted(found.tables.digests.items())
            ],
            "transactions": sorted({e["txn_id"] for e in who.events if e["txn_id"] and e["txn_seq"] is not None}),
            "rows": {d.table.path: d.rows for d in found.done if d.rows},
        }
        entries = ledger.moves(self.config, self.source, who, found.messages)
        self.told("decided: what is erased is gone from here on")
        rewritten = [d.table for d in found.done]
        return erasing.decide(self.lake, self.source.name, rewritten, number=row["number"], row=row, ledger=entries)

    def _finished(self, spark: SparkSession, path: Store, note: dict[str, Any]) -> dict[str, Any]:
        row, number, name = note["row"], note["number"], self.source.name
        once = f"erasure {name}"
        delta_table.append_rows(path, [row], once=(once, 2 * number))
        erasing.finish(self.lake, name)
        note = erasing.pending(self.lake, name) or note
        ledger.append(self.config, self.source, number, note["ledger"])
        if note["stage"] == "applied":
            note = erasing.reached(self.lake, name, note, "scanned", proof=self._scanned(note))
        tables = [Rewritten.of(t) for t in note["tables"]]
        removed = sum(erasing.remove(self.lake.at(t.path), t) for t in tables if delta_table.exists(self.lake.at(t.path)))
        self.told(f"{count(removed, 'old file')} removed")
        there = [p for t in tables for p in erasing.unneeded(self.lake.at(t.path), t)]
        shown = {**note["proof"], "left": note["proof"]["left"] + len(there), "found": [*note["proof"]["found"], *there]}
        self._noted(number, tables)
        chain.snapshot(spark, self.config, self.source)  # its cut is of versions that can be read
        told = {**row, "stage": "done", "proof": json.dumps(shown, sort_keys=True)}
        delta_table.append_rows(path, [told], once=(once, 2 * number + 1))
        erasing.done(self.lake, name)
        return {
            **{"source": name, "table": self.table.text, "number": number, "records": len(row["records"])},
            **{"rows": row["rows"], "removed": removed, "proof": shown},
        }

    def _scanned(self, note: Mapping[str, Any]) -> dict[str, Any]:
        """Looks through all files but those that are about to be removed."""
        salt = bytes.fromhex(note["row"]["salt"])
        tables = [Rewritten.of(t) for t in note["tables"]]
        old = {f"{t.path}/{p}" for t in tables for p in erasing.unneeded(self.lake.at(t.path), t)}
        changes = self._changes()
        before = [changes.uri().removeprefix(f"{self.lake.uri()}/") + "/" + p for t in tables
                  for p in t.files if self.lake.at(t.path) == changes]
        files = [File(self.lake, p) for p in before if self.lake.exists(p)]
        who = subject.of(self.table, self.key, files, follow=True)
        now = [File(changes, name) for name in delta_table.files(changes)]
        told = subject.texts_of(who, now, self._known())
        texts = told.own
        digests = {r["digest"] for r in note["row"]["records"]}
        self.told(f"looking through all files for {count(len(texts), 'value')} and {count(len(digests), 'payload')}")
        looked = proof.look_through(self.config, self.source, texts, digests, salt, old, lambda _: None)
        again = Tables(self.config, who, [], texts, salt, write=False)
        for one in again.each():
            for _ in range(one.rows):
                looked.note(f"{one.table.path}: a row")
        places = [(r["topic"], r["partition"], r["offset"]) for r in note["row"]["records"]]
        return {
            **looked.data(),
            **{"values": len(texts), "elsewhere": len(told.elsewhere), "payloads": len(digests), "kafka": self._kafka(places)},
            **self._unread(),
        }

    def _noted(self, number: int, tables: list[Rewritten]) -> None:
        """That snapshots hold fewer rows."""
        path, rows = TABLE_STATE.at(self.lake), []
        for name, was in state.now(path, self.source).items():
            snapshot = SNAPSHOT_PATH.of(self.lake, self.source.name, name)
            if any(t.files and self.lake.at(t.path) == snapshot for t in tables):
                now = commits.live(snapshot)
                said = {"source": self.source.name, **name_columns(name), "changes": 0, "invalid_dates": 0, "partial": 0}
                said |= {c: was[c] for c in ("batch", "state", "reason", "rebuild")}
                rows.append({**said, "rows": None if now is None else commits.counted(now)})
        delta_table.append_rows(path, rows, once=(f"erasure {self.source.name}", number))

    # -- which one -----------------------------------------------------------------------------------------

    def _digest(self, salt: bytes) -> str:
        return hmac.new(salt, json.dumps(self.key, sort_keys=True).encode(), sha256).hexdigest()

    def _is_mine(self, row: Mapping[str, Any]) -> bool:
        return hmac.compare_digest(row["key_digest"], self._digest(bytes.fromhex(row["salt"])))

    def _check_mine(self, note: Mapping[str, Any]) -> None:
        """Raises EraseRefused where another erasure isn't finished."""
        row = note["row"]
        if ".".join(filter(None, (row["db"], row["schema"], row["table"]))) != self.table.text or not self._is_mine(row):
            problem = f"erasure {note['number']}, of another key, was begun and isn't finished"
            raise EraseRefused(self.source.name, problem, ["its command once more"])

    def _number(self, path: Store) -> int:
        sql = f"SELECT max(\"number\") AS n FROM {{t}} WHERE source = '{self.source.name}'"
        return int(delta_table.ask(sql, t=path)[0]["n"] or 0) + 1

    def _done_before(self) -> int | None:
        """The newest erasure of this key that is done."""
        sql = f"SELECT \"number\", salt, key_digest FROM {{t}} WHERE source = '{self.source.name}' AND stage = 'done'"
        rows = delta_table.ask(sql, t=ERASURES.at(self.lake))
        return max((r["number"] for r in rows if self._is_mine(r)), default=None)


@dataclass(slots=True)
class _Prepared:
    """What was found, and is written."""

    subject: Subject
    messages: list[Message]
    texts: subject.Texts
    tables: Tables
    done: list[Done] = field(default_factory=list)

    @property
    def addresses(self) -> list[records.Address]:
        return [m.address._replace(offset=o) for m in self.messages for o in m.offsets]

    def shared(self, record: records.Address) -> bool:
        return any(m.shared for m in self.messages if record in [m.address._replace(offset=o) for o in m.offsets])


def _by() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
