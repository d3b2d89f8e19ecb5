"""What messages themselves show of options: whether their quoted text has escapes."""

import re
from collections.abc import Iterable, Iterator

import pyarrow as pa

from cdc_platform.formats.exact_json import read_json
from cdc_platform.formats.texts import BAD

_ESCAPED = re.compile(r"(?:[^\\'\n\r\t\0\x1a]|\\(?:[\\'\"nrt0Z]|x[0-9A-Fa-f]{2}))*", re.DOTALL)
"""What stands between quotes where text has escapes."""
_EITHER = re.compile(r"[^\\'\n\r\t\0\x1a]*", re.DOTALL)


def shown_options(messages: pa.RecordBatch) -> dict[str, str]:
    """MESSAGE batch → option → its value, where the literals of rows leave no other."""
    seen = set()
    for text in _quoted(messages.column("value").to_pylist()):
        if not _EITHER.fullmatch(text):
            seen.add("backslash" if _ESCAPED.fullmatch(text) else "raw")
    # One text that can't have escapes decides: where there are none, others may look as if there were some.
    return {"escapes": "raw" if "raw" in seen else "backslash"} if seen else {}


def _quoted(values: Iterable[bytes | None]) -> Iterator[str]:
    """Literals in quotes, without them."""
    for value in values:
        try:
            message = read_json(value or b"null")
        except BAD:
            continue
        for image in ("where", "field") if isinstance(message, dict) else ():
            literals = message.get(image)
            for literal in literals if isinstance(literals, list) else ():
                if isinstance(literal, str) and len(literal) > 1 and literal[0] == literal[-1] == "'":
                    yield literal[1:-1]
