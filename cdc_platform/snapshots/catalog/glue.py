"""AWS Glue's Data Catalog by its API, with `boto3` (extra `glue`), which finds credentials and region by itself.

A snapshot is an external table as Glue's crawler makes one of a Delta table: readers (Athena, Spark, Trino, Redshift)
take rows and columns from Delta's log at its place. The columns beside it, with Hive's types, are for people and
permissions. Each holds the field of Delta's log as a parameter, by which a later run sees whether it changed.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.types import StructField

from cdc_platform.config import Catalog
from cdc_platform.snapshots.catalog.backend import CatalogError, CatalogTable, CatalogUnavailable, Snapshot
from cdc_platform.snapshots.catalog.names import Entry

_FIELD = "cdc.field"
"""Parameter of a column: the field of Delta's log, JSON."""
_OF_DELTA = {
    "EXTERNAL": "TRUE",
    "table_type": "DELTA",
    "spark.sql.sources.provider": "delta",
    "classification": "delta",
}
"""Parameters of the table: Athena looks at the second, Spark and Trino at the third."""
_HIVE_TYPES = {"timestamp_ntz": "timestamp"}
_NO_ACCESS = (
    "UnrecognizedClientException",
    "ExpiredTokenException",
    "InvalidSignatureException",
    "InvalidClientTokenId",
)
_LONGEST = 300
"""Characters of a service's message that are shown."""
_COMMENT, _DESCRIPTION = 255, 2048
"""Characters that Glue takes."""


class Glue:
    """A Backend."""

    def __init__(self, catalog: Catalog):
        try:
            import boto3
        except ImportError:
            raise CatalogUnavailable("kind glue needs boto3: pip install 'cdc-platform[glue]'") from None
        with _as_catalog_error():
            self._glue: Any = boto3.client("glue", region_name=catalog.region, endpoint_url=catalog.endpoint)
        self._found: dict[str, dict[str, Any]] = {}

    def tables(self, catalog: str, database: str) -> set[str]:  # noqa: ARG002 - an account has one
        """See Backend."""
        try:
            with _as_catalog_error():
                pages = self._glue.get_paginator("get_tables").paginate(DatabaseName=database)
                self._found = {t["Name"]: t for page in pages for t in page["TableList"]}
        except _Refused as error:
            if error.code != "EntityNotFoundException":
                raise
            with _as_catalog_error():
                self._glue.create_database(DatabaseInput={"Name": database})
            self._found = {}
        return set(self._found)

    def find(self, entry: Entry) -> CatalogTable:
        """See Backend."""
        storage = self._found[entry.table].get("StorageDescriptor") or {}
        fields = tuple(_field(c) for c in storage.get("Columns") or [])
        return CatalogTable(_ours(storage.get("Location")), fields)

    def create(self, entry: Entry, snapshot: Snapshot) -> None:
        """See Backend."""
        with _as_catalog_error():
            self._glue.create_table(DatabaseName=entry.database, TableInput=_table(entry, snapshot, {}))

    def alter(self, entry: Entry, snapshot: Snapshot, found: CatalogTable) -> None:  # noqa: ARG002 - less than is kept here
        """See Backend. Parameters that others set stay."""
        kept = self._found[entry.table].get("Parameters") or {}
        with _as_catalog_error():
            self._glue.update_table(
                DatabaseName=entry.database, TableInput=_table(entry, snapshot, kept), SkipArchive=True
            )

    def drop(self, entry: Entry) -> None:
        """See Backend."""
        with _as_catalog_error():
            self._glue.delete_table(DatabaseName=entry.database, Name=entry.table)


class _Refused(CatalogError):
    """An answer that is an error; code: the service's word for it."""

    def __init__(self, code: str, text: str):
        self.code = code
        super().__init__(text)


@contextmanager
def _as_catalog_error() -> Iterator[None]:
    """botocore's errors as ours."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        code = str(told.get("Code", ""))
        text = f"Glue answered {code}: {str(told.get('Message', ''))[:_LONGEST]}"
        raise CatalogUnavailable(text) if code in _NO_ACCESS else _Refused(code, text) from None
    except BotoCoreError as error:  # no region, no credentials, nobody there
        raise CatalogUnavailable(f"Glue: {str(error)[:_LONGEST]}") from None


def _table(entry: Entry, snapshot: Snapshot, kept: dict[str, str]) -> dict[str, Any]:
    place = _theirs(snapshot.path)
    return {
        "Name": entry.table,
        "Description": snapshot.comment[:_DESCRIPTION],
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {**kept, **_OF_DELTA},
        "StorageDescriptor": {
            "Columns": [_column(field) for field in snapshot.fields],
            "Location": place,
            "InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
            "SerdeInfo": {
                "SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
                "Parameters": {"path": place, "serialization.format": "1"},  # Spark and Trino take the place from here
            },
        },
    }


def _column(field: dict[str, Any]) -> dict[str, Any]:
    text = StructField.fromJson(field).dataType.simpleString()
    column = {"Name": field["name"], "Type": _HIVE_TYPES.get(text, text), "Parameters": {_FIELD: json.dumps(field)}}
    if comment := field["metadata"].get("comment"):
        column["Comment"] = comment[:_COMMENT]
    return column


def _field(column: dict[str, Any]) -> dict[str, Any]:
    """A column as Delta's log writes it; its type is None where somebody else made or changed it."""
    try:
        told = json.loads((column.get("Parameters") or {}).get(_FIELD) or "")
    except ValueError:
        told = None
    same = isinstance(told, dict) and told.get("name") == column.get("Name") and _column(told)["Type"] == column["Type"]
    return told if same and isinstance(told, dict) else {"name": column.get("Name"), "type": None}


def _theirs(path: str) -> str:
    """A place as Glue has it."""
    return path.replace("s3a://", "s3://", 1)


def _ours(location: str | None) -> str | None:
    """The place of a table, as this platform writes it."""
    return location.replace("s3://", "s3a://", 1).rstrip("/") if location else None
