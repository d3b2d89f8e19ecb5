"""Commits that change what a table is: its properties, its columns. No Spark here."""

from collections.abc import Callable, Mapping

from cdc_platform.lake import commits, log_state, new_tables
from cdc_platform.lake.columns import Columns
from cdc_platform.lake.log_files import Action
from cdc_platform.lake.log_state import LogFiles
from cdc_platform.lake.store import Store
from cdc_platform.tables import KEY, Table

_OF_ROWS = {"changeDataFeed"}
"""Features that ask nothing of a commit which changes no row."""


def configure(path: Store, changes: Mapping[str, str | None]) -> bool:
    """Set properties of a table that ask nothing of who writes it; None: take one away. False: it isn't kept to here
    what its protocol asks for, or its log can't be read in full, and nothing was done. Raises StorageError where others
    commit all the time."""

    def lines(told: LogFiles) -> list[Action]:
        before = told.metadata["configuration"]
        kept = {name: value for name, value in {**before, **changes}.items() if value is not None}
        return [] if kept == before else [{"metaData": {**told.metadata, "configuration": kept}}]

    return _changed(path, "SET TBLPROPERTIES", lines)


def change_columns(path: Store, change: Callable[[Columns], bool]) -> bool:
    """Changes a table's columns in one commit. change: tells whether they can be; it is asked again where another
    commit came in between. False: they can't, or as `configure`."""

    def lines(told: LogFiles) -> list[Action] | None:
        columns = Columns(told.protocol, told.metadata)
        try:
            return columns.actions() if change(columns) else None
        except ValueError:  # a protocol of before features had names
            return None

    return _changed(path, "CHANGE COLUMNS", lines)


def empty_out(path: Store, table: Table) -> bool:
    """Takes all rows out of a table that may be there, and gives it these columns; its properties stay. False: as
    `configure`."""

    def lines(told: LogFiles) -> list[Action] | None:
        columns = Columns(told.protocol, told.metadata)
        try:
            columns.replace(new_tables.fields(table), table.settings.get(KEY))
        except ValueError:
            return None
        return [*columns.actions(), *commits.removes(told.adds)]

    return _changed(path, "WRITE", lines, rows=True)


def _changed(
    path: Store, operation: str, lines: Callable[[LogFiles], list[Action] | None], *, rows: bool = False
) -> bool:
    """Makes a table's next version of these lines, if there are some. rows: whether they take rows away, of which there
    are none where there is no table. False: they are None, or as `configure`."""
    for _ in commits.tries(path):
        try:
            told = log_state.now(path)
        except FileNotFoundError:
            return False
        if told is None:
            return rows
        if {*commits.unknown(told.protocol)} - (set() if rows else _OF_ROWS) or (found := lines(told)) is None:
            return False
        if not found or commits.add_version(told, operation, found):
            return True
    raise AssertionError(path)
