"""What became of each table, batch by batch: live or stopped, and why; its figures."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from cdc_platform.config import Source
from cdc_platform.lake import delta_table, queries, watermarks
from cdc_platform.lake.looks import Look
from cdc_platform.lake.store import Store
from cdc_platform.spark import delta_sql
from cdc_platform.tables import ORDER, TABLE_STATE, WATERMARKS, Name, name_columns, name_of

Tables = dict[Name, dict[str, Any]]
"""Per table state, reason, batch, rebuild, invalid_dates, partial, high_order; entries: how many outcomes were ever
noted; touched, changes: whether the batches asked for brought changes, and how many."""

BEFORE = -1
"""Number of the batch under which a rebuild before the first one is noted: no batch is to find rows of its own."""

_TABLE = 'db, schema, "table"'
_LAST = "rebuild, batch, state, reason"
_HIGHEST = ", ".join(f"high_order['{n}'] NULLS FIRST" for n in ORDER.names)
_NOW = f"""SELECT {_TABLE}, max(batch) AS batch, max(rebuild) AS rebuild, sum(invalid_dates) AS invalid_dates,
  sum(partial) AS partial, sum(coalesce(entries, 1)) AS entries, bool_or(:asked) AS touched,
  sum(CASE WHEN :asked THEN changes ELSE 0 END) AS changes,
  last_value(state ORDER BY {_LAST}) AS state, last_value(reason ORDER BY {_LAST}) AS reason,
  last_value(high_order ORDER BY {_HIGHEST}) AS high_order
FROM {{state}} WHERE source = :source GROUP BY {_TABLE}
"""
"""In one query that sorts nothing: each round asks it of all rows since the last fold. The highest order isn't a max of
the struct, which takes DataFusion a millisecond for each table."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one batch did to one table. state: live, stopped, dropped or stale. high_order: of its newest change.
    rows: what the snapshot holds then; None: not counted."""

    name: Name
    state: str
    reason: str | None
    changes: int
    invalid_dates: int
    partial: int = 0
    high_order: Any = None
    rows: int | None = None


def now(path: Store, source: Source, since: int | None = None) -> Tables:
    """The present state of every table of the source. since: the first batch that `touched` and `changes` are of (0:
    and of rebuilds before it); None: of none."""
    asked = "false" if since is None else f"batch >= {since or BEFORE}"
    sql = _NOW.replace(":asked", asked).replace(":source", queries.text(source.name))
    return {name_of(r): r for r in delta_table.ask(sql, state=path)}


def were_live(path: Store, source: Source) -> set[Name]:
    """Tables that were live before they were stopped, or became stale, if they did."""
    rows = queries.query(
        f"SELECT {_TABLE}, state FROM (SELECT {_TABLE}, state, row_number() OVER (PARTITION BY {_TABLE} "
        "ORDER BY rebuild DESC, batch DESC) AS n FROM t "
        f"WHERE source = {queries.text(source.name)} AND state NOT IN ('stopped', 'stale')) AS told WHERE n = 1",
        t=path,
    )
    return {name_of(r) for r in rows or [] if r["state"] == "live"}


def keep(
    lake: Store,
    source: Source,
    outcomes: list[Outcome],
    before: Tables,
    batch_id: int,
    *,
    anew: bool = False,
) -> None:
    """Notes outcomes as TABLE_STATE rows, a batch's once; `anew`: of a rebuild, which counts above all batches before
    it. Tables that weren't there before are complete up to no time, until a run publishes that it has all of them."""
    path = TABLE_STATE.at(lake)
    watermarks.join(WATERMARKS.at(lake), source.name, [o.name for o in outcomes if o.name not in before])
    rows = [
        {
            "source": source.name,
            "batch": batch_id,
            **name_columns(o.name),
            **{f.name: getattr(o, f.name) for f in fields(o) if f.name != "name"},
            "rebuild": before.get(o.name, {}).get("rebuild", 0) + anew,
        }
        for o in outcomes
    ]
    delta_table.append_rows(path, rows, of=None if anew else f"source = '{source.name}' AND batch = {batch_id}")


def table_metrics(touched: Tables, looked: Mapping[Name, Look | None]) -> dict[str, dict[str, float | str]]:
    """Per "db.table": live rows now, changes of the run, invalid dates so far, state, reason. looked: the snapshots of
    these tables; None: there is none."""

    def live_rows(look: Look | None) -> int:
        if look is None or look.rows is not None:
            return (look and look.rows) or 0
        return delta_table.ask("SELECT count(*) AS n FROM {t}", t=look.path)[0]["n"]

    names = sorted(touched)
    counted = delta_sql.run_parallel([partial(live_rows, looked[n]) for n in names])
    return {
        ".".join(name): {
            "rows": n,
            "changes": touched[name]["changes"],
            "invalid_dates": touched[name]["invalid_dates"],
            "state": touched[name]["state"],
            "reason": touched[name]["reason"] or "",
        }
        for name, n in zip(names, counted, strict=True)
    }
