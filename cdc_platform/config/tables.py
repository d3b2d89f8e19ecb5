"""`tables:` of a source: which tables are followed, with which key, under which name, and whose they are."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field, field_validator

from cdc_platform.config.dagster import Owner, Tags
from cdc_platform.config.model import Model
from cdc_platform.tables.names import Name, as_name

T = TypeVar("T")

ORIGIN = ("_cdc_db", "_cdc_table")
"""Columns of a snapshot that `tables.routes` merges: the table that a row comes from. They are part of its key. The
first one has the database, with a dot and the schema where the source has one."""


def origin_of(name: Name) -> tuple[str, str]:
    """A source table's name as the origin columns tell it."""
    return ".".join(name[:-1]), name[-1]


Collation = Literal[
    "UTF8_LCASE", "UNICODE_CI", "UNICODE_CI_AI", "UTF8_LCASE_RTRIM", "UNICODE_CI_RTRIM", "UNICODE_CI_AI_RTRIM"
]


def check_patterns(patterns: Iterable[str]) -> None:
    """Raises ValueError where a pattern can match no `db.table`."""
    never = [p for p in patterns if p.endswith(".") or not set(p) & set(".*?[")]
    if never:
        raise ValueError(
            f"{', '.join(map(repr, never))} can match no table; valid: patterns of db.table, such as "
            + ", ".join(repr(f"{p.rstrip('.') or 'db'}.*") for p in never)
        )


def check_names(names: Iterable[str]) -> None:
    """Raises ValueError where a name is no `db.table`."""
    if wrong := [n for n in names if not all(n.partition("."))]:
        raise ValueError(f"{', '.join(map(repr, wrong))}: no table's name; valid: db.table")


def _fitting(by_pattern: Mapping[str, T], name: str) -> Iterator[T]:
    return (value for p, value in by_pattern.items() if fnmatch.fnmatchcase(name, p))


def _first(by_pattern: Mapping[str, T], name: str) -> T | None:
    return next(_fitting(by_pattern, name), None)


def _any_fits(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


class Tables(Model):
    """Which tables of a source become snapshots. Patterns are `db.table` (`db.schema.table` where the
    source has schemas) with `*` and `?`; they are case-sensitive."""

    include: list[str] = Field(
        default=["*"],
        description="Patterns of db.table that are followed; changes of other tables are counted as filtered.",
        examples=[["shop.*", "crm.accounts"]],
    )
    exclude: list[str] = Field(
        default=[],
        description="Patterns of db.table that aren't followed, stronger than `include`.",
        examples=[["*.tmp_*"]],
    )
    keys: dict[str, list[str]] = Field(
        default={},
        description="Key columns per db.table (a name, no pattern), where the messages name none or the wrong ones.",
        examples=[{"shop.audit": ["id"]}],
    )
    key_collation: dict[str, Collation] = Field(
        default={},
        description="Per pattern of db.table, how text keys compare where equal keys may come in other spelling: "
        "UTF8_LCASE (lower case), UNICODE_CI (case), UNICODE_CI_AI (case and accents), each also with _RTRIM (trailing "
        "spaces, too). Default: by their bytes. The first pattern that fits decides.",
        examples=[{"shop.users": "UNICODE_CI"}],
    )
    ddl: dict[str, Literal["evolve", "add_only", "stop"]] = Field(
        default={},
        description="Per pattern of db.table, what a DDL statement may do to a snapshot: evolve (all; the default), "
        "add_only (new columns, other statements stop the table), stop (any change of its columns stops it, and one of "
        "its rows that no message describes). The first pattern that fits decides.",
        examples=[{"shop.audit": "stop"}],
    )
    readers: dict[str, Literal["any", "fast"]] = Field(
        default={},
        description="Per pattern of db.table, for whom a snapshot is kept: fast (the default) enables Delta's column "
        "mapping with the first renamed or dropped column, and deletion vectors when rows of more than 256 KB change; "
        "any enables neither, so that every Delta reader can open it, and rewrites data instead. The first pattern "
        "that fits decides.",
        examples=[{"shop.mart_*": "any"}],
    )
    history: list[str] = Field(
        default=[],
        description="Patterns of db.table of which all versions of rows are kept, in history/…: what a row said, from "
        "when to when. Not of tables that `routes` merge.",
        examples=[["shop.orders"]],
    )
    typed_changes: list[str] = Field(
        default=[],
        description="Patterns of db.table of which all changes are kept with typed rows before and after, in "
        "typed_changes/…. Not of tables that `routes` merge.",
        examples=[["shop.orders"]],
    )
    routes: dict[str, str] = Field(
        default={},
        description="Python regular expression of a whole db.table: the db.table whose snapshot its rows go to. The "
        "first one that fits decides.",
        examples=[{r"shop_[0-9]+\.orders": "shop.orders"}],
    )
    owners: dict[str, list[Owner]] = Field(
        default={},
        description="Per pattern of db.table, Dagster owners of its snapshot: e-mail addresses or team:NAME. The first "
        "pattern that fits decides; default: the source's `owners`.",
        examples=[{"shop.payments": ["team:finance", "ann@example.com"]}],
    )
    tags: dict[str, Tags] = Field(
        default={},
        description="Per pattern of db.table, Dagster tags of its snapshot, beside the source's `tags`. Those of all "
        "patterns that fit are put together; of two with the same key the first pattern's counts.",
        examples=[{"shop.users": {"pii": "true"}}],
    )
    descriptions: dict[str, str] = Field(
        default={},
        description="Per pattern of db.table, a text (Markdown) that describes its snapshot in Dagster. The first "
        "pattern that fits decides.",
        examples=[{"shop.orders": "One row per order, also cancelled ones."}],
    )

    @field_validator(
        "include", "exclude", "history", "typed_changes", "key_collation", "ddl", "owners", "tags", "descriptions"
    )
    @classmethod
    def _patterns_can_match(cls, value: Any) -> Any:
        check_patterns(value)
        return value

    @field_validator("keys")
    @classmethod
    def _keys_of_tables(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        check_names(value)
        if empty := [name for name, columns in value.items() if not columns]:
            raise ValueError(f"{empty[0]!r} has no columns; leave it out where the messages' key is right")
        return value

    @field_validator("routes")
    @classmethod
    def _routes_make_sense(cls, value: dict[str, str]) -> dict[str, str]:
        for pattern, target in value.items():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"{pattern!r} is no regular expression: {error.msg} at character {error.pos}"
                ) from None
            if not all(target.partition(".")):
                raise ValueError(f"{pattern!r}: {target!r} is no db.table")
        for target in value.values():
            further = next((t for p, t in value.items() if re.fullmatch(p, target)), target)
            if further != target:
                raise ValueError(f"the target {target!r} is itself routed, to {further!r}; name that one instead")
        return value

    def routed(self, *name: str) -> Name:
        """The snapshot that keeps the rows of a source table: its own, unless a route says another. A target of a table
        in a schema is db.schema.table, or db.table."""
        own, text = as_name(*name), ".".join(name)
        if not self.routes or text in self.routes.values():
            return own
        target = next((t for p, t in self.routes.items() if re.fullmatch(p, text)), None)
        if target is None:
            return own
        return as_name(*target.split(".", len(name) - 1))

    def merged(self, *name: str) -> bool:
        """Whether a snapshot of this name is a target of routes: its rows tell their origin."""
        return ".".join(name) in self.routes.values()

    def named_databases(self) -> set[str]:
        """Databases that patterns of `include` name in letters, without wildcards."""
        parts = (pattern.partition(".") for pattern in self.include)
        return {db for db, dot, _ in parts if dot and not set(db) & set("*?[")}

    def kept(self, *name: str) -> bool:
        """Whether there is to be a snapshot of this name."""
        return self.merged(*name) or (self.wanted(*name) and self.routed(*name) == name)

    def key_columns(self, *name: str) -> list[str] | None:
        """Key columns that the configuration gives a snapshot; None: those that the messages tell."""
        keys = self.keys.get(".".join(name))
        return [*keys, *ORIGIN] if keys and self.merged(*name) else keys

    def wanted(self, *name: str) -> bool:
        """Whether changes of this table are applied; others are counted as filtered."""
        return self.wanted_name(".".join(name))

    def wanted_name(self, name: str, *, any_case: bool = False) -> bool:
        """The same of a `db.table`. any_case: of what a statement may call a table (`lower_case_table_names`)."""
        patterns = [[p.lower() for p in ps] if any_case else ps for ps in (self.include, self.exclude)]
        kept, left_out = (_any_fits(ps, name.lower() if any_case else name) for ps in patterns)
        return kept and not left_out

    def ddl_policy(self, *name: str) -> str:
        """What DDL may do to this table's snapshot: the first pattern that fits decides."""
        return _first(self.ddl, ".".join(name)) or "evolve"

    def for_any_reader(self, *name: str) -> bool:
        """Whether this table's snapshot does without column mapping and deletion vectors: the first pattern that fits
        decides."""
        return _first(self.readers, ".".join(name)) == "any"

    def has_history(self, *name: str) -> bool:
        """Whether versions of this table's rows are kept."""
        return _any_fits(self.history, ".".join(name)) and not self.merged(*name)

    def has_typed_changes(self, *name: str) -> bool:
        """Whether this table's changes are kept in its columns."""
        return _any_fits(self.typed_changes, ".".join(name)) and not self.merged(*name)

    def collation(self, *name: str) -> str | None:
        """Spark collation of this table's text keys: the first pattern that fits decides."""
        return _first(self.key_collation, ".".join(name))

    def owners_of(self, *name: str) -> list[str] | None:
        """Dagster owners that the configuration gives a snapshot; None: those of its source."""
        return _first(self.owners, ".".join(name))

    def tags_of(self, *name: str) -> dict[str, str]:
        """Dagster tags that the configuration gives a snapshot, without those of its source."""
        fitting = list(_fitting(self.tags, ".".join(name)))
        return {key: value for tags in reversed(fitting) for key, value in tags.items()}

    def description_of(self, *name: str) -> str | None:
        """The text that describes a snapshot; None: the configuration has none."""
        return _first(self.descriptions, ".".join(name))
