"""What a batch of events writes: rows for each output, with their order and outcome."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog import ledger, order, order_key, rules
from cdc_platform.changes.file_stats import KINDS
from cdc_platform.config import Source
from cdc_platform.formats import FORMATS, loaded
from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import LOADED

_TXN = (*order_key.TXN, "order_key")
_MESSAGE = ("topic", "partition", "offset")


@dataclass(frozen=True)
class Batch:
    """Events on their way, and where they go. `app` and `number` name their writes: each happens once. `rows` gives the
    events with order and outcome, as Spark has them: who has workers write them needs none."""

    source: Source
    paths: dict[str, Store]
    number: int
    spark: SparkSession
    rows: Callable[[], DataFrame]
    app: str = "changelog"

    @cached_property
    def events(self) -> DataFrame:
        """The same, made once."""
        return self.rows()

    def append(self, rows: Callable[["Batch"], DataFrame], output: str) -> None:
        once = (f"{self.app} {self.source.name}", self.number)
        arrow_tasks.append(rows(self), self.paths[output], once, source=self.source.name)


Write = Callable[[], None]


def writes(batch: Batch, figures: list[dict[str, Any]]) -> list[Write]:
    """The batch's writes, one per output that has rows; independent of each other. Of messages that were told anew the
    ledger comes before the changelog: when the batch is repeated, rows that stand there count as used before."""
    total = {k: sum(f[k] for f in figures) for k in ("rows", "ddl", "control", "errors", "retold")}
    versions = new_versions(batch, {v for f in figures for v in f["versions"]})
    writes = {
        "changelog": (total["rows"], changelog_rows),
        "schema_history": (versions or total["ddl"], partial(schema_rows, versions=versions)),
        "control_events": (total["control"], _control_rows),
    }
    work: list[Write] = [partial(batch.append, rows, output) for output, (any_, rows) in writes.items() if any_]
    quarantine = partial(_quarantine, batch, total["errors"], total["retold"])
    account = partial(ledger_of, batch, figures)
    return [quarantine, partial(_in_turn, account, *work)] if total["retold"] else [quarantine, account, *work]


def _in_turn(*work: Write) -> None:
    for write in work:
        write()


def _said_by(source: Source, events: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """`source`, `format`, `decoder_version`, the Kafka address, then `columns`."""
    return events.select(
        F.lit(source.name).alias("source"),
        _by(loaded.NAME, source.format).alias("format"),
        _by(loaded.VERSION, FORMATS[source.format].version).alias("decoder_version"),
        "topic",
        "partition",
        "offset",
        *columns,
    )


def _by(ours: str, feed: str) -> Column:
    """What is said of who decoded each event."""
    return F.when(F.col("topic") == LOADED, F.lit(ours)).otherwise(F.lit(feed))


def changelog_rows(batch: Batch) -> DataFrame:
    rows = batch.events.where("kind = 'row' AND outcome = 'applied'").withColumn("key", rules.key(batch.source.tables))
    return _said_by(
        batch.source,
        rows,
        ("entry_index", "row_index", "db", "schema", "table", "op", "key", "before", "after", "schema_version", *_TXN),
    )


def new_versions(batch: Batch, stated: set[str]) -> set[str]:
    """Schema versions of this batch that the history doesn't know from earlier ones."""
    if not stated:
        return stated
    known = delta_table.ask(
        f"SELECT schema_version FROM {{history}} WHERE source = '{batch.source.name}' AND kind = 'message' "
        f"AND schema_version IN ({delta_table.digests(stated)})",
        history=batch.paths["schema_history"],
    )
    return stated - {r["schema_version"] for r in known}


def schema_rows(batch: Batch, versions: set[str]) -> DataFrame:
    """DDL statements, and the new column lists, each where it came first."""
    columns = ("entry_index", "kind", "db", "schema", "table", "schema_version", "columns", "ddl", "info", *_TXN)
    ddl = _said_by(batch.source, batch.events.where("kind = 'ddl' AND outcome != 'duplicate'"), columns)
    if not versions:
        return ddl
    stated = batch.events.where((F.col("kind") == "schema") & F.col("schema_version").isin(*versions))
    first = stated.groupBy("schema_version").agg(F.min(F.struct("landed_at", *order.ADDRESS)).alias("_first"))
    # A list stands where the first row that it describes does: messages tell no place of their own for it.
    rows = batch.events.where((F.col("kind") == "row") & F.col("schema_version").isin(*versions))
    placed = rows.groupBy("schema_version").agg(F.min("order_key").alias("_placed"))
    new = (
        stated.join(F.broadcast(first), "schema_version")
        .join(F.broadcast(placed), "schema_version", "left")
        .where(F.struct("landed_at", *order.ADDRESS) == F.col("_first"))
        .withColumns({"kind": F.lit("message"), "order_key": F.coalesce("_placed", "order_key")})
    )
    return ddl.unionByName(_said_by(batch.source, new, columns))


def _control_rows(batch: Batch) -> DataFrame:
    control = batch.events.where(F.col("kind").isin(*KINDS["control"]) & (F.col("outcome") != "duplicate"))
    return _said_by(batch.source, control, ("entry_index", "kind", "db", "info", *_TXN))


def _quarantine(batch: Batch, errors: int, retold: int) -> None:
    """New rows, and what takes the place of earlier ones: one after the other, or Delta sees a conflict."""
    if errors:
        batch.append(quarantine_rows, "quarantine")
    if retold:
        _resolve(batch)


def quarantine_rows(batch: Batch) -> DataFrame:
    bad = batch.events.where("outcome = 'quarantined'")
    bad = bad.withColumns({"room": F.lit("changes"), "reason": ledger.reason(), "column": ledger.bad_column()})
    named = ("room", "entry_index", "row_index", "db", "schema", "table", "key", "column", "reason", "landed_at")
    return _said_by(batch.source, bad, named).withColumn("quarantined_at", F.current_timestamp())


def _resolve(batch: Batch) -> None:
    """Marks quarantined messages as resolved that this batch decoded again, except those with the same reason. Once
    more changes nothing."""
    reasons = F.collect_set(F.when(F.col("kind").isin(*ledger.UNUSABLE), ledger.reason())).alias("reasons")
    found = batch.events.where("retold").groupBy(*_MESSAGE).agg(reasons).toArrow()
    same = " AND ".join(f't."{c}" = s."{c}"' for c in _MESSAGE)
    delta_table.merge(
        batch.paths["quarantine"],
        found,
        f"t.source = '{batch.source.name}' AND t.room = 'changes' AND t.resolved_at IS NULL AND {same} "
        "AND NOT coalesce(array_has(s.reasons, t.reason), false)",
        {"resolved_at": "arrow_cast(now(), 'Timestamp(Microsecond, Some(\"UTC\"))')"},
    )


def ledger_of(batch: Batch, figures: list[dict[str, Any]]) -> None:
    """Ledger rows of the batch, once."""
    split = None
    if "envelopes" in batch.paths:  # a message of several records accounts for all of them
        low, high = min(f["from_offset"] for f in figures), max(f["to_offset"] for f in figures)
        split = delta_sql.read(batch.spark, batch.paths["envelopes"]).where(
            F.col("offset").between(low, high) & (F.col("parts") > 1)
        )
    rows = ledger.rows(batch.events, split, batch.source, batch.number)
    of = f"source = '{batch.source.name}' AND room = 'changelog' AND batch = {batch.number}"
    if not delta_table.ask(f"SELECT 1 AS there FROM {{t}} WHERE {of} LIMIT 1", t=batch.paths["ledger"]):
        arrow_tasks.append(rows, batch.paths["ledger"], source=batch.source.name)
