"""What may hold a row, or a change of it, back: quarantine, parts that wait, lost records, and what is on its way.

Of a past moment only what could have been there by then counts, and nothing of it is sure: where the change would stand
in the order isn't known.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from deltalake.exceptions import TableNotFoundError

from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError
from cdc_platform.explain import records
from cdc_platform.explain.events import kafka_address, reached
from cdc_platform.explain.reason import Reason
from cdc_platform.explain.row import Explained
from cdc_platform.explain.scan import Sought, find
from cdc_platform.explain.table import Table
from cdc_platform.lake import queries, sequences, stores
from cdc_platform.lake.queries import query, text
from cdc_platform.lake.skipping import Above, files_that_may_hold
from cdc_platform.landing.positions import in_kafka
from cdc_platform.reading.moments import Moment
from cdc_platform.tables import CHANGES, QUARANTINE, ROW_ADDRESS, name_in
from cdc_platform.units import count


def of_it(config: Config, told: Explained, *, newer: bool = False) -> Iterator[Reason]:
    """What quarantine holds under its key; sure where no newer change of it stands in the same partition. newer: only
    that."""
    then, _ = told.table.then(told.key)
    for held in _held(config, told.table, told.moment):
        key, (*where, offset) = dict(held.get("key") or ()), (held["topic"], held["partition"], held["offset"])
        if any(all(c in key and key[c] == t for c, t in was.items()) for was in then):
            later = any([c["topic"], c["partition"]] == where and c["offset"] > offset for c in told.found.came)
            if later and newer:
                continue
            address = f"{held['topic']}/{held['partition']}/{offset}"
            sure = told.moment.now and not later
            yield Reason("quarantined", f"{address}: {held['reason']}", sure=sure, more={"address": address})


def _held(config: Config, table: Table, moment: Moment) -> list[dict[str, Any]]:
    """Rows of QUARANTINE that are of the table, or tell no table, and may have been there by the moment."""
    source = table.source
    rows = query(
        f"SELECT * FROM t WHERE source = {text(source.name)} AND resolved_at IS NULL "
        f'AND ("table" IS NULL OR "table" IN ({", ".join(text(n[-1]) for n in table.names)}))',
        t=QUARANTINE.at(stores.lake(config)),
    )
    named = [(name_in({"schema": None, **held}), held) for held in rows or []]
    mine = [held for name, held in named if name is None or name in table.names]
    if moment.now or not mine:
        return mine
    times = _source_times(config, source, mine)
    return [h for h in mine if may_count(moment, times.get(_address(h)), h["landed_at"])]


def may_count(moment: Moment, source_time: datetime | None, landed_at: datetime | None) -> bool:
    """Whether what didn't come to be a change may have been there by a moment: at a time by the time of the source, and
    always where that isn't told (it may land long after); at a cut by that of landing alone."""
    by = moment.cut.at if moment.cut else moment.time
    told = landed_at if moment.cut else source_time
    return by is None or told is None or told <= by


def _source_times(config: Config, source: Source, held: list[dict[str, Any]]) -> dict[tuple[Any, ...], datetime]:
    """When the source committed rows of QUARANTINE, of those that were decoded so far as to tell it."""
    names = ", ".join(f'"{c}"' for c in ROW_ADDRESS.names)
    offsets = ", ".join(str(o) for o in sorted({int(h["offset"]) for h in held}))
    rows = query(
        f"SELECT {names}, min(source_time) AS at FROM t WHERE source_time IS NOT NULL "
        f'AND "offset" IN ({offsets}) GROUP BY {names}',
        t=CHANGES.at(stores.lake(config), format=source.format, source=source.name),
    )
    return {_address(r): r["at"] for r in rows or []}


def _address(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[c] for c in ROW_ADDRESS.names)


def perhaps(config: Config, table: Table, moment: Moment) -> Iterator[Reason]:
    """What tells no key: in quarantine, lost, waiting for parts; and now also records that are landed and not decoded,
    or not landed."""
    yield from of_table(config, table, moment)
    yield from _waiting(config, table, moment)
    if moment.now:
        yield from _on_the_way(config, table)


def of_table(config: Config, table: Table, moment: Moment) -> Iterator[Reason]:
    """What of a table's changes is held or lost for good unless somebody acts, where no key tells whose: of a table
    without a key that is all of it."""
    if rows := [held for held in _held(config, table, moment) if not held.get("key")]:
        last = rows[-1]
        at = f"{last['topic']}/{last['partition']}/{last['offset']}: {last['reason']}"
        that = "tell no key" if table.keys else "may be of it"
        yield Reason("quarantined", f"{count(len(rows), 'row')} in quarantine {that}, the last at {at}", sure=False)
    source, name = table.source, table.snapshot
    for gap in sequences.of_tables(config, source, [name]).get(name, ()):
        yield Reason("lost", gap.text, sure=False)
    if lost := sequences.lost_of_tables(config, source, [name]).get(name):
        yield Reason("lost", lost.text, sure=False)


def _waiting(config: Config, table: Table, moment: Moment) -> Iterator[Reason]:
    parts = records.waiting_parts(config, table.source) if records.splits(table.source) else []
    if parts := [p for p in parts if may_count(moment, None, p["timestamp"])]:
        first = parts[0]
        where = f"{first['topic']}/{first['partition']}/{first['offset']}"
        why = f"{count(len(parts), 'part')} of messages that came in several wait for the rest, the first at {where}"
        yield Reason("waiting", why, sure=False, more={"address": where})


def _on_the_way(config: Config, table: Table) -> Iterator[Reason]:
    """Records that are landed and not decoded, or not landed."""
    source = table.source
    for row in queries.ledger(config, [source]):
        if left := row["unaccounted"]:
            where = f"{row['topic']}/{row['partition']}"
            yield Reason(
                "not decoded", f"{count(left, 'record')} of {where} are landed and not taken up yet", sure=False
            )
    landed = queries.landed(config, source)
    try:
        state = in_kafka(config, source)
    except CdcError as error:
        yield Reason("not landed", f"whether all that Kafka has is landed isn't known: {error}", sure=False)
        return
    behind = {f"{s.topic}/{s.partition}": s.end - landed.get((s.topic, s.partition), s.begin) for s in state}
    for where, lag in behind.items():
        if lag > 0:
            yield Reason("not landed", f"{count(lag, 'record')} of {where} are not landed yet", sure=False)


def decoded(config: Config, told: Explained) -> Iterator[Reason]:
    """Changes of the key in `changes` behind what the changelog stage has come to; of a past moment none is told."""
    if not told.moment.now:
        return
    source, names = told.table.source, told.table.names
    path = CHANGES.at(stores.lake(config), format=source.format, source=source.name)
    behind = [
        {"db": name[0], "table": name[-1], "topic": topic, "partition": partition, "offset": Above(offset)}
        for (topic, partition), offset in reached(config, source).items()
        for name in names
    ]
    try:
        files = files_that_may_hold(path, behind or [{"db": n[0], "table": n[-1]} for n in names])
    except TableNotFoundError:
        return
    sought = Sought(names, told.table.then(told.key)[0], told.table.alike, keyed=bool(told.table.keys))
    there = {kafka_address(c) for c in told.found.came}
    rows = [r for r in find(files, sought, CHANGES.arrow()).to_pylist() if r["kind"] == "row" and r["op"] != "truncate"]
    new = [r for r in rows if kafka_address(r) not in there]
    new = [r for r in new if r["offset"] > reached(config, source).get((r["topic"], r["partition"]), -1)]
    if new:
        last = max(new, key=lambda r: (r["offset"], r["entry_index"] or 0))
        why = f"{count(len(new), 'change')} of it are decoded and not applied yet, the last at {kafka_address(last)}"
        yield Reason("not applied", f"{why}: `cdc-platform run` does", sure=not told.found.came)
