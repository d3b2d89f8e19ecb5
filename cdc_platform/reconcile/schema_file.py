"""The CREATE TABLE statements of a live server's tables, as the option `schema_file` of a source reads them."""

from collections.abc import Callable
from datetime import UTC, datetime

from cdc_platform.mysql.ddl import quoted_name
from cdc_platform.reconcile.server import Server


def script(server: Server, wanted: Callable[[str, str], bool]) -> tuple[str, list[tuple[str, str]]]:
    """A script of the tables that `wanted` (database, table) says, and their names; one that is dropped meanwhile is
    left out. Raises SourceUnreachable, SourceRefused."""
    names = sorted(name for name in server.tables(server.databases()) if wanted(*name))
    found = [(db, table, sql) for db, table in names if (sql := server.create_table(db, table)) is not None]
    lines = [f"-- {len(found)} tables as they were at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"]
    database = None
    for db, _, sql in found:
        if db != database:
            lines.append(f"USE {quoted_name(db)};")
            database = db
        lines.append(f"{sql};")
    return "\n\n".join(lines) + "\n", [(db, table) for db, table, _ in found]
