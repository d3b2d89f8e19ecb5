"""Column lists of a source that something told later speaks against: their rows may be decoded otherwise now. Asked
without Spark, for mostly there are none."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cdc_platform.changes import in_force
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.table_schemas.doubts import Doubt, Doubts
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.lake.store import Store
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CONTEXTS, SCHEMA_HISTORY, TYPES_KNOWN, name_of

Name = tuple[str, str]

_nothing: dict[tuple[Store, str], Any] = {}
"""(changelog's history, source) → their state at which nothing was in doubt."""


class InDoubt(NamedTuple):
    """A column list of a table whose rows may be decoded otherwise now."""

    name: Name
    version: str
    columns: str
    doubt: Doubt


@dataclass(frozen=True)
class Doubted:
    """Of one source: `lists`, and what was noted of lists before, in TYPES_KNOWN."""

    config: Config
    source: Source

    def at(self, table: Any) -> Store:
        """A table of the source."""
        return table.at(stores.lake(self.config), source=self.source.name)

    @cached_property
    def known(self) -> Store:
        return delta_sql.ensure(TYPES_KNOWN, self.at(TYPES_KNOWN))

    def replaced(self) -> frozenset[str]:
        """Column lists whose rows were decoded again: a batch that brings some is older than that."""
        newest = "max(named_struct('n', \"number\", 'r', \"replaced\"))"
        sql = f"SELECT schema_version, {newest} AS m FROM {{t}} WHERE source = '{self.source.name}' GROUP BY 1"
        return frozenset(r["schema_version"] for r in delta_table.ask(sql, t=self.known) if r["m"]["r"])

    @cached_property
    def lists(self) -> list[InDoubt]:
        """Column lists of the schema history that something speaks against, and that weren't compared with it yet."""
        contexts, history = self.at(CONTEXTS), self.at(SCHEMA_HISTORY)
        if FORMATS[self.source.format].context is None or not delta_table.exists(contexts):
            return []
        at = (*map(delta_table.version, (contexts, history, self.known)), self.source.tables.model_dump_json())
        at = (*at, in_force.digest(in_force.values(self.source)))
        if _nothing.get((history, self.source.name)) == at:
            return []
        found = self._doubts(history)
        if not found:
            _nothing[history, self.source.name] = at
        return found

    @cached_property
    def context(self) -> str | None:
        """What the decoder was last told."""
        newest = "SELECT context FROM {t} ORDER BY number DESC LIMIT 1"
        found = delta_table.ask(newest, t=self.at(CONTEXTS))
        return found[0]["context"] if found else None

    def _doubts(self, history: Store) -> list[InDoubt]:
        if self.context is None:
            return []
        of = f"source = '{self.source.name}'"
        lists = delta_table.ask(
            f"SELECT DISTINCT db, \"table\", schema_version, columns FROM {{t}} WHERE {of} AND kind = 'message' "
            "AND coalesce(schema, '') = ''",  # DDL and schema files are MySQL's, which has no schemas
            t=history,
        )
        compared = delta_table.ask(f"SELECT schema_version, digest FROM {{t}} WHERE {of}", t=self.known)
        before: dict[str, set[str]] = {}
        for r in compared:
            before.setdefault(r["schema_version"], set()).add(r["digest"])
        replaced, doubts, found = self.replaced(), Doubts(json.loads(self.context)), []
        for r in lists:
            if r["columns"] is None or not self.source.tables.wanted(r["db"], r["table"]):
                continue
            doubt = doubts.of(r["db"], r["table"], json.loads(r["columns"]))
            name, version = (r["db"], r["table"]), r["schema_version"]
            if doubt and (version in replaced or self._is_due(name, doubt, before.get(version, set()))):
                found.append(InDoubt(name, version, r["columns"], doubt))
        return found

    def _is_due(self, name: Name, doubt: Doubt, before: set[str]) -> bool:
        """Whether a list is to be compared with what speaks against it: once, and where rows couldn't be decoded, once
        more by other options, as long as the table is stopped. before: digests noted of the list."""
        if not before.isdisjoint((doubt.digest, self.failing(doubt))):
            return False
        failed = any(digest.startswith(f"{doubt.digest}:") for digest in before)
        return not failed or self.source.tables.routed(*name) in self._stopped

    def failing(self, doubt: Doubt) -> str:
        """Digest of a list with rows that can't be decoded: other options of the format, or another decoder, may let
        them in. Options that name types are what the doubt is of."""
        options = {k: v for k, v in in_force.values(self.source).items() if k not in in_force.OF_TYPES}
        return f"{doubt.digest}:{in_force.digest({**options, 'decoder': FORMATS[self.source.format].version})}"

    @cached_property
    def _stopped(self) -> set[tuple[str, ...]]:
        """Snapshots of the source that are stopped."""
        mine = (r for r in queries.table_states(self.config) if r["source"] == self.source.name)
        return {name_of(r) for r in mine if r["state"] == "stopped"}
