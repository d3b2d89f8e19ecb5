"""Reads of the lake's Delta tables without Spark, for sensors, checks and `status`: small answers only.

delta-rs reads them.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.lake import answers, commits, delta_table, log_state, stores
from cdc_platform.lake.store import Store
from cdc_platform.tables import Name, name_in, name_of
from cdc_platform.units import count

Partition = tuple[str, int]
OUTCOMES = ("applied", "control", "filtered", "waiting", "joined", "duplicate", "quarantined", "erased")
"""What can become of a landed offset."""
NEWEST_LIST = ("landed_at", "order_key")
"""Columns of SCHEMA_HISTORY by which the newest column list of a table is the last: a source may send older ones again,
and an order isn't told across topics."""


def query(sql: str, **paths: Store) -> list[dict[str, Any]] | None:
    """As delta_table.ask, of tables by their names (`FROM t`). None: one of the tables isn't there yet."""
    from deltalake.exceptions import TableNotFoundError

    try:
        return delta_table.ask(sql.replace("{", "{{").replace("}", "}}"), **paths)
    except TableNotFoundError:
        return None


def text(value: str) -> str:
    """A text as a literal of DataFusion's SQL, which knows no escapes but the doubled quote."""
    return "'" + value.replace("'", "''") + "'"


def row_count(path: Store, source: Source | None = None) -> int | None:
    """Rows of a Delta table, or of one source's partition of it: by its log where that tells; None: no such table."""
    if source is None and (told := _counted(path)) is not None:
        return told
    of = f" WHERE source = {text(source.name)}" if source else ""
    found = query(f"SELECT count(*) AS n FROM t{of}", t=path)
    return None if found is None else int(found[0]["n"])


def _counted(path: Store) -> int | None:
    """None, too: its log doesn't tell, or names very many files."""
    with suppress(FileNotFoundError):
        live = (told := log_state.few(path)) and commits.live_of(told)
        return live and commits.counted(live)
    return None


def landed(config: Config, source: Source) -> dict[Partition, int]:
    """(topic, partition) → offset of the next record to land, by the offset ledger. After an accepted loss
    that is where landing went on, be it an earlier offset."""
    return {where: last + 1 for where, last in _landed_last(config, source).items() if last >= 0}


def topics_read(config: Config, source: Source) -> set[str]:
    """Topics that landing goes on with: not those that were lost, which was accepted, nor those that another took the
    place of."""
    return {topic for (topic, _), last in _landed_last(config, source).items() if last >= -1} - {tables.LOADED}


def _landed_last(config: Config, source: Source) -> dict[Partition, int]:
    """As the newest row of the ledger has it: -1: nothing so far; -2: nothing more is landed (landing/ended.py)."""
    found = query(
        "SELECT topic, partition, last_value(to_offset ORDER BY batch, to_offset) AS last FROM t "
        f"WHERE source = {text(source.name)} AND outcome IN ('landed', 'lost') GROUP BY topic, partition",
        t=tables.OFFSET_LEDGER.at(stores.lake(config)),
    )
    return {(row["topic"], row["partition"]): row["last"] for row in found or []}


def has_news(config: Config, source: Source, ends: dict[Partition, tuple[int, int]]) -> bool:
    """Whether an end in Kafka differs from the landed position; an end before it (a re-created topic) is news as
    well."""
    at = landed(config, source)
    return any(end != at.get(p, begin) for p, (begin, end) in ends.items())


def ledger(config: Config, sources: Iterable[Source]) -> list[dict[str, Any]]:
    """Per source, topic and partition: landed, every other outcome, `accounted` (their sum without lost), and
    `unaccounted`, landed without accounted: 0 but between two stages of a run."""
    names = ", ".join(text(s.name) for s in sources)
    sums = ", ".join(
        f"sum(CASE WHEN outcome = '{o}' THEN records ELSE 0 END) AS {o}" for o in ("landed", *OUTCOMES, "lost")
    )
    found = query(
        f"SELECT source, topic, partition, {sums} FROM t WHERE source IN ({names}) "
        "GROUP BY source, topic, partition ORDER BY source, topic, partition",
        t=tables.OFFSET_LEDGER.at(stores.lake(config)),
    )
    counted = [{**row, "accounted": sum(row[o] for o in OUTCOMES)} for row in found or []]
    return [{**row, "unaccounted": row["landed"] - row["accounted"]} for row in counted]


def unaccounted(row: dict[str, Any]) -> str:
    """What is said of a row of `ledger` whose sum doesn't come out."""
    landed = count(row["landed"], "record")
    return f"{row['topic']}/{row['partition']}: {landed} landed, {row['accounted']:,} of them accounted for"


def newest_change(config: Config, source: Source) -> datetime | None:
    """Commit time, by the source's clock, of the newest row change."""
    return newest_rows(config, source)[0]


def newest_rows(config: Config, source: Source) -> tuple[datetime | None, datetime | None]:
    """Of a source's row changes the newest commit time, by the source's clock, and when the newest were landed, by
    ours: from the statistics in the changelog's Delta log; no data is read."""
    from deltalake.exceptions import TableNotFoundError

    try:
        files = delta_table.added(tables.CHANGELOG.at(stores.lake(config)))
    except TableNotFoundError:
        return None, None
    asked = {"partition.source", "min.topic", "max.source_time", "max.landed_at"} & set(files.column_names)
    rows = answers.rows(files.select(sorted(asked)))
    mine = [r for r in rows if r["partition.source"] == source.name and r.get("min.topic") != tables.LOADED]
    change, landed = (
        max((at for row in mine if (at := row.get(f"max.{column}"))), default=None)
        for column in ("source_time", "landed_at")
    )
    return _utc(change), _utc(landed)


def _utc(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=at.tzinfo or UTC) if at else None


def known_tables(config: Config) -> list[tuple[Source, Name]]:
    """Source and name of the snapshots that there are or, by the schema history and the configuration, will be."""
    found = query(
        'SELECT DISTINCT source, db, schema, "table" FROM t '
        "WHERE kind = 'message' AND db IS NOT NULL AND \"table\" IS NOT NULL",
        t=tables.SCHEMA_HISTORY.at(stores.lake(config)),
    )
    by_name = {s.name: s for s in config.sources}
    there = {(row["source"], name_of(row)) for row in table_states(config) if row["source"] in by_name}
    stated = {
        (s.name, name)
        for r in found or []
        if (s := by_name.get(r["source"])) and s.tables.wanted(*(name := name_of(r)))
    }
    to_come = {(s, name) for s, name in stated if (s, by_name[s].tables.routed(*name)) not in there}
    to_come -= ended(config) if to_come else set()
    named = there | {(s, by_name[s].tables.routed(*name)) for s, name in to_come}
    return [(by_name[s], name) for s, name in sorted(named)]


def ended(config: Config) -> set[tuple[str, Name]]:
    """Source and name of the tables that a statement dropped or renamed, and none made again: one that never had a
    snapshot has no row in TABLE_STATE that says so."""
    found = query(
        "SELECT source, db, name FROM ("
        "SELECT source, db_before AS db, table_before AS name, false AS there, order_key FROM t "
        "WHERE table_before IS NOT NULL UNION ALL "
        "SELECT source, db_after, table_after, true, order_key FROM t WHERE table_after IS NOT NULL"
        ") GROUP BY 1, 2, 3 HAVING NOT last_value(there ORDER BY order_key, there)",
        t=tables.SCHEMA_CHANGES.at(stores.lake(config)),
    )
    return {(r["source"], (r["db"], r["name"])) for r in found or []}


def stated_tables(config: Config, source: Source) -> list[Name]:
    """Every table of a source whose columns the messages told."""
    found = query(
        f"SELECT DISTINCT db, schema, \"table\" FROM t WHERE source = {text(source.name)} AND kind = 'message'",
        t=tables.SCHEMA_HISTORY.at(stores.lake(config)),
    )
    return [name for r in found or [] if (name := name_in(r)) is not None]


def newest_columns(config: Config, source: str | None = None) -> list[dict[str, Any]]:
    """source, db, schema, table, schema_version, columns (JSON) of the column list that messages stated last of each
    table, as they name it; of one source or of all."""
    of = f" AND source = {text(source)}" if source else ""
    last = (f"last_value({c} ORDER BY {', '.join(NEWEST_LIST)}) AS {c}" for c in ("schema_version", "columns"))
    found = query(
        f'SELECT source, db, schema, "table", {", ".join(last)} FROM t '
        f"WHERE kind = 'message' AND columns IS NOT NULL{of} GROUP BY 1, 2, 3, 4",
        t=tables.SCHEMA_HISTORY.at(stores.lake(config)),
    )
    return [row for row in found or [] if name_in(row) is not None]


def table_states(config: Config) -> list[dict[str, Any]]:
    """source, db, schema, table, state ("live", "stopped", "dropped", "left_out"), reason, rows (None: not counted),
    invalid_dates (of all batches), at (the newest batch or rebuild) of every table that the stage snapshots has met."""
    path = tables.TABLE_STATE.at(stores.lake(config))
    rows = '"rows"' if "rows" in (columns(path) or ()) else "CAST(NULL AS BIGINT)"
    last = {"state": "state", "reason": "reason", "rows": rows}
    found = query(
        f'SELECT source, db, {schema_of(path)}, "table", '
        + ", ".join(f'last_value({told} ORDER BY rebuild, batch) AS "{name}"' for name, told in last.items())
        + ", sum(invalid_dates) AS invalid_dates, max(at) AS at FROM t "
        "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3 NULLS FIRST, 4",
        t=path,
    )
    return found or []


def followed(config: Config, source: Source) -> list[dict[str, Any]]:
    """`table_states` of the snapshots that a source has and follows."""
    return [t for t in table_states(config) if t["source"] == source.name and t["state"] not in ("dropped", "left_out")]


def column_lists(config: Config, source: Source, versions: Iterable[str]) -> dict[str, str]:
    """schema_version → column list as JSON, for the versions that SCHEMA_HISTORY knows."""
    if not (wanted := set(versions)):
        return {}
    found = query(
        f"SELECT schema_version, columns FROM t WHERE source = {text(source.name)} AND kind = 'message' "
        f"AND schema_version IN ({delta_table.digests(wanted)})",
        t=tables.SCHEMA_HISTORY.at(stores.lake(config)),
    )
    return {r["schema_version"]: r["columns"] for r in found or []}


def control_times(config: Config) -> dict[str, dict[str, datetime]]:
    """source → kind (heartbeat, checkpoint) → source's time of the newest, else the time it was landed."""
    found = query(
        "SELECT source, kind, max(coalesce(source_time, landed_at)) AS at FROM t "
        "WHERE kind IN ('heartbeat', 'checkpoint') GROUP BY source, kind",
        t=tables.CONTROL_EVENTS.at(stores.lake(config)),
    )
    times: dict[str, dict[str, datetime]] = {}
    for row in found or []:
        times.setdefault(row["source"], {})[row["kind"]] = row["at"]
    return times


def newest_of_tables(path: Store, columns: str, order: str, **of: str) -> dict[Name, dict[str, Any]]:
    """Table → its row that is last by an order. of: columns of the rows that count, each with its value."""
    counts = " AND ".join(f"{column} = {text(value)}" for column, value in of.items())
    rows = query(
        f"SELECT {columns} FROM (SELECT *, row_number() OVER "
        f'(PARTITION BY db, schema, "table" ORDER BY {order} DESC) AS n FROM t WHERE {counts}) WHERE n = 1',
        t=path,
    )
    return {name_of(r): r for r in rows or []}


def schema_of(path: Store) -> str:
    """`schema` in SQL, for a table that an earlier version may have made, which had no such column."""
    return "schema" if "schema" in (columns(path) or ()) else "CAST(NULL AS VARCHAR) AS schema"


def columns(path: Store) -> list[str] | None:
    """Names of a Delta table's columns; None: no such table."""
    from deltalake.exceptions import TableNotFoundError

    try:
        return [f["name"] for f in json.loads(delta_table.schema_json(path))["fields"]]
    except TableNotFoundError:
        return None


def newest_landed(config: Config, source: Source) -> datetime | None:
    """Kafka time of the newest record in landing, from the statistics in its Delta log."""
    return newest(tables.LANDING.at(stores.lake(config), source=source.name), "timestamp")


def newest(path: Store, column: str, of: Source | None = None) -> datetime | None:
    """Latest value of a column of times, by the statistics in a table's Delta log; of: rows of that source alone."""
    from deltalake.exceptions import TableNotFoundError

    try:
        files = delta_table.added(path)
    except TableNotFoundError:
        return None
    if f"max.{column}" not in files.column_names:
        return None
    asked = {f"max.{column}", "min.topic", "partition.source"} & set(files.column_names)
    rows = (r for r in answers.rows(files.select(sorted(asked))) if r.get("min.topic") != tables.LOADED)
    mine = (r for r in rows if of is None or r["partition.source"] == of.name)
    return _utc(max((at for row in mine if (at := row[f"max.{column}"])), default=None))


def newest_cuts(config: Config) -> dict[str, dict[str, Any]]:
    """source → its newest cut: cut, kind, source_time, at, and `behind`: whether its tables have changed since (the
    next cut was held back, or no run has ended yet)."""
    found = query(
        "SELECT source, cut, kind, source_time, at, work FROM "
        "(SELECT *, row_number() OVER (PARTITION BY source ORDER BY cut DESC) AS n FROM t) WHERE n = 1",
        t=tables.CUTS.at(stores.lake(config)),
    )
    work: dict[str, int] = {}
    for table in (tables.TABLE_STATE, tables.SCHEMA_CHANGES):
        path = table.at(stores.lake(config))
        counted = "sum(coalesce(entries, 1))" if "entries" in (columns(path) or ()) else "count(*)"
        for row in query(f"SELECT source, {counted} AS n FROM t GROUP BY source", t=path) or []:
            work[row["source"]] = work.get(row["source"], 0) + row["n"]
    cuts = {}
    for row in found or []:
        source, done = row.pop("source"), row.pop("work")
        cuts[source] = {**row, "behind": done != work.get(source, 0)}
    return cuts
