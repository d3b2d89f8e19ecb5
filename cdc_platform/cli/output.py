"""The one place that prints. Commands return data; this shows it to people (see `layout`) or as JSON.

Results go to stdout, progress and errors to stderr; what others print goes to neither (see `quiet`).
"""

import functools
import inspect
import json
import math
import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TextIO, overload

import typer

from cdc_platform.cli.layout import Lines, Verbatim, clean, render, wrap
from cdc_platform.cli.quiet import err, out, quiet
from cdc_platform.errors import CdcError

__all__ = ["Lines", "Report", "Verbatim", "clean", "printed", "progress", "show", "show_error", "to_json", "working"]

_WIDTH = 100
"""Columns where there is no terminal to ask, and no COLUMNS in the environment."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_consoles: list[Any] = []
"""Rich's, while a spinner is shown."""


@dataclass(frozen=True)
class Report:
    """A command's data when it also decides the exit code, e.g. a status with a failed check. shown: what people see
    of it, where that isn't the data itself."""

    data: Any
    exit_code: int = 0
    shown: Any = None


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)  # JSON has no nan and no infinity


def _same(value: Any) -> Any:
    return value


_LEAVES: dict[type, Callable[[Any], Any]] = {
    type(None): _same,
    int: _same,  # and bool
    str: _same,
    float: _finite,
    date: lambda value: value.isoformat(),  # and datetime
    bytes: lambda value: b64encode(value).decode(),
    Decimal: lambda value: format(value, "f"),
}


def to_json(value: Any) -> Any:
    """`value` in JSON's own types: decimals as text (every digit), bytes as base64, times as ISO 8601."""
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(v) for v in value]
    return next((convert(value) for kind, convert in _LEAVES.items() if isinstance(value, kind)), str(value))


def _json_text(value: Any) -> str:
    return json.dumps(to_json(value), indent=2, allow_nan=False)  # ASCII only: safe for a terminal as well


def show(data: Any, as_json: bool, title: str | None = None) -> None:
    """Prints a command's data on stdout, as `layout.render` lays it out. As JSON: the same data, whole."""
    stream = out()
    if as_json:
        stream.write(_json_text(data) + "\n")
    else:
        strong = stream.isatty() and "NO_COLOR" not in os.environ
        for line in render(data, width(stream), title):
            stream.write(f"\x1b[1m{line.text}\x1b[0m\n" if strong and line.strong else f"{line.text}\n")
    stream.flush()


def width(stream: TextIO) -> int:
    """Columns that a line may have there."""
    if not stream.isatty():
        told = os.environ.get("COLUMNS", "")
        return int(told) if told.isdecimal() and int(told) else _WIDTH
    return shutil.get_terminal_size((_WIDTH, 24)).columns


def error_fields(error: CdcError) -> dict[str, Any]:
    """An error as data: its class, message, whether a retry makes sense, and its own fields."""
    own = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return own | {"type": type(error).__name__, "message": str(error), "retriable": error.retriable}


def show_error(error: CdcError, as_json: bool) -> None:
    """Prints an error: on stderr, its lines unwrapped where that is no terminal, or {"error": {…}} on stdout."""
    if as_json:
        show({"error": error_fields(error)}, as_json=True)
        return
    stream = err()
    for i, line in enumerate(error.lines):
        text = f"{'  ' if i else 'error: '}{clean(line)}"
        stream.write("\n".join(wrap(text, width(stream)) if stream.isatty() else [text]) + "\n")


def progress(text: str) -> None:
    """One line of progress on stderr."""
    if _consoles:
        _consoles[-1].print(clean(text), soft_wrap=True)
        return
    stream = err()
    stream.write(clean(text) + "\n")
    stream.flush()


@contextmanager
def working(text: str, *, only_terminal: bool = False) -> Iterator[None]:
    """Shows on stderr that `text` is going on: a spinner on a terminal, below the lines of progress that come
    meanwhile; else one line, or none with only_terminal."""
    stream = err()
    if not stream.isatty():
        if not only_terminal:
            progress(text)
        yield
        return
    from rich.console import Console  # late: most commands need no rich
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    spinner = Spinner("dots", Text(clean(text)), style="status.spinner")
    live = Live(
        spinner,
        console=console,
        transient=True,
        refresh_per_second=12.5,
        redirect_stdout=False,  # what others print is for the log: see `quiet`
        redirect_stderr=False,
    )
    with live:
        _consoles.append(console)
        try:
            yield
        finally:
            _consoles.pop()


@overload
def printed(command: Callable[..., Any]) -> Callable[..., None]: ...
@overload
def printed(*, redirect: bool) -> Callable[[Callable[..., Any]], Callable[..., None]]: ...
def printed(command: Callable[..., Any] | None = None, *, redirect: bool = True) -> Any:
    """Makes a Typer command of a function that returns data: adds `--json`, prints the data or the CdcError.

    Exit code 0; that of a returned Report; that of a CdcError. Usage errors are Typer's: 2. While it works, what others
    print goes into `.cdc/logs/cli.log` beside the cdc.yaml of its argument `config`; not so with `redirect=False`, for
    a command that asks questions or starts processes that talk to the user.
    """
    if command is None:
        return functools.partial(_printed, redirect=redirect)
    return _printed(command, redirect=redirect)


def _printed(command: Callable[..., Any], redirect: bool) -> Callable[..., None]:
    @functools.wraps(command)
    def wrapper(*args: Any, json_output: bool = False, **kwargs: Any) -> None:
        if not redirect:
            return _call(command, args, kwargs, json_output)
        with quiet(_log(kwargs.get("config"))):
            return _call(command, args, kwargs, json_output)

    option = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
    signature = inspect.signature(command, eval_str=True)
    extra = inspect.Parameter("json_output", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)
    wrapper.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), extra], return_annotation=None
    )
    wrapper.__annotations__ = {p.name: p.annotation for p in [*signature.parameters.values(), extra]}
    return wrapper


def _call(command: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], as_json: bool) -> None:
    try:
        result = command(*args, **kwargs)
    except CdcError as error:
        show_error(error, as_json)
        raise typer.Exit(error.exit_code) from None
    report = result if isinstance(result, Report) else Report(result)
    if report.data is not None:
        show(report.data if as_json or report.shown is None else report.shown, as_json)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _log(config: Any) -> Path | None:
    """Where what others print is kept: beside the configuration that is used, if there is one."""
    from cdc_platform.config.load import config_file

    if isinstance(config, Path) and (file := config_file(config)).is_file():
        return file.parent / ".cdc" / "logs" / "cli.log"
    return None
