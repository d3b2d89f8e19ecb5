"""What an increment costs a table of a given size: changes of recent keys and of random ones, and upkeep.

The changelog is written as a chain would have left it; only the stage `snapshots` is measured. After it the snapshot
must equal what the changes say, cell by cell.
"""

import time
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.formats.events import columns_json, schema_version
from cdc_platform.lake import stores
from cdc_platform.lake.store import Store
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from cdc_platform.spark.session import ROWS_AT_ONCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DB, TABLE = "shop", "orders"
_COLUMNS = (("id", "bigint"), ("name", "varchar(64)"), ("note", "text"), ("qty", "int"))
_LIST = columns_json([{"name": n, "type": t, "key": n == "id"} for n, t in _COLUMNS])
_NOTE = "some longer text value to look like a real row " * 2
KINDS = ("recent", "random")
_SCANS = 5
_READERS_ROWS = "4096"


class Table:
    """A source's one table of `size` rows, in rounds of changes: round 0 makes it."""

    def __init__(self, spark: "SparkSession", config: Config, source: Source, size: int):
        self.spark, self.config, self.source, self.size = spark, config, source, size
        self.rounds: list[tuple[int, str, int]] = []

    def fill(self) -> None:
        """Round 0: every row inserted, and the list of the columns."""
        for beside in (tables.CONTROL_EVENTS, tables.OFFSET_LEDGER, tables.QUARANTINE, tables.LOG_EPOCHS):
            delta_sql.ensure(beside, beside.at(stores.lake(self.config)))
        path = delta_sql.ensure(tables.SCHEMA_HISTORY, tables.SCHEMA_HISTORY.at(stores.lake(self.config)))
        stated = {"kind": "message", "columns": _LIST, "order_key": _order(0, F.lit(0))}
        told = {**self._said(), "db": DB, "table": TABLE, **stated}
        self._append(self.spark.range(1), told, path)
        self._changes(self.spark.range(self.size), 0, "insert")
        self.snapshot()

    def increment(self, changes: int, kind: str) -> float:
        """One round of updates brought into the table; seconds of the stage."""
        number = len(self.rounds) + 1
        self.rounds.append((number, kind, changes))
        self._changes(self._keys(number, kind, changes), number, "update")
        return self.snapshot()

    def snapshot(self) -> float:
        """Seconds of one run of the stage."""
        from cdc_platform.chain import snapshot

        started = time.monotonic()
        snapshot(self.spark, self.config, self.source)
        return time.monotonic() - started

    def scan(self) -> float:
        """Seconds of reading all cells of the snapshot, as a reader's own Spark does by default."""
        own = self.spark.conf.get(ROWS_AT_ONCE) or _READERS_ROWS
        self.spark.conf.set(ROWS_AT_ONCE, _READERS_ROWS)
        try:
            started = time.monotonic()
            delta_sql.read(self.spark, self.path).agg(F.max(F.xxhash64("*"))).collect()
            return time.monotonic() - started
        finally:
            self.spark.conf.set(ROWS_AT_ONCE, own)

    def scan_compacted(self) -> float:
        """The same after OPTIMIZE: median of some."""
        self.spark.sql(f"OPTIMIZE {delta_sql.delta(self.path)}").collect()
        return median(self.scan() for _ in range(_SCANS))

    @property
    def path(self) -> Store:
        return Target.of(self.config, self.source.name, DB, TABLE).snapshot

    def differences(self) -> list[str]:
        """Rows that the changes tell and the snapshot doesn't hold, or the other way round."""
        newest = self.spark.range(self.size).select("id", F.lit(0).alias("round"))
        for number, kind, changes in self.rounds:
            newest = newest.union(self._keys(number, kind, changes).select("id", F.lit(number).alias("round")))
        told = newest.groupBy("id").agg(F.max("round").alias("round"))
        truth = told.select(*(_value(n, F.col("round")).cast(_SPARK[n]).alias(n) for n, _ in _COLUMNS))
        live = delta_sql.read(self.spark, self.path).select(*(n for n, _ in _COLUMNS))
        wrong = {"missing": truth.exceptAll(live).count(), "too many": live.exceptAll(truth).count()}
        return [f"{self.size} rows: {n} {what}" for what, n in wrong.items() if n]

    def _keys(self, number: int, kind: str, changes: int) -> "DataFrame":
        at = self.spark.range(changes)
        if kind == "recent":
            return at.select((F.lit(self.size - 1) - F.col("id") % self.size).alias("id"))
        return at.select(F.pmod(F.xxhash64("id", F.lit(number)), F.lit(self.size)).alias("id"))

    def _changes(self, keys: "DataFrame", number: int, op: str) -> None:
        path = delta_sql.ensure(tables.CHANGELOG, tables.CHANGELOG.at(stores.lake(self.config)))
        image = F.map_from_arrays(
            F.array(*(F.lit(n) for n, _ in _COLUMNS)),
            F.array(*(_value(n, F.lit(number)).cast("string") for n, _ in _COLUMNS)),
        )
        place = F.monotonically_increasing_id()
        told = {
            **self._said(),
            "db": DB,
            "table": TABLE,
            "op": op,
            "key": F.create_map(F.lit("id"), F.col("id").cast("string")),
            "after": image,
            "order_key": _order(number + 1, place),
            "row_index": 0,
        }
        self._append(keys, {**told, "offset": place}, path)

    def _said(self) -> dict[str, Any]:
        return {
            "source": self.source.name,
            "format": self.source.format,
            "topic": "t",
            "partition": 0,
            "offset": 0,
            "entry_index": 0,
            "schema_version": schema_version(DB, TABLE, _LIST),
        }

    def _append(self, rows: "DataFrame", told: dict[str, Any], path: Store) -> None:
        fields = delta_sql.read(self.spark, path).schema.fields
        frame = rows.select(*(_column(told.get(f.name)).cast(f.dataType).alias(f.name) for f in fields))
        frame.write.format("delta").mode("append").save(path.spark_uri())


_SPARK = {"id": "bigint", "name": "string", "note": "string", "qty": "int"}


def _order(file: int, place: Column) -> Column:
    return F.struct(
        *(F.lit(v).cast("bigint").alias(n) for n, v in (("epoch", 0), ("file", file))),
        place.cast("decimal(20,0)").alias("pos"),
        *(F.lit(0).cast("bigint").alias(n) for n in ("event", "row")),
        place.cast("bigint").alias("landed"),
    )


def _column(value: Any) -> Column:
    return value if isinstance(value, Column) else F.lit(value)


def _value(name: str, number: Column) -> Column:
    """A cell after a round, from the row's key."""
    key = F.col("id")
    return {
        "id": key,
        "name": F.concat(F.lit("n-"), key.cast("string"), F.lit("-"), number.cast("string")),
        "note": F.lit(_NOTE),
        "qty": (key + number) % 77,
    }[name]


def measurements(table: Table, changes: int, repeats: int) -> list[dict[str, Any]]:
    """Per kind of keys the seconds of an increment, after one that isn't measured, and of a scan of all cells after
    them all, as they left the table and freshly compacted."""
    out = []
    for kind in KINDS:
        table.increment(changes, kind)
        seconds = [table.increment(changes, kind) for _ in range(repeats)]
        out.append(
            {
                "rows": table.size,
                "changes": changes,
                "keys": kind,
                "seconds": round(median(seconds), 2),
                "min_s": round(min(seconds), 2),
                "max_s": round(max(seconds), 2),
                "scan_s": round(median(table.scan() for _ in range(_SCANS)), 2),
                "compacted_s": round(table.scan_compacted(), 2),
            }
        )
    return out
