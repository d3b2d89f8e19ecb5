"""What is kept of a subject, found and counted, and written anew where that is wanted; and what can't be looked
into."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.erasing import messages, shadows, subject, values
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.erasing.subject import Key, Message, Subject
from cdc_platform.erasing.tables import Done, Tables
from cdc_platform.erasing.values import Values
from cdc_platform.errors import CdcError
from cdc_platform.explain import records
from cdc_platform.explain.table import Table
from cdc_platform.kafka.offsets import kafka_state
from cdc_platform.lake import delta_table, erasing, queries, stores
from cdc_platform.lake.store import File, Store
from cdc_platform.landing import positions
from cdc_platform.tables import CHANGELOG, CHANGES, LANDING, OFFSET_LEDGER, QUARANTINE, SCHEMA_HISTORY
from cdc_platform.units import count

Told = Callable[[str], None]
_BESIDE = "{} brings the same database: until it is erased there, comparisons find it there and note it"
_UNLISTED = "the lake has rows of source {}, which cdc.yaml lacks: put it back, and erase there what it has of this"


@dataclass(slots=True)
class Prepared:
    """What was found, and is written."""

    subject: Subject
    messages: list[Message]
    values: Values
    tables: Tables
    done: list[Done] = field(default_factory=list)

    @property
    def addresses(self) -> list[records.Address]:
        """Of all records."""
        return [m.address._replace(offset=o) for m in self.messages for o in m.offsets]

    def shared(self, record: records.Address) -> bool:
        """Whether a record is of a message that holds others, too."""
        return any(m.shared for m in self.messages if record in [m.address._replace(offset=o) for o in m.offsets])

    def data(self) -> dict[str, Any]:
        """unfinished (None), keys, messages (address, records, shared, others: rows and statements, with: the first of
        their tables and keys), tables (path, rows, files), values (how many are looked for as text), too_short,
        with_others (how many aren't: they stand anywhere; others have them), elsewhere (other rows, by table and key,
        that have some of its values: up to 20), alive (the snapshot holds the row), doubts."""
        return {
            "unfinished": None,
            "keys": [dict(k) for k in self.subject.keys],
            "messages": [
                {
                    "address": str(m.address),
                    "records": len(m.offsets),
                    "shared": m.shared,
                    "others": m.others,
                    "with": m.rows_of,
                }
                for m in self.messages
            ],
            "tables": [
                {"table": d.table.path, "rows": d.rows, "files": list(d.files)} for d in self.done if d.rows or d.files
            ],
            **self.values.data(),
            "elsewhere": [{"table": table, "key": key} for table, key in self.values.elsewhere],
            "alive": any(d.rows for d in self.done if d.table.path.startswith("snapshots/")),
            "doubts": self.subject.doubts,
        }


@dataclass
class Search:
    """Of one subject of one table. follow: keys that the row had before or since are the same subject's. told: is given
    what is being done, for people."""

    config: Config
    table: Table
    key: Key
    follow: bool
    told: Told

    @property
    def source(self) -> Source:
        """The table's."""
        return self.table.source

    @property
    def lake(self) -> Store:
        """The lake's store."""
        return stores.lake(self.config)

    def changes(self) -> Store:
        """Where decoded events are."""
        return CHANGES.at(self.lake, format=self.source.format, source=self.source.name)

    def find(self, files: list[File] | None = None) -> Subject:
        """In all files of decoded events, of old versions, too; or in these. Raises EraseRefused."""
        path = self.changes()
        if files is None:
            if not delta_table.exists(path):
                raise EraseRefused(self.source.name, "nothing of it has been decoded yet", ["`cdc-platform run`"])
            files = [File(path, name) for name in erasing.named(path) if path.exists(name)]
        self.told(f"looking for the key in {count(len(files), 'file')} of decoded events")
        found = subject.of(self.table, self.key, files, follow=self.follow)
        subject.check_whose(found)
        return found

    def prepared(self, who: Subject, salt: bytes, *, write: bool) -> Prepared:
        """What is to be done; write: with the new files, which nothing names yet. Raises EraseRefused."""
        found = messages.of(self.config, who)
        self.told(f"{count(len(who.events), 'change')} in {count(len(found), 'message')}")
        path = self.changes()
        current = [File(path, name) for name in delta_table.files(path)]
        of_it = values.values_of(who, current, self.known())
        who = replace(who, doubts=self.doubts(who))
        tables = Tables(self.config, who, found, of_it.own, salt, write)
        done = []
        for one in tables.each():
            done.append(one)
            if one.files:
                self.told(f"{one.table.path}: {count(one.rows, 'row')} in {count(len(one.files), 'file')}")
        return Prepared(who, found, of_it, tables, done)

    def doubts(self, who: Subject) -> list[str]:
        """Why something of it may be left, also elsewhere in the lake."""
        beside = map(_BESIDE.format, shadows.beside(self.config, self.source))
        return [*who.doubts, *beside, *map(_UNLISTED.format, unlisted(self.config))]

    def known(self) -> list[str]:
        """Texts that aren't the subject's: names, columns and statements of the source."""
        rows = queries.query(
            f"SELECT DISTINCT ddl, columns FROM t WHERE source = {queries.text(self.source.name)}",
            t=SCHEMA_HISTORY.at(self.lake),
        )
        told = [text for r in rows or [] for text in r.values() if text]
        topics = {r["topic"] for r in queries.ledger(self.config, [self.source])}
        return [*told, *topics, self.source.name, self.source.format, *(".".join(n) for n in self.table.names)]

    def unread(self) -> dict[str, Any]:
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

    def in_kafka(self, addresses: list[tuple[str, int, int]]) -> int | None:
        """How many of these records Kafka still has; None: it can't be asked."""
        try:
            state = {(s.topic, s.partition): s for s in kafka_state(self.config, self.source)}
        except CdcError:
            return None
        of = positions.numberings(self.config, self.source)
        there = ((offset, state.get(w := (topic, p)), of.get(w, ())) for topic, p, offset in addresses)
        return sum(s is not None and positions.may_be_there(offset, s, how) for offset, s, how in there)


def unlisted(config: Config) -> list[str]:
    """Sources that the lake has rows of and cdc.yaml doesn't have."""
    lake = stores.lake(config)
    told = queries.query("SELECT DISTINCT source FROM t ORDER BY 1", t=OFFSET_LEDGER.at(lake))
    gone = [r["source"] for r in told or [] if r["source"] not in {s.name for s in config.sources}]
    changelog = CHANGELOG.at(lake)
    there = delta_table.added(changelog) if gone and delta_table.exists(changelog) else None
    has = there["partition.source"].unique().to_pylist() if there else ()
    return [name for name in gone if name in has or delta_table.exists(LANDING.at(lake, source=name))]
