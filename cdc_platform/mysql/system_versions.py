"""Tables WITH SYSTEM VERSIONING (MariaDB). The binlog of one has an UPDATE as an UPDATE and an INSERT of the row as it
was, a DELETE as an UPDATE of the column that says until when the row is there (seen of 10.11, with rows): nothing tells
these from changes of the rows that the table shows, and its key there has one column more than its DDL says."""

from collections.abc import Collection

from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.marked_tables import MarkedTables, Name
from cdc_platform.mysql.tokens import says


class SystemVersions(MarkedTables):
    """Tables that have them."""

    def apply(self, statement: Statement, came: Collection[Name], gone: Collection[Name]) -> None:
        """A statement that was applied; the tables that came about or changed by it, and those that went."""
        self.follow(statement, came, gone)
        if says(statement.sql, "DROP", "SYSTEM", "VERSIONING"):
            self.names -= {*came}
        elif any(says(statement.sql, verb, "SYSTEM", "VERSIONING") for verb in ("WITH", "ADD")):
            self.names |= {*came}

    @staticmethod
    def why(db: str, table: str) -> str:
        """Why nothing can be made of a table's rows, and what to do."""
        return (
            f"{db}.{table} has SYSTEM VERSIONING: what its binlog says of versions can't be told from changes of rows. "
            "Leave the table out (tables.exclude), or drop the versioning at the source and load the table anew"
        )
