"""`cdc-platform status`: sources, lag, bridges, tables, and what needs attention. No Spark."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import CdcError


@printed
def command(
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Sources, lag, bridges, tables, and what needs attention. Exit code 1 when something does."""
    loaded = load_config(config)
    data = look(loaded)
    shown = {name: value for name, value in data.items() if name != "bridges" or value}
    return Report(data, 1 if data["problems"] else 0, shown)


def look(config: Config) -> dict[str, Any]:
    """The state of everything: one row per source, bridge and table, and the problems in words."""
    from cdc_platform.automation import delta, observe

    times, bad = delta.control_times(config), delta.quarantined(config)
    seen = observe.each_source(config, lambda source: _kafka(config, source))
    problems, sources = [], []
    for source in config.sources:
        kafka = seen[source.name]
        if isinstance(kafka, CdcError):  # the configuration of this source's cluster
            kafka = {"state": "wrong", "lag": None, "problem": str(kafka)}
        problem = kafka.pop("problem", None)
        problems += [f"{source.name}: {problem}"] if problem else []
        problems += [f"{source.name}: {bad[source.name]} in quarantine"] if bad.get(source.name) else []
        sources.append(
            {
                "source": source.name,
                "format": source.format,
                "topics": source.topics or [str(source.topic_pattern)],
                **kafka,
                "landed": sum(r["landed"] for r in delta.ledger(config, [source])),
                "heartbeat": times.get(source.name, {}).get("heartbeat"),
                "checkpoint": times.get(source.name, {}).get("checkpoint"),
                "waiting": delta.waiting_parts(config, source),
                "quarantined": bad.get(source.name, 0),
            }
        )
    bridges = _bridges(config)
    problems += [f"bridge {b['bridge']} {_STATES[b['state']]}: {b['reason']}" for b in bridges if b["state"] in _STATES]
    tables = _tables(config)
    problems += [f"{t['source']}: {t['table']} is stopped: {t['reason']}" for t in tables if t["state"] == "stopped"]
    return {"lake": config.lake, "sources": sources, "bridges": bridges, "tables": tables, "problems": problems}


_STATES = {"failing": "is failing", "ended": "has ended", "died": "has died"}
"""States of a bridge that need attention, in words."""


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
    """What Kafka tells of one source."""
    from cdc_platform.automation import delta, observe

    beat = observe.heartbeat(config, source)
    found: dict[str, Any] = {
        "state": beat.state,
        "lag": None,
        "newest_record": beat.newest,
        "newest_change": beat.change,
    }
    if not beat.passed:
        found["problem"] = f"{beat.state}: {beat.text}"
    if beat.state not in ("unreachable", "no_topic"):
        found["lag"] = observe.lag(observe.kafka_ends(config, source), delta.landed(config, source))
    return found


def _tables(config: Config) -> list[dict[str, Any]]:
    """Every known table with its rows; state `waiting` before its first snapshot."""
    from cdc_platform import tables
    from cdc_platform.automation import delta

    states = {(t["source"], t["db"], t["table"]): t for t in delta.table_states(config)}
    rows = []
    for source, db, table in delta.known_tables(config):
        state = states.get((source.name, db, table), {})
        path = tables.SNAPSHOT_PATH.at(config.lake, source=source.name, db=db, table=table)
        rows.append(
            {
                "source": source.name,
                "table": f"{db}.{table}",
                "rows": delta.row_count(path),
                "state": state.get("state", "waiting"),
                "reason": state.get("reason"),
                "path": path,
            }
        )
    return rows
