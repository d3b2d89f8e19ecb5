"""What Debezium's connectors of PostgreSQL and SQL Server say otherwise than MySQL's: tables have schemas, and a row's
place in the log is told by sequence numbers."""

import re
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from cdc_platform.formats.texts import shown

Database = Literal["mysql", "postgresql", "sqlserver"]
_SQLSERVER_LSN = re.compile(r"([0-9a-fA-F]{8}):([0-9a-fA-F]{8}):([0-9a-fA-F]{4})")
_TEXTS = msgspec.json.Decoder(tuple[str | None, str | None])


class LogPlace(NamedTuple):
    """As binlog_file, file_no and binlog_pos of an event."""

    file: str | None
    number: int | None
    pos: int | None


_UNTOLD = LogPlace(None, None, None)


_DATABASES: dict[Any, Database] = {"postgresql": "postgresql", "sqlserver": "sqlserver"}
_NOT_READ = frozenset(
    (
        "cassandra",
        "cockroachdb",
        "db2",
        "ibmi",
        "informix",
        "ingres",
        "mongodb",
        "oracle",
        "spanner",
        "vitess",
        "yugabytedb",
    )
)


def database_of(source: dict[str, Any]) -> Database:
    """Whose log a `source` block is of."""
    connector = source.get("connector")
    return _DATABASES.get(connector.lower() if type(connector) is str else None, "mysql")


def is_ticdc(source: dict[str, Any]) -> bool:
    """Whether TiCDC wrote a `source` block. It sends tables side by side, so not in the order of commits."""
    connector = source.get("connector")
    return type(connector) is str and connector.lower() == "ticdc"


def check_connector(source: dict[str, Any]) -> None:
    """Raises ValueError for a row of a database whose rows aren't read: its types and names would pass for MySQL's."""
    connector, schema = source.get("connector"), source.get("schema")
    other = type(connector) is str and connector.lower() in _NOT_READ
    if other or (schema and database_of(source) == "mysql"):
        of = f"connector {shown(connector)}" if connector is not None else "a connector that isn't named"
        beside = f", with schema {shown(schema)}," if schema else ""
        raise ValueError(
            f"a row of {of}{beside} isn't read: only MySQL's, MariaDB's, PostgreSQL's and SQL Server's are"
        )


def schema_of(source: dict[str, Any]) -> str | None:
    """The schema of a row's table. MySQL has none."""
    schema = source.get("schema")
    if database_of(source) == "mysql" or schema in (None, ""):
        return None
    if type(schema) is not str:
        raise ValueError(f"source.schema {shown(schema)} is no text")
    return schema


def place_in_log(source: dict[str, Any]) -> LogPlace:
    """Where a row of PostgreSQL or SQL Server stands.

    PostgreSQL: `sequence` has the last commit before the row's transaction, and the row's own LSN. Rows come
    transaction by transaction in the order of commits, those of one in the order of the log. So the pair never
    descends, while the LSN by itself does: transactions lie interleaved in the log. Before the first commit that a
    connector sees the former is null: 0.

    SQL Server: `commit_lsn`. Transactions come in its order; rows of one have the same and stand as they came.
    """
    if database_of(source) == "postgresql":
        return _postgresql(source.get("sequence"))
    return _sqlserver(source.get("commit_lsn"))


@lru_cache(maxsize=65536)
def _postgresql(sequence: Any) -> LogPlace:
    if sequence is None:
        return _UNTOLD
    try:
        commit, lsn = (None if x is None else int(x) for x in _TEXTS.decode(sequence))
    except (msgspec.DecodeError, TypeError, ValueError):
        raise ValueError(f"source.sequence {shown(sequence)} isn't two LSNs") from None
    if lsn is None:
        return _UNTOLD
    number = commit or 0
    if not (0 <= number < 1 << 63 and 0 <= lsn < 1 << 64):
        raise ValueError(f"source.sequence {shown(sequence)} isn't two LSNs")
    return LogPlace(f"{number >> 32:X}/{number & 0xFFFFFFFF:X}", number, lsn)


@lru_cache(maxsize=65536)
def _sqlserver(commit_lsn: Any) -> LogPlace:
    if commit_lsn is None:
        return _UNTOLD
    found = _SQLSERVER_LSN.fullmatch(commit_lsn) if type(commit_lsn) is str else None
    number = int(found[1] + found[2], 16) if found else -1
    if found is None or number >= 1 << 63:
        raise ValueError(f"source.commit_lsn {shown(commit_lsn)} is no LSN")
    return LogPlace(f"{found[1]}:{found[2]}", number, int(found[3], 16))
