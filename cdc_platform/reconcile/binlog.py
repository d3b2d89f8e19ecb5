"""What a server's binlog doesn't tell, whatever reads it: by its settings, and by what has happened there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc_platform.config import Source
    from cdc_platform.reconcile.server import Server


@dataclass(frozen=True, slots=True)
class Risk:
    """A variable or status counter of the server, its value, and which changes may be missing for it."""

    name: str
    value: str
    means: str


_HARMLESS = {
    "binlog_format": ("ROW", "statements may stand in place of rows: which rows they changed isn't told"),
    "binlog_row_image": (
        "FULL",
        "images tell a part of the row: not every format can keep that, nor a table without a key",
    ),
    # Debezium has no handler for such events (debezium/debezium#3912), canal writes the function that was called.
    "binlog_row_value_options": (
        "",
        "an update within a JSON document doesn't tell the document: Debezium leaves the update out, in silence; what "
        "canal writes goes to quarantine",
    ),
    # Rows stand in the binlog from the prepare on. Debezium passes over all XA statements: BinlogStreamingChange-
    # EventSource.handleQueryEvent; of others quarantine tells it.
    "com_xa_rollback": (
        "0",
        "XA transactions rolled back since the server's start: rows of those that had been prepared stay applied, "
        "which Debezium's messages don't tell",
    ),
}
"""Name → the value that loses nothing, and what another one may. A server that lacks a name has no such feature."""
NAMES = (*_HARMLESS, "log_bin", "innodb_native_foreign_keys")
FOREIGN_KEYS = "foreign keys"
_CASCADE = (
    "rows that the server changes by them have no event in its binlog: they stay as they were (MySQL before 9.6 and "
    "MariaDB: InnoDB changes them below the binlog)"
)
_SHOWN_KEYS = 20


def risks_of(server: "Server", source: "Source") -> list[Risk]:
    """Those of a source's server. Raises SourceUnreachable, SourceRefused."""
    told = server.variables(NAMES)
    if not has_binlog(told) or told.get("innodb_native_foreign_keys", "").upper() in ("OFF", "0"):
        return risks(told)  # MySQL from 9.6 on executes them above the binlog, unless it is told to do it the old way
    followed = [name for name in server.tables(server.databases()) if source.tables.wanted(*name)]
    return [*risks(told), *_of_foreign_keys([(f"{db}.{t}", rules) for db, t, rules in server.cascades(followed)])]


def _of_foreign_keys(keys: Sequence[tuple[str, str]]) -> list[Risk]:
    """`keys`: (table, columns and rules)."""
    if not keys:
        return []
    some = "; ".join(f"{table} ({rules})" for table, rules in keys[:_SHOWN_KEYS])
    more = f"; and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
    return [Risk(FOREIGN_KEYS, some + more, _CASCADE)]


def has_binlog(told: Mapping[str, str]) -> bool:
    """Without a binlog this server isn't the one that is read."""
    return told.get("log_bin", "").upper() not in ("OFF", "0")


def risks(told: Mapping[str, str]) -> list[Risk]:
    """`told`: variables and counters by name. None without a binlog: this server isn't the one that is read."""
    if not has_binlog(told):
        return []
    return [
        Risk(name, told[name], means)
        for name, (harmless, means) in _HARMLESS.items()
        if told.get(name, harmless).upper() != harmless
    ]
