"""`cdc-platform status`: sources, lag, bridges, tables, and what needs attention. No Spark."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_platform.cli.attention import Finding, of_history, of_lake
from cdc_platform.cli.output import Report, printed
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import CdcError
from cdc_platform.lake import stores
from cdc_platform.lake.watermarks import Complete, lag_seconds
from cdc_platform.units import count, duration, when

if TYPE_CHECKING:
    from cdc_platform.automation.observe import Heartbeat


@printed
def command(
    allow_held: Annotated[
        bool, typer.Option("--allow-held", help="Rows held in quarantine need no attention (exit code 0).")
    ] = False,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Sources, lag, bridges, tables, and what needs attention.

    Exit code 1 when something does: rows in quarantine, a stopped table, a history or typed changes that lack changes,
    records that aren't accounted for, a failed last run, a schedule or sensor whose last tick failed, a Kafka or topic
    that can't be read, a source that is silent for longer than its limit, a bridge that failed.
    """
    loaded = load_config(config)
    data = look(loaded, allow_held=allow_held)
    return Report(data, 1 if data["problems"] else 0, shown(data))


def look(config: Config, *, allow_held: bool = False) -> dict[str, Any]:
    """The state of everything: one row per source, bridge, table, history and typed changes, and the problems in
    words."""
    from cdc_platform import advice
    from cdc_platform.automation import observe, table_status
    from cdc_platform.lake import beside, held_rows, queries

    times, bad, cuts = queries.control_times(config), held_rows.by_source(config), queries.newest_cuts(config)
    ledger = queries.ledger(config, config.sources)
    seen = observe.each_source(config, lambda source: _kafka(config, source))
    reached = {s.name: table_status.complete(config, s) for s in config.sources}
    sources, feeds = [], []
    for source in config.sources:
        kafka = seen[source.name]
        if isinstance(kafka, CdcError):
            kafka = _heartbeat_row(observe.not_seen(kafka))
        if problem := kafka.pop("problem", None):
            feeds.append(Finding("feed", source.name, problem))
        mine = [r for r in ledger if r["source"] == source.name]
        sources.append(
            {
                "source": source.name,
                "format": source.format,
                "topics": source.topics or [str(source.topic_pattern)],
                "state": None,
                "lag": None,
                "lag_s": None,
                **kafka,
                "landed": sum(r["landed"] for r in mine),
                "heartbeat": times.get(source.name, {}).get("heartbeat"),
                "checkpoint": times.get(source.name, {}).get("checkpoint"),
                "waiting": sum(r["waiting"] for r in mine),
                "quarantined": bad.get(source.name, 0),
                "cut": cuts.get(source.name),
                **_complete(reached[source.name]),
                "options_changed": advice.of_source(config, source),
            }
        )
    bridges, tables = _bridges(config), _tables(config, reached)
    kept = [one.row for s in config.sources for of in beside.of_source(config, s).values() for one in of]
    findings = [
        *feeds,
        *of_lake(config, config.sources, allow_held=allow_held),
        *_failing(bridges),
        *of_history(config, config.sources),
    ]
    return {
        "lake": config.lake,
        "sources": sources,
        "bridges": bridges,
        "tables": tables,
        "beside": kept,
        "problems": [f"{f.source}: {f.text}" if f.source else f.text for f in findings],
        "findings": [asdict(f) for f in findings],
        "warnings": advice.warnings(config),
    }


def _complete(told: Complete | None) -> dict[str, Any]:
    """Up to when a source is complete. lag_source_s: seconds since then, by this machine's clock."""
    up_to = told and told.source_time
    lag = lag_seconds(up_to)
    return {
        "complete_up_to": up_to,
        "complete_proven": told and told.proven_time_of(None),
        "complete_reason": told and told.reason,
        "tables_behind": len(told.behind) if told else 0,
        "complete_position": told and told.position,
        "complete_gtids": told and told.gtid,
        "complete_position_reason": told and told.position_reason,
        "lag_source_s": None if lag is None else round(lag),
    }


def shown(data: dict[str, Any]) -> dict[str, Any]:
    """What people see: figures with their units, and what needs attention last, where it is read."""
    tables = [{k: t[k] for k in ("source", "table", "rows", "held", "state", "reason")} for t in data["tables"]]
    kept = [{k: b[k] for k in ("source", "table", "kind", "state", "reason")} for b in data["beside"]]
    found = {
        "lake": data["lake"],
        "sources": [_source(s) for s in data["sources"]],
        "bridges": data["bridges"],
        "tables": tables or "none yet: `cdc-platform run` makes them",
        "beside the tables": kept,
        "needs attention": [_finding(f) for f in data["findings"]] or "nothing",
    }
    if data["warnings"]:
        found["warnings"] = [{"what": text} for text in data["warnings"]]
    return {name: value for name, value in found.items() if value or name not in ("bridges", "beside the tables")}


def _finding(found: dict[str, Any]) -> dict[str, Any]:
    """The source stands in a column of its own, and a state before an error says nothing more."""
    _, told, error = found["text"].partition(f": source {found['source']}: ")
    return {"source": found["source"], "what": error if told and found["kind"] == "feed" else found["text"]}


def _source(row: dict[str, Any]) -> dict[str, Any]:
    lag = None if row["lag"] is None else count(row["lag"], "record")
    cut = row["cut"]
    after = "; newer changes wait" if cut and cut["behind"] else ""
    return {
        "source": row["source"],
        "format": row["format"],
        "topics": row["topics"],
        "state": row["state"],
        "lag": f"{lag}, {duration(row['lag_s'])}" if row["lag_s"] else lag,
        "newest change": row.get("newest_change"),
        "complete up to": _up_to(row),
        "landed": row["landed"],
        "waiting": row["waiting"] or None,
        "quarantined": row["quarantined"] or None,
        "cut": cut and f"{cut['cut']} ({cut['kind']}){after}",
    }


def _up_to(row: dict[str, Any]) -> str | None:
    if row["complete_up_to"] is None:
        return row["complete_reason"]
    ago = f"{when(row['complete_up_to'])}, {duration(row['lag_source_s'])} ago"
    behind = row["tables_behind"]
    but = f"but {count(behind, 'table')} up to an earlier time (--json says why)" if behind else None
    return "; ".join(text for text in (ago, row["complete_reason"], but) if text)


_STATES = {"failing": "is failing", "ended": "has ended", "died": "has died"}
"""States of a bridge that need attention, in words."""


def _failing(bridges: list[dict[str, Any]]) -> Iterator[Finding]:
    for b in bridges:
        if b["state"] in _STATES:
            yield Finding("bridge", None, f"bridge {b['bridge']} {_STATES[b['state']]}: {b['reason']}")


def _bridges(config: Config) -> list[dict[str, Any]]:
    """Every bridge as it last said of itself on this machine."""
    if not config.bridges:
        return []
    from cdc_platform.bridge import state

    return [
        {"bridge": b.name, "destination": b.destination, "topic": b.topic, **asdict(state.look(config, b))}
        for b in config.bridges
    ]


def _kafka(config: Config, source: Source) -> dict[str, Any]:
    """What Kafka tells of one source. lag: records that haven't landed; lag_s: seconds from the newest record that
    has landed to the newest in Kafka, by Kafka's time; None: not known."""
    from cdc_platform.automation import observe
    from cdc_platform.lake import queries

    beat, lag = observe.with_lag(config, source)
    found = _heartbeat_row(beat)
    if lag is None:
        return found
    found["lag"] = lag
    if not lag:
        found["lag_s"] = 0
    elif beat.newest and (landed := queries.newest_landed(config, source)):
        found["lag_s"] = max(0, round((beat.newest - landed).total_seconds()))
    return found


def _heartbeat_row(beat: "Heartbeat") -> dict[str, Any]:
    found: dict[str, Any] = {
        "state": beat.state,
        "newest_record": beat.newest,
        "newest_change": beat.change,
        "newest_of_database": beat.database,
    }
    if not beat.passed:
        found["problem"] = f"{beat.state}: {beat.text}"
    return found


def _tables(config: Config, reached: Mapping[str, Complete | None]) -> list[dict[str, Any]]:
    """Every known table with its rows, how many quarantine holds, and up to when it is complete; state `waiting`
    before its first snapshot, of which no time is told."""
    from cdc_platform import tables
    from cdc_platform.lake import folders, held_rows, queries

    states = {(t["source"], tables.name_of(t)): t for t in queries.table_states(config)}
    held = {(row["source"], tables.name_in(row)): row["rows"] for row in held_rows.by_table(config)}
    found = []
    for source, name in queries.known_tables(config):
        state = states.get((source.name, name), {})
        told = reached[source.name] if state else None
        path = folders.snapshot(stores.lake(config), source.name, name)
        rows = state.get("rows")
        if state and rows is None:
            rows = queries.row_count(path)
        found.append(
            {
                "source": source.name,
                "table": ".".join(name),
                "rows": rows,
                "held": held.get((source.name, name)),
                "state": state.get("state", "waiting"),
                "reason": state.get("reason"),
                "complete_up_to": told and told.of(name),
                "complete_proven": told and told.proven_time_of(name),
                "complete_reason": told.behind[name].reason if told and name in told.behind else None,
                "complete_position": told and told.position_of(name),
                "complete_gtids": told and told.gtids(name),
                "path": path.uri(),
            }
        )
    return found
