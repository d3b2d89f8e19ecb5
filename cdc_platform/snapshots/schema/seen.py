"""All that a source has said of its tables' columns, read from the lake: DDL and column lists. No Spark here."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cdc_platform.changelog.loads import loads
from cdc_platform.changelog.schema import Address, SchemaHistory, Step
from cdc_platform.changelog.schema_steps import Effects, schema_history
from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.table_schemas.options import MySqlOptions
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.queries import query
from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.effects import VERSION, Effect, effects, from_json
from cdc_platform.tables import LOG_EPOCHS, OFFSET_LEDGER, SCHEMA_EFFECTS, SCHEMA_HISTORY


@dataclass(frozen=True, slots=True)
class Seen:
    """full: what statements and lists come to. ddl: rows of schema_history that are statements of the source, and
    snapshots that replace a table, with `order` and `address`; placed: addresses of those whose order among the rows is
    told; outside: statements that aren't among the steps of `full`, in order."""

    full: SchemaHistory
    ddl: list[dict[str, Any]]
    placed: set[Address]
    outside: list[Statement]


def seen(config: Config, source: Source, read: Effects | None = None) -> Seen:
    """As the lake has it now. read: who reads the statements; None: what runs have kept of them, else the parsers,
    which take a JVM. Raises deltalake's TableNotFoundError: no run has come to the changelog yet."""
    every = _recorded(config, source)
    # Statements that a connector made up to describe tables (its own snapshot) did nothing at the source.
    rows = [r for r in every if r["kind"] == "message" or not _made_up(r)]
    ddl = [r for r in rows if r["kind"] == "ddl"]
    placed = _placed(config, source, ddl)
    told = [r for r in rows if r["kind"] == "message" or r["address"] in placed]
    options = _options(source)
    made_up = [r for r in every if r["kind"] == "ddl" and _made_up(r)]
    again = loads(
        (r for r in every if r["kind"] == "message"), made_up, whole=options.whole_loads if options else False
    )
    read = read or partial(_known_effects, config, source)
    full = schema_history(told, read, fold=options.fold if options else False, loads=again)
    replaced = {s.address: _inferred_step(s) for s in again.replaced}
    ddl, placed = [*ddl, *replaced.values()], placed | replaced.keys()
    outside = [r for r in every if r["kind"] == "ddl" and r["ddl"] and r["address"] not in placed]
    ordered = sorted(outside, key=lambda r: (r["order"], r["address"]))
    return Seen(full, ddl, placed, [Statement(r["db"], r["ddl"]) for r in ordered])


def digest_of(statements: Sequence[Statement], fold: bool) -> str:
    """The name under which effects of statements are kept."""
    asked = json.dumps([VERSION, statements, *([True] if fold else [])]).encode()
    return hashlib.blake2b(asked, digest_size=16).hexdigest()


def kept_effects(config: Config, source: Source, digest: str) -> list[Effect] | None:
    """What is kept of statements; None: nothing."""
    found = query(
        f"SELECT effects FROM t WHERE source = '{source.name}' AND digest = '{digest}' LIMIT 1",
        t=SCHEMA_EFFECTS.at(stores.lake(config)),
    )
    return from_json(found[0]["effects"]) if found else None


def _known_effects(config: Config, source: Source, statements: Sequence[Statement], fold: bool) -> list[Effect]:
    kept = kept_effects(config, source, digest_of(statements, fold))
    return effects(statements, fold) if kept is None else kept


def _options(source: Source) -> MySqlOptions | None:
    options = FORMATS[source.format].options.model_validate(source.options)
    return options if isinstance(options, MySqlOptions) else None


def _recorded(config: Config, source: Source) -> list[dict[str, Any]]:
    """DDL and column lists of the source."""
    rows = delta_table.ask(
        'SELECT kind, db, schema, "table", columns, ddl, info, gtid, source_time, order_key, topic, "partition", '
        '"offset", entry_index, binlog_file, binlog_pos '
        f"FROM {{history}} WHERE source = '{source.name}' AND kind IN ('message', 'ddl')",
        history=SCHEMA_HISTORY.at(stores.lake(config)),
    )
    return [_as_step(r) for r in rows]


def _made_up(row: dict[str, Any]) -> bool:
    return dict(row["info"] or ()).get("snapshot", "false") != "false"


def _inferred_step(step: Step) -> dict[str, Any]:
    """A step that no statement tells, as the row of one: it stands where its rows do, without a time or a transaction
    of its own."""
    address = dict(zip(("topic", "partition", "offset", "entry_index"), step.address, strict=True))
    return {**address, "address": step.address, "order": step.order, "ddl": step.ddl, "source_time": None, "gtid": None}


def address_of(row: dict[str, Any]) -> Address:
    """Where a statement stands in Kafka."""
    return row["topic"], row["partition"], row["offset"], row["entry_index"]


def _as_step(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "order": tuple(map(int, row["order_key"].values())), "address": address_of(row)}


def _placed(config: Config, source: Source, rows: list[dict[str, Any]]) -> set[Address]:
    """Addresses of the DDL whose order among the rows is told: by a binlog position, or all lie in one partition."""
    if all(r["order"][1] >= 0 for r in rows):
        return {r["address"] for r in rows}
    of = f"WHERE source = '{source.name}' AND"
    positions = delta_table.ask(
        f"SELECT source FROM {{epochs}} {of} high_file >= 0 LIMIT 1",
        epochs=LOG_EPOCHS.at(stores.lake(config)),
    )
    partitions = delta_table.ask(
        f"SELECT DISTINCT topic, \"partition\" FROM {{ledger}} {of} outcome = 'landed' LIMIT 2",
        ledger=OFFSET_LEDGER.at(stores.lake(config)),
    )
    alone = not positions and len(partitions) <= 1
    return {r["address"] for r in rows if alone or r["order"][1] >= 0}
