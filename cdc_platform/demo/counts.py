"""How much of each feed there is, counted in the lake's own tables: four counts that differ, under four names."""

from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.lake import stores
from cdc_platform.lake.store import Store

ABOUT = (
    "Kafka records lie in the topics and, byte for byte, in the lake. A message is one record, or several that belong "
    "together. Its events are row changes, DDL statements, marks of transactions and heartbeats. Row changes are the "
    "inserts, updates and deletes among them; some feeds send an update as a delete and an insert."
)
"""What the counts are."""


def of_feeds(config: Config) -> list[dict[str, Any]]:
    """Per source: source, format, kafka_records (landed), messages (whole ones), events (decoded), row_changes (in the
    changelog), cut (kind of its newest one: transaction, position, or None) and cut_reason."""
    return [_of(config, source) for source in config.sources]


def _of(config: Config, source: Source) -> dict[str, Any]:
    from cdc_platform.lake.queries import query, text

    name = text(source.name)
    changes = tables.CHANGES.at(stores.lake(config), format=source.format, source=source.name)
    cut = query(f"SELECT kind, reason FROM t WHERE source = {name} ORDER BY cut DESC LIMIT 1", t=_at(config, "CUTS"))
    return {
        "source": source.name,
        "format": source.format,
        "kafka_records": _count("count(*)", tables.LANDING.at(stores.lake(config), source=source.name)),
        "messages": _count('count(DISTINCT concat_ws(\'/\', topic, "partition", "offset"))', changes),
        "events": _count("count(*)", changes),
        "row_changes": _count("count(*)", _at(config, "CHANGELOG"), f" WHERE source = {name}"),
        "cut": cut[0]["kind"] if cut else None,
        "cut_reason": cut[0]["reason"] if cut else None,
    }


def _at(config: Config, table: str) -> Store:
    return getattr(tables, table).at(stores.lake(config))


def _count(what: str, path: Store, where: str = "") -> int:
    from cdc_platform.lake.queries import query

    rows = query(f"SELECT {what} AS n FROM t{where}", t=path)
    return rows[0]["n"] if rows else 0
