"""An ALTER TABLE as Debezium's parsers can do it, one clause after the other, where a server looks at all at once.

IF [NOT] EXISTS (MariaDB): a clause about a column that is there, or isn't, does nothing, and the statement is in the
binlog all the same (`mysql_alter_table`: "ALTER can become NOOP"). The parsers read an ADD that does nothing as one
that changes the column, and the others not at all.

Names that one column gives away and another gets (MySQL manual, "ALTER TABLE": "RENAME COLUMN … can swap names")."""

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from cdc_platform.mysql.ddl import plain_name, targets
from cdc_platform.mysql.tokens import NO_COLUMN, Token, tokens

_CLAUSES = {
    "ADD": ("IF", "NOT", "EXISTS"),
    "MODIFY": ("IF", "EXISTS"),
    "CHANGE": ("IF", "EXISTS"),
    "RENAME": ("IF", "EXISTS"),
}
_KEY_ASKED = ["PRIMARY", "KEY", "IF", "NOT", "EXISTS"]
_NOTHING = "FORCE"
"""A clause that changes neither columns nor rows."""


def without_idle(sql: str, columns: Collection[str], *, keyed: bool) -> str:
    """The ALTER TABLE with the clauses that do something, without their IF [NOT] EXISTS. `columns`: the table's, before
    the statement, in lower case: the server looks no further (`handle_if_exists_options`). `keyed`: whether it has a
    PRIMARY KEY then."""
    found = tokens(sql, gaps=True)
    plain = [i for i, t in enumerate(found) if t.kind != "gap"]
    if not plain or found[plain[0]].text.upper() != "ALTER":
        return sql
    texts = [t.text for t in found]
    came: set[str] = set()
    for clause in _clauses(found, plain):
        words = [found[i].text.upper() if found[i].kind == "word" else "" for i in clause]
        for at, verb in enumerate(words):
            if (said := _CLAUSES.get(verb)) is None:
                continue
            if (key := _key_asked(words, at)) is not None:
                _decide(texts, clause, at, (key + 2, key + 4), does_nothing=keyed)
                break
            asks = at + (2 if words[at + 1 : at + 2] == ["COLUMN"] else 1)
            behind = asks + len(said)
            if tuple(words[asks:behind]) != said or behind >= len(clause):
                break
            name = found[clause[behind]]
            if name.kind != "quoted" and name.text.lower() in NO_COLUMN:
                break
            column = plain_name(name.text).lower()
            there = column in columns or (verb == "ADD" and column in came)
            came |= {column} if verb == "ADD" else set()
            _decide(texts, clause, at, (asks, behind - 1), does_nothing=there is (verb == "ADD"))
            break
    return "".join(texts)


def _key_asked(words: list[str], at: int) -> int | None:
    """Where, in an ADD at `at` (perhaps of a CONSTRAINT with a name), a PRIMARY KEY IF NOT EXISTS stands."""
    if words[at] != "ADD":
        return None
    return next((i for i in range(at + 1, min(at + 4, len(words))) if words[i : i + 5] == _KEY_ASKED), None)


def _decide(texts: list[str], clause: list[int], at: int, asks: tuple[int, int], *, does_nothing: bool) -> None:
    """A clause from its verb, at `at`, on: away if it does nothing, else its IF [NOT] EXISTS from `asks` to `asks`."""
    if does_nothing:
        texts[clause[at]] = _NOTHING
        _blank(texts, clause[at] + 1, clause[-1])
    else:
        _blank(texts, clause[asks[0]], clause[asks[1]])


def _blank(texts: list[str], first: int, last: int) -> None:
    texts[first : last + 1] = [" "] * (last + 1 - first)


def _clauses(found: list[Token], plain: list[int]) -> Iterator[list[int]]:
    """Places of the tokens of each clause; the first begins with ALTER TABLE and the table's name."""
    depth, part = 0, []
    for at in plain:
        token = found[at]
        depth += (token == Token("mark", "(")) - (token == Token("mark", ")"))
        if depth == 0 and token.kind == "mark" and token.text in ",;":
            yield part
            part = []
        else:
            part.append(at)
    yield part


_MEANWHILE = "`__cdc_renamed_{}`"


class _Clause(NamedTuple):
    """A clause from its verb on. kind: one of `_ORDER`. gives, takes: the name that it frees, and the one that a column
    gets by it, in lower case (empty: none); place: where the latter stands in `tokens`."""

    kind: str
    tokens: list[Token]
    gives: str = ""
    takes: str = ""
    place: int = 0

    @property
    def words(self) -> list[str]:
        return [t.text.upper() if t.kind == "word" else "" for t in self.tokens]


_ORDER = ("key", "drop", "change", "renamed", "add", "other")
"""Kinds of clauses, as they can be done one after the other."""


def untangled(sql: str) -> str | None:
    """The ALTER TABLE, or one that does the same clause by clause. Columns that it drops or renames are those from
    before the statement, also where another one takes the name earlier in it (`mysql_prepare_alter_table`): drops come
    first then, renamed columns have names of their own until all are free, new columns come behind them. None: it also
    says where a column stands in a way that this would change, or that is told by such a name."""
    if "," not in sql or not (of_table := list(targets(sql))) or tokens(sql)[0].text.upper() != "ALTER":
        return sql
    behind = of_table[0][1]
    found = [_clause(c) for c in _parts(tokens(sql[behind:], gaps=True))]
    if not any(_too_early(c, found[i + 1 :], found) for i, c in enumerate(found)):
        return sql
    given = {c.gives for c in found if c.gives}
    taken = given | {c.takes for c in found if c.kind == "change"}
    if not _places_stay(found, taken) or any(_of_default(c) in given for c in found):
        return None
    then: list[_Clause] = []
    for i, c in enumerate(found):
        if c.kind == "change" and c.takes:
            name = Token("quoted", _MEANWHILE.format(len(then)))
            back = tokens(f"RENAME COLUMN {name.text} TO {c.tokens[c.place].text}", gaps=True)
            then.append(_Clause("renamed", back))
            found[i] = c._replace(tokens=[*c.tokens[: c.place], name, *c.tokens[c.place + 1 :]])
    ordered = sorted([*found, *then], key=lambda c: _ORDER.index(c.kind))
    return f"{sql[:behind]} " + ", ".join("".join(t.text for t in c.tokens) for c in ordered)


def _too_early(clause: _Clause, later: list[_Clause], found: list[_Clause]) -> bool:
    """Whether it takes a name that isn't free until later, or may be of a key that has such a name."""
    given = {c.gives for c in later}
    key = clause.kind == "other" and clause.words[0] == "ADD"
    return bool(given & ({c.takes for c in found} if key else {clause.takes}) - {""})


def _parts(found: list[Token]) -> Iterator[list[Token]]:
    """The tokens of each clause, with the gaps within it."""
    plain = [i for i, t in enumerate(found) if t.kind != "gap"]
    for part in _clauses(found, plain):
        waits = (
            {"WAIT": 2, "NOWAIT": 1}.get(found[part[0]].text.upper(), 0) if part else 0
        )  # MariaDB's, before the first
        if len(part) > waits:
            yield found[part[waits] : part[-1] + 1]


def _clause(found: list[Token]) -> _Clause:
    plain = [i for i, t in enumerate(found) if t.kind != "gap"]
    words = [found[i].text.upper() if found[i].kind == "word" else "" for i in plain]
    verb = words[0]
    at = 2 if words[1:2] == ["COLUMN"] else 1
    at += next((len(asks) for asks in _ASKS if words[at : at + len(asks)] == asks), 0)
    new = at + {"CHANGE": 1, "RENAME": 2}.get(verb, 0)  # CHANGE a b …, RENAME COLUMN a TO b
    of_column = verb in _VERBS and new < len(plain) and found[plain[at]].kind in ("word", "quoted")
    if not of_column or words[at].lower() in NO_COLUMN or (verb == "RENAME" and words[1] != "COLUMN"):
        return _Clause("key" if words[:2] == ["DROP", "PRIMARY"] else "other", found)
    gives, takes = (plain_name(found[plain[i]].text).lower() for i in (at, new))
    if verb in ("CHANGE", "RENAME") and gives != takes:
        return _Clause("change", found, gives, takes, plain[new])
    return {
        "DROP": _Clause("drop", found, gives=gives),
        "ADD": _Clause("add", found, takes=takes),
    }.get(verb, _Clause("change", found))


_VERBS = ("DROP", "ADD", "CHANGE", "RENAME", "MODIFY")
_ASKS = (["IF", "NOT", "EXISTS"], ["IF", "EXISTS"])


def _places_stay(found: list[_Clause], names: Collection[str]) -> bool:
    """Whether columns come to stand where the statement says, also if all that change come before all that are new."""
    placed = [c for c in found if not {"FIRST", "AFTER"}.isdisjoint(c.words)]
    if any(c.kind != "add" for c in placed):
        return not any(c.kind == "add" or "AFTER" in c.words for c in placed)
    plain = [[t for t in c.tokens if t.kind != "gap"] for c in placed]
    pairs = [pair for p in plain for pair in pairwise(p)]
    return not any(a.text.upper() == "AFTER" and plain_name(b.text).lower() in names for a, b in pairs)


def _of_default(clause: _Clause) -> str:
    """The column of an ALTER [COLUMN] … SET or DROP DEFAULT."""
    plain = [t for t in clause.tokens if t.kind != "gap"]
    if plain[0].text.upper() != "ALTER":
        return ""
    at = 2 if plain[1].text.upper() == "COLUMN" else 1
    return plain_name(plain[at].text).lower() if at < len(plain) else ""
