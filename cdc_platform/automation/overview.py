"""What all sources share, as assets: the tables changelog, offset_ledger and quarantine with each source's part apart,
and `health`, a page with one row per source. Read from the lake and from Kafka, without Spark."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from cdc_platform import advice, tables
from cdc_platform.automation import observe, runs, table_status
from cdc_platform.automation.looks import SHARED
from cdc_platform.automation.metadata import table_metadata
from cdc_platform.automation.naming import Naming, with_deps
from cdc_platform.automation.table_status import TableStatus
from cdc_platform.config import Config, Source
from cdc_platform.lake import held_rows, queries, sequences, stores
from cdc_platform.lake.store import Store
from cdc_platform.tables import name_of
from cdc_platform.units import count

EQUALS_SOURCE = "equals_source"
_SHOWN = 10
_MARKUP = frozenset("\\`*_[]()<>|~#!&{}")
_HEADINGS = {  # what needs attention first: the page shows so much of the width
    "source": "Source",
    "state": "State",
    "stopped": "Stopped",
    "held": "Held rows",
    "lag_records": "Lag, records",
    "complete_up_to": "Complete up to",
    "tables": "Tables",
    "last_run": "Last run",
    "reconciled": "Last reconciliation",
}


def overview(naming: Naming) -> dg.AssetsDefinition:
    """The shared assets. Every run materializes them: they show the state of all sources, so any run is right."""
    upstream = {
        "changelog": "changelog",
        "offset_ledger": "offset_ledger",
        "quarantine": "quarantine",
        "health": "snapshots",
    }
    specs = [
        with_deps(naming.spec(stage), [naming.key(upstream[stage], s) for s in naming.config.sources])
        for stage in SHARED
    ]

    @dg.multi_asset(name=naming.name("overview"), specs=specs, can_subset=True)
    def overview_assets(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        for key, metadata in shared_metadata(naming, context.instance).items():
            if key in context.selected_asset_keys:
                yield dg.MaterializeResult(asset_key=key, metadata=metadata)

    return overview_assets


def shared_metadata(naming: Naming, instance: dg.DagsterInstance) -> dict[dg.AssetKey, dict[str, Any]]:
    """Asset key → metadata of every shared asset, as things are now."""
    config = naming.config
    lake = stores.lake(config)
    rows = [row(naming, instance, source) for source in config.sources]
    ledger = queries.ledger(config, config.sources)
    outcomes = ("landed", *queries.OUTCOMES, "lost")
    sums = {o: sum(int(r[o]) for r in ledger) for o in outcomes}
    per_source = [
        {"source": s.name, **{o: sum(int(r[o]) for r in ledger if r["source"] == s.name) for o in outcomes}}
        for s in config.sources
    ]
    changes = [
        {
            "source": s.name,
            "rows": queries.row_count(tables.CHANGELOG.at(lake), s) or 0,
            "newest_change": _shown(queries.newest_change(config, s)),
        }
        for s in config.sources
    ]
    held = [
        {
            k: str(h[k] if h[k] is not None else "")
            for k in ("source", "db", "schema", "table", "rows", "oldest", "reason")
        }
        for h in held_rows.by_table(config)
    ]
    return {
        naming.key("changelog"): _table_of(tables.CHANGELOG, lake, "sources", changes),
        naming.key("offset_ledger"): {**sums, **_table_of(tables.OFFSET_LEDGER, lake, "sources", per_source)},
        naming.key("quarantine"): {
            "held": sum(int(h["rows"]) for h in held),
            **_table_of(tables.QUARANTINE, lake, "held_by_table", held),
        },
        naming.key("health"): health_metadata(rows),
    }


def _table_of(table: tables.Table, lake: Store, name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    path = table.at(lake)
    shown = {name: dg.MetadataValue.table([dg.TableRecord(r) for r in rows])} if rows else {}
    return {**shown, **table_metadata(path.uri(), queries.row_count(path))}


def row(naming: Naming, instance: dg.DagsterInstance, source: Source) -> dict[str, Any]:
    """The state of one source: keys as in _HEADINGS, values as they are."""
    config = naming.config
    statuses = table_status.statuses(config, source)
    beat, lag = observe.with_lag(config, source)
    cut = statuses[0].cut if statuses else table_status.cuts(config).get(source.name)
    reached = statuses[0].complete if statuses else table_status.complete(config, source)
    held = held_rows.by_source(config).get(source.name, 0)  # those that name no table, too
    stopped = [s.name for s in statuses if s.state == "stopped"]
    behind: dict[str, list[str]] = {}
    for name, one in ((s.name, reached.behind.get(s.id)) for s in statuses if reached):
        if one:
            behind.setdefault(one.reason, []).append(name)
    missing = _missing(config, source)
    return {
        "source": source.name,
        "state": beat.state,
        "detail": beat.text,
        "lag_records": lag,
        "complete_up_to": reached and reached.source_time,
        "complete_reason": reached and reached.reason,
        "tables_behind": sum(map(len, behind.values())),
        "behind": behind,
        "complete_position": reached and reached.position,
        "complete_gtids": reached and reached.gtid,
        "cut_position": cut and cut.position,
        "tables": len(statuses),
        "stopped": stopped,
        "held": held,
        "last_run": _last_run(naming, instance, source),
        "reconciled": _reconciled(naming, instance, source, statuses),
        "options_changed": advice.of_source(config, source),
        "missing": missing,
        "healthy": beat.passed and not stopped and not held and not missing,
    }


def _missing(config: Config, source: Source) -> list[str]:
    """What never came, or was lost before it was landed, and no comparison with the source has shown to do no harm."""
    names = [name_of(t) for t in queries.followed(config, source)]
    lost = {one.text for one in sequences.lost_of_tables(config, source, names).values()}
    return [*(gap.text for gap in sequences.open_gaps(config, source)), *sorted(lost)]


def _last_run(naming: Naming, instance: dg.DagsterInstance, source: Source) -> str | None:
    found = runs.of_source(instance, naming, source)
    if not found:
        return None
    record = found[0].record
    at = datetime.fromtimestamp(record.end_time, UTC) if record.end_time else record.create_timestamp
    return f"{record.dagster_run.status.value.lower()} {_shown(at)}"


def _reconciled(
    naming: Naming, instance: dg.DagsterInstance, source: Source, statuses: list[TableStatus]
) -> str | None:
    if source.reconcile is None:
        return None
    keys = [dg.AssetCheckKey(naming.table(source, *s.id).key, EQUALS_SOURCE) for s in statuses]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    done = [r for r in found.values() if isinstance(r.evaluation, dg.AssetCheckEvaluation)]
    if not done:
        return "never"
    equal = sum(isinstance(r.evaluation, dg.AssetCheckEvaluation) and r.evaluation.passed for r in done)
    newest = max(r.create_timestamp for r in done)
    return f"{equal} of {len(statuses)} tables equal, {_shown(datetime.fromtimestamp(newest, UTC))}"


def health_metadata(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Metadata of `health`: the page, and figures that chart."""
    return {
        "sources": dg.MetadataValue.md(markdown(rows)),
        "healthy_sources": sum(bool(r["healthy"]) for r in rows),
        "unhealthy_sources": sum(not r["healthy"] for r in rows),
        "stopped_tables": sum(len(r["stopped"]) for r in rows),
        "held_rows": sum(r["held"] for r in rows),
        "lag_records": sum(r["lag_records"] or 0 for r in rows),
        "options_changed": sum(bool(r["options_changed"]) for r in rows),
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """One table row per source. Names and reasons are data: nothing in them is markup."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def cells(r: dict[str, Any]) -> list[str]:
        shown = {
            **r,
            "complete_up_to": _up_to(r),
            "stopped": ", ".join(r["stopped"][:_SHOWN]) + (" …" if len(r["stopped"]) > _SHOWN else "") or "none",
        }
        return [escaped("–" if shown[k] in (None, "") else str(shown[k])) for k in _HEADINGS]

    table = [line(list(_HEADINGS.values())), line(["---"] * len(_HEADINGS)), *(line(cells(r)) for r in rows)]
    details = [
        f"- {escaped(r['source'])}: {escaped(text)}"
        for r in rows
        for text in (
            r.get("detail"),
            *_positions(r),
            *_reasons(r),
            *r.get("missing", ()),
            *r.get("options_changed", ()),
        )
        if text
    ]
    return "\n".join([*table, "", *details])


def _up_to(row: dict[str, Any]) -> str:
    """The time of the source, and of how many tables it isn't true."""
    told, behind = _shown(row["complete_up_to"]), row.get("tables_behind")
    return f"{told}, but {count(behind, 'table')} up to an earlier time" if told and behind else told


def _reasons(row: dict[str, Any]) -> Iterator[str | None]:
    yield row.get("complete_reason")
    reasons = list(row.get("behind", {}).items())
    for why, names in reasons[:_SHOWN]:
        more = f" and {count(len(names) - _SHOWN, 'other table')}" if len(names) > _SHOWN else ""
        yield f"up to an earlier time, {', '.join(names[:_SHOWN])}{more}: {why}"
    if left := len(reasons) - _SHOWN > 0 and sum(len(names) for _, names in reasons[_SHOWN:]):
        yield f"up to an earlier time, {count(left, 'other table')}: `cdc-platform status --json` says why"


def _positions(row: dict[str, Any]) -> Iterator[str]:
    """Wider than a column."""
    for text, name in (
        ("complete up to {}", "complete_position"),
        ("complete up to GTIDs {}", "complete_gtids"),
        ("the newest change in its cut is at {}", "cut_position"),
    ):
        if at := row.get(name):
            yield text.format(at)


def escaped(text: str) -> str:
    """A text as a markdown table's cell: characters that could be markup become entities."""
    return "".join(f"&#{ord(c)};" if c in _MARKUP else c for c in " ".join(text.split()))


def _shown(at: datetime | None) -> str:
    return f"{at.astimezone(UTC) if at.tzinfo else at:%Y-%m-%d %H:%M:%S} UTC" if at else ""
