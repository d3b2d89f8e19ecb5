"""Changelog rows whose columns' types became known later, decoded again from their messages' bytes.

What the decoder gave them before may be no text of the type at all (days since 1970 of a DATE that no schema told), so
it is never converted: landing has the bytes. Rows of which the changelog notes that today's decoder gave them, told the
same, are what it would give again, and left alone. Others are replaced where they are, under their address and order,
in one commit that readers of the changelog's commits don't take for new rows.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import and_, or_
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.doubted import Doubted
from cdc_platform.changelog.open_rows import may_differ, may_differ_sql, not_by, not_by_sql
from cdc_platform.changelog.order import ADDRESS
from cdc_platform.changelog.unify import with_keys
from cdc_platform.changes import in_force
from cdc_platform.changes.decode import decode
from cdc_platform.changes.decoded_by import decoded_by
from cdc_platform.changes.known import context_digest
from cdc_platform.changes.run import messages_path
from cdc_platform.config import Source, Tables
from cdc_platform.formats import FORMATS
from cdc_platform.lake import commits, delta_table
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import CHANGELOG, MESSAGE_AT, SCHEMA_HISTORY

Name = tuple[str, str]

_DECODED = ("op", "key", "before", "after", "schema_version")
"""What a decoder says of a row, that may depend on types."""


class RetypeResult(NamedTuple):
    """What decoding again came to. `changed`: per table what became known of its types, and how many rows are others
    for it; `failed`: why rows of a table can't be decoded any more."""

    changed: dict[Name, str]
    failed: dict[Name, str]


@dataclass(frozen=True)
class Retyped:
    """Of the lists of one source. Whoever uses it calls `find`, notes what is to become of the tables, then calls
    `replace`, which changes the changelog; all of it is found once more after a crash in between."""

    spark: SparkSession
    doubted: Doubted

    @property
    def _source(self) -> Source:
        return self.doubted.source

    @cached_property
    def _changelog(self) -> Store:
        return delta_sql.ensure(CHANGELOG, self.doubted.at(CHANGELOG))

    @cached_property
    def _decoder(self) -> str:
        """By what rows are decoded again."""
        return decoded_by(context_digest(str(self.doubted.context), in_force.values(self._source)))

    # -- decoding ------------------------------------------------------------------------------------------

    @cached_property
    def _stored(self) -> DataFrame:
        rows = delta_sql.read(self.spark, self._changelog).where(F.col("source") == self._source.name)
        return rows.where(F.col("schema_version").isin(*(d.version for d in self.doubted.lists)))

    @cached_property
    def _any_open(self) -> bool:
        """Whether there are such rows: mostly a list is left at the statement that speaks against it, and rows behind
        the statement were decoded when it was known. Asked without Spark, which takes seconds for nothing."""
        open_ = " OR ".join(may_differ_sql(d.version, d.doubt) for d in self.doubted.lists)
        mine = f"source = '{self._source.name}' AND {not_by_sql(self._decoder)}"
        sql = f"SELECT 1 AS there FROM {{t}} WHERE {mine} AND ({open_}) LIMIT 1"
        return bool(delta_table.ask(sql, t=self._changelog))

    @cached_property
    def _rows(self) -> DataFrame:
        """Rows that may be decoded otherwise, with the file that each is in."""
        open_ = [(F.col("schema_version") == d.version) & may_differ(d.doubt) for d in self.doubted.lists]
        rows = self._stored.where(not_by(self._decoder))
        return rows.select("*", F.col("_metadata.file_path").alias("_file")).where(reduce(or_, open_))

    @cached_property
    def _events(self) -> DataFrame:
        """Their messages, decoded again."""
        wanted = self._rows.select(*MESSAGE_AT).distinct()
        ranges = wanted.groupBy("topic", "partition").agg(F.min("offset").alias("low"), F.max("offset").alias("high"))
        near = F.lit(False)
        for r in ranges.collect():  # a row per Kafka partition
            at = (F.col("topic") == r["topic"]) & (F.col("partition") == r["partition"])
            near = near | (at & F.col("offset").between(r["low"], r["high"]))
        messages = delta_sql.read(self.spark, messages_path(self.doubted.config, self._source)).where(near)
        events = decode(
            messages.join(wanted, list(MESSAGE_AT), "left_semi"),
            self._source.format,
            self._source.options,
            self.doubted.context,
        )
        return events.where(F.col("kind").isin("row", "error", "schema")).persist()

    @cached_property
    def _compared(self) -> DataFrame:
        """The rows beside what they are now (`_n_…`), with `_failed` and `_changed`."""
        new = self._events.where("kind = 'row'")
        new = new.mapInArrow(partial(_keyed, self._source.tables), new.schema)
        new = new.select(*ADDRESS, *(F.col(c).alias(f"_n_{c}") for c in _DECODED))
        rows = self._rows.join(new, list(ADDRESS), "left")
        same = reduce(and_, (_same(c) for c in _DECODED))
        failed = F.col("_n_op").isNull()
        return rows.withColumns({"_failed": failed, "_changed": ~failed & ~same})

    def find(self) -> RetypeResult:
        """Decodes the rows in doubt again. Nothing is written."""
        return RetypeResult(self._changes, self._failed)

    @cached_property
    def _list_counts(self) -> list[dict[str, Any]]:
        """Per column list: rows, changed, failed, what became of it (`now`)."""
        if not self._any_open:
            return []
        counted = self._compared.groupBy("db", "table", "schema_version").agg(
            F.count_if("_changed").alias("changed"),
            F.count_if("_failed").alias("failed"),
            F.collect_set(F.when(F.col("_changed"), F.col("_n_schema_version"))).alias("now"),
        )
        return [r.asDict() for r in counted.collect()]

    @cached_property
    def _failed(self) -> dict[Name, str]:
        names = {(r["db"], r["table"]) for r in self._list_counts if r["failed"]}
        if not names:
            return {}
        reasons = self._events.where("kind = 'error'").groupBy(*MESSAGE_AT).agg(F.min("reason").alias("_reason"))
        bad = self._compared.where("_failed").join(reasons, list(MESSAGE_AT), "left")
        first = bad.groupBy("db", "table").agg(
            F.count(F.lit(1)).alias("n"), F.min(F.struct("topic", "partition", "offset", "_reason")).alias("first")
        )
        return {(r["db"], r["table"]): _why(r["n"], r["first"]) for r in first.collect()}

    @cached_property
    def _changes(self) -> dict[Name, str]:
        now = self._lists
        before = {d.version: d.columns for d in self.doubted.lists}
        found: dict[Name, list[str]] = {}
        counts: dict[Name, int] = {}
        for r in self._list_counts:
            name = r["db"], r["table"]
            if r["changed"] and name not in self._failed:
                counts[name] = counts.get(name, 0) + r["changed"]
                found.setdefault(name, []).extend(
                    x for v in r["now"] for x in _type_changes(before[r["schema_version"]], now[v]["columns"])
                )
        return {
            n: f"{counts[n]} changes were decoded again, since types of its columns became known"
            + "".join(f"; {x}" for x in dict.fromkeys(told))
            for n, told in found.items()
        }

    @cached_property
    def _lists(self) -> dict[str, dict[str, Any]]:
        """Column lists that rows have now, as SCHEMA_HISTORY has them, each at the first row of it."""
        if not self._any_open:
            return {}
        changed = self._compared.where("_changed").groupBy(F.col("_n_schema_version").alias("schema_version"))
        first = {r[0]: tuple(map(int, r[1])) for r in changed.agg(F.min("order_key")).collect()}
        stated = self._events.where("kind = 'schema'").where(F.col("schema_version").isin(*first))
        rows = {r["schema_version"]: r for r in stated.dropDuplicates(["schema_version"]).toArrow().to_pylist()}
        said = {"source": self._source.name, "format": self._source.format, "kind": "message"}
        said["decoder_version"] = FORMATS[self._source.format].version
        names = [n for n in SCHEMA_HISTORY.names if n not in said]
        return {v: {**{n: r.get(n) for n in names}, **said, "order_key": first[v]} for v, r in rows.items()}

    # -- what is written -----------------------------------------------------------------------------------

    def replace(self) -> None:
        """Puts what changed in place of what it was, but for tables that failed, and notes that it was compared."""
        replaced = {r["schema_version"] for r in self._list_counts if self._is_replaced(r)}
        mine = [v for v in self._lists.values() if (v["db"], v["table"]) in self._changes]
        delta_table.append_rows(self.doubted.at(SCHEMA_HISTORY), mine)
        self._note(replaced)
        if self._changes:
            self._rewrite_changelog()
        self._forget(replaced)
        if self._any_open:
            self._events.unpersist()

    def _is_replaced(self, figures: Mapping[str, Any]) -> bool:
        """Whether no row keeps its column list."""
        version = figures["schema_version"]
        if (figures["db"], figures["table"]) not in self._changes or version in figures["now"]:
            return False
        return self._stored.where(F.col("schema_version") == version).count() == figures["changed"]

    def _note(self, replaced: set[str]) -> None:
        newest = f"SELECT max(number) AS n FROM {{t}} WHERE source = '{self._source.name}'"
        number = delta_table.ask(newest, t=self.doubted.known)[0]["n"]
        number = 0 if number is None else number + 1
        lists = {
            d.version: (d.name, self.doubted.failing(d.doubt) if d.name in self._failed else d.doubt.digest)
            for d in self.doubted.lists
        }
        lists |= {v: ((r["db"], r["table"]), "") for v, r in self._lists.items() if v not in lists}
        before, gone = self.doubted.replaced(), replaced | self._without_rows
        rows = [
            {"source": self._source.name, "number": number, "db": db, "table": table, "schema_version": version}
            | {"digest": digest, "replaced": version in gone}
            for version, ((db, table), digest) in lists.items()
            if digest or version in before
        ]
        delta_table.append_rows(self.doubted.known, rows)

    @cached_property
    def _without_rows(self) -> set[str]:
        """Lists that were replaced before, by a run that was killed before it said so in the schema history."""
        lists = {d.version for d in self.doubted.lists} & self.doubted.replaced()
        if not lists:
            return lists
        mine = f"source = '{self._source.name}' AND schema_version IN ({delta_table.digests(lists)})"
        there = delta_table.ask(f"SELECT DISTINCT schema_version FROM {{t}} WHERE {mine}", t=self._changelog)
        return lists - {r["schema_version"] for r in there}

    def _rewrite_changelog(self) -> None:
        path, source = self._changelog, self._source.name
        mine = reduce(or_, ((F.col("db") == db) & (F.col("table") == table) for db, table in self._changes))
        new = self._compared.where("_changed").where(mine)
        names = {r["_file"].rsplit("/", 1)[-1] for r in new.select("_file").distinct().collect()}
        gone = [name for name in delta_table.files(path) if name.rsplit("/", 1)[-1] in names]
        now = new.select(*ADDRESS, *(f"_n_{c}" for c in _DECODED))
        rows = delta_sql.rows_of(self.spark, path, [File(path, n) for n in gone], source=source)
        changed = F.col("_n_op").isNotNull()
        instead = {c: F.when(changed, F.col(f"_n_{c}")).otherwise(F.col(c)) for c in _DECODED}
        now_by = {"decoder_version": FORMATS[self._source.format].version, "decoded_by": self._decoder}
        instead |= {c: F.when(changed, F.lit(by)).otherwise(F.col(c)) for c, by in now_by.items()}
        rows = rows.join(now, list(ADDRESS), "left").withColumns(instead)
        _put(path, rows.select(*CHANGELOG.names), gone, source)

    def _forget(self, replaced: set[str]) -> None:
        """Takes column lists that no row has any more out of the schema history."""
        lists = replaced | self._without_rows
        if not lists:
            return
        path, source = self.doubted.at(SCHEMA_HISTORY), self._source.name
        every = delta_sql.read(self.spark, path).where(F.col("source") == source)
        kept = every.where((F.col("kind") != "message") | ~F.col("schema_version").isin(*lists))
        gone = delta_table.files(path, source=source)
        _put(path, kept.coalesce(1), gone, source)


def _put(path: Store, rows: DataFrame, gone: list[str], source: str) -> None:
    """Rows in place of some files of one source."""
    sink = delta_table.sink(path, source=source)
    make = partial(arrow_tasks.conformed_to, sink.schema)
    commits.replace(sink, gone, arrow_tasks.partitions(rows, make, arrow_tasks.write, {"rows": sink}).written["rows"])


def _keyed(tables: Tables, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (with_keys(rows, tables) for rows in batches)


def _same(column: str) -> Column:
    """Whether a value is as it was; of maps Spark compares none."""
    old, new = F.col(column), F.col(f"_n_{column}")
    if column in ("key", "before", "after"):
        old, new = (F.array_sort(F.map_entries(c)) for c in (old, new))
    return old.eqNullSafe(new)


def _type_changes(before: str, now: str) -> list[str]:
    """What became of the types of a column list."""
    was = {c["name"]: c["type"] for c in json.loads(before)}
    is_ = {c["name"]: c["type"] for c in json.loads(now)}
    return [f"{n}: {was[n]} is {t}" for n, t in is_.items() if n in was and was[n] != t]


def _why(count: int, first: Any) -> str:
    place = f"{first['topic']}/{first['partition']} offset {first['offset']}"
    reason = first["_reason"] or "its message isn't in landing any more"
    return f"types of its columns became known, and {count} changes can't be of them, the first at {place}: {reason}"
