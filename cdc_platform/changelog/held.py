"""What quarantine holds of a source because it couldn't be decoded or used: messages to be decoded once more."""

import fnmatch
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog import rules
from cdc_platform.config import Config, Source
from cdc_platform.lake import delta_table, stores
from cdc_platform.spark import delta_sql
from cdc_platform.tables import QUARANTINE


@dataclass(frozen=True, slots=True)
class Held:
    """Unresolved rows of a source whose messages are whole. table: pattern of db.table (None: any, also rows that name
    none); reason: text in it, whatever its case."""

    config: Config
    source: Source
    table: str | None = None
    reason: str | None = None

    def messages(self, spark: SparkSession) -> DataFrame:
        """topic, partition, offset, reasons (array)."""
        rows = delta_sql.read(spark, QUARANTINE.at(stores.lake(self.config))).where(self._where())
        return rows.groupBy("topic", "partition", "offset").agg(F.collect_set("reason").alias("reasons"))

    def rows(self) -> int:
        """How many there are."""
        path = QUARANTINE.at(stores.lake(self.config))
        if not delta_table.exists(path):
            return 0
        found = delta_table.ask(
            f"SELECT db, schema, \"table\", reason, count(*) AS n FROM {{t}} WHERE source = '{self.source.name}' "
            "AND room = 'changes' AND resolved_at IS NULL GROUP BY 1, 2, 3, 4",
            t=path,
        )
        return sum(r["n"] for r in found if self._fits(r))

    def _fits(self, row: dict[str, str | None]) -> bool:
        name = ".".join(row[p] or "" for p in ("db", "schema", "table") if row[p])
        of_table = self.table is None or fnmatch.fnmatchcase(name, self.table)
        return of_table and (self.reason or "").lower() in (row["reason"] or "").lower()

    def _where(self) -> Column:
        found = (F.col("source") == self.source.name) & (F.col("room") == "changes") & F.col("resolved_at").isNull()
        if self.table is not None:
            found = found & rules.fits(self.table)
        if self.reason:
            found = found & F.contains(F.lower("reason"), F.lit(self.reason.lower()))
        return found
