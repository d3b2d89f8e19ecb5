"""`cdc-platform quarantine list|show`: what could not be used, why, and the bytes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import printed
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
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 50,
    resolved: Annotated[bool, typer.Option(help="Also what a later decoding could use.")] = False,
) -> list[dict[str, Any]]:
    """List what is in quarantine, the newest first."""
    loaded = load_config(config)
    chosen = [loaded.source(source)] if source else list(loaded.sources)
    return quarantined(loaded, chosen, limit, resolved=resolved)


@app.command("show")
@printed
def show_command(
    address: Annotated[str, typer.Argument(help="topic/partition/offset, as `list` prints it.")],
    config: ConfigFile = _CONFIG,
    source: OnlySource = None,
    all_bytes: Annotated[bool, typer.Option("--all", help=f"All bytes, not the first {_SHOWN_BYTES}.")] = False,
) -> dict[str, Any]:
    """Show one message in quarantine: why it is there, and its raw bytes."""
    loaded = load_config(config)
    topic, partition, offset = parse_address(address)
    chosen = [loaded.source(source)] if source else list(loaded.sources)
    reasons = quarantined(loaded, chosen, 1000, (topic, partition, offset), resolved=True)
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


def quarantined(
    config: Config,
    sources: list[Source],
    limit: int,
    address: tuple[str, int, int] | None = None,
    *,
    resolved: bool = False,
) -> list[dict[str, Any]]:
    """Rows of quarantine, the newest first; of one address where one is given; `resolved`: those too."""
    from cdc_platform import tables
    from cdc_platform.automation.delta import query, text

    names = ", ".join(text(s.name) for s in sources)
    at = "" if resolved else "AND resolved_at IS NULL "
    if address:
        at += f'AND topic = {text(address[0])} AND partition = {address[1]} AND "offset" = {address[2]} '
    rows = query(
        'SELECT source, format, decoder_version, room, topic, partition, "offset", entry_index, row_index, '
        f'db, "table", reason, quarantined_at, resolved_at FROM t WHERE source IN ({names}) {at}'
        'ORDER BY quarantined_at DESC, topic, partition, "offset", entry_index, row_index '
        f"LIMIT {int(limit)}",
        t=tables.QUARANTINE.at(config.lake),
    )
    return [{"address": f"{r.pop('topic')}/{r.pop('partition')}/{r.pop('offset')}", **r} for r in rows or []]


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
