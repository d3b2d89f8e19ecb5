"""A finished demo as people read it."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cdc_platform.cli.layout import Lines
from cdc_platform.config.load import config_file
from cdc_platform.demo import counts
from cdc_platform.demo.folder import DEFAULT_FOLDER
from cdc_platform.demo.run import Outcome
from cdc_platform.tables import SNAPSHOT_PATH
from cdc_platform.units import count, duration

EQUAL = "all snapshots equal the source"


def story(outcome: Outcome) -> Iterator[tuple[str | None, Any]]:
    """Title and data of each part, in order: what was published, what became of it, where to look."""
    run = max((row["run"] for row in outcome.snapshots), default=0)
    newest = [row for row in outcome.snapshots if row["run"] == run]
    yield None, _verdict(outcome, newest)
    if outcome.feeds:
        first, more = outcome.transactions
        yield (
            "What was published",
            f"The transactions of a small shop, {first:,} and then {more:,} more, as each vendor's tool writes them to "
            "Kafka.",
        )
        yield None, [_feed(feed) for feed in outcome.feeds]
        yield None, counts.ABOUT
    if newest:
        yield "Snapshots and source, compared cell by cell", list(_matrix(newest))
    if outcome.feeds:
        yield None, _accounted(outcome)
        yield (
            "Cuts: versions of all tables of a source that belong together",
            [{"format": f["format"], "newest cut": _cut(f)} for f in outcome.feeds],
        )
    if outcome.snapshots:
        yield "Where to look", where_to_look(outcome)
        yield "Open the UI on these tables", Lines([f"  {ui_command(outcome)}"])


def _verdict(outcome: Outcome, newest: list[dict[str, Any]]) -> str:
    seconds = duration(sum(step["seconds"] for step in outcome.steps))
    if outcome.equal:
        return f"Done in {seconds}: {EQUAL}, {len(newest)} tables in {count(len(outcome.feeds), 'format')}."
    return f"NOT equal: {count(len(outcome.problems), 'finding')} in {seconds} (on stderr, one a line)."


def _feed(feed: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": feed["format"],
        "source": feed["source"],
        "Kafka records": feed["kafka_records"],
        "messages": feed["messages"],
        "events": feed["events"],
        "row changes": feed["row_changes"],
    }


def _matrix(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A line per table, a column per format."""
    for name in dict.fromkeys(row["table"] for row in rows):
        mine = [row for row in rows if row["table"] == name]
        verdicts = {row["format"]: "equal" if row["equal"] else "NOT EQUAL" for row in mine}
        yield {"table": name, "rows": max(row["rows"] for row in mine), **verdicts}


def _accounted(outcome: Outcome) -> str:
    landed, accounted = (sum(row[k] for row in outcome.ledger) for k in ("landed", "accounted"))
    return (
        f"{accounted:,} of {count(landed, 'Kafka record')} are accounted for in the offset ledger. "
        "A third run, with nothing new, wrote nothing."
        if outcome.equal
        else f"{accounted:,} of {count(landed, 'Kafka record')} are accounted for in the offset ledger."
    )


def _cut(feed: dict[str, Any]) -> str:
    if feed["cut"] is None:
        return "none"
    return f"{feed['cut']}: {feed['cut_reason'] or 'no transaction is in it by half'}"


def where_to_look(outcome: Outcome) -> dict[str, str]:
    """What there is to see, and the command or path."""
    source = next((row["source"] for row in outcome.snapshots), "shop_dts")
    orders = near(SNAPSHOT_PATH.at(outcome.lake, source=source, db="shop", table="orders"))
    return {
        "tables": f"{near(outcome.lake)}/snapshots/<source>/shop/<table>, e.g. {orders}",
        "cuts": _command(outcome, "cut list"),
        "state (while the UI runs)": _command(outcome, "status"),
        "more changes (while it runs)": f"{_program()} demo --more 50{_folder(outcome)}",
    }


def ui_command(outcome: Outcome) -> str:
    """The one command that opens the pages on the demo's data."""
    return _command(outcome, "ui")


def _command(outcome: Outcome, words: str) -> str:
    """A command that uses the demo's configuration, which needn't be named where it is the default one."""
    file = Path(outcome.config)
    named = "" if config_file() == file else f"CDC_CONFIG={shlex.quote(near(outcome.config))} "
    return f"{named}{_program()} {words}"


def _program() -> str:
    return shlex.quote(near(str(Path(sys.executable).with_name("cdc-platform"))))


def _folder(outcome: Outcome) -> str:
    folder = Path(outcome.config).parent
    return "" if folder == DEFAULT_FOLDER.absolute() else f" --folder {shlex.quote(near(str(folder)))}"


def near(path: str) -> str:
    """A path relative to the current folder, where it lies below it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
