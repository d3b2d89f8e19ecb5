"""What is written anew of each table, by where.py, and how many rows of the subject it holds."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from cdc_platform.changelog import unify
from cdc_platform.changes import files as changes_files
from cdc_platform.config import Config
from cdc_platform.erasing import rewrite, shadows
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.erasing.quotes import Quotes
from cdc_platform.erasing.rewrite import Bytes, Events, Held, Images, Rows, Texts, Work
from cdc_platform.erasing.subject import Message, Subject
from cdc_platform.erasing.where import texts
from cdc_platform.errors import ConfigError
from cdc_platform.explain import records
from cdc_platform.explain.records import Address
from cdc_platform.formats import erased
from cdc_platform.lake import commits, delta_table, erasing, folders, stores, takeover
from cdc_platform.lake.data_files import Sink, leaves
from cdc_platform.lake.erasing import ANEW, IN_PLACE, Rewritten
from cdc_platform.lake.log_state import Action
from cdc_platform.lake.store import Store
from cdc_platform.landing.erased import NOTHING
from cdc_platform.tables import (
    CHANGELOG,
    CHANGES,
    ENVELOPES,
    HISTORY_PATH,
    IMAGES,
    LANDING,
    QUARANTINE,
    SHADOW_DIFFERENCES,
    SNAPSHOT_PATH,
    TOMBSTONES_PATH,
    TYPED_CHANGES_PATH,
    WAITING,
    Location,
)


@dataclass(frozen=True, slots=True)
class Done:
    """A table: its files, and rows of the subject that counted in it."""

    table: Rewritten
    rows: int
    files: tuple[str, ...]


@dataclass
class Tables:
    """Of one erasure. write: whether files are written, or only counted."""

    config: Config
    subject: Subject
    messages: list[Message]
    quotes: Quotes
    salt: bytes
    write: bool
    digests: dict[Address, str] = field(default_factory=dict)
    keys: set[tuple[str, int, str]] = field(default_factory=set)

    @cached_property
    def lake(self) -> Store:
        return stores.lake(self.config)

    @cached_property
    def source(self) -> Any:
        return self.subject.table.source

    def each(self) -> Iterator[Done]:
        """All of them. Raises EraseRefused, LakeChanged."""
        yield from self._rows()  # first: of these some are refused
        yield from self._messages()
        yield from self._events()
        yield from self._shared()
        waiting = WAITING.at(self.lake, source=self.source.name)
        if records.splits(self.source) and delta_table.exists(waiting):
            yield Done(Rewritten(self._under(waiting), {}, ANEW, {}), 0, ())

    def _under(self, path: Store) -> str:
        return path.uri().removeprefix(f"{self.lake.uri()}/")

    def _done(self, sink: Sink, named: Mapping[str, Action], work: Work, how: str, *, versions: bool) -> Done:
        found, rows = rewrite.files(sink, named, work, write=self.write)
        written = {path: file for path, file in found.items() if file is not None}
        table = Rewritten(self._under(sink.table), dict(sink.partition), how, written, versions)
        return Done(table, rows, tuple(found))

    def _messages(self) -> Iterator[Done]:
        parts = {Address(m.address.topic, m.address.partition, o): NOTHING for m in self.messages for o in m.offsets}
        whole = {m.address: erased.kept(m.left) for m in self.messages}
        for table, left in ((LANDING, {**parts, **whole}), (ENVELOPES, whole)):
            path = table.at(self.lake, source=self.source.name)
            if delta_table.exists(path):
                named = rewrite.stats_may_hold(erasing.named(path), left)
                work = Bytes(left, self.salt)
                yield self._done(_sink(path, table.arrow(), table.stats), named, work, IN_PLACE, versions=False)
                if table is LANDING:
                    self.digests.update(work.digests)
                    self.keys |= work.keys

    def _events(self) -> Iterator[Done]:
        told = self.subject.identities, frozenset(self.subject.addresses)
        changes = CHANGES.at(self.lake, format=self.source.format, source=self.source.name)
        changelog = CHANGELOG.at(self.lake)
        sinks = (
            Sink(changes, CHANGES.arrow(), CHANGES.stats, changes_files.WORDS),
            Sink(changelog, unify.CHANGELOG_FILE, CHANGELOG.stats, _encoded_columns(), self._mine),
        )
        for sink, work in zip(sinks, (Events(*told, (*Events.columns, "kind")), Events(*told)), strict=True):
            if delta_table.exists(sink.table):
                named = rewrite.stats_may_hold(self._of(erasing.named(sink.table), sink), self.subject.addresses)
                yield self._done(sink, named, work, IN_PLACE, versions=False)

    @property
    def _mine(self) -> tuple[tuple[str, str], ...]:
        return (("source", self.source.name),)

    @staticmethod
    def _of(named: Mapping[str, Action], sink: Sink) -> dict[str, Action]:
        """Files of the sink's partition."""
        return {p: a for p, a in named.items() if all(a["partitionValues"].get(n) == v for n, v in sink.partition)}

    def _rows(self) -> Iterator[Done]:
        names = {self.source.tables.routed(*name) for name in self.subject.table.names}
        for name in sorted(names):
            for location in (SNAPSHOT_PATH, TOMBSTONES_PATH, HISTORY_PATH, TYPED_CHANGES_PATH):
                path = folders.table_folder(self.lake, location, self.source.name, name)
                if self.write:  # a plan holds no lease
                    takeover.sweep(path)
                if delta_table.exists(path):
                    yield self._of_rows(path, location)

    def _of_rows(self, path: Store, location: Location) -> Done:
        now = commits.live(path)
        if now is None:
            raise EraseRefused(self.source.name, f"{path.uri()} has features of Delta that aren't kept to here")
        fields = delta_table.file_fields(path)
        if location is TYPED_CHANGES_PATH:
            in_images = {i: delta_table.file_fields(path, i) for i in IMAGES}
            work: Work = Images({fields[i].name: self._keys(path, in_images[i], numbered=False) for i in IMAGES})
        else:
            work = self._keys(path, fields, numbered=location is TOMBSTONES_PATH)
        schema = pa.schema(list(fields.values()))
        sink = Sink(path, schema, leaves(schema)[:32], ())
        return self._done(sink, {unquote(a["path"]): a for a in now.adds}, work, ANEW, versions=True)

    def _keys(self, path: Store, fields: Mapping[str, pa.Field], *, numbered: bool) -> Rows:
        """Raises EraseRefused where a key can't be told as the files have it."""
        columns = {c.name: c for c in self.subject.table.columns}
        there = {n.lower(): f for n, f in fields.items()}
        chosen = []
        for i, key in enumerate(self.subject.table.keys):
            field_ = there.get(f"_k{i}" if numbered else key.lower())
            if field_ is None:
                raise EraseRefused(self.source.name, f"{path.uri()} has other key columns than the table has today")
            chosen.append((key, field_))
        found = []
        for one in self.subject.keys:
            try:
                values = [columns[name].value(one[name], field_.type)[0].as_py() for name, field_ in chosen]
            except ConfigError as error:
                choices = [f"a key like {v}" for v in error.valid]
                raise EraseRefused(self.source.name, error.problem, choices) from None
            found.append(values)
        alike = self.subject.table.alike
        return Rows(tuple(f.name for _, f in chosen), found, [alike.of(name) for name, _ in chosen])

    def _shared(self) -> Iterator[Done]:
        events = Events(self.subject.identities, frozenset(self.subject.addresses))
        cells = [dict(c) for key in self.subject.keys for c in self.subject.table.then(key)[0]]
        held = Held(events, self.subject.table.names, cells, int(time.time() * 1_000_000))
        quoted = [(one.table, Texts(one.columns, self.quotes)) for one in texts()] if self.quotes.parts else []
        for table, work in ((QUARANTINE, held), *quoted):
            if table not in shadows.TABLES:
                yield from self._in_shared(table, work, self.source.name)
        compared = [(t, w) for t, w in quoted if t in shadows.TABLES]
        for table, work in (*compared, (SHADOW_DIFFERENCES, None)):
            for name in shadows.partitions(self.lake, table, self.source):
                by = None if name == self.source.name else self.source.name
                yield from self._in_shared(table, work or shadows.Noted.of(self.subject, by), name)

    def _in_shared(self, table: Location, work: Work, source: str) -> Iterator[Done]:
        path = table.at(self.lake)
        if not delta_table.exists(path):
            return
        sink = delta_table.sink(path, source=source)
        if set(work.columns) <= set(sink.schema.names):  # else of an earlier version, whose rows told no such thing
            yield self._done(sink, self._of(erasing.current(path), sink), work, IN_PLACE, versions=True)


def _sink(path: Store, schema: pa.Schema, stats: tuple[str, ...]) -> Sink:
    return Sink(
        path, schema, stats, ("topic", "partition", "timestamp_type") if "timestamp_type" in schema.names else ()
    )


def _encoded_columns() -> tuple[str, ...]:
    return tuple(w for w in unify.WORDS if w.split(".")[0] in unify.CHANGELOG_FILE.names)
