"""What cdc.yaml says that the lake shows to be without effect, or to have changed in meaning: warnings, not errors.

Without Spark and Kafka; `validate`, `run` and `status` tell them.
"""

import fnmatch
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import pairwise, zip_longest
from typing import Any

from cdc_platform import tables
from cdc_platform.changes import in_force
from cdc_platform.config import Config, Source
from cdc_platform.config.shadow import Shadow
from cdc_platform.config.storage import kind
from cdc_platform.lake import queries, stores
from cdc_platform.suggest import closest
from cdc_platform.tables import name_of

_PATTERNS = ("include", "exclude", "key_collation", "ddl", "owners", "tags", "descriptions")
_ALL = {"*", "*.*"}
_FEW = 3


def warnings(config: Config, *, thorough: bool = False) -> list[str]:
    """All of it, in words, the place in cdc.yaml first. thorough: also what needs a look at all decoded changes."""
    unused = config.storage.model_fields_set and kind(config.lake) == "folder"
    found = ["storage: has no effect: the lake is a folder"] if unused else []
    for i, source in enumerate(config.sources):
        found += [f"sources[{i}].{text}" for text in (*_unmatched(config, source, thorough), *_options(config, source))]
    found += [f"shadow[{i}].{text}" for i, pair in enumerate(config.shadow) for text in _unmatched_pair(config, pair)]
    found += [f"bridges[{i}].filter: {text}" for i, b in enumerate(config.bridges) for text in _regexes(b.filter)]
    return found


def of_source(config: Config, source: Source) -> list[str]:
    """Those about the options of one source: part of its state."""
    return list(_options(config, source))


# -- patterns -----------------------------------------------------------------------------------------------------


def _unmatched(config: Config, source: Source, thorough: bool) -> Iterator[str]:
    """Patterns and names of `tables` that fit nothing of what has been seen of the source."""
    rules, kept = source.tables, _kept(config, source)
    every = _decoded(config, source) if thorough else None
    if not kept and not every:
        return
    for field in _PATTERNS:
        if field == "exclude" and every is None:
            continue  # the tables it leaves out aren't among those kept
        seen = (every or kept) if field in ("include", "exclude") else kept
        for pattern in getattr(rules, field):
            if pattern not in _ALL and not any(fnmatch.fnmatchcase(name, pattern) for name in seen):
                yield f"tables.{field}: {pattern!r} matched none of the tables seen{_near(pattern, seen)}"
    for name in rules.keys:
        if name not in kept:
            yield f"tables.keys: no table {name!r} has been seen{_near(name, kept)}"
    for pattern in rules.routes:
        if not any(re.fullmatch(pattern, name) for name in every or kept):
            yield f"tables.routes: {pattern!r} matched none of the tables seen{_near(pattern, every or kept)}"


def _unmatched_pair(config: Config, pair: Shadow) -> Iterator[str]:
    """Patterns of a pair that fit none of the tables of `of`."""
    kept = _kept(config, config.source(pair.of))
    for pattern in pair.tables if kept else ():
        if pattern not in _ALL and not any(fnmatch.fnmatchcase(name, pattern) for name in kept):
            yield f"tables: {pattern!r} matched none of the tables seen{_near(pattern, kept)}"


def _kept(config: Config, source: Source) -> set[str]:
    """db.table of the tables that are followed, by the names that the source and that snapshots have."""
    stated = queries.stated_tables(config, source)
    states = [name_of(s) for s in queries.table_states(config) if s["source"] == source.name]
    return {".".join(name) for name in (*stated, *states)}


def _decoded(config: Config, source: Source) -> set[str]:
    """db.table of all tables in the decoded changes, also of those that the rules leave out."""
    path = tables.CHANGES.at(stores.lake(config), format=source.format, source=source.name)
    found = queries.query(
        'SELECT DISTINCT db, schema, "table" FROM t WHERE db IS NOT NULL AND "table" IS NOT NULL AND kind = \'row\'',
        t=path,
    )
    return {".".join(name_of(row)) for row in found or []}


def _near(given: str, seen: Iterable[str]) -> str:
    return f"; seen: {', '.join(closest(given, sorted(seen), shown=_FEW))}"


def _regexes(filters: str) -> Iterator[str]:
    """Parts of a canal filter that look like no regular expressions."""
    for part in filter(None, filters.split(",")):
        try:
            re.compile(part)
        except re.error as error:
            yield f"{part!r} may be no regular expression: {error.msg} at character {error.pos}"


# -- options ------------------------------------------------------------------------------------------------------


def _options(config: Config, source: Source) -> Iterator[str]:
    """Options that aren't those that the messages decoded so far were decoded with."""
    noted = _noted(config, source)
    if not noted:
        return
    now = in_force.values(source)
    if noted[-1]["digest"] != in_force.digest(now):
        for name, old, new in _differences(noted[-1]["options"], now):
            changed = f"options.{name} was {_shown(old)} and is {_shown(new)} for messages decoded from now on"
            yield f"{changed}; {_what_to_do(source, name)}"
    for before, after in pairwise(noted):
        where = ", ".join(f"{place} from offset {first}" for place, first in sorted(after["offsets"].items()))
        for name, old, new in _differences(before["options"], after["options"]):
            yield (
                f"options.{name} was {_shown(old)} until {after['at']:%Y-%m-%d %H:%M:%SZ} and is {_shown(new)} since "
                f"({where}); {_what_to_do(source, name)}"
            )


def _what_to_do(source: Source, option: str) -> str:
    known = "rows whose types weren't known get them by the next run, others"
    return (
        f"{known if option in in_force.OF_TYPES else 'rows'} decoded before keep the old meaning: "
        f"`cdc-platform replay {shlex.quote(source.name)}` shows what would differ, --swap puts it in place "
        "(docs/configuration.md, Changing a decoding option)"
    )


def _noted(config: Config, source: Source) -> list[dict[str, Any]]:
    """The options noted in the lake that messages were decoded with, the oldest first."""
    found = queries.query(
        "SELECT number, options, digest, offsets, at FROM t "
        f"WHERE source = {queries.text(source.name)} ORDER BY number",
        t=tables.DECODED_WITH.at(stores.lake(config)),
    )
    rows = [{**r, "options": json.loads(r["options"]), "offsets": dict(r["offsets"] or ())} for r in found or []]
    used: list[dict[str, Any]] = []
    for row, after in zip_longest(rows, rows[1:]):
        if after is not None and after["offsets"] == row["offsets"]:
            continue  # nothing was decoded before they changed again
        if used and used[-1]["digest"] == row["digest"]:
            continue
        used.append(row)
    return used


def _differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Options whose value changed. One that only one side knows came or went with a version of the platform."""
    for name in old.keys() & new.keys():
        if old[name] != new[name]:
            yield name, old[name], new[name]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LONGEST = 80
