"""Unity Catalog by its REST API, with `requests`: the open server, and services with the same API.

Spark's connector isn't used: it is one more jar to keep to Spark's and Delta's versions, a Connect server would have to
be started with it, and before it registers a table it asks the catalog for credentials of its place, which the platform
has of its own.

What is sent: a schema where there is none, and external Delta tables, `POST /tables`. Columns that have changed are set
by the API for Delta's clients (`/delta/v1`, which the open server 0.6.0 has). That keeps the table's id, owner and
grants. Where a server lacks it the table keeps its old columns, and that is reported: to make it again would take
away what people may do with it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import requests
from pyspark.sql.types import DecimalType, StructField

from cdc_platform.config import Catalog
from cdc_platform.snapshots.catalog.backend import CatalogError, CatalogTable, CatalogUnavailable, Snapshot
from cdc_platform.snapshots.catalog.names import Entry

_API = "/api/2.1/unity-catalog"
_TIMEOUT_S = 30
_LONGEST = 300
"""Characters of a server's message that are shown."""
_TYPES = {"integer": "INT"}
"""Spark's names of types that the API names otherwise than in capitals."""


class Unity:
    """A Backend."""

    def __init__(self, catalog: Catalog):
        self._uri = (catalog.uri or "").rstrip("/")
        self._token = catalog.token.get_secret_value() if catalog.token else ""
        self._session = requests.Session()
        self._session.auth = self._signed  # of one's own: without it, a ~/.netrc would take the header's place
        self._found: dict[str, CatalogTable] = {}

    def tables(self, catalog: str, database: str) -> set[str]:
        """See Backend."""
        where = {"catalog_name": catalog, "schema_name": database}
        try:
            listed = list(self._listed(where))
        except _Refused as error:
            if error.code != "SCHEMA_NOT_FOUND" and not (error.status == 404 and self._lacks(catalog, database)):
                raise
            self._ask("POST", "/schemas", json={"catalog_name": catalog, "name": database})
            listed = []
        self._found = {t["name"]: _catalog_table(t) for t in listed}
        return set(self._found)

    def find(self, entry: Entry) -> CatalogTable:
        """See Backend."""
        return self._found[entry.table]

    def create(self, entry: Entry, snapshot: Snapshot) -> None:
        """See Backend."""
        table = {
            "name": entry.table,
            "catalog_name": entry.catalog,
            "schema_name": entry.database,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "storage_location": _uri(snapshot.path),
            "columns": [_column(i, f) for i, f in enumerate(snapshot.fields)],
            "comment": snapshot.comment,
        }
        self._ask("POST", "/tables", json=table)

    def alter(self, entry: Entry, snapshot: Snapshot, found: CatalogTable) -> None:
        """See Backend."""
        parts = [quote(p, safe="") for p in entry]
        columns = {"type": "struct", "fields": list(snapshot.fields)}
        wish = {
            "requirements": [{"type": "assert-table-uuid", "uuid": found.id}],
            "updates": [{"action": "set-columns", "columns": columns}],
        }
        try:
            self._ask("POST", "/delta/v1/catalogs/{}/schemas/{}/tables/{}".format(*parts), json=wish)
        except _Refused as error:
            if error.status in (404, 405, 501) and not error.code:
                raise CatalogError(
                    "keeps its old columns: this server can't change them (the open one, 0.6.0, can); to have it "
                    "registered with the new ones, remove it from the catalog"
                ) from None
            raise

    def drop(self, entry: Entry) -> None:
        """See Backend."""
        self._ask("DELETE", f"/tables/{_full(*entry)}")

    def _listed(self, where: dict[str, str]) -> Iterator[dict[str, Any]]:
        page: dict[str, str] = {}
        while True:
            told = self._ask("GET", "/tables", params={**where, **page})
            yield from told.get("tables") or []
            if not told.get("next_page_token"):
                return
            page = {"page_token": told["next_page_token"]}

    def _lacks(self, catalog: str, database: str) -> bool:
        """Whether a catalog is there, but not the schema."""
        self._ask("GET", f"/catalogs/{_full(catalog)}")
        try:
            self._ask("GET", f"/schemas/{_full(catalog, database)}")
        except _Refused as error:
            return error.status == 404
        return False

    def _signed(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def _ask(self, method: str, path: str, **rest: Any) -> dict[str, Any]:
        """What the server answers. Raises CatalogError."""
        try:
            # A redirect would carry the token elsewhere.
            answer = self._session.request(
                method, f"{self._uri}{_API}{path}", timeout=_TIMEOUT_S, allow_redirects=False, **rest
            )
        except requests.RequestException as error:
            raise CatalogUnavailable(f"{self._uri} can't be reached: {type(error).__name__}") from None
        try:
            told = answer.json()
        except ValueError:
            told = None
        if 200 <= answer.status_code < 300:
            if isinstance(told, dict) or method == "DELETE":  # where the open server answers in words
                return told or {}
            raise CatalogError(f"{self._uri} answers with something else than JSON objects: is it Unity Catalog?")
        code, message = _error(told)
        if self._token:
            message = message.replace(self._token, "***")
        if answer.status_code == 401:
            problem = "the token (catalog.token)" if self._token else "requests without a token (catalog.token)"
            raise CatalogUnavailable(f"{self._uri} refuses {problem}: {message or answer.reason}")
        said = f"the server answered {answer.status_code}: {message or answer.reason}"
        raise _Refused(answer.status_code, code, said)


class _Refused(CatalogError):
    """An answer that is none of success; code: the server's word for it, empty where it has none."""

    def __init__(self, status: int, code: str, text: str):
        self.status, self.code = status, code
        super().__init__(text)


def _error(told: Any) -> tuple[str, str]:
    """Code and message of the body of an error, in one line, of either API."""
    body = told if isinstance(told, dict) else {}
    inner = body["error"] if isinstance(body.get("error"), dict) else body
    code = inner.get("error_code") or inner.get("type") or ""
    return str(code), re.sub(r"\s+", " ", str(inner.get("message") or ""))[:_LONGEST]


def _full(*names: str) -> str:
    return ".".join(quote(n, safe="") for n in names)


def _uri(path: str) -> str:
    """A place as the API has it: a URI."""
    return "file://" + quote(path) if path.startswith("/") else path


def _path(location: str) -> str:
    """The place of a table, as this platform writes it."""
    rest = location.removeprefix("file:")
    return ("/" + unquote(rest).lstrip("/") if rest != location else rest).rstrip("/")


def _catalog_table(table: dict[str, Any]) -> CatalogTable:
    location = table.get("storage_location")
    fields = tuple(_field(c) for c in sorted(table.get("columns") or [], key=lambda c: c.get("position") or 0))
    return CatalogTable(_path(location) if location else None, fields, table.get("table_id") or "")


def _field(column: dict[str, Any]) -> dict[str, Any]:
    """A column as Delta's log writes it; its type is None where the catalog has it otherwise."""
    try:
        told = json.loads(column.get("type_json") or "")
    except ValueError:
        told = None
    if isinstance(told, dict) and "name" in told:
        return told
    return {"name": column.get("name"), "type": None}


def _column(position: int, field: dict[str, Any]) -> dict[str, Any]:
    """A column of Delta's log as the API has it."""
    spark_type = StructField.fromJson(field).dataType
    column = {
        "name": field["name"],
        "position": position,
        "type_name": _TYPES.get(spark_type.typeName(), spark_type.typeName().upper()),
        "type_text": spark_type.simpleString(),
        "type_json": json.dumps(field),
        "nullable": field["nullable"],
    }
    if isinstance(spark_type, DecimalType):
        column |= {"type_precision": spark_type.precision, "type_scale": spark_type.scale}
    if comment := field["metadata"].get("comment"):
        column["comment"] = comment
    return column
