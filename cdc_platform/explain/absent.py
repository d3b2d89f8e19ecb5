"""Why a row isn't there. Reasons that are sure come first; the others are what may hold it back."""

from collections.abc import Iterator
from typing import Any

from deltalake.exceptions import TableNotFoundError

from cdc_platform import tables
from cdc_platform.changelog.loads import BY_ROWS
from cdc_platform.changelog.schema import Step
from cdc_platform.config import Config
from cdc_platform.errors import CdcError
from cdc_platform.explain import records, snapshot_state
from cdc_platform.explain.changes import ended
from cdc_platform.explain.events import left_out_by, place_of, reached
from cdc_platform.explain.reason import Reason
from cdc_platform.explain.row import Explained
from cdc_platform.explain.scan import Sought, find
from cdc_platform.explain.table import Table
from cdc_platform.lake import queries, sequences, stores
from cdc_platform.lake.queries import query, text
from cdc_platform.lake.skipping import Above, files_that_may_hold
from cdc_platform.landing.erased import erased_before
from cdc_platform.landing.positions import in_kafka
from cdc_platform.tables import CHANGES, QUARANTINE, Name, name_columns, name_in
from cdc_platform.units import count


def reasons(config: Config, told: Explained) -> list[Reason]:
    """Why a row isn't there (or isn't as the changes have it). Asks Kafka, where nothing in the lake says it."""
    known = [r for r in (by_rule(told.table), _by_change(told), _by_state(config, told)) if r is not None]
    if told.moment.now:
        settled = any(r.sure for r in known)
        known += held_of_it(config, told)  # a delete says nothing of what came after it
        known += _decoded(config, told)
        known += () if settled else _perhaps(config, told)
    if not known:
        known.append(_never(config, told))
    return sorted(known, key=lambda r: not r.sure)


def by_rule(table: Table) -> Reason | None:
    """That a rule leaves the table out."""
    rule = left_out_by(table.source, table.name)
    return None if rule is None else Reason("filtered", f"its table is left out by {rule}", sure=True)


def _by_change(told: Explained) -> Reason | None:
    """What the changes of the key say."""
    row, found = told.row, told.found
    if row.truncated is not None:
        return Reason("truncated", "its table was emptied by TRUNCATE", sure=True, by=row.truncated)
    if row.last is not None and row.cells is None:
        by = found.original(row.last.change)
        if row.last.moved is not None:
            key = ", ".join(f"{k}={v}" for k, v in row.last.moved.items())
            return Reason(
                "moved", f"its key was changed: it is {key} since", sure=True, by=by, more={"to": row.last.moved}
            )
        return Reason("deleted", "it was deleted", sure=True, by=by)
    if row.last is None and found.gone and (step := ended(told.table, found.gone)) is not None:
        return _by_statement(step)
    return None


def _by_statement(step: Step) -> Reason:
    """What DDL, or what stands for it, did to the row's table."""
    address = "/".join(map(str, step.address[:3]))
    said, more = f"{step.ddl[:200]} ({address})", {"ddl": step.ddl, "address": address}
    if step.ddl in BY_ROWS:
        why = f"the table's rows were read from the source once more, and it wasn't among them: {said}"
        return Reason("not read", why, sure=True, more=more)
    if (after := step.effect.after) is None:
        return Reason("dropped", f"its table was dropped: {said}", sure=True, more=more)
    name = ".".join(after)
    return Reason("renamed", f"its table is called {name} since: {said}", sure=True, more={**more, "to": name})


def _by_state(config: Config, told: Explained) -> Reason | None:
    """What is known of the snapshot: it isn't kept up to date, or hasn't come to the changes yet."""
    of_snapshot = snapshot_state.of(config, told.table)
    if of_snapshot is not None and (told.moment.now or told.agrees is False):
        return of_snapshot.reason(sure=told.agrees is False)
    if told.agrees is not False or not told.moment.now:
        return None
    high = _high(config, told)
    last = told.row.last
    if last is not None and (high is None or last.change["order_key"] > high):
        why = "the snapshots stage hasn't come to its newest change: `cdc-platform run` does"
        return Reason("not applied", why, sure=True, by=told.found.original(last.change))
    why = "the changes come to another row than the snapshot has: `cdc-platform run --table DB.TABLE --rebuild`"
    return Reason("differs", why, sure=False)


def _high(config: Config, told: Explained) -> tuple[int, ...] | None:
    """Order up to which the snapshot has the table's changes."""
    path = tables.TABLE_STATE.at(stores.lake(config))
    every = f'SELECT source, db, {queries.schema_of(path)}, "table", high_order FROM t WHERE high_order IS NOT NULL'
    of = f"source = {text(told.table.source.name)} AND {_named(told.table.snapshot)}"
    rows = query(f"SELECT high_order FROM ({every}) AS every WHERE {of}", t=path)
    return max((tuple(map(int, r["high_order"].values())) for r in rows or []), default=None)


def _named(name: Name) -> str:
    parts = name_columns(name).items()
    return " AND ".join(f'"{c}" IS NULL' if part is None else f'"{c}" = {text(part)}' for c, part in parts)


# -- what may hold it back ---------------------------------------------------------------------------------


def held_of_it(config: Config, told: Explained) -> Iterator[Reason]:
    """What quarantine holds under its key; sure where no newer change of it stands in the same partition."""
    then, _ = told.table.then(told.key)
    for held in _held(config, told):
        key, (*where, offset) = dict(held.get("key") or ()), (held["topic"], held["partition"], held["offset"])
        if any(all(c in key and key[c] == t for c, t in was.items()) for was in then):
            later = any([c["topic"], c["partition"]] == where and c["offset"] > offset for c in told.found.came)
            address = f"{held['topic']}/{held['partition']}/{offset}"
            yield Reason("quarantined", f"{address}: {held['reason']}", sure=not later, more={"address": address})


def _held(config: Config, told: Explained) -> Iterator[dict[str, Any]]:
    """Rows of QUARANTINE that are of the table, or tell no table."""
    source = told.table.source
    rows = query(
        f"SELECT * FROM t WHERE source = {text(source.name)} AND resolved_at IS NULL "
        f'AND ("table" IS NULL OR "table" IN ({", ".join(text(n[-1]) for n in told.table.names)}))',
        t=QUARANTINE.at(stores.lake(config)),
    )
    for held in rows or []:
        name = name_in({"schema": None, **held})
        if name is None or name in told.table.names:
            yield held


def _perhaps(config: Config, told: Explained) -> Iterator[Reason]:
    """What tells no key: in quarantine, waiting for parts, lost, and records that are landed and not decoded, or not
    landed."""
    source = told.table.source
    if unnamed := [held for held in _held(config, told) if not held.get("key")]:
        last = unnamed[-1]
        at = f"{last['topic']}/{last['partition']}/{last['offset']}: {last['reason']}"
        yield Reason(
            "quarantined", f"{count(len(unnamed), 'row')} in quarantine tell no key, the last at {at}", sure=False
        )
    if records.splits(source) and (parts := records.waiting_parts(config, source)):
        first = parts[0]
        where = f"{first['topic']}/{first['partition']}/{first['offset']}"
        why = f"{count(len(parts), 'part')} of messages that came in several wait for the rest, the first at {where}"
        yield Reason("waiting", why, sure=False, more={"address": where})
    yield from _lost(config, told)
    yield from _on_the_way(config, told)


def _lost(config: Config, told: Explained) -> Iterator[Reason]:
    source, name = told.table.source, told.table.snapshot
    for gap in sequences.of_tables(config, source, [name]).get(name, ()):
        yield Reason("lost", gap.text, sure=False)
    if lost := sequences.lost_of_tables(config, source, [name]).get(name):
        yield Reason("lost", lost.text, sure=False)


def _on_the_way(config: Config, told: Explained) -> Iterator[Reason]:
    """Records that are landed and not decoded, or not landed."""
    source = told.table.source
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


def _decoded(config: Config, told: Explained) -> Iterator[Reason]:
    """Changes of the key in `changes` behind what the changelog stage has come to."""
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
    there = {place_of(c) for c in told.found.came}
    rows = [r for r in find(files, sought, CHANGES.arrow()).to_pylist() if r["kind"] == "row" and r["op"] != "truncate"]
    new = [r for r in rows if place_of(r) not in there]
    new = [r for r in new if r["offset"] > reached(config, source).get((r["topic"], r["partition"]), -1)]
    if new:
        last = max(new, key=lambda r: (r["offset"], r["entry_index"] or 0))
        why = f"{count(len(new), 'change')} of it are decoded and not applied yet, the last at {place_of(last)}"
        yield Reason("not applied", f"{why}: `cdc-platform run` does", sure=not told.found.came)


def _never(config: Config, told: Explained) -> Reason:
    source = told.table.source
    if not told.moment.now:
        return Reason("never seen", "no change of it had come by then", sure=True)
    if gone := erased_before(config, source.name, told.table.names, told.key):
        why = f"erasure {gone['number']} took it out ({gone['at']:%F %T} UTC), and no change has come since"
        return Reason("erased", why, sure=True)
    first = query(
        "SELECT min(landed_at) AS at FROM t",
        t=tables.LANDING.at(stores.lake(config), source=source.name),
    )
    since = f" since landing began ({first[0]['at']:%F %T} UTC)" if first and first[0]["at"] else ""
    why = f"no change of it has come{since}: a row from before that comes with an initial load or its next change"
    return Reason("never seen", why, sure=True)
