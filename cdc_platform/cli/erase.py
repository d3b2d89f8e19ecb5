"""`cdc-platform erase SOURCE DB.TABLE KEY`: a subject's bytes out of the lake, for good."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.cli.run import with_spark
from cdc_platform.config import load_config
from cdc_platform.launch import log_followed
from cdc_platform.units import count

_SHOWN = 20


@printed
def command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source of cdc.yaml.")],
    table: Annotated[str, typer.Argument(metavar="DB.TABLE", help="As the source calls it.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The row's key: 7, or id=7, or id=7,name=x.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it, only what would be done is told.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only tell what would be done, as without --yes.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keys that the row had before or since are the same subject's.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Take all that is kept of a row out of the lake: raw messages, decoded events, the changelog, the snapshot, its
    history, typed changes and tombstones, quarantine, and all old versions of these. Then look through every file for
    what is left.

    It can't be undone. Messages that hold rows of others lose their bytes, too: these rows stay as they were decoded.
    What was interrupted is finished by the same command. The source itself, and Kafka, are left as they are. Exit code
    1: something was left.
    """
    from cdc_platform.erasing.run import Erasure

    loaded = load_config(config)
    feed = loaded.source(source)
    if plan or not yes:
        told = Erasure.of(loaded, feed, table, key, follow=follow, told=progress).plan()
        return Report(told, 0, _plan(told))
    from cdc_platform.spark.session import open_session

    ready = with_spark(loaded, master)
    asked = Erasure.of(ready, feed, table, key, follow=follow, told=progress)
    with log_followed(progress):
        done = asked.erase(open_session(ready))
    return Report(done, 1 if done["proof"]["left"] else 0, _done(done))


def _plan(told: dict[str, Any]) -> dict[str, Any]:
    """What people see of what would be done."""
    if told["unfinished"]:
        return {**_head(told), "unfinished": f"erasure {told['unfinished']} was begun: --yes finishes it"}
    shared = [m for m in told["messages"] if m["shared"]]
    shown: dict[str, Any] = {
        **_head(told),
        "keys": "; ".join(", ".join(f"{k}={v}" for k, v in one.items()) for one in told["keys"]),
        "messages": len(told["messages"]),
        "with rows of others": len(shared),
        "values looked for": told["values"],
        "not looked for in texts": _not_looked_for(told),
        "its values in other rows": [{**r} for r in told["elsewhere"]] or "none",
        "still in the snapshot": told["alive"],
        "in Kafka still": "not known" if told["kafka"] is None else count(told["kafka"], "record"),
        "could not be read": count(told["not_read"], "held row") + _waiting(told),
        "tables": [{**t, "files": len(t["files"])} for t in told["tables"]] or "nothing of it is there",
    }
    addresses = [{**m, "with": "; ".join(m["with"]) or None} for m in told["messages"][:_SHOWN]]
    if addresses:
        shown["first messages" if len(told["messages"]) > _SHOWN else "the messages"] = addresses
    return {**shown, **_doubts(told), "to do it": "--yes"}


def _head(told: dict[str, Any]) -> dict[str, Any]:
    key = ", ".join(f"{k}={v}" for k, v in told["key"].items())
    return {"row": f"{told['source']}/{told['table']} {key}"}


def _waiting(told: dict[str, Any]) -> str:
    return f", {count(told['waiting'], 'waiting part')}" if told["waiting"] else ""


def _done(told: dict[str, Any]) -> dict[str, Any]:
    """What people see of what was done."""
    proof = told["proof"]
    shown: dict[str, Any] = {
        "erasure": told["number"],
        "table": f"{told['source']}/{told['table']}",
        "records": told["records"],
        "tables": [{"table": path, "rows": rows} for path, rows in told["rows"].items()],
        "old files removed": told["removed"],
        "looked through": f"{count(proof['files'], 'file')}, {count(proof['rows'], 'row')}",
        "looked for": f"{count(proof['values'], 'value')}, {count(proof['payloads'], 'payload')}",
        "not looked for in texts": _not_looked_for(proof),
        "could not be read": count(proof["not_read"], "held row") + _waiting(proof),
        "in Kafka still": "not known" if proof["kafka"] is None else count(proof["kafka"], "record"),
        "left": proof["left"],
    }
    if proof["found"]:
        shown["where"] = [{"file": where} for where in proof["found"]]
    return {**shown, **_doubts(proof)}


def _not_looked_for(told: dict[str, Any]) -> str:
    """In words; of an erasure by an earlier version nothing was counted."""
    if (short := told.get("too_short")) is None:
        return "not known"
    return f"{count(short, 'value')} that may stand anywhere, {told['with_others']} that others have"


def _doubts(told: dict[str, Any]) -> dict[str, Any]:
    return {"may be incomplete": [{"why": why} for why in told["doubts"]]} if told.get("doubts") else {}
