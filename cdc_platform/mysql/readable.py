"""DDL as Debezium's parsers can read it, where they can't as it stands: names in double quotes (ANSI_QUOTES), types and
clauses of MySQL's and MariaDB's that their grammars lack. Columns, their types and keys stay what they are."""

from collections.abc import Iterator
from functools import lru_cache

from cdc_platform.mysql.tokens import NO_COLUMN, Token, tokens
from cdc_platform.mysql.types import FAMILIES, SYNONYMS

TYPE = "__cdc_type__:"
"""Begins the one label of the ENUM that stands for a type that the parsers don't know; the type's text follows."""

_BEFORE_A_NAME = frozenset(
    (
        *("TABLE", "EXISTS", "COLUMN", "REFERENCES", "CONSTRAINT", "ADD", "DROP", "MODIFY", "CHANGE", "RENAME", "TO"),
        *("INDEX", "TRUNCATE", "FROM", "UPDATE", "INTO", "USE", "DATABASE", "SCHEMA"),
    )
)
_UNKNOWN = frozenset(("inet4", "inet6", "uuid"))
_KNOWN = (frozenset(FAMILIES) | frozenset(SYNONYMS) | {"serial", "national", "long"}) - _UNKNOWN
_NO_DEFINITION = NO_COLUMN | {"like", "vector"}
_DROPPED = (
    ("COLUMN_FORMAT", "COMPRESSED", "WITH", "COMPRESSION_DICTIONARY", "?"),
    ("COLUMN_FORMAT", "COMPRESSED"),
    ("COMPRESSED", "=", "?"),
    ("COMPRESSED",),
    ("NOWAIT",),
    ("WAIT", "#"),
    ("REF_SYSTEM_ID", "=", "#"),
    ("SRID", "#"),
    ("WITHOUT", "OVERLAPS"),
    ("WITH", "SYSTEM", "VERSIONING"),
    ("WITHOUT", "SYSTEM", "VERSIONING"),
    *((name, *equals, "?") for name in ("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE") for equals in (("=",), ())),
    ("DISTANCE", "=", "?"),
    ("M", "=", "#"),
    ("USING", "VARBINARY"),
    ("COLLATE", "=", "?"),
    ("COLLATE", "?"),
)
"""Clauses that say nothing of columns. `?`: anything, `#`: a number. COLLATE without a character set: the parsers would
look it up in a list that only a running connector has; `binary` is kept (`_BINARY`)."""


_BINARY = (("COLLATE", "BINARY"), ("COLLATE", "=", "BINARY"))
"""The collation that only the character set `binary` has, which makes another type of a column."""


@lru_cache(maxsize=4096)
def with_backticks(sql: str) -> str:
    """The statement with names in backticks, where it has them in double quotes: as a server with sql_mode ANSI_QUOTES
    writes them. Then all text in double quotes is names. What stands in a comment for other servers (`/*!50100 … */`)
    comes out of it; MariaDB's SET STATEMENT … FOR goes."""
    sql = _without_settings(_executed(sql))
    if '"' not in sql:
        return sql
    found = tokens(sql, gaps=True)
    plain = [t for t in found if t.kind != "gap"]
    if not any(_is_name(plain, at) for at in range(1, len(plain))):
        return sql
    return "".join(_backticked(t.text) if _in_double_quotes(t) else t.text for t in found)


def _executed(sql: str) -> str:
    """The statement without the marks of comments that servers execute: one that doesn't execute it writes a blank for
    the `!` into its binlog (`lex_one_token` of MySQL's and MariaDB's sql_lex.cc)."""
    if "/*!" not in sql and "/*M!" not in sql:
        return sql
    out, opened = [], 0
    for token in tokens(sql, gaps=True):
        opens = token.kind == "gap" and token.text.startswith(("/*!", "/*M!"))
        closes = token == Token("gap", "*/") and opened > 0
        opened += opens - closes
        out.append(" " if opens or closes else token.text)
    return "".join(out)


def _without_settings(sql: str) -> str:
    """The statement behind MariaDB's SET STATEMENT … FOR, which its binlog keeps (MariaDB manual, "SET STATEMENT")."""
    if "statement" not in sql.lower():
        return sql
    found = tokens(sql, gaps=True)
    plain = [i for i, t in enumerate(found) if t.kind != "gap"]
    if [found[i].text.upper() for i in plain[:2]] != ["SET", "STATEMENT"]:
        return sql
    depth = 0
    for at in plain[2:]:
        depth += (found[at] == Token("mark", "(")) - (found[at] == Token("mark", ")"))
        if depth == 0 and _is(found[at], "FOR"):
            return "".join(t.text for t in found[at + 1 :]).lstrip()
    return sql


def _in_double_quotes(token: Token) -> bool:
    return token.kind == "text" and token.text[0] == '"'


def _backticked(text: str) -> str:
    return "`" + text[1:-1].replace('""', '"').replace("`", "``") + "`"


def _is_name(plain: list[Token], at: int) -> bool:
    """Whether a token in double quotes stands where no text can."""
    if not _in_double_quotes(plain[at]):
        return False
    before = plain[at - 1]
    if before.kind == "word":
        return before.text.upper() in _BEFORE_A_NAME
    first = next((i for i, t in enumerate(plain) if t == Token("mark", "(")), None)
    opens = first == at - 1 and plain[0].text.upper() == "CREATE"
    return before == Token("mark", ".") or opens


def simplified(sql: str) -> Iterator[str]:
    """The statement in forms that leave out more and more of what says nothing of columns."""
    found = _with_operators(sql)
    if [t.text.upper() for t in found[:2]] == ["DROP", "TABLES"]:
        yield _joined([found[0], Token("word", "TABLE"), *found[2:]])
    if not found or found[0].text.upper() not in ("CREATE", "ALTER"):
        return
    create = found[0].text.upper() == "CREATE"
    plain = _without_clauses(_with_known_types(found, create) if create else _altering(found))
    yield _joined(plain)
    if create and (shorter := _columns_and_keys(plain)) is not None:
        yield _joined(shorter)


_OPERATORS = frozenset(("<=", ">=", "<>", "!=", "||", "&&", "->", "->>", "<=>", "<<", ">>"))


def _with_operators(sql: str) -> list[Token]:
    """Tokens without gaps, marks that make one operator together."""
    out: list[Token] = []
    before = None
    for token in tokens(sql, gaps=True):
        marks = before is not None and before.kind == token.kind == "mark"
        if marks and out[-1].text + token.text in _OPERATORS:
            out[-1] = Token("mark", out[-1].text + token.text)
        elif token.kind != "gap":
            out.append(token)
        before = token
    return out


def _joined(found: list[Token]) -> str:
    return " ".join(t.text for t in found)


def _is(token: Token, *words: str) -> bool:
    return token.kind == "word" and token.text.upper() in words


def _with_known_types(found: list[Token], create: bool) -> list[Token]:
    """Types that the parsers lack as ENUM of `TYPE`: of each definition in a CREATE TABLE's brackets."""
    out, at, depth, begins = [], 0, 0, False
    while at < len(found):
        token = found[at]
        if begins and depth == 1 and (token.kind == "quoted" or token.text.lower() not in _NO_DEFINITION):
            out.append(token)
            at = _copy_type(found, at + 1, out)
            begins = False
            continue
        begins = (token == Token("mark", "(") and depth == 0 and create) or (token == Token("mark", ",") and depth == 1)
        create = create and not (token == Token("mark", "(") and depth == 0)
        depth += (token == Token("mark", "(")) - (token == Token("mark", ")"))
        out.append(token)
        at += 1
    return out


def _copy_type(found: list[Token], at: int, out: list[Token]) -> int:
    """Copies the type at a place, as the parsers can read it; where it ends."""
    if at >= len(found) or found[at].kind != "word" or found[at].text.lower() in _KNOWN:
        return at
    end = at + 1
    if end < len(found) and found[end] == Token("mark", "("):
        while end < len(found) and found[end] != Token("mark", ")"):
            end += 1
        end += 1
    text = "".join(t.text for t in found[at:end]).lower()
    out.append(Token("word", f"ENUM('{TYPE}{text.replace(chr(39), chr(39) * 2)}')"))
    return end


def _altering(found: list[Token]) -> list[Token]:
    """An ALTER TABLE with such types, and without what it does to system versioning and periods."""
    out: list[Token] = []
    at = 0
    while at < len(found):
        token = found[at]
        if _is(token, "ADD", "DROP") and at + 1 < len(found) and _is(found[at + 1], "SYSTEM", "PERIOD"):
            out.append(Token("word", "FORCE"))
            at = _end_of_item(found, at)
            continue
        out.append(token)
        at += 1
        if _is(token, "RENAME") and at < len(found) and found[at] == Token("mark", "="):
            at += 1  # as good as TO
        if not _is(token, "ADD", "MODIFY", "CHANGE"):
            continue
        while at < len(found) and _is(found[at], "COLUMN", "IF", "NOT", "EXISTS"):
            out.append(found[at])
            at += 1
        names = found[at : at + (2 if _is(token, "CHANGE") else 1)]
        if names and (names[0].kind == "quoted" or names[0].text.lower() not in _NO_DEFINITION):
            out += names
            at = _copy_type(found, at + len(names), out)
    return out


def _end_of_item(found: list[Token], at: int) -> int:
    depth = 0
    while at < len(found) and not (depth == 0 and found[at] == Token("mark", ",")):
        depth += (found[at] == Token("mark", "(")) - (found[at] == Token("mark", ")"))
        at += 1
    return at


def _without_clauses(found: list[Token]) -> list[Token]:
    out: list[Token] = []
    at = 0
    while at < len(found):
        if _is(found[at], "VECTOR") and at + 1 < len(found) and _is(found[at + 1], "INDEX", "KEY"):
            at += 1
            continue
        if binary := next((c for c in _BINARY if _matches(found, at, c)), None):
            out += [Token("word", "CHARACTER"), Token("word", "SET"), found[at + len(binary) - 1]]
            at += len(binary)
            continue
        clause = next((c for c in _DROPPED if _matches(found, at, c)), None)
        kept = clause is None or (
            clause[0] == "COMPRESSED" and out and (out[-1].text == "=" or _is(out[-1], "ROW_FORMAT"))
        )
        if kept:
            out.append(found[at])
            at += 1
            continue
        at += len(clause or ())
        if at >= len(found) and out and out[-1] == Token("mark", ","):
            out.pop()  # `ALTER TABLE t ADD a INT, NOWAIT`
    return out


def _matches(found: list[Token], at: int, clause: tuple[str, ...]) -> bool:
    part = found[at : at + len(clause)]
    return len(part) == len(clause) and all(
        word == "?"
        or (word == "#" and token.kind == "number")
        or (token.kind != "quoted" and token.text.upper() == word)
        for token, word in zip(part, clause, strict=True)
    )


def _columns_and_keys(found: list[Token]) -> list[Token] | None:
    """A CREATE TABLE without its options but the character set, and of its definitions columns and unique keys. None:
    its columns come from elsewhere, too."""
    opened = next((i for i, t in enumerate(found) if t == Token("mark", "(")), None)
    if opened is None or any(_is(t, "SELECT", "LIKE") for t in found):
        return None
    items, at = [], opened + 1
    while True:
        end = _end_of_definition(found, at)
        items.append(found[at:end])
        if end >= len(found) or found[end] != Token("mark", ","):
            break
        at = end + 1
    kept = [i for i in items if i and (not _is(i[0], *_INDEXES) or any(_is(t, "PRIMARY", "UNIQUE") for t in i[:3]))]
    charset = next((found[i : i + 3] for i in range(end, len(found)) if _is(found[i], "CHARSET")), [])
    charset = charset if len(charset) == 3 and charset[1].text == "=" else []
    listed = [t for i, item in enumerate(kept) for t in ([Token("mark", ",")] if i else []) + item]
    return [*found[: opened + 1], *listed, Token("mark", ")"), *charset]


_INDEXES = (
    *("INDEX", "KEY", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK", "PERIOD"),
    *("GLOBAL", "LOCAL", "CLUSTERED"),
)


def _end_of_definition(found: list[Token], at: int) -> int:
    """Where the comma or the bracket behind it stands."""
    depth = 0
    while at < len(found):
        if depth == 0 and found[at].kind == "mark" and found[at].text in ",)":
            return at
        depth += (found[at] == Token("mark", "(")) - (found[at] == Token("mark", ")"))
        at += 1
    return at
