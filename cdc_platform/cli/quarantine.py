"""`cdc-platform quarantine list|show`: what could not be used, why, and the bytes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import CdcError

app = typer.Typer(
    help="What could not be used, and why.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

ConfigFile = Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")]
OnlySource = Annotated[str | None, typer.Option(help="Only this source.")]
_ADDRESS = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)[/:\[](?P<partition>\d+)\]?[/:@](?P<offset>\d+)")
_CONFIG = Path("cdc.yaml")
_SHOWN_BYTES = 4096


class NotQuarantined(CdcError):
    """No such row. Field: `address`."""

    def __init__(self, address: str, problem: str):
        self.address = address
        super().__init__(f"{address}: {problem}")


@app.command("list")
@printed
def list_command(
    config: ConfigFile = _CONFIG,
    source: OnlySource = None,
    table: Annotated[
        str | None, typer.Option(metavar="DB.TABLE", help="Only rows of this table; * and ? stand for any characters.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Only reasons with this text in them.")] = None,
    unresolved: Annotated[
        bool, typer.Option("--unresolved/--resolved", help="Only what still holds, or also what a later decoding used.")
    ] = True,
    summary: Annotated[bool, typer.Option("--summary", help="Count rows by source, table and reason.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first (--summary: most rows).")] = 50,
) -> Report:
    """List what is in quarantine, the newest first."""
    from cdc_platform.automation import quarantine

    loaded = load_config(config)
    sources = [loaded.source(source)] if source else list(loaded.sources)
    chosen = quarantine.Chosen(sources, table, reason, resolved=not unresolved)
    found = (quarantine.summary if summary else quarantine.rows)(loaded, chosen, limit)
    if table is not None and (others := quarantine.unnamed(loaded, chosen)):
        progress(f"{others} more in quarantine name no table: they may be of any")
    return Report(found, shown=[(_group if summary else _row)(r) for r in found])


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """What people see of a row."""
    return {
        "address": row["address"],
        "source": row["source"],
        "table": _table(row),
        "key": ", ".join(f"{k}={v}" for k, v in (row["key"] or {}).items()) or None,
        "reason": row["reason"],
        "quarantined": row["quarantined_at"],
        **({"resolved": row["resolved_at"]} if row["resolved_at"] is not None else {}),
    }


def _group(group: dict[str, Any]) -> dict[str, Any]:
    """What people see of a group."""
    more = group["reasons"] - 1
    reason = f"{group['reason']} (and {more} that differ in their values)" if more else group["reason"]
    told = {"source": group["source"], "table": _table(group), "rows": group["rows"], "reason": reason}
    return {**told, "first": group["first"], "last": group["last"]}


def _table(row: dict[str, Any]) -> str | None:
    return ".".join(part for part in (row["db"], row["schema"], row["table"]) if part is not None) or None


@app.command("show")
@printed
def show_command(
    address: Annotated[str, typer.Argument(help="topic/partition/offset, as `list` prints it.")],
    config: ConfigFile = _CONFIG,
    source: OnlySource = None,
    all_bytes: Annotated[bool, typer.Option("--all", help=f"All bytes, not the first {_SHOWN_BYTES}.")] = False,
) -> dict[str, Any]:
    """Show one message in quarantine: why it is there, and its raw bytes."""
    from cdc_platform.automation import quarantine

    loaded = load_config(config)
    topic, partition, offset = parse_address(address)
    sources = [loaded.source(source)] if source else list(loaded.sources)
    chosen = quarantine.Chosen(sources, resolved=True, address=(topic, partition, offset))
    reasons = quarantine.rows(loaded, chosen, 1000)
    if not reasons:
        raise NotQuarantined(
            address,
            "nothing is in quarantine under this address; `cdc-platform quarantine list` shows what is",
        )
    record = raw_record(loaded, loaded.source(reasons[0]["source"]), topic, partition, offset)
    size = None if all_bytes else _SHOWN_BYTES
    return {
        "address": f"{topic}/{partition}/{offset}",
        "timestamp": record["timestamp"],
        "landed_at": record["landed_at"],
        "key_bytes": _length(record["key"]),
        "value_bytes": _length(record["value"]),
        "headers": [{"key": h["key"], "value": h["value"]} for h in record["headers"] or []],
        "reasons": [{k: v for k, v in r.items() if k != "address"} for r in reasons],
        "key": list(hexdump(record["key"], size)),
        "value": list(hexdump(record["value"], size)),
    }


def parse_address(text: str) -> tuple[str, int, int]:
    """ "topic/partition/offset" (or topic[partition]@offset) → its parts. Raises NotQuarantined."""
    found = _ADDRESS.fullmatch(text)
    if not found:
        raise NotQuarantined(text, "is no address; valid: topic/partition/offset")
    return found["topic"], int(found["partition"]), int(found["offset"])


def raw_record(config: Config, source: Source, topic: str, partition: int, offset: int) -> dict[str, Any]:
    """The record as it was landed. Raises NotQuarantined where landing has none such."""
    from cdc_platform import tables
    from cdc_platform.automation.delta import query, text

    rows = query(
        "SELECT timestamp, landed_at, key, value, headers FROM t "
        f'WHERE topic = {text(topic)} AND partition = {partition} AND "offset" = {offset}',
        t=tables.LANDING.at(config.lake, source=source.name),
    )
    if not rows:
        raise NotQuarantined(f"{topic}/{partition}/{offset}", f"isn't in landing/{source.name}")
    return rows[0]


def hexdump(data: bytes | None, size: int | None = None) -> Iterator[str]:
    """Lines of offset, 16 bytes in hex, and the same as ASCII; `size`: at most so many bytes."""
    shown = (data or b"")[:size]
    for at in range(0, len(shown), 16):
        part = shown[at : at + 16]
        printable = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        yield f"{at:08x}  {part.hex(' ', 1):<47}  {printable}"
    if data is not None and len(shown) < len(data):
        yield f"… {len(data) - len(shown)} more bytes (--all)"


def _length(data: bytes | None) -> int | None:
    return None if data is None else len(data)
