"""What it takes to explain a row, and to find a transaction, in a changelog of many changes.

The changes come through the whole chain, so its files note what those of a lake in use note.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from cdc_platform import tables
from cdc_platform.bench.meter import measured
from cdc_platform.config import Config, Source
from cdc_platform.feeds.shop import BENCH
from cdc_platform.lake import queries, stores

FORMAT = "canal"
"""It tells GTIDs."""
_NEVER = 10**12
"""A key above all that there are."""


def measurements(config: Config, changes: int, keys: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Per question what, changes in the lake, changes (transactions) found, seconds, cpu_s; and what was answered
    wrongly. keys: rows of the table, which all are there."""
    [source] = config.sources
    rows, wrong = [], []
    asked: dict[str, Callable[[], tuple[int, bool]]] = {
        "a key": partial(_row, config, source, keys // 2, here=True),
        "a key that never came": partial(_row, config, source, _NEVER, here=False),
    }
    if gtid := _newest_gtid(config, source):
        asked["a GTID"] = partial(_gtid, config, source, gtid)
    for what, ask in asked.items():
        with measured() as reading:
            found, right = ask()
        rows.append(
            {
                **{"what": what, "changes": changes, "found": found},
                **{"seconds": round(reading.seconds, 2), "cpu_s": round(reading.cpu_s, 2)},
            }
        )
        wrong += [] if right else [f"explain: {what} is answered wrongly"]
    return rows, wrong


def _row(config: Config, source: Source, key: int, *, here: bool) -> tuple[int, bool]:
    """Changes of the row, and whether it is there or isn't, as it should, and as the snapshot has it."""
    from cdc_platform.explain import describe, row
    from cdc_platform.explain.table import find, parse_key
    from cdc_platform.reading.moments import Moment

    table = find(config, source, f"{BENCH.db}.{BENCH.name}")
    told = row.explain(config, table, parse_key(table, str(key)), Moment())
    data = describe.explained(config, told, (), every=True, sql=False)
    return len(data["changes"]), data["here"] is here and data["agrees"] is not False


def _newest_gtid(config: Config, source: Source) -> str | None:
    rows = queries.query(
        f"SELECT max(gtid) AS gtid FROM t WHERE source = {queries.text(source.name)}",
        t=tables.CHANGELOG.at(stores.lake(config)),
    )
    return rows[0]["gtid"] if rows else None


def _gtid(config: Config, source: Source, gtid: str) -> tuple[int, bool]:
    """Transactions found, as `as-of` finds their end, and whether it was."""
    from cdc_platform.reading import moments

    found = moments.parse(config, source.name, gtid, "GTID", gtids=True).time is not None
    return int(found), found
