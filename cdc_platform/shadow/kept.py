"""What comparisons of two feeds found, as the lake keeps it. No Spark here."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.config.shadow import Shadow
from cdc_platform.lake import queries, stores
from cdc_platform.lake.queries import text
from cdc_platform.shadow import pairing
from cdc_platform.shadow.kinds import BEHIND, COUNTS, DIFFERENT, EQUAL, NOT_COMPARED, STATES
from cdc_platform.tables import SHADOW_COMPARISONS, SHADOW_DIFFERENCES, Name, name_columns, name_of
from cdc_platform.units import count, when

_SHOWN = 5


def last(config: Config, pair: Shadow) -> dict[Name, dict[str, Any]]:
    """Table → its newest comparison, a row of SHADOW_COMPARISONS; of tables that the pair is about today."""
    rows = queries.query(
        'SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY db, schema, "table" ORDER BY number DESC) AS n '
        f'FROM t WHERE source = {text(pair.of)} AND "by" = {text(pair.by)}) WHERE n = 1',
        t=SHADOW_COMPARISONS.at(stores.lake(config)),
    )
    found = {name_of(r): {k: v for k, v in r.items() if k != "n"} for r in rows or []}
    return {p.name: found[p.name] for p in pairing.tables(config, pair) if p.name in found} if found else {}


def next_number(config: Config, pair: Shadow) -> int:
    """Of the next comparison."""
    lake, found = stores.lake(config), [-1]
    for table in (SHADOW_COMPARISONS, SHADOW_DIFFERENCES):
        rows = queries.query(
            f'SELECT max(number) AS n FROM t WHERE source = {text(pair.of)} AND "by" = {text(pair.by)}',
            t=table.at(lake),
        )
        found += [int(r["n"]) for r in rows or [] if r["n"] is not None]
    return max(found) + 1


def differences(config: Config, pair: Shadow, limit: int) -> list[dict[str, Any]]:
    """Some open differences, the oldest first: rows of SHADOW_DIFFERENCES."""
    rows = queries.query(
        'SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY db, schema, "table", key ORDER BY number DESC) '
        f'AS n FROM t WHERE source = {text(pair.of)} AND "by" = {text(pair.by)}) '
        f'WHERE n = 1 AND closed_at IS NULL ORDER BY first_seen, db, "table", key LIMIT {int(limit)}',
        t=SHADOW_DIFFERENCES.at(stores.lake(config)),
    )
    told = [{k: v for k, v in r.items() if k != "n"} for r in rows or []]
    return [{**r, **{side: r[side] and dict(r[side]) for side in ("of_row", "by_row")}} for r in told]


@dataclass(frozen=True, slots=True)
class Open:
    """Open differences of one table. at: when the newest of them was found as it is."""

    text: str
    at: datetime


def open_differences(config: Config, source: Source) -> dict[Name, list[Open]]:
    """Snapshot of a source → its open differences from those of another feed, whichever of the two is `of`."""
    found: dict[Name, list[Open]] = {}
    for pair in config.shadow:
        if source.name not in (pair.of, pair.by) or not (rows := _open_of_tables(config, pair)):
            continue
        other = pair.by if source.name == pair.of else pair.of
        for both in pairing.tables(config, pair):
            name = both.name if source.name == pair.of else both.by
            if name is not None and (row := rows.get(both.name)):
                text = f"it differs from that of {other}: {_counts(pair, row)} at {when(row['at'])}"
                text += f" (`cdc-platform shadow status {pair.of}`)"
                found.setdefault(name, []).append(Open(text, row["at"]))
    return found


def _open_of_tables(config: Config, pair: Shadow) -> dict[Name, dict[str, Any]]:
    kinds = ", ".join(f'sum("rows") FILTER (WHERE kind = {text(k)}) AS {name}' for k, name in COUNTS.items())
    rows = queries.query(
        f'SELECT db, schema, "table", {kinds}, max(at) AS at FROM (SELECT *, row_number() OVER '
        '(PARTITION BY db, schema, "table", key ORDER BY number DESC) AS n '
        f'FROM t WHERE source = {text(pair.of)} AND "by" = {text(pair.by)}) '
        "WHERE n = 1 AND closed_at IS NULL GROUP BY 1, 2, 3",
        t=SHADOW_DIFFERENCES.at(stores.lake(config)),
    )
    return {name_of(r): r for r in rows or []}


def any_open(config: Config, pair: Shadow, name: Name) -> bool:
    """Whether a table had open differences when it was last compared."""
    told = name_columns(name)
    schema = "schema IS NULL" if told["schema"] is None else f"schema = {text(told['schema'])}"
    rows = queries.query(
        "SELECT 1 FROM (SELECT last_value(closed_at ORDER BY number) AS closed_at FROM t "
        f'WHERE source = {text(pair.of)} AND "by" = {text(pair.by)} AND db = {text(name[0])} AND {schema} '
        f'AND "table" = {text(name[-1])} GROUP BY key) WHERE closed_at IS NULL LIMIT 1',
        t=SHADOW_DIFFERENCES.at(stores.lake(config)),
    )
    return bool(rows)


def summary(pair: Shadow, tables: dict[Name, dict[str, Any]]) -> dict[str, Any]:
    """Of the newest comparison of each table: of, by, equal (of every table something was judged, and nothing differs),
    tables (number), one count for each state, waiting (those behind of which nothing could be judged), open differences
    by kind, unsettled, at (of the newest)."""
    states = [t["state"] for t in tables.values()]
    waiting = sum(_waits(t) for t in tables.values())
    newest: list[datetime] = [t["at"] for t in tables.values() if t.get("at")]
    return {
        **{"of": pair.of, "by": pair.by},
        "equal": bool(states) and not waiting and not {DIFFERENT, NOT_COMPARED} & set(states),
        "tables": len(states),
        **{s: states.count(s) for s in STATES if s != EQUAL},
        "waiting": waiting,
        **{k: sum(int(t[k] or 0) for t in tables.values()) for k in ("only_of", "only_by", "differing", "unsettled")},
        "at": max(newest, default=None),
    }


def waiting(tables: dict[Name, dict[str, Any]]) -> list[str]:
    """Why of tables nothing could be judged yet, a clause for each."""
    return [f"{'.'.join(n)}: can't be judged yet: {t['reason']}" for n, t in sorted(tables.items()) if _waits(t)]


def _waits(table: dict[str, Any]) -> bool:
    """Whether nothing of a table was judged: one that was has no reason, but rows that are too new."""
    return table["state"] == BEHIND and bool(table["reason"])


def clauses(pair: Shadow, tables: dict[Name, dict[str, Any]]) -> list[str]:
    """What differs and what isn't compared, a clause for each table, what differs first."""
    ordered = sorted(tables.items(), key=lambda item: (STATES.index(item[1]["state"]), item[0]))
    return [f"{'.'.join(n)}: {_clause(pair, t)}" for n, t in ordered if t["state"] in (DIFFERENT, NOT_COMPARED)]


def _clause(pair: Shadow, table: dict[str, Any]) -> str:
    if table["state"] == NOT_COMPARED:
        return f"not compared: {table['reason']}"
    return _counts(pair, table)


def _counts(pair: Shadow, table: dict[str, Any]) -> str:
    told = ((table["only_of"], f"lacking in {pair.by}"), (table["only_by"], f"lacking in {pair.of}"))
    told += ((table["differing"], "with other values"),)
    return ", ".join(f"{count(int(n), 'row')} {what}" for n, what in told if n)


def shortened(texts: list[str]) -> str:
    """Some of them as one text."""
    more = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
