"""The command line. Commands are imported when they are called: `--help` and small commands start fast,
without pyspark and dagster."""

import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cdc_platform.cli.output import INTERRUPTED, show, show_error
from cdc_platform.errors import CdcError

# name: (module:attribute, help). The attribute is a Typer app, or one function.
COMMANDS = {
    "demo": ("cdc_platform.cli.demo:command", "The whole chain on a seeded shop, compared with the truth."),
    "run": ("cdc_platform.cli.run:command", "Catch up with Kafka: all sources, or some."),
    "status": ("cdc_platform.cli.status:command", "Sources, stages, lag, and what needs attention."),
    "init": ("cdc_platform.cli.init:command", "Write a cdc.yaml for topics that are there."),
    "validate": (
        "cdc_platform.cli.validate:command",
        "Check cdc.yaml: all errors at once, and warnings.",
    ),
    "setup": ("cdc_platform.cli.setup:command", "Fetch the jars of Spark and Kafka; prepare quick starts."),
    "broker": ("cdc_platform.cli.broker:app", "The embedded Kafka broker: start, stop, status."),
    "ui": ("cdc_platform.cli.ui:command", "Broker, warm Spark, Dagster's web pages and daemon together."),
    "inspect": ("cdc_platform.cli.inspect:command", "Which wire format a topic holds, and why not another."),
    "tables": ("cdc_platform.cli.tables:tables_command", "All tables: state, rows, key, last change, where they lie."),
    "schema": ("cdc_platform.cli.tables:schema_command", "A table's columns: types, key, what the feed can't tell."),
    "read": ("cdc_platform.cli.read:command", "Rows of a table, without Spark."),
    "explain": ("cdc_platform.cli.explain:command", "Why a row is as it is, or isn't there: the changes behind it."),
    "as-of": ("cdc_platform.cli.as_of:command", "A table as it was at a time or a cut, made beside the lake."),
    "replay": (
        "cdc_platform.cli.replay:command",
        "What today's decoder and options make of all that was landed.",
    ),
    "show": ("cdc_platform.cli.show:command", "One Kafka message: what became of it, and what it says."),
    "topic": ("cdc_platform.cli.topic:app", "Kafka topics: create, list, send records."),
    "load": (
        "cdc_platform.cli.load:command",
        "Tables read from the source itself, in order among its feed.",
    ),
    "erase": (
        "cdc_platform.cli.erase:command",
        "A subject's bytes out of the lake, with the proof.",
    ),
    "reconcile": ("cdc_platform.cli.reconcile:command", "Compare snapshots with the source itself, or an export."),
    "shadow": ("cdc_platform.cli.shadow:app", "Two feeds of the same database: compare, status, cutover."),
    "certify": ("cdc_platform.cli.certify:command", "What the platform answers for each table, and what is wrong."),
    "quarantine": ("cdc_platform.cli.quarantine:app", "What could not be used, and why: list, show, retry."),
    "cut": ("cdc_platform.cli.cut:app", "Versions of all tables of a source that belong together: list."),
    "bridge": ("cdc_platform.cli.bridge:app", "Carry feeds that are not in Kafka there: canal."),
    "metrics": ("cdc_platform.cli.metrics:command", "Lag, held rows, stopped tables for Prometheus."),
    "maintain": ("cdc_platform.cli.maintain:command", "Upkeep: small files, old versions, old tombstones."),
    "bench": ("cdc_platform.cli.bench:command", "Events per second of each stage and of the whole chain."),
}


class LazyGroup(TyperGroup):
    """A group whose commands come from COMMANDS and are imported on call.

    Its methods' types are click's, which typer carries in a private module and exports only in part.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """All names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Imports one command; None: there is no such."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name)(found)
        return typer.main.get_command(single)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names and help of commands from the table, as `format_commands`; else what any group completes."""
        from typer._click.shell_completion import CompletionItem  # typer exports no public name for it

        names = [CompletionItem(n, help=text) for n, (_, text) in COMMANDS.items() if n.startswith(incomplete)]
        return names if not incomplete.startswith("-") else super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Lists names and help from the table: asking the commands would import them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


app = typer.Typer(
    cls=LazyGroup,
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # it prints local variables, and with them secrets
)


def _version(asked: bool) -> None:
    if asked:
        from cdc_platform import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Turns vendors' CDC topics into Delta tables that provably equal the source.

    Exit codes: 0 done; 1 something needs attention (an error, rows in quarantine, a stopped table, a failed check);
    2 wrong usage or configuration; 130 interrupted. With --json stdout is one JSON value, for errors too.
    """


def _usage_error(error: Any, args: list[str]) -> int:
    if "--json" in args:
        _json_error("UsageError", error.format_message())
    else:
        error.show()
    return error.exit_code


def _json_error(kind: str, message: str) -> None:
    show({"error": {"type": kind, "message": message, "retriable": False}}, as_json=True)


def run(args: list[str]) -> int:
    """Runs one command line and gives its exit code.

    0: done. 1: something needs attention, or a CdcError, told. 2: usage or configuration. 130: interrupted. Anything
    else is a fault of ours and leaves as the exception it is. With --json all of that is said on stdout, too.
    """
    as_json = "--json" in args
    try:
        result: Any = app(args, prog_name="cdc-platform", standalone_mode=False)
    except typer.TyperException as error:
        return _usage_error(error, args)
    except CdcError as error:  # from a command that prints by itself
        show_error(error, as_json)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted(as_json)
    except BrokenPipeError:
        raise
    except Exception as error:
        if as_json:
            _json_error(type(error).__name__, str(error))
        raise
    if result == INTERRUPTED:  # what typer makes of Ctrl-C in a command
        return _interrupted(as_json)
    return result if isinstance(result, int) else 0


def _interrupted(as_json: bool) -> int:
    if as_json:
        _json_error("Interrupted", "interrupted")
    sys.stderr.write("interrupted\n")
    return INTERRUPTED


def main() -> None:
    """The entry point `cdc-platform`."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # `… | head`: nobody reads any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    sys.exit(code)
