"""A catalog of the Spark session by SQL: a Hive metastore, or what `spark.conf` defines. Columns, types and comments
are those of Delta's log, which readers of such tables ask: they need no change there."""

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession

from cdc_platform.snapshots.catalog.backend import CatalogError, CatalogTable, Snapshot
from cdc_platform.snapshots.catalog.names import Entry
from cdc_platform.spark.delta_sql import literal, quoted


class Metastore:
    """A Backend."""

    def __init__(self, spark: SparkSession):
        self._spark = spark

    def tables(self, catalog: str, database: str) -> set[str]:
        """See Backend."""
        schema = f"{quoted(catalog)}.{quoted(database)}"
        try:
            rows = self._spark.sql(f"SHOW TABLES IN {schema}").collect()
        except AnalysisException as error:
            if error.getCondition() != "SCHEMA_NOT_FOUND":
                raise CatalogError(_line(error)) from None
            self._run(f"CREATE DATABASE IF NOT EXISTS {schema}")
            return set()
        except PySparkException as error:
            raise CatalogError(_line(error)) from None
        return {r["tableName"] for r in rows}

    def find(self, entry: Entry) -> CatalogTable:
        """See Backend."""
        told = {r["col_name"]: r["data_type"] for r in self._run(f"DESCRIBE TABLE EXTENDED {entry}")}
        return CatalogTable(told["Location"].removeprefix("file:").rstrip("/") if "Location" in told else None)

    def create(self, entry: Entry, snapshot: Snapshot) -> None:
        """See Backend."""
        self._run(f"CREATE TABLE {entry} USING delta LOCATION {literal(snapshot.path)}")

    def alter(self, entry: Entry, snapshot: Snapshot, found: CatalogTable) -> None:
        """See Backend. Nothing is to be done."""

    def drop(self, entry: Entry) -> None:
        """See Backend."""
        self._run(f"DROP TABLE {entry}")

    def _run(self, statement: str) -> list[Row]:
        try:
            return self._spark.sql(statement).collect()
        except PySparkException as error:
            raise CatalogError(_line(error)) from None


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
