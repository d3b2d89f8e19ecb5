"""Seed file and DDL events → states of each table, with their places. On the driver."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cmp_to_key
from pathlib import Path
from typing import Any, NamedTuple

from cdc_platform.errors import ConfigError
from cdc_platform.formats.table_schemas.listed_keys import ListedKeys
from cdc_platform.formats.table_schemas.options import SchemaOptions
from cdc_platform.formats.table_schemas.places import Place, in_order
from cdc_platform.formats.table_schemas.table_changes import TableChange, create_table, read_changes
from cdc_platform.mysql import ddl
from cdc_platform.mysql.table_names import folds

States = dict[str, Any]
"""{"fold": whether names that differ by case are one table, "states": [{"db", "table", "columns", "reason", "creates",
"at"}, …]} in order; `columns`: [{"name", "type", "key"}, …] or null, with "default": true where one may be NULL and has
a default; `at`: a Place, null for the seed file's."""

PlaceOf = Callable[[dict[str, Any]], Place]
Same = Callable[[dict[str, Any]], tuple | None]


class _Seen(NamedTuple):
    """A DDL event, where it stands; `changes`: the tables after it; None: the event lists none."""

    at: Place | None
    statement: ddl.Statement
    changes: tuple[TableChange, ...] | None = None


def place_of(s: dict[str, Any]) -> Place:
    """Place of a DDL event, by its binlog position."""
    file, pos = s["file_no"], s["binlog_pos"]
    number = None if file is None or pos is None else (int(file), int(pos))
    address = s["topic"], s["partition"], s["offset"], s["entry_index"] or 0
    return Place(*address, s["lineage"] if number else None, number, s["source_time"])


def _sent_again(s: dict[str, Any]) -> tuple | None:
    """What a statement has in common with itself when it is sent once more without a position, as after a restart: read
    again, `CHANGE a b` would fail. A CREATE of a table that is there changes nothing."""
    if s["binlog_pos"] is not None or s["source_time"] is None or not s["ddl"] or ddl.creates(s["ddl"]):
        return None
    return s["topic"], s["partition"], s["db"], s["ddl"], s["source_time"], s["gtid"]


def build(
    options: SchemaOptions, events: Iterable[dict[str, Any]], *, place: PlaceOf = place_of, same: Same = _sent_again
) -> States:
    """DDL events (dicts of contract.DDL, in any order) and the seed file → States. `same`: what two events of one
    statement have in common, where a statement may come twice. Raises ConfigError where the seed file can't be read."""
    told: dict[tuple, dict[str, Any]] = {}
    for s in sorted(events, key=lambda s: (s["topic"], s["partition"], s["offset"], s["entry_index"] or 0)):
        told.setdefault(same(s) or (s["topic"], s["partition"], s["offset"], s["entry_index"]), s)
    placed = sorted(((place(s), s) for s in told.values()), key=cmp_to_key(lambda a, b: in_order(a[0], b[0])))
    seen = [one for at, s in placed for one in _seen(at, s)]
    seed = [_Seen(None, s) for s in seed_statements(options)]
    return {**_states([*seed, *seen], options.fold), "columns": getattr(options, "columns", {})}


def _seen(at: Place, s: dict[str, Any]) -> Iterator[_Seen]:
    told = dict(s["info"] or ()).get("table_changes")
    statement = ddl.Statement(s["db"], s["ddl"] or "")
    if told:
        yield _Seen(at, statement, read_changes(told))
    else:
        yield from (_Seen(at, statement._replace(sql=sql)) for sql in ddl.one_by_one(statement))


def _states(seen: list[_Seen], fold: bool | None) -> States:
    if fold is None:
        fold = folds([s.statement for s in seen], ())
    if not any(s.changes for s in seen):  # a connector of a version that never lists tables
        seen = [s._replace(changes=None) for s in seen]
    seen = list(_with_keys(seen, ListedKeys(str.lower if fold else str)))
    # What names no table by itself (a GRANT, the SET of a dump) needs no parser.
    bare = any(s.at is not None and s.changes is None and ddl.named_tables(s.statement) for s in seen)
    found = list(_parsed(seen, fold) if bare else _listed(seen, fold))
    return {"fold": fold, "states": found}


def _with_keys(seen: Iterable[_Seen], keys: ListedKeys) -> Iterator[_Seen]:
    for s in seen:
        if s.changes is not None:
            yield s._replace(changes=tuple(keys.of(s.statement, s.changes)))
        else:
            yield s._replace(changes=tuple(keys.after(s.statement)) or None)


def _listed(seen: Sequence[_Seen], fold: bool) -> Iterator[dict[str, Any]]:
    """States where every event lists its tables: no parser is asked, but for the seed file."""
    yield from _parsed([s for s in seen if s.at is None], fold)
    for s in seen:
        for change in s.changes or ():
            if change.before is not None and change.before != (change.db, change.table):
                yield _gone(*change.before, s.at)
            yield {
                "db": change.db.lower() if fold else change.db,
                "table": change.table.lower() if fold else change.table,
                "columns": None if change.columns is None else list(change.columns),
                "reason": "the table was dropped" if change.columns is None else None,
                "creates": change.creates,
                "at": s.at,
            }


def _gone(db: str, table: str, at: Place | None) -> dict[str, Any]:
    reason = "the table was renamed"
    return {"db": db, "table": table, "columns": None, "reason": reason, "creates": False, "at": at}


def _parsed(seen: Sequence[_Seen], fold: bool) -> Iterator[dict[str, Any]]:
    """States by Debezium's parsers; tables that an event lists are made anew for them."""
    texts: list[_Seen] = []
    for s in seen:
        if s.changes is None:
            texts.append(s)
        for change in s.changes or ():
            names = [*filter(None, [change.before]), (change.db, change.table)]
            made = [ddl.Statement(db, f"DROP TABLE {ddl.quoted_name(table)}") for db, table in names]
            if change.columns is not None:
                made.append(
                    ddl.Statement(change.db, create_table(change.table, change.columns, primary=change.primary))
                )
            texts += [s._replace(statement=statement) for statement in made]
    for c in ddl.history(tuple(s.statement for s in texts), fold):
        s = texts[c.at]
        if c.columns is None and s.changes:
            continue  # it is made again
        yield {
            "db": c.db,
            "table": c.table,
            "columns": c.columns and [_column(k) for k in c.columns],
            "reason": c.reason,
            "creates": s.statement.sql.lstrip()[:6].upper() == "CREATE",
            "at": s.at,
        }


def _column(column: ddl.Column) -> dict[str, Any]:
    told = {"name": column.name, "type": column.type, "key": column.key}
    return {**told, "default": True} if column.nullable and column.default is not None else told


def seed_statements(options: SchemaOptions) -> list[ddl.Statement]:
    """Statements of the option `schema_file`, each with its database. Raises ConfigError where it can't be read."""
    if not options.schema_file:
        return []
    try:
        script = Path(options.schema_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = f"can't be read ({error.strerror if isinstance(error, OSError) else 'no UTF-8'})"
        wanted = ["a script of CREATE TABLE statements"]
        raise ConfigError("options.schema_file", f"{options.schema_file!r} {why}", wanted) from None
    db, found = None, []
    for sql in ddl.split_statements(script):
        used = ddl.used_database(sql)
        if used is not None:
            db = used
        else:
            found.append(ddl.Statement(db, sql))
    return found
