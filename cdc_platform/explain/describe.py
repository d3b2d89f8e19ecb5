"""An explanation as data: what the command prints, and programs read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config
from cdc_platform.explain import held, snapshot_state
from cdc_platform.explain.absent import by_rule, reasons
from cdc_platform.explain.changes import Changes
from cdc_platform.explain.reason import Reason
from cdc_platform.explain.records import Address
from cdc_platform.explain.row import Explained, parts_of
from cdc_platform.explain.snapshot_state import NotKept
from cdc_platform.explain.statement import column_lists, statement
from cdc_platform.explain.table import Table
from cdc_platform.lake import stores
from cdc_platform.reading import moments
from cdc_platform.reading.catalog import TableName, complete_up_to
from cdc_platform.snapshots.reduce.one_key import Cell, Change
from cdc_platform.units import when

_SHOWN = (
    *("op", "topic", "partition", "offset", "entry_index", "row_index", "source_time", "landed_at"),
    *("binlog_file", "binlog_pos", "gtid", "txn_id", "format", "decoder_version", "schema_version"),
    *("db", "schema", "table", "key", "before", "after"),
)


def explained(config: Config, told: Explained, only: Sequence[str], *, every: bool, sql: bool) -> dict[str, Any]:
    """source, table, key, snapshot, origin, at, here, agrees, state (stopped, dropped, left_out, stale; None: the
    snapshot is kept up, or a past moment is asked about), row (as the snapshot has it, at a time as texts), cells
    (column, value, change: its number, ddl), changes (those that made the row, or all), others (how many aren't among
    them), why (reasons), ddl (statements that changed the table between), doubts. only: columns that are asked about;
    every: all changes; sql: with a statement for each."""
    shown = told.found.came if every else told.made_by(only)
    shown = [c for c in shown if c["op"] != "truncate" or every]
    state = snapshot_state.of(config, told.table) if told.moment.now else None
    why = _of_one_that_is_there(config, told, state) if _as_it_should_be(told) else reasons(config, told)
    shown = _with(shown, [r.by for r in why if r.by is not None])
    numbers = {id(c): n for n, c in enumerate(told.found.came, 1)}
    return {
        "source": told.table.source.name,
        "table": told.table.text,
        "key": dict(told.key),
        "snapshot": ".".join(told.table.snapshot),
        "origin": told.table.origin or None,
        "at": moments.to_json(told.moment),
        "here": told.here,
        "agrees": told.agrees,
        "state": state and state.name,
        "row": _row(told),
        "why": [_reason(r, numbers) for r in why],
        "cells": [_cell(told, name, cell) for name, cell in (told.row.cells or {}).items() if not only or name in only],
        "changes": changes(config, told.table, shown, numbers, sql=sql),
        "others": len(told.found.came) - len(shown),
        "ddl": _ddl(told.table, shown),
        "doubts": [*told.found.doubts, *_too_early(config, told)],
    }


def _too_early(config: Config, told: Explained) -> Iterator[str]:
    """That changes of the time or before may still come, to a table that they come to at all."""
    if told.moment.time is None or by_rule(told.table) is not None:
        return
    up_to = complete_up_to(stores.lake(config), TableName.of(told.table.source.name, told.table.snapshot))
    if up_to is None:
        then = "nothing tells up to when it is complete"
    elif up_to.time <= told.moment.time:
        then = f"the table is complete up to {when(up_to.time)}"
    elif not up_to.proven:
        then = f"the table is taken for complete up to {when(up_to.time)} ({up_to.reason})"
    else:
        return
    yield f"{then}: changes of {when(told.moment.time)} or before may still come"


def _as_it_should_be(told: Explained) -> bool:
    return told.here and told.agrees is not False


def _of_one_that_is_there(config: Config, told: Explained, state: NotKept | None) -> list[Reason]:
    """Why newer changes of a row that is there may be lacking: the snapshot isn't kept up, or quarantine holds them."""
    return [*([state.reason(sure=True)] if state else []), *held.of_it(config, told, newer=True)]


def _with(shown: list[Change], more: list[Change]) -> list[Change]:
    there = {id(c) for c in shown}
    added = [c for c in more if id(c) not in there]
    return sorted([*shown, *added], key=lambda c: c["order_key"])


def _row(told: Explained) -> dict[str, Any] | None:
    if told.stored is not None:
        return dict(told.stored)
    if told.moment.time is None or told.row.cells is None:
        return None
    return {name: cell.text for name, cell in told.row.cells.items()}


def _reason(reason: Reason, numbers: Mapping[int, int]) -> dict[str, Any]:
    by = numbers.get(id(reason.by)) if reason.by is not None else None
    return {"kind": reason.kind, "text": reason.text, "sure": reason.sure, "change": by, **reason.more}


def _cell(told: Explained, name: str, cell: Cell) -> dict[str, Any]:
    """ddl: the statement that gave the column its value, where the change is older than the column."""
    number = told.found.number(cell.by)
    added = [s for s in told.table.history.steps if any(a.name.lower() == name.lower() for a in s.effect.added)]
    later = [s for s in added if s.order > cell.by["order_key"] and s.effect.after in told.table.names]
    return {
        "column": name,
        "value": cell.text,
        "change": None if number is None else number + 1,
        "address": f"{cell.by['topic']}/{cell.by['partition']}/{cell.by['offset']}",
        "ddl": later[-1].ddl if later else None,
    }


def changes(
    config: Config, table: Table, shown: Sequence[Change], numbers: Mapping[int, int], *, sql: bool
) -> list[dict[str, Any]]:
    """Changes with their number, address and parts."""
    parts = parts_of(config, table, shown)
    versions = {c["schema_version"] for c in shown if c["schema_version"]} if sql else ()
    lists = column_lists(config, table.source, versions)
    found = []
    for change in shown:
        address = Address(change["topic"], change["partition"], change["offset"])
        one = {
            "change": numbers[id(change)],
            "address": str(address),
            **{name: change[name] for name in _SHOWN},
            "order_key": dict(zip(tables.ORDER.names, change["order_key"], strict=True)),
            "parts": [str(address._replace(offset=o)) for o in parts.get(address, ())],
        }
        found.append(one | ({"sql": statement(change, lists.get(change["schema_version"], []))} if sql else {}))
    return found


def _ddl(table: Table, shown: Sequence[Change]) -> list[dict[str, Any]]:
    """Statements behind the first of these changes that did something to the table."""
    first = min((c["order_key"] for c in shown), default=None)
    if first is None:
        return []
    concerned = (
        s
        for s in table.history.steps
        if s.order > first and not s.effect.nothing and {s.effect.before, s.effect.after} & table.names
    )
    unique = {s.address: s for s in concerned}
    return [{"ddl": s.ddl, "address": "/".join(map(str, s.address[:3]))} for s in unique.values()]


def contents(config: Config, table: Table, cells: Mapping[str, str | None], *, sql: bool) -> dict[str, Any]:
    """Of a table without a key: how often rows with these cells were added and taken away since it was emptied last,
    and all these changes; `state` as of `explained`, and `why` the snapshot may have others."""
    found = Changes(config, table).of(cells)
    emptied = max((c["order_key"] for c in found.truncates), default=None)
    since = [c for c in found.today if emptied is None or c["order_key"] > emptied]
    spelled = {name: table.alike.one(name, text) for name, text in cells.items()}
    holds = [{i for i in ("before", "after") if _holds(table, c[i], spelled)} for c in since]
    added = sum("after" in h and c["op"] != "delete" for h, c in zip(holds, since, strict=True))
    taken = sum("before" in h and c["op"] != "insert" for h, c in zip(holds, since, strict=True))
    numbers = {id(c): n for n, c in enumerate(found.came, 1)}
    state = snapshot_state.of(config, table)
    why = [r for r in (by_rule(table), state and state.reason(sure=True)) if r is not None]
    now = moments.Moment()
    may_lack = held.perhaps if added <= taken and not why else held.of_table
    why += may_lack(config, table, now)
    return {
        "source": table.source.name,
        "table": table.text,
        "content": dict(cells),
        "snapshot": ".".join(table.snapshot),
        "added": added,
        "taken": taken,
        "state": state and state.name,
        "why": [_reason(r, numbers) for r in why],
        "changes": changes(config, table, found.came, numbers, sql=sql),
        "ddl": _ddl(table, found.came),
        "doubts": found.doubts,
    }


def _holds(table: Table, image: Mapping[str, str | None] | None, spelled: Mapping[str, str | None]) -> bool:
    one = table.alike.one
    return image is not None and all(n in image and one(n, image[n]) == text for n, text in spelled.items())
