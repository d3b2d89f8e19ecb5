"""A DDL statement's words, literals and marks, where a regular expression over its text can't tell them apart."""

import re
from typing import NamedTuple

NO_COLUMN = frozenset(
    (
        *("primary", "index", "key", "foreign", "constraint", "check", "partition", "default", "column", "period"),
        *("system", "unique", "fulltext", "spatial"),
    )
)
"""Words behind ADD and DROP that are no column's name."""


class Token(NamedTuple):
    """kind: gap, text, bits, quoted (a name), number, word or mark. text: as it is written."""

    kind: str | None
    text: str


_TOKEN = re.compile(
    r"(?P<gap>\s+|/\*(?!M?!).*?(?:\*/|\Z)|(?:--\s|\#)[^\n]*"  # what a comment with ! holds is executed:
    r"|/\*M?!(?:\d{5,6})?|\*/)"
    r"|(?P<text>'(?:[^'\\]|''|\\.?)*+(?:'|\Z)|\"(?:[^\"\\]|\"\"|\\.?)*+(?:\"|\Z))"  # \Z: else not linear
    r"|(?P<bits>[bB]'[01]*'|0b[01]+(?![\w$]))|(?P<quoted>`(?:[^`]|``)*+(?:`|\Z))"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w$.]))|(?P<word>[\w$@\u0080-\uffff]+)|(?P<mark>.)",
    re.DOTALL,
)


def tokens(sql: str, gaps: bool = False) -> list[Token]:
    """The statement's tokens; `gaps`: with the white space and comments between them, so that their texts make up the
    statement again."""
    return [Token(m.lastgroup, m[0]) for m in _TOKEN.finditer(sql) if gaps or m.lastgroup != "gap"]


def says(sql: str, *words: str) -> int:
    """How often the statement has these words (upper case) in a row, outside quotes and comments."""
    upper = sql.upper()
    if not all(word in upper for word in words):
        return 0
    said = [t.text.upper() if t.kind == "word" else "" for t in tokens(sql)]
    return sum(tuple(said[i : i + len(words)]) == words for i in range(len(said)))


def without_lists(sql: str) -> str:
    """ALTER … ADD (a …, b …) → ADD a …, ADD b …: Debezium's parsers give what is said of one column of a list to the
    next (AlterTableParserListener.exitColumnDefinition: it sets the next editor before the column's own is done)."""
    if "(" not in sql or "add" not in sql.lower():
        return sql
    found = tokens(sql, gaps=True)
    plain = [i for i, t in enumerate(found) if t.kind != "gap"]
    texts = [t.text for t in found]
    depth = 0
    opened: str | None = None  # what stands before a list's bracket
    for n, at in enumerate(plain):
        token = found[at]
        if token.kind == "word" and token.text.upper() == "ADD" and depth == 0:
            opened = _opens(found, plain, n)
        elif token.kind == "mark" and token.text in "()":
            depth += 1 if token.text == "(" else -1
            if opened is not None and ((token.text == "(" and depth == 1) or depth == 0):
                texts[at] = " "
                opened = opened if depth else None
        elif token == Token("mark", ",") and depth == 1 and opened is not None:
            follows = found[plain[n + 1]].text.lower() if n + 1 < len(plain) else ""
            texts[at] = f", {'ADD' if follows in NO_COLUMN else opened}"
    return "".join(texts)


def _opens(found: list[Token], plain: list[int], n: int) -> str | None:
    """ADD [COLUMN] [IF NOT EXISTS], where a bracket follows it."""
    for words in ((), ("COLUMN",), ("IF", "NOT", "EXISTS"), ("COLUMN", "IF", "NOT", "EXISTS")):
        behind = [found[i].text.upper() for i in plain[n + 1 : n + 2 + len(words)]]
        if behind == [*words, "("]:
            return " ".join(("ADD", *words))
    return None
