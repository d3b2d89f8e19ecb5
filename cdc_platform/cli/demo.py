"""`cdc-platform demo`: a seeded shop through the whole chain, compared with its truth."""

import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_platform.cli.output import progress, show, show_error
from cdc_platform.cli.quiet import quiet
from cdc_platform.errors import CdcError

if TYPE_CHECKING:
    from cdc_platform.demo.run import Outcome


def command(
    seed: Annotated[int, typer.Option(help="Of the shop's random transactions.")] = 1,
    transactions: Annotated[
        int, typer.Option(min=1, help="Of the backlog, beside the hard cases; the increment has a third.")
    ] = 120,
    folder: Annotated[Path, typer.Option(help="Config, lake and broker of the demo; wiped at the start.")] = Path(
        ".cdc/demo"
    ),
    lake: Annotated[
        str,
        typer.Option(help="An empty place on S3 instead, e.g. s3://bucket/demo; reached by the environment's AWS_…."),
    ] = "./lake",
    master: Annotated[str, typer.Option(help="Spark master of the demo's session.")] = "local[*]",
    remote: Annotated[
        str | None,
        typer.Option(help="A Spark Connect server on this machine instead, e.g. sc://localhost:15002."),
    ] = None,
    more: Annotated[
        int | None,
        typer.Option(min=1, help="Publish so many more transactions for a demo that `ui` follows, and wait for them."),
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds that --more waits.")] = 300,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="Show only this wire format; may be repeated. Default: all of them."),
    ] = None,
    keep_broker: Annotated[bool, typer.Option("--keep-broker", help="Leave the broker running.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run the whole chain on a seeded shop in all formats and compare every snapshot cell with its truth."""
    from cdc_platform.demo.folder import Settings

    settings = Settings(folder, seed, transactions, max(1, transactions // 3), master, remote, keep_broker)
    settings = replace(settings, lake=lake)
    if formats:
        settings = replace(settings, formats=tuple(formats))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the broker is stopped then, too
    # The log lies beside the folder, which is wiped.
    with quiet(folder.expanduser().absolute().with_name(f"{folder.name}.log")):
        try:
            code = _more(folder, more, wait, json_output) if more is not None else _run(settings, json_output)
        except CdcError as error:
            show_error(error, json_output)
            code = error.exit_code
    raise typer.Exit(code)


def _more(folder: Path, transactions: int, wait_s: float, as_json: bool) -> int:
    from cdc_platform.cli.demo_story import EQUAL
    from cdc_platform.demo.more import publish_more
    from cdc_platform.units import count, duration

    followed = publish_more(folder, transactions, wait_s, progress)
    if as_json:
        show(asdict(followed), as_json=True)
    else:
        for problem in followed.problems:
            progress(problem)
        verdict = "NOT equal" if followed.problems else EQUAL
        show(
            f"{verdict} {duration(followed.seconds)} after {count(followed.transactions, 'more transaction')} "
            f"({count(followed.row_changes, 'row change')}) in each of {count(followed.feeds, 'feed')}: "
            f"{count(followed.kafka_records, 'Kafka record')} in all",
            as_json=False,
        )
    return 1 if followed.problems else 0


def _run(settings: Any, as_json: bool) -> int:
    from cdc_platform.demo.run import run_demo

    outcome = run_demo(settings, progress)
    _show(outcome, as_json)
    return 0 if outcome.equal else 1


def _show(outcome: "Outcome", as_json: bool) -> None:
    from cdc_platform.cli.demo_story import EQUAL, story

    if as_json:
        verdict = EQUAL if outcome.equal else f"NOT equal: {len(outcome.problems)} findings"
        show({**asdict(outcome), "equal": outcome.equal, "result": verdict}, as_json=True)
        return
    for problem in outcome.problems:
        progress(problem)
    for i, (title, data) in enumerate(story(outcome)):
        if i:
            show("", as_json=False)
        show(data, as_json=False, title=title)
