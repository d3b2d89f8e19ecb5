"""What became of each table, batch by batch: live or stopped, and why; its figures."""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.tables import Name, name_columns, name_of

Tables = dict[Name, dict[str, Any]]
"""Per table state, reason, batch, rebuild, invalid_dates, partial, high_order; entries: how many outcomes were ever
noted; touched, changes: whether the batches asked for brought changes, and how many."""

BEFORE = -1
"""Number of the batch under which a rebuild before the first one is noted: no batch is to find rows of its own."""

_NOW = """SELECT db, schema, "table", max(batch) AS batch, max(rebuild) AS rebuild, sum(invalid_dates) AS invalid_dates,
  sum(partial) AS partial, max(high_order) AS high_order, count(*) AS entries, bool_or(:asked) AS touched,
  sum(CASE WHEN :asked THEN changes ELSE 0 END) AS changes,
  max(named_struct('rebuild', rebuild, 'batch', batch, 'state', state, 'reason', reason)) AS last
FROM {state} WHERE source = :source GROUP BY db, schema, "table"
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one batch did to one table. state: live, stopped, dropped or stale. high_order: of its newest change."""

    name: Name
    state: str
    reason: str | None
    changes: int
    invalid_dates: int
    partial: int = 0
    high_order: Any = None


def now(path: Store, source: Source, since: int | None = None) -> Tables:
    """The present state of every table of the source. since: the first batch that `touched` and `changes` are of (0:
    and of rebuilds before it); None: of none."""
    asked = "false" if since is None else f"batch >= {since or BEFORE}"
    rows = delta_table.ask(_NOW.replace(":source", f"'{source.name}'").replace(":asked", asked), state=path)
    return {name_of(r): {**r, "state": r["last"]["state"], "reason": r["last"]["reason"]} for r in rows}


def keep(
    path: Store,
    source: Source,
    outcomes: list[Outcome],
    before: Tables,
    batch_id: int,
    *,
    anew: bool = False,
) -> None:
    """Notes outcomes as TABLE_STATE rows, a batch's once; `anew`: of a rebuild, which counts above all batches before
    it."""
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


def figures(config: Config, source: Source, touched: Tables) -> dict[str, dict[str, float | str]]:
    """Per "db.table": live rows now, changes of the run, invalid dates so far, state, reason."""

    def live_rows(name: Name) -> int:
        target = Target.of(config, source.name, *name)
        if not delta_table.exists(target.snapshot):
            return 0
        return delta_table.ask("SELECT count(*) AS n FROM {t}", t=target.snapshot)[0]["n"]

    names = sorted(touched)
    counted = delta_sql.run_parallel([partial(live_rows, n) for n in names])
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
