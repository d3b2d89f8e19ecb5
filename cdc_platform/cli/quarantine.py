"""`cdc-platform quarantine list|show|retry`: what could not be used, why, and the bytes; once more."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli import message
from cdc_platform.cli.output import Lines, Report, printed, progress, working
from cdc_platform.config import load_config
from cdc_platform.errors import CdcError
from cdc_platform.tables import text_of
from cdc_platform.units import count

app = typer.Typer(
    help="What could not be used, and why.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

ConfigFile = Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")]
OnlySource = Annotated[str | None, typer.Option(help="Only this source.")]
_CONFIG = Path("cdc.yaml")
_NOT_SHOWN = ("decoder_version", "entry_index", "row_index")
_HEADING = {"room": "stage"}
"""Column of the table → what people see above it."""


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
    chosen = quarantine.HeldFilter(sources, table, reason, resolved=not unresolved)
    found = (quarantine.summary if summary else quarantine.rows)(loaded, chosen, limit)
    if table is not None and (others := quarantine.unnamed(loaded, chosen)):
        progress(f"{others} more in quarantine {'names' if others == 1 else 'name'} no table, and may be of any")
    return Report(found, shown=[(_group if summary else _row)(r) for r in found])


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """What people see of a row."""
    return {
        "address": row["address"],
        "source": row["source"],
        "table": text_of(row) or None,
        "key": ", ".join(f"{k}={v}" for k, v in (row["key"] or {}).items()) or None,
        "reason": row["reason"],
        "quarantined": row["quarantined_at"],
        **({"resolved": row["resolved_at"]} if row["resolved_at"] is not None else {}),
    }


def _group(group: dict[str, Any]) -> dict[str, Any]:
    """What people see of a group."""
    more = group["reasons"] - 1
    reason = f"{group['reason']} (and {more} that differ in their values)" if more else group["reason"]
    told = {"source": group["source"], "table": text_of(group) or None, "rows": group["rows"], "reason": reason}
    return {**told, "first": group["first"], "last": group["last"]}


@app.command("show")
@printed
def show_command(
    address: Annotated[str, typer.Argument(help="topic/partition/offset, as `list` prints it.")],
    config: ConfigFile = _CONFIG,
    source: OnlySource = None,
    whole: Annotated[
        bool, typer.Option("--all", help=f"All of the message, not its first {message.SHOWN} lines.")
    ] = False,
    as_hex: Annotated[bool, typer.Option("--hex", help="The bytes as a hex dump, whatever they mean.")] = False,
) -> Report:
    """Show one message in quarantine: why it is there, and what it says.

    JSON is laid out, protobuf is shown as text; the value that could not be used is marked with <<<. With --json the
    message is `text`, or `base64` where its bytes are no text.
    """
    from cdc_platform.automation import quarantine
    from cdc_platform.explain.records import raw_record

    loaded = load_config(config)
    asked = message.parse_address(address)
    sources = [loaded.source(source)] if source else list(loaded.sources)
    chosen = quarantine.HeldFilter(sources, resolved=True, address=asked)
    reasons = quarantine.rows(loaded, chosen, 1000)
    if not reasons:
        raise NotQuarantined(
            address,
            "nothing is in quarantine under this address; `cdc-platform quarantine list` shows what is",
        )
    source_ = loaded.source(reasons[0]["source"])
    if (record := raw_record(loaded, source_, asked)) is None:
        raise NotQuarantined(str(asked), f"isn't in landing/{source_.name}")
    format = reasons[0]["format"]
    about = {
        "address": str(asked),
        "source": reasons[0]["source"],
        "format": format,
        "timestamp": record["timestamp"],
        "landed_at": record["landed_at"],
        "headers": [{"key": h["key"], "value": message.text_or_bytes(h["value"])} for h in record["headers"] or []],
    }
    left = ("address", "source", "format")
    reasons = [{k: v for k, v in r.items() if k not in left} for r in reasons]
    people = [{_HEADING.get(k, k): v for k, v in r.items() if k not in _NOT_SHOWN} for r in reasons]
    data, shown = {**about, "reasons": reasons}, {**{k: v for k, v in about.items() if v}, "reasons": people}
    for name in ("key", "value"):
        raw = record[name]
        found = None if raw is None else message.readable(raw, format if name == "value" else "")
        data[name] = None if raw is None or found is None else message.as_data(raw, found)
        if raw is not None and found is not None:
            lines = list(message.hexdump(raw)) if as_hex else message.marked(found.lines, _bad(reasons))
            title = f"{name}: {'hex dump' if as_hex else found.kind}, {count(len(raw), 'byte')}"
            shown[title] = Lines(lines if whole else message.first(lines))
        else:
            shown[name] = "none" if name == "key" else "none (a Kafka tombstone)"
    return Report(data, shown=shown)


@app.command("retry")
@printed
def retry_command(
    config: ConfigFile = _CONFIG,
    source: OnlySource = None,
    table: Annotated[
        str | None, typer.Option(metavar="DB.TABLE", help="Only rows of this table; * and ? stand for any characters.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Only reasons with this text in them.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
) -> Report:
    """Decode what quarantine holds once more, by the decoder and the options of today.

    For rows that an option lets in, or a newer version reads. From the raw bytes in the lake, without Kafka. What can
    be used now takes its place in the source's order; what had been used of a message is not used again. What is no
    message of the format at all stays held. Exit code 1: some of what was asked for is still held.
    """
    from cdc_platform.automation import quarantine
    from cdc_platform.chain import retry
    from cdc_platform.cli.run import with_spark
    from cdc_platform.lake.writer_lock import source_lock
    from cdc_platform.launch import log_followed
    from cdc_platform.spark.session import leased, open_session

    loaded = load_config(config)
    chosen = [loaded.source(source)] if source else list(loaded.sources)
    ready = with_spark(loaded, master)
    progress(f"Spark: {ready.spark.remote or ready.spark.master}")
    with working("starting Spark", only_terminal=True):
        spark = open_session(ready)
    found = []
    for one in chosen:
        asked, of_source = quarantine.HeldFilter([one], table, reason), quarantine.HeldFilter([one])
        doing = working(f"decoding what is held of {one.name} once more")
        with doing, log_followed(progress), source_lock(ready, one) as lease, leased(spark, lease):
            tried = retry(spark, ready, one, partial(quarantine.messages, ready, asked))
        of = {(m["topic"], m["partition"], m["offset"]) for m in tried}
        left = [m for m in quarantine.messages(ready, of_source) if (m["topic"], m["partition"], m["offset"]) in of]
        held = sum(m["rows"] for m in left) + quarantine.beyond_decoding(ready, asked)
        found.append({"source": one.name, "messages": len(tried), "used": len(tried) - len(left), "held_rows": held})
    return Report(found, 1 if any(f["held_rows"] for f in found) else 0)


def _bad(reasons: list[dict[str, Any]]) -> list[str]:
    """Columns that could not be used."""
    named = [r["column"] for r in reasons if r["column"]]
    return named or [name for r in reasons for name in message.fields_in(r["reason"] or "")]
