"""Collations as the parsers can read them: where a statement tells a column's or a table's character set by a collation
alone, the character set in its place. They would look a collation up in a list that only a running connector has, and
`binary` makes other types of columns (MySQL manual, "The binary Character Set")."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from cdc_platform.mysql.tokens import Token, tokens

_TYPES = frozenset(
    (
        *("NATIONAL", "CHARACTER", "CHAR", "VARCHAR", "VARYING", "NCHAR", "NVARCHAR", "LONG", "ENUM", "SET"),
        *("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
    )
)
"""Words of types that have a character set."""
_OPEN, _CLOSE, _COMMA, _EQUALS = (Token("mark", m) for m in "(),=")
_NOTHING = Token(None, "")


class _Item(NamedTuple):
    """One definition or option of a statement: its tokens, and where each stands in the statement."""

    tokens: list[Token]
    places: list[int]

    def word(self, at: int) -> str:
        return self.tokens[at].text.upper() if at < len(self.tokens) and self.tokens[at].kind == "word" else ""

    def outside(self) -> Iterator[int]:
        """The tokens that stand in no brackets."""
        depth = 0
        for at, token in enumerate(self.tokens):
            depth += token == _OPEN
            if depth == 0:
                yield at
            depth -= token == _CLOSE


_SHORT = {"ASCII": "latin1", "UNICODE": "ucs2", "BYTE": "binary"}
"""What stands for a column's character set behind its type (MySQL manual, "String Data Type Syntax")."""
_SAYS = re.compile("collate|" + "|".join(_SHORT), re.IGNORECASE)


def with_charsets(sql: str) -> str:
    """The statement with character sets for collations and for what is short for a character set, where it defines
    columns, tables or databases."""
    if not _SAYS.search(sql):
        return sql
    found = tokens(sql, gaps=True)
    texts = [t.text for t in found]
    for item in _items(found):
        _spell_out(item, texts)
        _rewrite(item, texts)
    return "".join(texts)


def table_charset(sql: str) -> str | None:
    """The character set that an ALTER TABLE gives to columns that tell none from then on; None: it doesn't say."""
    told = None
    for number, item in enumerate(_items(tokens(sql, gaps=True))):
        if number == 0 and item.word(0) != "ALTER":
            return None
        at = _charset(item)
        if at is not None and _type_end(item) is None and item.word(at - 1) != "TO":
            told = _value(item, at + (1 if item.word(at) == "CHARSET" else 2))
    return told and told.lower()


def _items(found: list[Token]) -> Iterator[_Item]:
    """Of a CREATE or ALTER: what stands between commas, and in the brackets of a CREATE TABLE."""
    plain = [i for i, t in enumerate(found) if t.kind != "gap"]
    if not plain or found[plain[0]].text.upper() not in ("CREATE", "ALTER"):
        return
    base = 1 if found[plain[0]].text.upper() == "CREATE" else 0
    depth, item = 0, _Item([], [])
    for place in plain:
        token = found[place]
        before = depth
        depth += (token == _OPEN) - (token == _CLOSE)
        bracket = base == 1 and token in (_OPEN, _CLOSE) and 0 in (before, depth)
        if bracket or (token == _COMMA and depth == base):
            yield item
            item = _Item([], [])
        else:
            item.tokens.append(token)
            item.places.append(place)
    yield item


def _spell_out(item: _Item, texts: list[str]) -> None:
    """`CHAR(3) ASCII BINARY`, `TEXT BYTE`: also in the item, for who looks for a character set there."""
    end = _type_end(item)
    if end is None:
        return
    at = end + (item.word(end) == "BINARY")
    if charset := _SHORT.get(item.word(at)):
        texts[item.places[at]] = f"CHARACTER SET {charset}"
        item.tokens[at] = Token("word", "CHARSET")


def _rewrite(item: _Item, texts: list[str]) -> None:
    at = next((i for i in item.outside() if item.word(i) == "COLLATE"), None)
    named = None if at is None else _value(item, at + 1)
    if at is None or named is None:
        return
    gone = at + (3 if item.tokens[at + 1] == _EQUALS else 2)
    charset = "binary" if named.lower() == "binary" else named.partition("_")[0]
    for i in range(at, gone):
        texts[item.places[i]] = ""
    if _charset(item) is None:
        end = _type_end(item)
        place = item.places[at if end is None else end - 1]
        texts[place] += f" CHARACTER SET {charset} "


def _value(item: _Item, at: int) -> str | None:
    """A name, behind a `=` or not."""
    at += at < len(item.tokens) and item.tokens[at] == _EQUALS
    return item.tokens[at].text.strip("'\"`") if at < len(item.tokens) else None


def _charset(item: _Item) -> int | None:
    """Where CHARACTER SET or CHARSET stands."""
    return next(
        (i for i in item.outside() if item.word(i) == "CHARSET" or _is_character_set(item, i)),
        None,
    )


def _is_character_set(item: _Item, at: int) -> bool:
    return item.word(at) in ("CHARACTER", "CHAR") and item.word(at + 1) == "SET"


def _type_end(item: _Item) -> int | None:
    """Where the type of a column with a character set ends; None: the item defines none."""
    change = next((i for i in item.outside() if item.word(i) == "CHANGE"), None)  # two names stand behind it
    for at in range(1 if change is None else change + 3, len(item.tokens)):
        if item.tokens[at - 1].kind in ("word", "quoted") and _begins_type(item, at):
            end = at + 1
            while item.word(end) in _TYPES and not _is_character_set(item, end):
                end += 1
            return _behind_brackets(item.tokens, end)
    return None


def _begins_type(item: _Item, at: int) -> bool:
    labels = item.word(at) not in ("SET", "ENUM") or [*item.tokens, _NOTHING][at + 1] == _OPEN
    return item.word(at) in _TYPES and labels and not _is_character_set(item, at)


def _behind_brackets(found: list[Token], at: int) -> int:
    depth = 0
    while at < len(found) and (depth or found[at] == _OPEN):
        depth += (found[at] == _OPEN) - (found[at] == _CLOSE)
        at += 1
    return at
