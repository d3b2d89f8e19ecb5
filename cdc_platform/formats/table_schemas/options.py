"""Options about tables' columns that every format of MySQL-like sources has."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from cdc_platform.formats.contract import FormatOptions

LowerCase = Annotated[Literal[0, 1, 2] | None, BeforeValidator(lambda v: int(v) if isinstance(v, bool) else v)]
"""MySQL's lower_case_table_names; None: as the feed shows."""


class MySqlOptions(FormatOptions):
    """Options of formats whose sources are MySQL, MariaDB and what understands their DDL."""

    lower_case_table_names: LowerCase = Field(
        default=None,
        description="The server's lower_case_table_names: 0 tells the case of table names apart, 1 and 2 don't. "
        "Default: found by itself, where statements name a table in another case than its rows do and no other table "
        "has such a name",
        examples=[1],
    )

    @property
    def fold(self) -> bool | None:
        """Whether names of tables that differ by case only are one table; None: not said."""
        return None if self.lower_case_table_names is None else self.lower_case_table_names > 0

    @property
    def whole_loads(self) -> bool:
        """Whether full loads are said to be of all rows, so that one that is taken again replaces what was there."""
        return False


class SchemaOptions(MySqlOptions):
    """Options of formats whose messages may leave out what a column's type is."""

    schema_file: str = Field(
        default="",
        description="File with the CREATE TABLE statements of the tables as they were where the topic begins "
        "(mysqldump --no-data, `cdc-platform schema fetch`; USE or `db`.`table` names the database); DDL in the topic "
        "goes on from there. Read where the run is started",
        examples=["/etc/cdc/shop.sql"],
    )
