"""What comparisons found, kept in the lake: the newest of a table is part of its certificate."""

from decimal import Decimal
from typing import Any, Literal

from cdc_platform.config import Config, Source
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.reconcile.result import TableResult
from cdc_platform.spark import delta_sql
from cdc_platform.tables import RECONCILIATIONS, Name, name_columns


def note(
    config: Config, source: Source, against: Literal["server", "export"], results: list[tuple[Name, TableResult]]
) -> None:
    """Keeps results of tables that have a snapshot."""
    lost = sum(r["lost"] for r in queries.ledger(config, [source]))
    rows = [_row(source, against, name, r, lost) for name, r in results if r.version is not None]
    delta_table.append_rows(delta_sql.ensure(RECONCILIATIONS, RECONCILIATIONS.at(stores.lake(config))), rows)


def _row(source: Source, against: str, name: Name, result: TableResult, lost: int) -> dict[str, Any]:
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
        "lost": lost,
    }
