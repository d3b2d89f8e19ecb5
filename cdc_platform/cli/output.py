"""The one place that prints. Commands return data; this shows it as a table for people or as JSON.

Results go to stdout, progress and errors to stderr. Nothing from the wire is trusted: no markup, no control
characters reach a terminal.
"""

import functools
import inspect
import json
import math
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_platform.errors import CdcError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# C0 and C1 controls (terminal commands), bidirectional overrides (they show another text), lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN_WIDTH = 100_000  # not a terminal: never wrap or cut what a program or a log reads


@dataclass(frozen=True)
class Report:
    """A command's data when it also decides the exit code, e.g. a status with a failed check. shown: what people see
    of it, where that isn't the data itself."""

    data: Any
    exit_code: int = 0
    shown: Any = None


def clean(text: str) -> str:
    r"""`text` safe for a terminal: control characters as \xNN, deceiving ones as \uNNNN."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found.group())
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _UNSAFE.sub(escape, text)


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


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console  # late: --json and --help need no rich

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=True)


def _text(value: Any) -> str:
    plain = to_json(value)
    if plain is None:
        return "-"
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if isinstance(plain, list) and not any(isinstance(v, dict | list) for v in plain):
        return clean(", ".join(_text(v) for v in plain))
    if isinstance(plain, dict | list):
        return clean(json.dumps(plain, ensure_ascii=False))
    return clean(str(plain))


def _is_rows(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _grid(title: str | None, header: bool) -> "Table":
    from rich.table import Table
    from rich.text import Text

    heading = Text(clean(title)) if title else None
    return Table(title=heading, title_justify="left", box=None, show_header=header, pad_edge=False)


def _rows_table(rows: Sequence[Mapping[str, Any]], title: str | None) -> "Table":
    from rich.text import Text

    table = _grid(title, header=True)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in columns:
        values = [row[name] for row in rows if row.get(name) is not None]
        numeric = bool(values) and all(isinstance(v, int | float | Decimal) for v in values)
        table.add_column(Text(clean(name)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_text(row.get(name))) for name in columns))
    return table


def _tables(data: Any, title: str | None) -> Iterator["Table | str"]:
    if isinstance(data, str):
        yield clean(data)
    elif _is_rows(data):
        yield _rows_table(data, title)
    elif isinstance(data, Sequence):
        yield "\n".join(_text(value) for value in data) or "nothing"
    elif isinstance(data, Mapping):
        from rich.text import Text

        nested = {name: value for name, value in data.items() if _is_rows(value)}
        table = _grid(title, header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in data.items():
            if name not in nested:
                table.add_row(Text(clean(str(name))), Text(_text(value)))
        if table.row_count:
            yield table
        for name, rows in nested.items():
            yield from _tables(rows, str(name))


def show(data: Any, as_json: bool, title: str | None = None) -> None:
    """Prints a command's data on stdout.

    A dict becomes lines of name and value, a list of dicts a table, a dict's lists of dicts one titled table
    each, text is printed as it is (control characters escaped). As JSON: the same data, whole.
    """
    if as_json:
        sys.stdout.write(_json_text(data) + "\n")
        return
    if is_dataclass(data) and not isinstance(data, type):
        data = asdict(data)
    console = _console()
    for i, part in enumerate(_tables(data, title)):
        if i:
            console.print()
        console.print(part)


def error_fields(error: CdcError) -> dict[str, Any]:
    """An error as data: its class, message, whether a retry makes sense, and its own fields."""
    own = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return own | {"type": type(error).__name__, "message": str(error), "retriable": error.retriable}


def show_error(error: CdcError, as_json: bool) -> None:
    """Prints an error: one line on stderr, or {"error": {…}} on stdout."""
    if as_json:
        sys.stdout.write(_json_text({"error": error_fields(error)}) + "\n")
    else:
        sys.stderr.write(f"error: {clean(str(error))}\n")


def progress(text: str) -> None:
    """One line of progress on stderr."""
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


@contextmanager
def working(text: str) -> Iterator[None]:
    """Shows on stderr that `text` is going on: a spinner on a terminal, else one line."""
    if not sys.stderr.isatty():
        progress(text)
        yield
        return
    from rich.text import Text

    with _console(stderr=True).status(Text(clean(text))):
        yield


def printed(command: Callable[..., Any]) -> Callable[..., None]:
    """Makes a Typer command of a function that returns data: adds `--json`, prints the data or the CdcError.

    Exit code 0; that of a returned Report; 1 on a CdcError. Usage errors are Typer's: 2.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, json_output: bool = False, **kwargs: Any) -> None:
        try:
            result = command(*args, **kwargs)
        except CdcError as error:
            show_error(error, json_output)
            raise typer.Exit(1) from None
        report = result if isinstance(result, Report) else Report(result)
        if report.data is not None:
            show(report.data if json_output or report.shown is None else report.shown, json_output)
        if report.exit_code:
            raise typer.Exit(report.exit_code)

    option = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
    signature = inspect.signature(command, eval_str=True)
    extra = inspect.Parameter("json_output", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)
    wrapper.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), extra], return_annotation=None
    )
    wrapper.__annotations__ = {p.name: p.annotation for p in [*signature.parameters.values(), extra]}
    return wrapper
