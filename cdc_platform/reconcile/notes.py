"""What comparisons found, kept in the lake: the newest of a table is part of its certificate."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.reconcile.result import TableResult
from cdc_platform.spark import delta_sql
from cdc_platform.tables import RECONCILIATIONS, Name, name_columns


class Seen(NamedTuple):
    """What a comparison can have seen. lost: offsets of the source that had been lost before they were landed."""

    lost: int
    at: datetime


def seen(config: Config, source: Source) -> Seen:
    """To be asked before the version of the snapshot is chosen: what is lost later isn't in it."""
    at = datetime.now(UTC)
    return Seen(sum(r["lost"] for r in queries.ledger(config, [source])), at)


def note(
    config: Config, source: Source, against: Literal["server", "export"], name: Name, result: TableResult, seen: Seen
) -> None:
    """Keeps the result of one table, if it has a snapshot, as of the time at which its comparison was begun."""
    if result.version is None:
        return
    path = delta_sql.ensure(RECONCILIATIONS, RECONCILIATIONS.at(stores.lake(config)))
    delta_table.append_rows(path, [_row(source, against, name, result, seen)], at=seen.at)


def _row(source: Source, against: str, name: Name, result: TableResult, seen: Seen) -> dict[str, Any]:
    at = result.position or {}
    return {
        "source": source.name,
        **name_columns(name),
        "against": against,
        "equal": result.equal,
        "version": result.version,
        "binlog_file": at.get("file"),
        "binlog_pos": None if at.get("position") is None else Decimal(at["position"]),
        "gtid": at.get("gtid") or None,
        "rows": result.expected_rows,
        "digest": result.digest,
        "differing": result.missing + result.extra + result.changed,
        "problems": result.problems,
        "not_compared": list(result.not_compared.items()),
        "lost": seen.lost,
    }
