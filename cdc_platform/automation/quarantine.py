"""What is in quarantine: rows and groups of rows, without Spark."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.errors import ConfigError
from cdc_platform.lake import queries, stores
from cdc_platform.tables import Name

_COLUMNS = (
    *("source", "format", "decoder_version", "room", "topic", "partition", "offset", "entry_index", "row_index"),
    *("db", "schema", "table", "key", "column", "reason", "quarantined_at", "resolved_at"),
)

_VALUES = r"""(^|[^A-Za-z])(?:''(?:[^''\\]|\\.)*''|"(?:[^"\\]|\\.)*"|[0-9]+)"""
_LEADING_COLUMN = r"^((?:key )?column )(?:''((?:[^''\\]|\\.)*)''|\"((?:[^\"\\]|\\.)*)\")"
_ALIKE = (
    f"regexp_replace(regexp_replace(reason, '{_LEADING_COLUMN}', '${{1}}${{2}}${{3}}'), '{_VALUES}', '${{1}}…', 'g')"
)
"""A reason without the values in it: what stands in quotes, but for the name of the column that it begins with, and
numbers."""


@dataclass(frozen=True, slots=True)
class HeldFilter:
    """Which rows. table: pattern of db.table, at the source or as the snapshot is called; reason: text in it, whatever
    its case; address: topic, partition, offset; resolved: also those that a later decoding resolved."""

    sources: Sequence[Source]
    table: str | None = None
    reason: str | None = None
    resolved: bool = False
    address: tuple[str, int, int] | None = None


def rows(config: Config, chosen: HeldFilter, limit: int) -> list[dict[str, Any]]:
    """Rows of quarantine, the newest first; `address`: topic/partition/offset; `key`: a dict. Raises ConfigError where
    no table fits `chosen.table`."""
    lake = _Lake(config)
    found = lake.ask(
        f"SELECT {lake.columns(_COLUMNS)} FROM t WHERE {lake.where(chosen)} "
        'ORDER BY quarantined_at DESC, topic, partition, "offset", entry_index, row_index '
        f"LIMIT {int(limit)}"
    )
    return [
        {
            "address": f"{r.pop('topic')}/{r.pop('partition')}/{r.pop('offset')}",
            **r,
            "key": dict(r["key"]) if r["key"] is not None else None,
        }
        for r in found
    ]


def summary(config: Config, chosen: HeldFilter, limit: int) -> list[dict[str, Any]]:
    """Groups of rows, those with most rows first: source, db, schema, table, column, rows, first, last
    (`quarantined_at`), reason (the newest), reasons (how many different ones). Reasons that differ by nothing but the
    values in them are one group. Raises ConfigError where no table fits `chosen.table`."""
    lake = _Lake(config)
    inner = lake.columns(("source", "db", "schema", "table", "column", "reason", "quarantined_at"))
    return lake.ask(
        'SELECT source, db, schema, "table", "column", count(*) AS rows, '
        "min(quarantined_at) AS first, max(quarantined_at) AS last, "
        "last_value(reason ORDER BY quarantined_at) AS reason, count(DISTINCT reason) AS reasons "
        f"FROM (SELECT {inner}, {_ALIKE} AS alike FROM t WHERE {lake.where(chosen)}) "
        'GROUP BY source, db, schema, "table", "column", alike '
        f'ORDER BY rows DESC, source, db, "table", reason LIMIT {int(limit)}'
    )


def messages(config: Config, chosen: HeldFilter) -> list[dict[str, Any]]:
    """Messages that can be decoded once more: topic, partition, offset, held (entry_index, row_index, reason of each
    row), rows (how many there are). Raises ConfigError as `rows`."""
    lake = _Lake(config)
    return lake.ask(
        'SELECT topic, partition, "offset", count(*) AS rows, '
        "array_agg(named_struct('entry_index', entry_index, 'row_index', row_index, 'reason', reason)) AS held FROM t "
        f"WHERE {lake.where(chosen)} AND room = 'changes' GROUP BY topic, partition, \"offset\""
    )


def beyond_decoding(config: Config, chosen: HeldFilter) -> int:
    """Rows that `messages` leaves out, as decoding once more changes none of them: what is no whole message, and what
    was decoded and can't be in the changelog. Raises ConfigError as `rows`."""
    lake = _Lake(config)
    found = lake.ask(f"SELECT count(*) AS n FROM t WHERE {lake.where(chosen)} AND room <> 'changes'")
    return int(found[0]["n"]) if found else 0


def unnamed(config: Config, chosen: HeldFilter) -> int:
    """Rows of the chosen sources whose message names no table: they may be of any."""
    lake = _Lake(config)
    everywhere = HeldFilter(chosen.sources, resolved=chosen.resolved)
    found = lake.ask(f'SELECT count(*) AS n FROM t WHERE {lake.where(everywhere)} AND (db IS NULL OR "table" IS NULL)')
    return int(found[0]["n"]) if found else 0


class _Lake:
    """The lake's quarantine, be it one of an earlier version."""

    def __init__(self, config: Config):
        self._config = config
        self._path = tables.QUARANTINE.at(stores.lake(config))
        self._there = queries.columns(self._path)

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """No rows where nothing was quarantined yet."""
        return queries.query(sql, t=self._path) or [] if self._there else []

    def columns(self, names: Sequence[str]) -> str:
        return ", ".join(f'"{n}"' if n in (self._there or ()) else f'CAST(NULL AS VARCHAR) AS "{n}"' for n in names)

    def where(self, chosen: HeldFilter) -> str:
        told = [f"source IN ({', '.join(queries.text(s.name) for s in chosen.sources)})"]
        if not chosen.resolved:
            told.append("resolved_at IS NULL")
        if chosen.reason is not None:
            told.append(f"strpos(lower(reason), lower({queries.text(chosen.reason)})) > 0")
        if chosen.address is not None:
            topic, partition, offset = chosen.address
            told.append(f'topic = {queries.text(topic)} AND partition = {int(partition)} AND "offset" = {int(offset)}')
        if chosen.table is not None:
            told.append(self._of_table(chosen, chosen.table))
        return " AND ".join(told)

    def _of_table(self, chosen: HeldFilter, pattern: str) -> str:
        by_name = {s.name: s for s in chosen.sources}
        every = self.ask(
            f'SELECT DISTINCT source, db, {self.columns(["schema"])}, "table" FROM t '
            'WHERE db IS NOT NULL AND "table" IS NOT NULL'
        )
        mine = [(by_name[r["source"]], tables.name_of(r)) for r in every if r["source"] in by_name]
        fitting = [(s, name) for s, name in mine if _names(s, name, pattern)]
        if not fitting:
            known = [*_known(self._config, chosen.sources), *mine]
            if not any(_names(s, name, pattern) for s, name in known):
                valid = sorted({".".join(name) for _, name in known})
                raise ConfigError("--table", f"no table that is known is called {pattern!r}", valid)
            return "FALSE"
        each = (f"(source = {queries.text(s.name)} AND {self._named(name)})" for s, name in fitting)
        return f"({' OR '.join(each)})"

    def _named(self, name: Name) -> str:
        parts = {n: queries.text(part or "") for n, part in tables.name_columns(name).items()}
        schema = f"coalesce(schema, '') = {parts['schema']} AND " if "schema" in (self._there or ()) else ""
        return f'db = {parts["db"]} AND {schema}"table" = {parts["table"]}'


def _known(config: Config, sources: Sequence[Source]) -> list[tuple[Source, Name]]:
    """Tables whose columns the messages told, by their names at the source, and snapshots."""
    told = [(s, name) for s in sources for name in queries.stated_tables(config, s)]
    return told + [(s, name) for s, name in queries.known_tables(config) if s in sources]


def _names(source: Source, name: Name, pattern: str) -> bool:
    """Whether a pattern fits a table's name at the source, or that of the snapshot that keeps its rows."""
    return any(fnmatch.fnmatchcase(".".join(n), pattern) for n in (name, source.tables.routed(*name)))
