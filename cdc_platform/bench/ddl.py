"""A history of DDL of all kinds between the rows of some tables, from one topic, as a backlog.

The changes come as Canal JSON through the whole chain. After them every snapshot must equal what they say.
"""

import random
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from cdc_platform.bench.breadth import DB, canal_json, catch_up, name, wrong
from cdc_platform.config import Config
from cdc_platform.feeds.publish import Record, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATEMENTS, _CHANGES = 60, 2_700
_FIRST = {"id": "bigint", "name": "varchar(64)", "qty": "int"}
_COLUMNS = "(id bigint PRIMARY KEY, name varchar(64), qty int)"
_KINDS = ("add", "drop", "rename", "widen", "comment", "truncate", "rename table", "create")
_EACH = {"a column more in each": "add", "one less in each": "drop", "another type in each": "retype"}
"""Rounds, and the kinds of their statements."""

Row = dict[str, str | None]


class History:
    """So many tables, their columns and rows, as messages make them."""

    def __init__(self, topic: str, tables: int):
        self.topic, self.at = topic, 0
        self.columns: dict[str, dict[str, str]] = {name(t): dict(_FIRST) for t in range(tables)}
        self.rows: dict[str, dict[int, Row]] = {n: {} for n in self.columns}
        self._random = random.Random(33)  # noqa: S311
        self._numbers = iter(range(10_000))

    def records(self) -> Iterator[Record]:
        """CREATEs, then statements evenly among changes."""
        for table in list(self.columns):
            yield self._ddl(
                table, f"CREATE TABLE `{table}` (id bigint PRIMARY KEY, name varchar(64), qty int)", "CREATE"
            )
        every = _CHANGES // _STATEMENTS
        for change in range(_CHANGES):
            if change % every == every - 1:
                kind = _KINDS[change // every % len(_KINDS)]
                yield getattr(self, f"_{kind.replace(' ', '_')}")(self._some())
            yield self._change(self._some())

    def differences(self, config: Config) -> list[str]:
        """Tables whose snapshot isn't what the changes say."""
        return [d for t, rows in self.rows.items() if (d := wrong(config, t, list(self.columns[t]), rows.values()))]

    def each(self, kind: str) -> Iterator[Record]:
        """A statement in each table."""
        for table in list(self.columns):
            yield getattr(self, f"_{kind}")(table)

    def _some(self) -> str:
        return self._random.choice(list(self.columns))

    def _change(self, table: str) -> Record:
        rows, key = self.rows[table], self._random.randrange(60)
        before, row = rows.get(key), self._row(table, key)
        if before is not None and self._random.random() < 0.2:
            return self._message(table, "DELETE", rows.pop(key), None)
        rows[key] = row
        if before is None:
            return self._message(table, "INSERT", row, None)
        return self._message(table, "UPDATE", row, {c: v for c, v in before.items() if row[c] != v})

    def _row(self, table: str, key: int) -> Row:
        texts = {"id": str(key), "name": f"n-{self.at}"}
        return {c: texts.get(c, str(self.at % 77)) for c in self.columns[table]}

    def _message(self, table: str, kind: str, row: Row, old: Row | None) -> Record:
        self.at += 1
        return canal_json(self.topic, self.at, table, kind, self.columns[table], row, old)

    def _ddl(self, table: str, sql: str, kind: str = "ALTER") -> Record:
        self.at += 1
        return canal_json(self.topic, self.at, table, kind, {}, None, None, sql=sql)

    def _add(self, table: str) -> Record:
        column = f"c{next(self._numbers)}"
        self.columns[table][column] = "int"
        for row in self.rows[table].values():
            row[column] = None
        return self._ddl(table, f"ALTER TABLE `{table}` ADD COLUMN {column} int")

    def _drop(self, table: str) -> Record:
        if not (own := [c for c in self.columns[table] if c not in _FIRST]):
            return self._add(table)
        del self.columns[table][own[0]]
        for row in self.rows[table].values():
            row.pop(own[0], None)
        return self._ddl(table, f"ALTER TABLE `{table}` DROP COLUMN {own[0]}")

    def _rename(self, table: str) -> Record:
        if not (own := [c for c in self.columns[table] if c not in _FIRST]):
            return self._add(table)
        new = f"r{next(self._numbers)}"
        self.columns[table] = {new if c == own[0] else c: t for c, t in self.columns[table].items()}
        rows = self.rows[table]
        self.rows[table] = {k: {new if c == own[0] else c: v for c, v in r.items()} for k, r in rows.items()}
        return self._ddl(table, f"ALTER TABLE `{table}` RENAME COLUMN {own[0]} TO {new}")

    def _widen(self, table: str) -> Record:
        self.columns[table]["qty"] = "bigint"
        return self._ddl(table, f"ALTER TABLE `{table}` MODIFY COLUMN qty bigint")

    def _retype(self, table: str) -> Record:
        self.columns[table]["qty"] = "varchar(20)"
        return self._ddl(table, f"ALTER TABLE `{table}` MODIFY COLUMN qty varchar(20)")

    def _comment(self, table: str) -> Record:
        return self._ddl(table, f"ALTER TABLE `{table}` COMMENT 'seen at {self.at}'")

    def _truncate(self, table: str) -> Record:
        self.rows[table].clear()
        return self._ddl(table, f"TRUNCATE TABLE `{table}`", "TRUNCATE")

    def _rename_table(self, table: str) -> Record:
        new = f"renamed{next(self._numbers)}"
        self.columns[new], self.rows[new] = self.columns.pop(table), self.rows.pop(table)
        return self._ddl(table, f"RENAME TABLE `{DB}`.`{table}` TO `{DB}`.`{new}`", "RENAME")

    def _create(self, _: str) -> Record:
        table = f"new{next(self._numbers)}"
        self.columns[table], self.rows[table] = dict(_FIRST), {}
        return self._ddl(table, f"CREATE TABLE `{table}` {_COLUMNS}", "CREATE")


def measurements(
    spark: "SparkSession", config: Config, servers: str, tables: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Per round: statements, changes, seconds of the chain and of its last stage, peak memory; and differences. After
    the backlog one statement in each table, which all have rows: two that concern columns alone, and one of a type."""
    history = History("ddl", tables)
    rounds = {"backlog": history.records, **{what: partial(history.each, kind) for what, kind in _EACH.items()}}
    out = []
    for what, records in rounds.items():
        statements, changes = (_STATEMENTS, _CHANGES) if what == "backlog" else (len(history.columns), 0)
        publish(records(), servers, partitions={history.topic: 1})
        whole, last = catch_up(spark, config)
        told = {"round": what, "statements": statements, "changes": changes, "tables": len(history.columns)}
        seconds = {"seconds": round(whole.seconds, 2), "snapshots_s": round(last.seconds, 2)}
        out.append({**told, **seconds, "cpu_s": round(whole.cpu_s, 1), "peak_mb": round(whole.peak_bytes / 1e6)})
    return out, history.differences(config)
