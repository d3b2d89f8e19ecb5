"""`cdc-platform show TOPIC/PARTITION/OFFSET`: one Kafka message, whatever became of it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli import message
from cdc_platform.cli.output import Lines, Report, printed
from cdc_platform.cli.tables import ConfigFile
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import ConfigError
from cdc_platform.units import count

_CONFIG = Path("cdc.yaml")
_EVENTS = 50
"""Events that people see, unless all are asked for."""


@printed
def command(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="topic/partition/offset; also topic[partition]@offset.")
    ],
    source: Annotated[str | None, typer.Option(help="As this source has it, where several read the topic.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Each change and statement in it as SQL of MySQL's.")] = False,
    whole: Annotated[
        bool, typer.Option("--all", help=f"All of it, not its first {message.SHOWN} lines and {_EVENTS} events.")
    ] = False,
    as_hex: Annotated[bool, typer.Option("--hex", help="The bytes as a hex dump, whatever they mean.")] = False,
    config: ConfigFile = _CONFIG,
) -> Report:
    """Show what became of a Kafka record, the events that were read from it, and what it says.

    A part of a split message is shown with the whole and its other parts. Outcomes: applied, control, filtered,
    waiting, joined, duplicate, quarantined, resolved, lost, not landed, not decoded yet, not applied yet, none.
    """
    from cdc_platform.explain import message as look_at

    loaded = load_config(config)
    asked = message.parse_address(address)
    sources = look_at.source_of(loaded, asked, source)
    if len(sources) != 1:
        which = [s.name for s in sources or loaded.sources]
        problem = "several sources read this topic" if sources else f"no source reads the topic {asked.topic!r}"
        raise ConfigError("--source", problem, which)
    data = look_at.look(loaded, sources[0], asked)
    return Report(*_shown(loaded, sources[0], data, sql=sql, whole=whole, as_hex=as_hex))


def _shown(
    config: Config, source: Source, data: dict[str, Any], *, sql: bool, whole: bool, as_hex: bool
) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """The data, the exit code, and what people see."""
    if sql:
        from cdc_platform.explain.statement import of_events

        of_events(config, source, data.get("events", []))
    shown = ("address", "kafka_offset", "source", "format", "outcome", "why", "timestamp", "landed_at")
    people = {k: data[k] for k in shown if data.get(k) is not None}
    if data.get("erased"):
        people["bytes"] = "erased at a subject's request"
    if "message" in data:
        parts = data["message"]["parts"]
        people |= {"parts": message.spans(parts)} if len(parts) > 1 else {}
    if data.get("headers"):
        data["headers"] = [{"key": h["key"], "value": message.text_or_bytes(h["value"])} for h in data["headers"]]
        people["headers"] = ", ".join(f"{h['key']}={h['value']!r}" for h in data["headers"])
    events = data.get("events", [])
    listed = events if whole else events[:_EVENTS]
    if events:
        people["events"] = [_event(e) for e in listed]
        if len(events) > _EVENTS and not whole:
            people["more events"] = f"{count(len(events) - _EVENTS, 'event')} (--all)"
    if data.get("quarantine"):
        people["quarantine"] = [
            {k: r.get(k) for k in ("reason", "column", "quarantined_at", "resolved_at")} for r in data["quarantine"]
        ]
    if statements := [line for e in listed if e.get("sql") for line in e["sql"].split("\n")]:
        people["SQL"] = Lines(statements)
    bad = [r["column"] for r in data.get("quarantine", ()) if r.get("column")]
    for name, raw, of in _values(data):
        found = message.readable(raw, of)
        lines = list(message.hexdump(raw)) if as_hex else message.marked(found.lines, bad)
        people[f"{name}: {'hex dump' if as_hex else found.kind}, {count(len(raw), 'byte')}"] = Lines(
            lines if whole else message.first(lines)
        )
    for name in ("key", "value"):
        if data.get(name) is not None:
            data[name] = message.as_data(
                data[name], message.readable(data[name], data["format"] if name == "value" else "")
            )
    if data.get("message") and data["message"]["value"] is not None:
        value = data["message"]["value"]
        data["message"]["value"] = message.as_data(value, message.readable(value, data["format"]))
    return data, 0, people


def _values(data: dict[str, Any]) -> list[tuple[str, bytes, str]]:
    """What is shown of the bytes: title, bytes, format. Of a split message the whole, in place of its part."""
    split = "message" in data and len(data["message"]["parts"]) > 1
    found = [("key", data.get("key"), "")]
    of = data["format"]
    found.append(("message", data["message"]["value"], of) if split else ("value", data.get("value"), of))
    return [(name, raw, of) for name, raw, of in found if raw is not None]


def _event(event: dict[str, Any]) -> dict[str, Any]:
    table = ".".join(p for p in (event["db"], event["schema"], event["table"]) if p)
    why = event["why"] or event["reason"]
    if event.get("of"):
        why = f"{why}; it repeats {event['of']}"
    return {
        "event": f"{event['entry_index']}" + (f".{event['row_index']}" if event["row_index"] is not None else ""),
        "kind": event["op"] or event["kind"],
        "table": table or None,
        "key": ", ".join(f"{k}={v}" for k, v in (event["key"] or {}).items()) or None,
        "outcome": event["outcome"] + (" (decoded again)" if event.get("retold") else ""),
        "why": why,
    }
