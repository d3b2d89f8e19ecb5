"""The table RECONCILIATIONS read: what comparisons with the source say of the snapshots. Without Spark."""

from collections.abc import Iterator
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.lake import queries, stores
from cdc_platform.tables import Name

_AS_OF = "CASE WHEN against = 'server' THEN at ELSE {made_at} END"
_NEWEST = "coalesce(as_of, CASE WHEN NOT equal THEN at END) DESC NULLS LAST, at"
"""By the time of the source's rows. An export of which nobody said when it was made hides no other comparison where it
is equal: it may be older."""


def comparisons(config: Config, source: Source) -> dict[Name, list[dict[str, Any]]]:
    """Snapshot → the newest row of RECONCILIATIONS of each source table that it holds, with the table's name as a text
    in `table`. as_of: the time of the source's rows (None: nobody said); falls_short: why it proves nothing though it
    is equal, as clauses."""
    path = tables.RECONCILIATIONS.at(stores.lake(config))
    made_at = "made_at" if "made_at" in (queries.columns(path) or ()) else "CAST(NULL AS TIMESTAMP)"
    rows = queries.query(
        f'SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY db, schema, "table" ORDER BY {_NEWEST} DESC) AS n '
        f"FROM (SELECT *, {_AS_OF.format(made_at=made_at)} AS as_of FROM t WHERE source = {queries.text(source.name)})"
        ") WHERE n = 1",
        t=path,
    )
    found: dict[Name, list[dict[str, Any]]] = {}
    for row in rows or []:
        name = tables.name_of(row)
        row |= {"table": ".".join(name)}
        row |= {"falls_short": [*_falls_short(row)] if row["equal"] else []}
        found.setdefault(source.tables.routed(*name), []).append(row)
    return found


def proves(row: dict[str, Any]) -> bool:
    """Whether a comparison says that all of its table was equal at a time that is known."""
    return bool(row["equal"]) and not row["falls_short"]


def _falls_short(row: dict[str, Any]) -> Iterator[str]:
    table = row["table"]
    if row["as_of"] is None:
        yield f"{table} equals an export of which nobody said when it was made (`reconcile --export … --at TIME`)"
    for column, why in sorted(dict(row["not_compared"] or ()).items()):
        yield f"column {column} of {table} can't be compared with the source: {why}"
