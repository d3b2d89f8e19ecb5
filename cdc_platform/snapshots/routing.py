"""Tables of the source that `tables.routes` keeps in one snapshot: its rows tell their origin, as part of their key."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.schema import Step
from cdc_platform.config import Source
from cdc_platform.config.tables import ORIGIN, origin_of
from cdc_platform.errors import TableStopped, UnknownType
from cdc_platform.lake import delta_table
from cdc_platform.mysql.types import MySqlType, parse_type
from cdc_platform.snapshots.batch_tables import AffectedTable, of_table
from cdc_platform.snapshots.schema.columns import columns_of
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.delta_sql import Rows
from cdc_platform.tables import Name, name_columns

Lists = dict[Name, str]
"""Column list (JSON) of each table that is merged."""
_ORIGIN_COLUMNS = [{"name": n, "type": "varchar(64)", "key": True} for n in ORIGIN]
_ROUTE = (
    "_db STRING, _schema STRING, _table STRING, _origin ARRAY<STRING>, "
    "_to STRUCT<db: STRING, schema: STRING, `table`: STRING>, _lacks ARRAY<STRING>, _keys ARRAY<STRING>"
)
_INTEGERS = ("tinyint", "smallint", "int", "bigint", "decimal(20,0)")


class Routed(NamedTuple):
    """Changes under the names of their snapshots: rows, tables, their column lists, and why some are stopped; `lacking`
    is what `routed` needs to bring other rows there, too."""

    rows: Rows
    touched: list[AffectedTable]
    told: dict[Name, str | None]
    stopped: dict[Name, str]
    lacking: Mapping[Name, list[str]] = MappingProxyType({})


def route(found: Routed, source: Source, known: Mapping[Name, Lists]) -> Routed:
    """Changes under the names of the source's tables → under those of their snapshots. `known`: per merged snapshot,
    the column lists of its tables."""
    tables = source.tables
    origins: dict[Name, list[AffectedTable]] = {}
    for t in found.touched:
        origins.setdefault(tables.routed(*t.name), []).append(t)
    told, lacking = dict(found.told), {}
    stopped = {tables.routed(*n): why for n, why in found.stopped.items()}
    touched = []
    for target, some in origins.items():
        if not tables.merged(*target):
            touched += some
            continue
        low, told_keys = min(t.low for t in some), all(t.told_keys for t in some)
        newest = max(t.newest for t in some)
        touched.append(AffectedTable(target, sum(t.changes for t in some), [], low, newest, told_keys))
        try:
            union = merged(source, target, _lists(source, target, found, some, known.get(target, {})))
            told[target] = union.columns
            lacking |= union.lacking
        except TableStopped as error:
            stopped.setdefault(target, error.reason)
    names = [t.name for some in origins.values() for t in some]
    return Routed(Rows.of(routed(found.rows.df, source, names, lacking)), touched, told, stopped, lacking)


def only_joins(spark: SparkSession, source: Source, target: Target, steps: Sequence[Step], lists: Lists) -> bool:
    """Whether all that steps do to a merged snapshot is that new tables join it whose columns it has already."""
    if not lists or not all(s.effect.before is None and s.effect.unknown is None for s in steps):
        return False
    if not delta_table.exists(target.snapshot):
        return False
    have = dict(delta_sql.read(spark, target.snapshot).dtypes)
    try:
        columns = columns_of(source, target.name, merged(source, target.name, lists).columns)
    except TableStopped:
        return False
    return all(have.get(c.name) == c.spark for c in columns)


def _lists(source: Source, target: Name, found: Routed, touched: list[AffectedTable], known: Lists) -> Lists:
    """Column lists of all tables of a snapshot: as its changes tell them, of the others as they are known."""
    lists = dict(known)
    for t in touched:
        name = t.name
        if columns := found.told.get(name):
            lists[name] = columns
        elif name not in lists and not found.rows.df.where(of_table(*name) & (F.col("op") != "truncate")).isEmpty():
            raise TableStopped(source.name, target, f"no column list is known for {'.'.join(name)}")
    return lists


# -- columns -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merged:
    """columns: JSON list of the snapshot's columns, the origin's last; lacking: per table, columns that only others
    have."""

    columns: str
    lacking: dict[Name, list[str]]


def merged(source: Source, target: Name, lists: Lists) -> Merged:
    """The column lists of all tables of one snapshot as one. Raises TableStopped where they don't go together."""
    columns: list[dict[str, Any]] = []
    key: frozenset[str] | None = None
    for origin in sorted(lists):

        def stop(why: str, origin: Name = origin) -> TableStopped:
            return TableStopped(source.name, target, f"{'.'.join(origin)}: {why}")

        own = json.loads(lists[origin])
        columns = _union(columns, own, stop)
        its_key = _key(source, target, origin, own)
        if not its_key:
            hint = f"tables.keys: {{'{'.'.join(target)}': [...]}}"
            raise stop(f"the messages tell no key; name one in cdc.yaml: {hint}")
        if key is not None and its_key != key:
            raise stop(f"its key is {sorted(its_key)}, that of the tables before it {sorted(key)}")
        key = its_key
    told = [{**c, "key": c["name"].lower() in (key or ())} for c in columns]
    lacking = {o: [c["name"] for c in told if c["name"] not in _names(lists[o])] for o in lists}
    return Merged(json.dumps([*told, *_ORIGIN_COLUMNS], ensure_ascii=False), {o: n for o, n in lacking.items() if n})


def _names(columns_json: str) -> set[str]:
    return {c["name"] for c in json.loads(columns_json)}


def _key(source: Source, target: Name, origin: Name, columns: list[dict[str, Any]]) -> frozenset[str]:
    configured = source.tables.keys.get(".".join(target)) or source.tables.keys.get(".".join(origin))
    return frozenset(n.lower() for n in configured or [c["name"] for c in columns if c["key"]])


def _union(
    have: list[dict[str, Any]], own: list[dict[str, Any]], stop: Callable[[str], TableStopped]
) -> list[dict[str, Any]]:
    """One more table's columns: a new one stands after the one that it follows there."""
    out, place = list(have), 0
    at = {c["name"].lower(): i for i, c in enumerate(out)}
    for c in own:
        name = c["name"]
        if name.lower() in ORIGIN:
            raise stop(f"column name {name!r} can't be kept: it is that of the origin")
        there = at.get(name.lower())
        if there is None:
            out.insert(place, {**c, "key": False})
            at = {c["name"].lower(): i for i, c in enumerate(out)}
            place += 1
            continue
        kept = out[there]
        if kept["name"] != name:
            raise stop(f"column {name!r} is spelled {kept['name']!r} in the tables before it")
        type_ = _wider(kept["type"], c["type"])
        if type_ is None:
            raise stop(f"column {name!r} is {c['type']}, in the tables before it {kept['type']}")
        out[there], place = {**kept, "type": type_}, there + 1
    return out


def _wider(one: str, other: str) -> str | None:
    """The type that holds all values of both as they are; None: there is none. Two that nothing can read: the first
    (the table is stopped for it)."""
    if one == other:
        return one
    try:
        a, b = parse_type(one), parse_type(other)
    except UnknownType:
        return None
    if a == b:
        return one
    if a.family == b.family == "integer":
        return one if _INTEGERS.index(a.spark) >= _INTEGERS.index(b.spark) else other
    if a.family == b.family == "decimal":
        return _wider_decimal(a, b)
    texts = {"text", "enum", "set"}
    same_kind = a.family == b.family or {a.family, b.family} <= texts
    # As with decimals that are text: a TIME shows the digits of its own column.
    return one if same_kind and a.spark == b.spark and a.time_digits == b.time_digits else None


def _wider_decimal(a: MySqlType, b: MySqlType) -> str | None:
    sizes = [(*t.args, *(10, 0)[len(t.args) :]) for t in (a, b)]
    scale = max(s for _, s in sizes)
    digits = max(p - s for p, s in sizes) + scale
    # Beyond 38 digits a decimal is text with the digits of its own scale: those of another one would be another text.
    return f"decimal({digits},{scale})" if digits <= 38 else None


# -- rows --------------------------------------------------------------------------------------------------


def routed(rows: DataFrame, source: Source, names: Sequence[Name], lacking: Mapping[Name, list[str]]) -> DataFrame:
    """Changelog rows under the names of their snapshots. Those of a merged one tell their origin in `key`, `before` and
    `after`, and `after` has NULL in the columns that only other tables have. `names`: all tables of the rows."""
    tables = source.tables
    targets = {n: tables.routed(*n) for n in names}
    told = [
        (*_parts(n), list(origin_of(n)), _parts(to), lacking.get(n, []), tables.keys.get(".".join(to)))
        for n, to in targets.items()
        if tables.merged(*to)
    ]
    if not told:
        return rows
    local = rows.sparkSession.createDataFrame(told, _ROUTE)
    on = reduce(and_, (F.col(n).eqNullSafe(F.col(f"_{n}")) for n in ("db", "schema", "table")))
    joined = rows.join(F.broadcast(local), on, "left")
    here = F.col("_to").isNotNull()
    images = {n: F.when(here, _with_origin(F.col(n))).otherwise(F.col(n)) for n in ("before", "after")}
    images["after"] = F.when(here, _filled(images["after"])).otherwise(F.col("after"))
    given = _of_images(F.col("_keys"))
    own = F.when(F.col("_keys").isNotNull() & (F.col("op") != "truncate"), given).otherwise(F.col("key"))
    key = F.when(F.col("op") == "truncate", _origin()).otherwise(_with_origin(own))
    names_now = {n: F.when(here, F.col(f"_to.{n}")).otherwise(F.col(n)) for n in ("db", "schema", "table")}
    columns = {**names_now, **images, "key": F.when(here, key).otherwise(F.col("key"))}
    return joined.select(*(columns.get(c, F.col(c)).alias(c) for c in rows.columns))


def _of_images(columns: Column) -> Column:
    """The key of the row before, of these columns (an array of names), as unify.with_keys: of a merged table's."""

    def value(name: Column) -> Column:
        return F.coalesce(*(F.try_element_at(F.col(image), name) for image in ("before", "after")))

    return F.map_from_arrays(columns, F.transform(columns, value))


def _parts(name: Name) -> tuple[str | None, ...]:
    return tuple(name_columns(name).values())


def _origin() -> Column:
    return F.create_map(F.lit(ORIGIN[0]), F.col("_origin")[0], F.lit(ORIGIN[1]), F.col("_origin")[1])


def _with_origin(image: Column) -> Column:
    """The image with its origin. A column of these names stops the table, but must not fail the others of the batch."""
    return F.map_concat(F.map_filter(image, lambda k, _: ~k.isin(*ORIGIN)), _origin())


def _filled(image: Column) -> Column:
    new = F.array_except(F.col("_lacks"), F.map_keys(image))
    nulls = F.transform(new, lambda _: F.lit(None).cast("string"))
    return F.when(F.size(F.col("_lacks")) > 0, F.map_concat(image, F.map_from_arrays(new, nulls))).otherwise(image)
