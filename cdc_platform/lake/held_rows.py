"""What tables lack because quarantine holds it. No Spark here."""

from collections.abc import Iterable, Iterator
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.lake import stores
from cdc_platform.lake.queries import query, schema_of, text
from cdc_platform.tables import name_columns, name_in


def by_table(config: Config) -> list[dict[str, Any]]:
    """Which tables lack rows because quarantine holds them: source, db, schema, table (None: the message doesn't name
    it), rows, oldest (`quarantined_at`), reason of the newest. A row per source and table, named as its snapshot is.
    Resolved rows don't count, nor do those of tables that the configuration leaves out and of sources it lacks."""
    path = tables.QUARANTINE.at(stores.lake(config))
    found = query(
        f'SELECT source, db, {schema_of(path)}, "table", count(*) AS rows, min(quarantined_at) AS oldest, '
        "max(quarantined_at) AS newest, last_value(reason ORDER BY quarantined_at) AS reason "
        "FROM t WHERE resolved_at IS NULL GROUP BY 1, 2, 3, 4",
        t=path,
    )
    groups: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for name, row in _by_snapshot(config, found or []):
        groups.setdefault(name, []).append(row)
    ordered = sorted(groups.items(), key=lambda item: [(part is not None, part or "") for part in item[0]])
    return [
        {
            **dict(zip(("source", "db", "schema", "table"), name, strict=True)),
            "rows": sum(r["rows"] for r in rows),
            "oldest": min(r["oldest"] for r in rows),
            "reason": max(rows, key=lambda r: r["newest"])["reason"],
        }
        for name, rows in ordered
    ]


def since(config: Config, source: Source) -> list[dict[str, Any]]:
    """The same of one source, of each time at which some were found, and named as the messages do: db, schema, table,
    rows, at."""
    path = tables.QUARANTINE.at(stores.lake(config))
    found = query(
        f'SELECT db, {schema_of(path)}, "table", quarantined_at AS at, count(*) AS rows FROM t '
        f"WHERE resolved_at IS NULL AND source = {text(source.name)} GROUP BY 1, 2, 3, 4 ORDER BY at",
        t=path,
    )
    return [r for r in found or [] if (name := name_in(r)) is None or source.tables.wanted(*name)]


def by_source(config: Config) -> dict[str, int]:
    """source → rows in quarantine, as `by_table` counts them."""
    found: dict[str, int] = {}
    for row in by_table(config):
        found[row["source"]] = found.get(row["source"], 0) + row["rows"]
    return found


def _by_snapshot(
    config: Config, rows: Iterable[dict[str, Any]]
) -> Iterator[tuple[tuple[str | None, ...], dict[str, Any]]]:
    """Rows of quarantine under source, db, schema and table of their snapshot, but for those that nobody wants."""
    by_name = {s.name: s for s in config.sources}
    for row in rows:
        if (source := by_name.get(row["source"])) is None:
            continue
        named = {c: row[c] or None for c in ("db", "schema", "table")}
        if (name := name_in(row)) is not None:
            if not source.tables.wanted(*name):
                continue
            named = name_columns(source.tables.routed(*name))
        yield (source.name, *named.values()), row
