"""Which columns of a table are compared, and as what."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cdc_platform.errors import UnknownType
from cdc_platform.lake.comparisons import NOT_CARRIED
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.reconcile.texts import NOT_COMPARED, TEXTS, Text


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column as the source (or an export) has it. virtual: computed on reading; feeds may leave it out."""

    name: str
    type_text: str
    key: bool
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """A column on both sides: its name at the source, its name and Spark type in the snapshot."""

    name: str
    snapshot: str
    spark: str
    type: MySqlType
    key: bool

    @property
    def text(self) -> Text:
        return TEXTS[self.type.family]


@dataclass(frozen=True, slots=True)
class Pairing:
    """pairs: what is compared. problems: columns that one side lacks. not_compared: column → why."""

    pairs: tuple[Pair, ...]
    problems: tuple[str, ...]
    not_compared: dict[str, str]

    @property
    def keys(self) -> tuple[Pair, ...]:
        """Columns that name a row: the key's, else all (rows are then counted, not told apart)."""
        return tuple(p for p in self.pairs if p.key) or self.pairs

    @property
    def keyed(self) -> bool:
        """Whether there is a key."""
        return any(p.key for p in self.pairs)


def pair(source: Iterable[SourceColumn], snapshot: Mapping[str, str]) -> Pairing:
    """Columns of the source against the snapshot's (name → Spark type). Names are compared as MySQL does, without
    regard to case. Bookkeeping columns (`_cdc_…`) are the platform's own."""
    there = {n.lower(): n for n in snapshot if not n.lower().startswith("_cdc_")}
    pairs: list[Pair] = []
    problems: list[str] = []
    skipped: dict[str, str] = {}
    for column in source:
        own = there.pop(column.name.lower(), None)
        if own is None:
            if column.virtual:
                skipped[column.name] = NOT_CARRIED
            else:
                problems.append(f"column {column.name!r} is not in the snapshot")
            continue
        found = _type(column.type_text)
        if isinstance(found, MySqlType):
            pairs.append(Pair(column.name, own, snapshot[own], found, column.key))
        elif column.key:
            problems.append(f"key column {column.name!r} can't be compared: {found}")
        else:
            skipped[column.name] = found
    problems += [f"column {name!r} is not at the source" for name in there.values()]
    if not pairs:
        problems.append("no column can be compared")
    return Pairing(tuple(pairs), tuple(problems), skipped)


def _type(text: str) -> MySqlType | str:
    """A parsed type, or why its values can't be compared."""
    try:
        found = parse_type(text)
    except UnknownType as error:
        return str(error)
    return NOT_COMPARED.get(found.family) or found
