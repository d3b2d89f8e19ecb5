"""`cdc-platform demo`: a seeded shop through the whole chain, compared with its truth."""

import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_platform.cli.output import progress, show, show_error
from cdc_platform.errors import CdcError

if TYPE_CHECKING:
    from cdc_platform.demo.run import Outcome


def command(
    seed: Annotated[int, typer.Option(help="Of the shop's random transactions.")] = 1,
    transactions: Annotated[
        int, typer.Option(min=1, help="Of the backlog, beside the hard cases; the increment has a third.")
    ] = 300,
    folder: Annotated[Path, typer.Option(help="Config, lake and broker of the demo; wiped at the start.")] = Path(
        ".cdc/demo"
    ),
    master: Annotated[str, typer.Option(help="Spark master of the demo's session.")] = "local[*]",
    remote: Annotated[
        str | None,
        typer.Option(help="A Spark Connect server on this machine instead, e.g. sc://localhost:15002."),
    ] = None,
    more: Annotated[
        int | None,
        typer.Option(min=1, help="Publish so many more transactions for a demo that `ui` follows, and wait for them."),
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds that --more waits.")] = 180,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="Show this wire format; may be repeated. Default: tencent_dts and debezium."),
    ] = None,
    all_formats: Annotated[bool, typer.Option("--all", help="Show all wire formats.")] = False,
    keep_broker: Annotated[bool, typer.Option("--keep-broker", help="Leave the broker running.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run the whole chain on a seeded shop and compare every snapshot cell with its truth."""
    from cdc_platform.demo.run import Settings, run_demo
    from cdc_platform.formats import FORMATS

    if more is not None:
        _more(folder, more, wait, json_output)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the broker is stopped then, too
    settings = Settings(folder, seed, transactions, max(1, transactions // 3), master, remote, keep_broker)
    if all_formats or formats:
        settings = replace(settings, formats=tuple(FORMATS if all_formats else formats or ()))
    try:
        outcome = run_demo(settings, progress)
    except CdcError as error:
        show_error(error, json_output)
        raise typer.Exit(1) from None
    _show(outcome, json_output)
    raise typer.Exit(0 if outcome.equal else 1)


def _more(folder: Path, transactions: int, wait_s: float, as_json: bool) -> None:
    from cdc_platform.demo.more import publish_more
    from cdc_platform.demo.run import EQUAL

    try:
        followed = publish_more(folder, transactions, wait_s, progress)
    except CdcError as error:
        show_error(error, as_json)
        raise typer.Exit(1) from None
    if as_json:
        show(asdict(followed), as_json=True)
    else:
        for problem in followed.problems:
            progress(problem)
        verdict = "NOT equal" if followed.problems else EQUAL
        show(f"{verdict} {followed.seconds} s after {followed.records} more records", as_json=False)
    raise typer.Exit(1 if followed.problems else 0)


def _show(outcome: "Outcome", as_json: bool) -> None:
    from cdc_platform.demo.run import EQUAL, next_steps

    verdict = EQUAL if outcome.equal else f"NOT equal: {len(outcome.problems)} findings"
    data: dict[str, Any] = {**asdict(outcome), "equal": outcome.equal, "result": verdict}
    if as_json:
        show(data, as_json=True)
        return
    for part in ("published", "rooms", "stages", "ledger", "snapshots"):
        if data[part]:
            show(data[part], as_json=False, title=part)
            show("", as_json=False)
    for what, how in next_steps(outcome).items():
        show(f"{what}: {how}", as_json=False)
    for problem in outcome.problems:
        progress(problem)
    show(verdict, as_json=False)
