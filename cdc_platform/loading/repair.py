"""`reconcile --repair`: keys that differ, read from the server once more and landed as a load's rows are."""

from binascii import b2a_base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform import chain
from cdc_platform.config import Config, Source
from cdc_platform.errors import ConfigError
from cdc_platform.formats.loaded import BYTES, Record
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.loading import land
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.proof import Evidence, evidence
from cdc_platform.loading.run import Told, follow, shown
from cdc_platform.loading.table import table_of
from cdc_platform.loading.view import opened
from cdc_platform.reconcile import statements
from cdc_platform.reconcile.columns import Pair, Pairing
from cdc_platform.reconcile.errors import SourceRefused
from cdc_platform.reconcile.frames import Differing
from cdc_platform.reconcile.result import Open, TableResult
from cdc_platform.reconcile.run import against_server
from cdc_platform.reconcile.server import Server, rows_by_keys, table_name
from cdc_platform.reconcile.texts import key_literal
from cdc_platform.spark.session import leased
from cdc_platform.tables import Name
from cdc_platform.units import count

KEYS = "keys"
_OF_ONE_TABLE = (LoadRefused, ConfigError, SourceRefused)
"""What one table is left for, and no other: others are repaired."""
_LOAD = "`cdc-platform load` reads the whole table"


@dataclass(slots=True)
class Repaired:
    """What was done about one table. before: the comparison that found it. rows: read and put in; gone: taken out, as
    the server has none of them; at: place in its log; first: partition and offset of its first record. left: why
    something, or all, was left as it is."""

    table: str
    before: TableResult
    rows: int = 0
    gone: int = 0
    at: str | None = None
    first: tuple[int, int] | None = None
    left: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain data, without the comparison."""
        return {"table": self.table, "rows": self.rows, "gone": self.gone, "at": self.at, "left": self.left}


def repair(
    spark: SparkSession,
    config: Config,
    source: Source,
    server: Server,
    names: Sequence[Name] = (),
    *,
    limit: int = 20,
    told: Told = lambda _: None,
) -> tuple[list[Repaired], list[TableResult]]:
    """Compares these tables, or all (reconcile.run.against_server), repairs what differs, and compares what was
    repaired again. Returns what was done, and all comparisons as they are now. Raises what `load` raises; what concerns
    one table is told of it."""
    with source_lock(config, source) as lease, leased(spark, lease):
        told("catching up with the feed")
        for stage in chain.STAGES.values():
            stage(spark, config, source)
        compare = partial(against_server, spark, config, source, server, limit=limit, told=told)
        compared = [r for name in names or [None] for r in compare(name)]
        wrong = [r for r in compared if not r.equal]
        of = evidence(config, source) if any(r.open and r.open.keys for r in wrong) else None
        done = [_repaired(config, source, server, of, r) for r in wrong]
        for one in done:
            told(f"{one.table}: {count(one.rows, 'row')} put in, {one.gone:,} taken out")
        if any(one.rows or one.gone for one in done):
            follow(spark, config, source)
        now = {one.table: r for one in done if one.rows or one.gone for r in _again(compare, one)}
    return done, [now.get(r.table, r) for r in compared]


def _again(compare: Callable[[Name], list[TableResult]], done: Repaired) -> list[TableResult]:
    """How a repaired table compares now; none where the server refuses it: it is told as it was."""
    assert done.before.open is not None
    try:
        return compare(done.before.open.name)
    except _OF_ONE_TABLE as error:
        done.left.append(f"repaired, and not compared again: {error}")
        return []


def _repaired(config: Config, source: Source, server: Server, of: Evidence | None, result: TableResult) -> Repaired:
    done = Repaired(result.table, result, left=[f"{p}: {_LOAD}" for p in result.problems])
    if of is None or not result.open or not result.open.keys:
        return done
    counted = result.missing + result.extra + result.changed
    if result.not_looked_into or counted > len(result.open.keys):
        done.left.append(f"more differs than is looked into: {_LOAD}")
    try:
        _keys(config, source, server, of, result.open, done)
    except _OF_ONE_TABLE as error:
        done.left.append(str(error))
    return done


def _keys(config: Config, source: Source, server: Server, of: Evidence, open_: Open, done: Repaired) -> None:
    """Reads these keys in one view, and lands what it shows. Raises LoadRefused."""
    if not open_.pairing.keyed:
        raise LoadRefused(source.name, f"{done.table} has no key: its rows can't be told apart", [_LOAD])
    table = table_of(config, source, server, *open_.name)
    keys = [c.name.lower() for c in table.columns if c.key]
    if keys != [p.name.lower() for p in open_.pairing.keys]:
        raise LoadRefused(source.name, f"{done.table}: its key isn't the one that was compared by", [_LOAD])
    wanted = {d.digest: (d.keys, True) for d in open_.keys}  # may have come since the comparison

    def statement(name: str, pairing: Pairing, conditions: Sequence[str]) -> str:
        where = " OR ".join(f"({c})" for c in conditions)
        return f"SELECT {statements.digest_of_key(pairing)}, {table.values} FROM {name} WHERE {where}"

    with opened(server, of) as view:
        view.cursor.connection.decoders = {}
        rows = rows_by_keys(view.cursor, statement, table_name(table.db, table.name), open_.pairing, wanted)
        if tuple(server.columns(table.db, table.name)) != table.every:
            raise LoadRefused(source.name, f"the columns of {done.table} change", ["to repair later"], retriable=True)
    there = {row[0] for row in rows}
    lacking = [d for d in open_.keys if d.digest not in there]
    gone = [d for d in lacking if _has_key(d, open_.pairing)]
    if untold := len(lacking) - len(gone):
        done.left.append(f"{count(untold, 'row')} with NULL, or what is no value, in the key stays: {_LOAD}")
    if not (rows or gone):
        return
    path = land.path_of(config, source)
    done.first = of.epoch, land.next_offset(path, of.epoch)
    record = Record(
        load=f"{done.first[0]}.{done.first[1]}",
        kind=KEYS,
        server=view.server,
        at=view.at,
        time_us=view.time_us,
        db=table.db,
        table=table.name,
        columns=list(table.columns),
        after=of.newest,
        begin=shown(view.at),
        rows=table.landed([row[1:] for row in rows]),
        gone=[_values(d, open_.pairing) for d in gone],
    )
    land.land(path, source, of.epoch, land.parted(record))
    done.rows, done.gone, done.at = len(rows), len(gone), shown(view.at)


def _has_key(one: Differing, pairing: Pairing) -> bool:
    """Whether a row can be named by its key: NULL in it names none."""
    pairs = zip(pairing.keys, one.keys, strict=True)
    return all(key_literal(pair.text.key, text) is not None for pair, text in pairs)


def _values(one: Differing, pairing: Pairing) -> list[str | None]:
    """The key's values as a record has them, from the texts that rows are found by."""
    return [_value(pair, text) for pair, text in zip(pairing.keys, one.keys, strict=True)]


def _value(pair: Pair, text: str) -> str:
    if pair.type.family in BYTES:
        return b2a_base64(bytes.fromhex(text), newline=False).decode()
    return bytes.fromhex(text).decode() if pair.type.family in _AS_HEX else text


_AS_HEX = ("text", "enum", "set")
