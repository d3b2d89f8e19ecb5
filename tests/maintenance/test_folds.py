"""A year's bookkeeping in few rows: all that is asked of it stays the same."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.errors import NotReadable
from cdc_platform.lake import delta_table, new_tables, queries, sequences, stores, watermarks
from cdc_platform.lake.past import Past
from cdc_platform.landing import positions
from cdc_platform.maintenance import folds
from cdc_platform.reading.catalog import find_cut
from tests.rows import add

pytestmark = pytest.mark.spark

NOW = datetime.now(UTC)
BATCHES = 1_500
BASE = 10**9


@pytest.fixture
def lake(make_config: Any) -> Any:
    config = make_config([{"name": n, "format": "tencent_dts", "topics": [n]} for n in ("s", "other")])
    for table in (tables.OFFSET_LEDGER, tables.WATERMARKS, tables.SEQUENCES):
        new_tables.create(table.at(stores.lake(config)), table)
    return config


def ledger(config: Any, *rows: tuple[Any, ...], source: str = "s") -> None:
    names = ("room", "batch", "partition", "from_offset", "to_offset", "outcome", "records", "base")
    said = {"source": source, "topic": "t"}
    add(config.lake, tables.OFFSET_LEDGER, *({**said, **dict(zip(names, r, strict=False))} for r in rows))


def rows_of(config: Any, table: tables.Table, source: str = "s") -> int:
    path = table.at(stores.lake(config))
    return delta_table.ask(f"SELECT count(*) AS n FROM {{t}} WHERE source = '{source}'", t=path)[0]["n"]


def asked_of_ledger(config: Any) -> Any:
    path = tables.OFFSET_LEDGER.at(stores.lake(config))
    own = [
        (queries.ledger(config, [s]), queries.landed(config, s), positions.position(path, s)) for s in config.sources
    ]
    lost = "SELECT from_offset, to_offset, batch, base FROM {t} WHERE outcome = 'lost' ORDER BY batch"
    return own, delta_table.ask(lost, t=path)


def test_the_sums_of_the_ledger_and_where_landing_goes_on(spark: Any, lake: Any) -> None:
    again = 1 << 40  # a topic that was made again: its offsets begin anew, in another generation
    for source in ("s", "other"):
        rows = [("landing", b, p, 10 * b, 10 * b + 9, "landed", 10) for b in range(BATCHES) for p in (0, 1)]
        rows += [("changelog", b, p, 10 * b, 10 * b + 8, "applied", 9) for b in range(BATCHES) for p in (0, 1)]
        rows += [("changelog", b, 0, 10 * b + 9, 10 * b + 9, "control", 1) for b in range(BATCHES)]
        rows += [("changelog", -7, 0, 0, 5, "filtered", 3), ("landing", again - 1, 0, 14_990, -1, "lost", 10)]
        rows += [("landing", again + b, 0, b, b, "landed", 1) for b in range(BATCHES)]
        rows += [
            ("landing", again - 1, 1, 15_000, BASE - 1, "lost", 1, BASE),
            ("landing", 9, 2, BASE, BASE, "landed", 1, BASE),
        ]
        ledger(lake, *rows, source=source)
    before = asked_of_ledger(lake)
    assert positions.bases(lake, lake.sources[0]) == {("t", 1): BASE, ("t", 2): BASE}
    assert folds.fold(spark, lake, lake.sources[0]) > 4_900
    assert asked_of_ledger(lake) == before
    left = rows_of(lake, tables.OFFSET_LEDGER)
    assert left < 3 * 1_001 + 1_000 + 12
    assert rows_of(lake, tables.OFFSET_LEDGER, "other") == 6 * BATCHES + 4
    assert folds.fold(spark, lake, lake.sources[0]) == 0
    ledger(lake, ("landing", again + BATCHES, 0, BATCHES, BATCHES + 4, "landed", 5))
    assert queries.landed(lake, lake.sources[0])["t", 0] == BATCHES + 5


def test_the_newest_watermarks_stay_and_older_ones_say_no_more_than_was_so(spark: Any, lake: Any) -> None:
    rows: list[dict[str, Any]] = []
    for batch in range(3 * 24 * 30):  # one each two minutes, three days long
        at = NOW - timedelta(days=6) + timedelta(minutes=2 * batch)
        said = {"source": "s", "batch": batch, "at": at, "source_time": at - timedelta(seconds=5), "proven": True}
        rows += [{**said, "scope": "partition", "topic": "t", "partition": p, "offset": 9 * batch} for p in (0, 1)]
        if batch % 10 == 0:
            ends = [{"topic": "t", "partition": p, "offset": 9 * batch + 1} for p in (0, 1)]
            rows.append({**said, "scope": "source", "batch": batch // 10, "end_offsets": ends})
    add(lake.lake, tables.WATERMARKS, *rows)
    path = tables.WATERMARKS.at(stores.lake(lake))

    def asked() -> Any:
        return watermarks.partitions(path, "s"), watermarks.complete(path, "s")

    def reached() -> list[datetime | None]:
        return [Past(path, "s").reached(("t", 1), offset) for offset in range(0, 9 * 2_160, 1_111)]

    def stands() -> list[datetime | None]:
        first = ({("t", 1): offset} for offset in range(0, 9 * 2_160, 1_111))
        found = (next(Past(path, "s").earlier(1_000, None, held), None) for held in first)
        return [p and p.source_time for p in found]

    before, exact = asked(), list(zip(reached(), stands(), strict=True))
    assert folds.fold(spark, lake, lake.sources[0]) > 3_000
    assert asked() == before
    assert rows_of(lake, tables.WATERMARKS) <= 3 * (3 * 24 + 1)
    for pair in zip(exact, zip(reached(), stands(), strict=True), strict=True):
        for then, now in zip(*pair, strict=True):
            assert now is None or (then is not None and then - timedelta(hours=1) <= now <= then)
    some = NOW - timedelta(days=4, hours=1)
    told = watermarks.partitions(path, "s", until=some)
    assert set(told) == {("t", 0), ("t", 1)}
    assert all(some - timedelta(hours=1, minutes=5) <= r["source_time"] <= some for r in told.values())


def test_of_cuts_that_cant_be_read_any_more_the_last_of_each_hour_stays(spark: Any, lake: Any) -> None:
    path, hours = tables.CUTS.at(stores.lake(lake)), lake.maintenance.keep_hours
    begin = NOW.replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours + 5)
    kinds = ["position" if n % 3 else "transaction" for n in range(60 * (hours + 5))]
    kinds[150:] = ["position"] * (len(kinds) - 150)
    said = {"source": "s", "snapshots": [{"db": "d", "table": "t", "path": "snapshots/s/d/t", "version": 7}]}
    rows = [{**said, "cut": n, "kind": k, "at": begin + timedelta(minutes=n)} for n, k in enumerate(kinds)]
    add(lake.lake, tables.CUTS, *rows, *({**r, "source": "other"} for r in rows[:500]))
    add(lake.lake, tables.CUTS, {**rows[0], "offsets": [("t/0", 5)], "cut": 1_000_000, "kind": "position", "at": NOW})
    newest = [find_cut(stores.lake(lake), "s", kind=kind) for kind in ("transaction", "any")]
    assert [c.number for c in newest] == [147, 1_000_000]
    assert folds.fold(spark, lake, lake.sources[0]) > 200
    assert [find_cut(stores.lake(lake), "s", kind=kind) for kind in ("transaction", "any")] == newest
    left = [r["cut"] for r in delta_table.ask("SELECT cut FROM {t} WHERE source = 's' ORDER BY cut", t=path)]
    old = [n for n in left if rows[min(n, len(rows) - 1)]["at"] < NOW - timedelta(hours=hours)]
    assert old[:7] == [57, 59, 117, 119, 147, 179, 239] and len(old) <= 9
    young = [r for r in rows if r["at"] >= datetime.now(UTC) - timedelta(hours=hours)]
    assert len(young) > 60 * (hours - 2) and len(left) - len(old) >= len(young)
    assert rows_of(lake, tables.CUTS, "other") == 500
    with pytest.raises(NotReadable, match=r"has no cut 118.*117"):
        find_cut(stores.lake(lake), "s", 118)
    assert folds.fold(spark, lake, lake.sources[0]) == 0


def test_stretches_side_by_side_are_one_and_gaps_stay(spark: Any, lake: Any) -> None:
    rows, number = [], 1
    for batch in range(BATCHES):
        number = 1 if batch == 400 else number + 3 if batch in (100, 700) else number
        said = {"source": "s", "batch": batch, "topic": "t", "partition": 0, "shard": "", "at": NOW}
        rows.append({**said, "from_offset": 5 * batch, "to_offset": 5 * batch + 4, "first": number, "last": number + 4})
        number += 5
    add(lake.lake, tables.SEQUENCES, *rows)
    before = sequences.gaps(lake, lake.sources[0])
    assert [g.records for g in before] == [3, 3]
    assert folds.fold(spark, lake, lake.sources[0]) > 400
    assert sequences.gaps(lake, lake.sources[0]) == before
    assert rows_of(lake, tables.SEQUENCES) <= 1_000 + 4
