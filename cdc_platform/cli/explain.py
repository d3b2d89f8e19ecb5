"""`cdc-platform explain SOURCE DB.TABLE KEY`: why a row is as it is, or isn't there."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli import message
from cdc_platform.cli.output import Lines, Report, Verbatim, printed, working
from cdc_platform.cli.tables import ConfigFile
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import ConfigError
from cdc_platform.units import count, when

_CONFIG = Path("cdc.yaml")
_CHARACTERS = 200
"""Of a value that people see; --json has all."""


@printed
def command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source of cdc.yaml.")],
    table: Annotated[str, typer.Argument(metavar="DB.TABLE", help="As the source calls it.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The row's key: 7, or id=7, or id=7,name=x.")],
    column: Annotated[list[str] | None, typer.Option("--column", help="Only this column; may be repeated.")] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME|CUT", help="As it was at a time of the source (ISO 8601, else UTC), or at a cut."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All changes of the key, not only those that made the row.")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Each change as an SQL statement of MySQL's.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="With the message of each change.")] = False,
    config: ConfigFile = _CONFIG,
) -> Report:
    """Show a row, which change each of its cells comes from, and where that change stands in Kafka; or why there is no
    such row.

    Exit code 1 where the snapshot differs from what the changes come to, or isn't kept up to them (stopped, left out,
    to be made anew).
    """
    from cdc_platform.explain import describe, row
    from cdc_platform.explain.table import find, parse_key
    from cdc_platform.reading import moments

    loaded = load_config(config)
    found = find(loaded, loaded.source(source), table)
    cells = parse_key(found, key, today=at is None)
    only = [found.column(c) for c in column or ()]
    if not found.keys and at is not None:
        raise ConfigError("--at", f"{found.text} has no key: its rows are told by what is in them now", [])
    with working(f"looking through the changes of {found.text}", only_terminal=True):
        if not found.keys:
            data = describe.contents(loaded, found, cells, sql=sql)
            people = _contents(data)
        else:
            moment = moments.Moment() if at is None else moments.parse(loaded, source, at, "--at")
            told = row.explain(loaded, found, cells, moment)
            data = describe.explained(loaded, told, only, every=every, sql=sql)
            people = _explained(data)
        if raw:
            _add_messages(loaded, found.source, data)
    people |= _changes(data["changes"])
    if data["ddl"]:
        people["DDL behind the first of them"] = [{"address": d["address"], "statement": d["ddl"]} for d in data["ddl"]]
    if data["doubts"]:
        people["may be incomplete"] = [{"why": why} for why in data["doubts"]]
    return Report(data, 1 if data.get("agrees") is False or _behind(data) else 0, people)


def _behind(data: dict[str, Any]) -> bool:
    """Whether the snapshot may be other than its changes, as its state has it."""
    from cdc_platform.explain.snapshot_state import BEHIND

    return data["state"] in BEHIND


def _explained(data: dict[str, Any]) -> dict[str, Any]:
    """What people see before the changes."""
    key = ", ".join(f"{k}={v}" for k, v in data["key"].items())
    own: dict[str, Any] = {"row": f"{data['source']}/{data['table']} {key}"}
    if data["snapshot"] != data["table"]:
        own["kept in"] = f"{data['snapshot']}, {', '.join(f'{k}={v}' for k, v in (data['origin'] or {}).items())}"
    if data["at"] is not None:
        own["at"] = f"cut {data['at']['cut']}" if "cut" in data["at"] else when(data["at"]["time"])
    own["there"] = _there(data)
    if data["why"]:
        own["why"] = [_reason(r) for r in data["why"]]
    if data["cells"]:
        own["cells"] = Verbatim([_cell(c) for c in data["cells"]])
    return own


def _there(data: dict[str, Any]) -> str:
    if not data["here"]:
        return "no"
    if data["agrees"] is False:
        return "yes, but not as the changes come to"
    return "yes, in a snapshot that is not kept up" if _behind(data) else "yes"


def _reason(reason: dict[str, Any]) -> dict[str, Any]:
    by = f" (change {reason['change']})" if reason["change"] else ""
    return {"reason": reason["kind"] if reason["sure"] else f"maybe {reason['kind']}", "what": f"{reason['text']}{by}"}


def _cell(cell: dict[str, Any]) -> dict[str, Any]:
    by = f"change {cell['change']}" if cell["change"] else f"{cell['address']}, under another key"
    value = cell["value"] and message.short(cell["value"], _CHARACTERS)
    return {"column": cell["column"], "value": value, "by": f"DDL: {cell['ddl']}" if cell["ddl"] else by}


def _contents(data: dict[str, Any]) -> dict[str, Any]:
    cells = ", ".join(f"{k}={v}" for k, v in data["content"].items())
    there = f"{data['added'] - data['taken']}{' by the changes, the snapshot is not kept up' * _behind(data)}"
    own = {
        "rows": f"{data['source']}/{data['table']} with {cells} (the table has no key: equal rows are counted)",
        "added": data["added"],
        "taken away": data["taken"],
        "there": there,
    }
    return own | ({"why": [_reason(r) for r in data["why"]]} if data["why"] else {})


def _changes(found: list[dict[str, Any]]) -> dict[str, Any]:
    people: dict[str, Any] = {}
    for change in found:
        people[f"change {change['change']}: {change['op']}"] = [_change(change)]
        if "sql" in change:
            people[f"change {change['change']} in SQL"] = Lines(change["sql"].split("\n"))
        if told := change.get("message"):
            lines = message.first(list(map(str, (told["text"] or "").splitlines())))
            people[f"change {change['change']}, its message: {told['kind']}, {count(told['bytes'], 'byte')}"] = Lines(
                lines
            )
    return people


def _change(change: dict[str, Any]) -> dict[str, Any]:
    position = f"{change['binlog_file']}:{change['binlog_pos']}" if change["binlog_file"] else None
    told = {
        "address": f"{change['address']} entry {change['entry_index']} row {change['row_index']}",
        "records of it": message.spans(change["parts"]) or None,
        "source time": change["source_time"],
        "landed": change["landed_at"],
        "position": position,
        "GTID": change["gtid"],
        "transaction": change["txn_id"] if change["txn_id"] != change["gtid"] else None,
        "order": ", ".join(f"{k} {v}" for k, v in change["order_key"].items()),
        "decoder": f"{change['format']} {change['decoder_version']}",
        "schema version": change["schema_version"],
        **{name: change[name] for name in ("key", "before", "after")},
    }
    return {
        name: _texts(value) if isinstance(value, dict) else value for name, value in told.items() if value is not None
    }


def _texts(image: dict[str, Any]) -> str:
    return (
        ", ".join(f"{k}={'NULL' if v is None else message.short(v, _CHARACTERS)}" for k, v in image.items()) or "empty"
    )


def _add_messages(config: Config, source: Source, data: dict[str, Any]) -> None:
    """The message of each change, decoded."""
    from cdc_platform.explain.records import messages_of

    addresses = {c["address"]: message.parse_address(c["address"]) for c in data["changes"]}
    found = messages_of(config, source, addresses.values())
    for change in data["changes"]:
        whole = found.get(addresses[change["address"]])
        value: bytes | None = whole["value"] if whole else None
        change["message"] = (
            message.as_data(value, message.readable(value, change["format"])) if value is not None else None
        )
