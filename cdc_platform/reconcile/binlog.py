"""What a server's binlog doesn't tell, whatever reads it: by its settings, and by what has happened there."""

from collections.abc import Mapping
from dataclasses import dataclass


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
NAMES = (*_HARMLESS, "log_bin")


def risks(told: Mapping[str, str]) -> list[Risk]:
    """`told`: variables and counters by name. None without a binlog: this server isn't the one that is read."""
    if told.get("log_bin", "").upper() in ("OFF", "0"):
        return []
    return [
        Risk(name, told[name], means)
        for name, (harmless, means) in _HARMLESS.items()
        if told.get(name, harmless).upper() != harmless
    ]
