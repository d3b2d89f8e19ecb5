"""What a lake knows of its snapshots: state, size, columns, key, and what the feed can't tell. Without Spark."""

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config
from cdc_platform.config.tables import ORIGIN
from cdc_platform.errors import ConfigError
from cdc_platform.lake import folders, handles, held_rows, looks, queries, stores
from cdc_platform.lake.store import Store
from cdc_platform.reading.catalog import TableName, states
from cdc_platform.suggest import closest
from cdc_platform.tables import BOOKKEEPING

_LIMITS = "cdc.limits"
_AT_ONCE = 8


def known(config: Config, source: str | None = None) -> list[TableName]:
    """Every table of the configured sources (or of one) that there is a snapshot of, or that waits for its first.
    Raises ConfigError: no such source."""
    if source is not None:
        config.source(source)
    names = (TableName.of(s.name, name) for s, name in queries.known_tables(config))
    return [name for name in names if source in (None, name.source)]


def find(config: Config, given: str, source: str | None = None) -> TableName:
    """The one table that is meant by "db.table", "source/db.table" or its path "source/db/table". Raises ConfigError
    with the valid names: no such table, or several."""
    there = known(config, source)
    found = [n for n in there if given in (n.text, str(n), n.path)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            "TABLE", f"{given!r} names tables of several sources: add --source", [n.source for n in found]
        )
    names = sorted({n.text for n in there} if source else map(str, there))
    raise ConfigError("TABLE", f"there is no table {given!r}", closest(given, names) or ["none yet"])


def overview(config: Config, names: Iterable[TableName]) -> list[dict[str, Any]]:
    """Per table: source, table, state (`waiting` before its first snapshot), reason, rows, held (rows in quarantine),
    columns (a number), key, last_change (commit time at the source), path."""
    names = list(names)
    there, described = states(stores.lake(config)), _described(config)
    held = {(h["source"], tables.name_in(h)): h["rows"] for h in held_rows.by_table(config)}
    paths = [folders.snapshot(stores.lake(config), name.source, name.name) for name in names]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        figures = list(pool.map(_statistics, paths))
    found = []
    for name, path, (rows, last_change, width) in zip(names, paths, figures, strict=True):
        state = there.get(name)
        found.append(
            {
                "source": name.source,
                "table": name.text,
                "state": state.state if state else "waiting",
                "reason": state.reason if state and state.state != "live" else None,
                "rows": rows,
                "last_change": last_change,
                "held": held.get((name.source, name.name), 0),
                "columns": width,
                "key": key(config, name, described.get(name, {})),
                "path": path.uri(),
            }
        )
    return found


def columns(config: Config, name: TableName, bookkeeping: bool = False) -> list[dict[str, Any]]:
    """Per column: column, type (Spark's name), source_type (as the feed last described it), nullable, key (its place in
    the key, from 1), comment, limits (what the feed can't tell of its values). Raises ConfigError: no snapshot yet."""
    from deltalake.exceptions import TableNotFoundError

    try:
        table = handles.opened(folders.snapshot(stores.lake(config), name.source, name.name))
    except TableNotFoundError:
        raise ConfigError("TABLE", f"{name} has no snapshot yet: run `cdc-platform run`") from None
    told = _described(config, name.source).get(name, {})
    keys = key(config, name, told) or []
    limits = limits_of(table)
    return [
        {
            "column": field.name,
            "type": _type(field.type),
            "source_type": told.get(field.name, {}).get("type"),
            "nullable": field.nullable,
            "key": keys.index(field.name) + 1 if field.name in keys else None,
            "comment": field.metadata.get("comment"),
            "limits": limits.get(field.name, []),
        }
        for field in table.schema().fields
        if bookkeeping or not field.name.startswith(BOOKKEEPING)
    ]


def limits_of(table: Any) -> dict[str, list[str]]:
    """What the feed can't tell, by column of an open Delta table; `*`: of whole rows."""
    return _limits(table.metadata().configuration)


def limits(config: Config, names: Iterable[TableName]) -> dict[TableName, dict[str, list[str]]]:
    """What the feed can't tell of each snapshot's columns; empty, too, where there is none."""
    paths = {name: folders.snapshot(stores.lake(config), name.source, name.name) for name in names}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(looks.look, paths.values())
        return {name: _limits(look.properties) if look else {} for name, look in zip(paths, found, strict=True)}


def _limits(properties: Mapping[str, str]) -> dict[str, list[str]]:
    return json.loads(properties.get(_LIMITS) or "{}")


def key(config: Config, name: TableName, told: dict[str, dict[str, Any]]) -> list[str] | None:
    """Names of a snapshot's key columns: the configuration's, else those that the feed last described (`told`), and the
    origin of merged rows. None: it isn't known; []: the table has none, its rows are counted."""
    rules = config.source(name.source).tables
    if (configured := rules.key_columns(*name.name)) is not None:
        return configured
    if not told:
        return None
    own = [column for column, one in told.items() if one.get("key")]
    return [*own, *ORIGIN] if own and rules.merged(*name.name) else own


def keys(config: Config, source: str) -> dict[TableName, list[str] | None]:
    """`key` of every table of a source whose columns the feed has described."""
    return {name: key(config, name, told) for name, told in _described(config, source).items()}


def _statistics(path: Store) -> tuple[int | None, datetime | None, int | None]:
    """rows, last_change (commit time at the source of its newest change) and columns of a snapshot; None: it isn't
    there, or there is none."""
    if (look := looks.look(path)) is None:
        return None, None, None
    width = sum(not c.startswith(BOOKKEEPING) for c in look.fields) or None
    if (rows := look.rows) is not None and (newest := look.newest("_cdc_source_time")) is not None:
        return rows, newest[0], width
    found = queries.query('SELECT count(*) AS rows, max("_cdc_source_time") AS last_change FROM t', t=path)
    return (found[0]["rows"], found[0]["last_change"], width) if found else (None, None, None)


def _described(config: Config, source: str | None = None) -> dict[TableName, dict[str, dict[str, Any]]]:
    """Table → column → name, type, key as the feed's messages last described it."""
    rules = {s.name: s.tables for s in config.sources}
    described: dict[TableName, dict[str, dict[str, Any]]] = {}
    for row in queries.newest_columns(config, source):
        if (own := rules.get(row["source"])) is None:
            continue
        name = TableName.of(row["source"], own.routed(*tables.name_of(row)))
        for column in json.loads(row["columns"]):
            described.setdefault(name, {}).setdefault(column["name"], column)
    return described


def _type(type_: Any) -> str:
    told = json.loads(type_.to_json())
    return _TYPES.get(told, told) if isinstance(told, str) else told.get("type", "struct")


_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Names of Delta's log that SQL calls otherwise."""
