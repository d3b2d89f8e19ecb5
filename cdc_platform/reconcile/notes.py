"""What comparisons found, kept in the lake: the newest of a table is part of its certificate."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.lake import comparisons, delta_table, queries, stores
from cdc_platform.lake.comparisons import LOAD, NOT_CARRIED
from cdc_platform.reconcile.result import TableResult
from cdc_platform.spark import delta_sql
from cdc_platform.tables import OFFSET_LEDGER, RECONCILIATIONS, Name, name_columns


class Seen(NamedTuple):
    """What a comparison can have seen. at: when it was begun; against: what; as_of: the time of the source's rows
    (None: nobody said); lost: offsets of the source that were known by then to be lost before they were landed;
    rebuild: how often the snapshot had been made anew."""

    at: datetime
    against: Literal["server", "export", "load"]
    as_of: datetime | None
    lost: int
    rebuild: int


def seen(config: Config, source: Source, name: Name) -> Seen:
    """To be asked before the version of the snapshot is chosen: what is lost later isn't in it."""
    at, rebuild = datetime.now(UTC), _rebuild(config, source, name)
    return Seen(at, "server", at, sum(r["lost"] for r in queries.ledger(config, [source])), rebuild)


def seen_in_export(config: Config, source: Source, name: Name, made_at: datetime | None) -> Seen:
    """As `seen`, of an export: of what was lost it says nothing but where that was known when it was made."""
    at, rebuild = datetime.now(UTC), _rebuild(config, source, name)
    path = OFFSET_LEDGER.at(stores.lake(config))
    if made_at is None or "lost_at" not in (queries.columns(path) or ()):
        return Seen(at, "export", made_at, 0, rebuild)
    of = f"source = {queries.text(source.name)} AND outcome = 'lost'"
    rows = queries.query(f"SELECT records, lost_at FROM t WHERE {of}", t=path) or []
    known = sum(int(r["records"]) for r in rows if r["lost_at"] is not None and r["lost_at"] <= made_at)
    return Seen(at, "export", made_at, known, rebuild)


def _rebuild(config: Config, source: Source, name: Name) -> int:
    return comparisons.rebuilds(config, source).get(source.tables.routed(*name), 0)


def note(config: Config, source: Source, name: Name, result: TableResult, seen: Seen) -> None:
    """Keeps the result of one table, if it has a snapshot, as of the time at which its comparison was begun."""
    if result.version is None:
        return
    path = delta_sql.ensure(RECONCILIATIONS, RECONCILIATIONS.at(stores.lake(config)))
    delta_table.append_rows(path, [_row(source, name, result, seen)], at=seen.at)


def note_load(config: Config, source: Source, name: Name, rows: int, seen: Seen) -> None:
    """Keeps that a table was read whole from the source, and is in its snapshot. seen: before it was read."""
    now = seen._replace(against=LOAD, rebuild=_rebuild(config, source, name))
    path = delta_sql.ensure(RECONCILIATIONS, RECONCILIATIONS.at(stores.lake(config)))
    row = {"source": source.name, **name_columns(name), "against": now.against, "equal": True, "rows": rows}
    row |= {"differing": 0, "lost": now.lost, "rebuild": now.rebuild}
    delta_table.append_rows(path, [row], at=now.at)


def _row(source: Source, name: Name, result: TableResult, seen: Seen) -> dict[str, Any]:
    at = result.position or {}
    return {
        "source": source.name,
        **name_columns(name),
        "against": seen.against,
        "equal": result.equal,
        "version": result.version,
        "binlog_file": at.get("file"),
        "binlog_pos": None if at.get("position") is None else Decimal(at["position"]),
        "gtid": at.get("gtid") or None,
        "rows": result.expected_rows,
        "digest": result.digest,
        "differing": result.missing + result.extra + result.changed,
        "problems": result.problems,
        "not_compared": [(column, why) for column, why in result.not_compared.items() if why != NOT_CARRIED],
        "lost": seen.lost,
        "made_at": seen.as_of if seen.against == "export" else None,
        "rebuild": seen.rebuild,
        "falls_short": result.falls_short or None,
    }
