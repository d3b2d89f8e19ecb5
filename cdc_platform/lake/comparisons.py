"""The table RECONCILIATIONS read: what comparisons with the source say of the snapshots. Without Spark.

A comparison is of the table that was compared, whatever that is called since: another one that has its name now wasn't
compared by it. Where the table's snapshot was made anew since, that it was equal proves nothing of the rows that are
there now; what was lost before it stays mended, as no row of that was missing, also where later ones leave columns out.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.lake import queries, stores
from cdc_platform.lake.renames import Statements
from cdc_platform.tables import Name, name_of

NOT_CARRIED = "a virtual generated column; the feed doesn't carry it"
"""Why a column isn't compared that the snapshot hasn't: nothing of it can be wrong there."""
NO_SUCH_TABLE = "the source has no such table, or its account may not read it"
"""A problem that says nothing of the rows: where it is all there is, and a statement then renamed the table, it was of
the name."""
LOAD = "load"
"""`against` of a table that was read whole from the source: no comparison."""
_NEVER = datetime.min.replace(tzinfo=UTC)


def comparisons(config: Config, source: Source) -> dict[Name, list[dict[str, Any]]]:
    """Snapshot → the newest row of RECONCILIATIONS of each source table that it holds, with the table's name of today
    as a text in `table`. as_of: the time of the source's rows (None: nobody said); mended: what was lost before then is
    known not to be missing (None: nothing is), for the whole table was equal then, or was loaded then, and what can be
    compared is equal now; mended_lost: offsets that were lost by then; falls_short: why it proves nothing though it is
    equal, as clauses."""
    if not (rows := _rows(config, source)):
        return {}
    built, statements = rebuilds(config, source), Statements.of(config, source)
    of_tables: dict[Name, list[dict[str, Any]]] = {}
    loads: dict[Name, tuple[datetime, int]] = {}
    for row in rows:
        name = name_of(row)
        as_it_is = row["rebuild"] == built.get(source.tables.routed(*name), 0)
        if (today := name if as_it_is else statements.today(name, row["at"])) is None:
            continue
        if today != name and row["problems"] == [NO_SUCH_TABLE]:
            continue
        if row["against"] == LOAD:
            loads[today] = max(loads.get(today, (_NEVER, 0)), (row["at"], row["lost"]))
        else:
            row["table"] = ".".join(today)
            since = () if not row["equal"] else _since(row, as_it_is, statements.reserve(today, row["at"]))
            lacking = [*_lacking(row)] if row["equal"] else []
            row |= {"falls_short": [*since, *lacking], "whole": row["equal"] and not lacking}
            of_tables.setdefault(today, []).append(row)
    found: dict[Name, list[dict[str, Any]]] = {}
    for name, of in of_tables.items():
        newest = max(of, key=_time)
        then = [(row["as_of"], row["lost"]) for row in of if row["whole"]]
        if not newest.pop("whole") and name in loads:
            then.append(loads[name])
        none = not newest["equal"] or not then
        newest["mended"], newest["mended_lost"] = (None, 0) if none else max(then, key=lambda at: at[0])
        found.setdefault(source.tables.routed(*name), []).append(newest)
    return found


def rebuilds(config: Config, source: Source) -> dict[Name, int]:
    """Snapshot → how often it was made anew."""
    path = tables.TABLE_STATE.at(stores.lake(config))
    rows = queries.query(
        f'SELECT db, {queries.schema_of(path)}, "table", max(rebuild) AS rebuild FROM t '
        f"WHERE source = {queries.text(source.name)} GROUP BY 1, 2, 3",
        t=path,
    )
    return {name_of(r): int(r["rebuild"] or 0) for r in rows or []}


def _rows(config: Config, source: Source) -> list[dict[str, Any]]:
    """Of each name, and each time that its snapshot was made anew, the newest one that is equal, whole and falling
    short by itself, and the newest that isn't."""
    path = tables.RECONCILIATIONS.at(stores.lake(config))
    there = queries.columns(path) or ()  # an earlier version's table
    made_at = "made_at" if "made_at" in there else "CAST(NULL AS TIMESTAMP)"
    rebuild = "coalesce(rebuild, 0)" if "rebuild" in there else "0"
    as_of = f"CASE WHEN against = 'server' THEN at ELSE {made_at} END"
    newest = f"coalesce({as_of}, CASE WHEN NOT equal THEN at END) DESC NULLS LAST, at DESC"  # as _time
    of = f"FROM t WHERE source = {queries.text(source.name)}"
    short = "falls_short IS NOT NULL" if "falls_short" in there else "false"
    some = f"cardinality(array_remove_all(map_values(not_compared), {queries.text(NOT_CARRIED)})) > 0 OR {short}"
    rows = queries.query(
        f"SELECT *, {as_of} AS as_of, {rebuild} AS of_rebuild FROM (SELECT *, row_number() OVER "
        f"(PARTITION BY db, schema, \"table\", {rebuild}, against = '{LOAD}', equal, part ORDER BY {newest}) AS n "
        f"FROM (SELECT *, {some} AS part {of})) WHERE n = 1",
        t=path,
    )
    return [{**r, "rebuild": int(r["of_rebuild"])} for r in rows or []]


def _time(row: dict[str, Any]) -> tuple[datetime, datetime]:
    """By which the newest one is found: that of the source's rows. An export of which nobody said when it was made
    hides no other comparison where it is equal: it may be older."""
    return row["as_of"] or (_NEVER if row["equal"] else row["at"]), row["at"]


def _since(row: dict[str, Any], as_it_is: bool, reserve: str | None) -> Iterator[str]:
    """What became of its rows since."""
    if not as_it_is:
        yield f"{row['table']} was compared before its rows were made anew"
    elif reserve:
        yield f"{row['table']} was compared before a statement whose effect on its rows isn't told in full: {reserve}"


def _lacking(row: dict[str, Any]) -> Iterator[str]:
    """What it says nothing of."""
    table = row["table"]
    if row["as_of"] is None:
        yield f"{table} equals an export of which nobody said when it was made (`reconcile --export … --at TIME`)"
    for why in row.get("falls_short") or ():
        yield f"{table}: {why}"
    for column, why in sorted(dict(row["not_compared"] or ()).items()):
        if why == NOT_CARRIED:  # noted by an earlier version
            continue
        yield f"column {column} of {table} can't be compared with the source: {why}"
