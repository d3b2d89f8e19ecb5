"""What comes from sources as Dagster's pages show it: they take descriptions for Markdown, and names and reasons are
none."""

import html
import re

_CODE = re.compile(r"(`[^`]*`)")
"""A command or name in back quotes, which Markdown shows as it stands."""
_MARKUP = re.compile(r"(?m:^)[#>]|[*<\[~\\&`]|(?<!\w)_|_(?!\w)")
"""An underscore within a word is none: most names come through as they are."""


def literal(text: str) -> str:
    """A text that Markdown shows as it stands: characters that could be markup become entities, but in back quotes."""
    parts = _CODE.split(text)
    return "".join(p if i % 2 else _MARKUP.sub(lambda c: f"&#{ord(c[0])};", p) for i, p in enumerate(parts))


def plain(text: str) -> str:
    """What `literal` was given: for terminals and messages."""
    return "".join(p if i % 2 else html.unescape(p) for i, p in enumerate(_CODE.split(text)))
