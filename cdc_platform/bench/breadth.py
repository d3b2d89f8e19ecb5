"""Many small tables of one source: a first load, a round over some of them, one change in each, nothing new.

The changes come as Canal JSON through the whole chain. After them every snapshot must equal what the changes say.
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, QueryBuilder

from cdc_platform.bench.meter import Reading, measured
from cdc_platform.config import Config
from cdc_platform.feeds.publish import Record, publish
from cdc_platform.feeds.workload import START_MS
from cdc_platform.lake import answers, delta_table, stores
from cdc_platform.tables import SNAPSHOT_PATH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DB = "shop"
TYPES = {"id": "bigint", "name": "varchar(64)", "amount": "decimal(12,2)", "qty": "int"}
_SQL_TYPES = {"bigint": -5, "varchar": 12, "decimal": 3, "int": 4}
_ROWS = 20

Row = dict[str, str]


@dataclass(slots=True)
class Tables:
    """So many tables and their rows by key, as messages make them; a key's by one partition. keyless: the tables have
    no key, and rows are only inserted."""

    topic: str
    number: int
    partitions: int = 1
    keyless: bool = False
    rows: list[dict[int, Row]] = field(default_factory=list)
    changes: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(33))  # noqa: S311

    def load(self) -> Iterator[Record]:
        """Each table's first rows."""
        self.rows = [{} for _ in range(self.number)]
        for key in range(_ROWS):
            for table in range(self.number):
                yield self._insert(table, key)

    def some(self, changes: int, tables: int) -> Iterator[Record]:
        """Updates, inserts and deletes of some tables, in turn."""
        for i in range(changes):
            table, what = i % tables, self._random.random()
            if what < 0.2 or not self.rows[table] or self.keyless:
                yield self._insert(table, 1000 + self.changes)
            elif what < 0.3:
                yield self._delete(table)
            else:
                yield self._update(table)

    def each(self) -> Iterator[Record]:
        """One change in each."""
        for table in range(self.number):
            yield self._insert(table, 1000 + self.changes) if self.keyless else self._update(table)

    def _insert(self, table: int, key: int) -> Record:
        row = self.rows[table][key] = self._row(key)
        return self._message(table, "INSERT", row, None)

    def _update(self, table: int) -> Record:
        key = self._random.choice(list(self.rows[table]))
        before, row = self.rows[table][key], self._row(key)
        self.rows[table][key] = row
        return self._message(table, "UPDATE", row, {n: v for n, v in before.items() if row[n] != v})

    def _delete(self, table: int) -> Record:
        key = self._random.choice(list(self.rows[table]))
        return self._message(table, "DELETE", self.rows[table].pop(key), None)

    def _row(self, key: int) -> Row:
        n = self.changes
        return {"id": str(key), "name": f"n-{key}-{n}", "amount": f"{n % 10_000}.{n % 100:02}", "qty": str(n % 77)}

    def _message(self, table: int, kind: str, row: Row, old: Row | None) -> Record:
        self.changes += 1
        keys = () if self.keyless else ("id",)
        record = canal_json(self.topic, self.changes, name(table), kind, TYPES, row, old, keys=keys)
        return record._replace(partition=int(row["id"]) % self.partitions)

    def differences(self, config: Config) -> list[str]:
        """Tables whose snapshot isn't what the changes say."""
        found = []
        for table, rows in enumerate(self.rows):
            if told := wrong(config, name(table), list(TYPES), rows.values()):
                found.append(told)
        return found[:20]


def wrong(config: Config, table: str, columns: list[str], rows: Iterable[Mapping[str, str | None]]) -> str | None:
    """How a snapshot differs from these rows; None: it doesn't."""
    path = SNAPSHOT_PATH.at(stores.lake(config), source="bench", db=DB, table=table)
    if not delta_table.exists(path):
        return f"{table}: it isn't there"
    reader = QueryBuilder().register("t", DeltaTable(path.uri(), storage_options=path.options))
    there = answers.table(reader.execute("SELECT * FROM t").read_all()).select(columns).to_pylist()
    live = sorted(tuple(str(r[c]) for c in columns) for r in there)
    told = sorted(tuple(str(r[c]) for c in columns) for r in rows)
    return None if live == told else f"{table}: {len(set(live) ^ set(told))} rows differ"


def canal_json(
    topic: str,
    number: int,
    table: str,
    kind: str,
    types: Mapping[str, str],
    row: Mapping[str, str | None] | None,
    old: Mapping[str, str | None] | None,
    sql: str = "",
    *,
    keys: tuple[str, ...] = ("id",),
) -> Record:
    """A message about one row, or about a statement. keys: columns of the table's key."""
    at = START_MS + number
    message = {
        "data": row and [row],
        "database": DB,
        "es": at,
        "id": number,
        "isDdl": bool(sql),
        "mysqlType": types or None,
        "old": old and [old],
        "pkNames": [*keys] if types and keys else None,
        "sql": sql,
        "sqlType": {c: _SQL_TYPES[t.partition("(")[0]] for c, t in types.items()} or None,
        "table": table,
        "ts": at,
        "type": kind,
    }
    return Record(topic, 0, None, json.dumps(message).encode(), (), at)


def name(table: int) -> str:
    """Name of a table by its number."""
    return f"t{table:04}"


def measurements(
    spark: "SparkSession", config: Config, servers: str, tables: Tables, changes: int, some: int
) -> list[dict[str, Any]]:
    """Per round: changes, tables concerned, seconds of the chain and of its last stage, peak memory. The first round
    makes the tables; the last has nothing new."""
    rounds = {
        "first load": (tables.number, tables.load()),
        "some": (some, tables.some(changes, some)),
        "each": (tables.number, tables.each()),
        "nothing new": (0, iter(())),
    }
    out = []
    for what, (concerned, records) in rounds.items():
        done = publish(records, servers, partitions={tables.topic: tables.partitions})
        whole, last = catch_up(spark, config)
        seconds = {"seconds": round(whole.seconds, 2), "snapshots_s": round(last.seconds, 2)}
        peak = {"cpu_s": round(whole.cpu_s, 1), "peak_mb": round(whole.peak_bytes / 1e6)}
        out.append({"round": what, "changes": done.records, "tables": concerned, **seconds, **peak})
    return out


def catch_up(spark: "SparkSession", config: Config) -> tuple[Reading, Reading]:
    """Every stage once: the whole, and the last one."""
    from cdc_platform.chain import STAGES

    [source] = config.sources
    last = Reading()
    with measured() as whole:
        for run in STAGES.values():
            with measured() as last:
                run(spark, config, source)
    return whole, last
