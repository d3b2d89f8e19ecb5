"""The tables of docs/types.md, made from the matrix. `python -m tests.formats.types_doc` writes them anew."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.formats.types_matrix import KINDS, Kind, Value
from tests.formats.types_wire import FEEDS, wire

DOC = Path(__file__).parents[2] / "docs" / "types.md"
_LONGEST = 44
_EMPTY = "''"
_HIDDEN = {f"bit({n})" for n in range(3, 64)} | {f"{t}({n})" for t in ("datetime", "timestamp", "time") for n in "1245"}
"""Tested as their neighbours are, but not worth a row each."""


def code(text: str) -> str:
    """Markdown code of a table's cell, shortened."""
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 12]}…{text[-10:]}"
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}".replace("|", "\\|")


def _held(kind: Kind, held: Any, text: str) -> str:
    """A value of the snapshot, as SQL would show it."""
    if held is None:
        return "NULL"
    if isinstance(held, bool | bytes):
        return code(f"x'{held.hex()}'" if isinstance(held, bytes) else str(held).lower())
    return code(text if kind.spark != "string" or kind.base in ("decimal", "time") else repr(text))


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def cell(feed: str, number: int) -> str:
    """What arrives of the type's example, and what the snapshot holds where that isn't what the second column says."""
    kind = KINDS[number]
    example = kind.values[0]
    told = FEEDS[feed].told(kind, example)
    if told.value is None:
        return "not sent"
    out = code(wire(feed, number, example.source))
    type_ = FEEDS[feed].types.get(kind.base, kind.spark)
    notes = [code(type_)] * (type_ != kind.spark) + [_held(kind, told.value.held, told.value.text)] * bool(told.why)
    return " → ".join([out, " ".join(notes)] if notes else [out])


def types_table() -> Iterator[str]:
    """A row per type, a column per feed."""
    yield f"| MySQL | snapshot | values tested | {' | '.join(FEEDS)} |"
    yield "|---" * (3 + len(FEEDS)) + "|"
    for number, kind in enumerate(KINDS):
        if kind.type in _HIDDEN:
            continue
        example = kind.values[0]
        tested = ", ".join(code(_printable(v.text) or _EMPTY) for v in kind.values)
        snapshot = f"{code(kind.spark)} {_held(kind, example.held, example.text)}"
        cells = [code(kind.name), snapshot, tested, *(cell(feed, number) for feed in FEEDS)]
        yield f"| {' | '.join(cells)} |"


def exceptions_table() -> Iterator[str]:
    """A row per feed and reason: values that the snapshot doesn't hold as the source does."""
    yield "| feed | what it can't tell | types | for instance | the snapshot |"
    yield "|---|---|---|---|---|"
    for feed, described in FEEDS.items():
        lost: dict[str, list[tuple[Kind, Value, Value | None]]] = {}
        for kind in KINDS:
            for value in kind.values:
                told = described.told(kind, value)
                if told.why:
                    lost.setdefault(told.why, []).append((kind, value, told.value))
        for why, cases in lost.items():
            kind, value, told = cases[0]
            types = ", ".join(dict.fromkeys(code(kind.base) for kind, *_ in cases))
            held = _held(kind, told.held, told.text) if told else "–"
            example = f"{code(kind.name)} {code(value.text or _EMPTY)}"
            yield f"| {code(feed)} | {why} | {types} | {example} | {held} |"


TABLES = {"types": types_table, "exceptions": exceptions_table}


def marked(name: str) -> tuple[str, str]:
    """What stands before and after a table."""
    return f"<!-- {name}: made by tests/formats/types_doc.py -->\n\n", f"\n\n<!-- end of {name} -->\n"


def written(name: str, doc: str) -> str:
    """The table as the document has it."""
    begin, end = marked(name)
    return doc.partition(begin)[2].partition(end)[0]


if __name__ == "__main__":
    content = DOC.read_text()
    for name, table in TABLES.items():
        begin, end = marked(name)
        before, found, rest = content.partition(begin)
        assert found, f"no place for {name}"
        content = f"{before}{begin}" + "\n".join(table()) + f"{end}{rest.partition(end)[2]}"
    DOC.write_text(content)
