"""The table that is asked about."""

from collections.abc import Callable
from typing import Any

import pytest

from cdc_platform.changelog.schema import SchemaHistory, Step
from cdc_platform.config import Config
from cdc_platform.errors import ConfigError
from cdc_platform.explain.table import Table
from cdc_platform.formats.events import columns_json
from cdc_platform.mysql.effects import Effect
from cdc_platform.snapshots.schema.seen import Seen
from cdc_platform.tables import Name

NAME = ("shop", "t")


def table(config: Config, *columns: tuple[str, str], keys: tuple[str, ...]) -> Table:
    """A table of the first source, whose columns (name, type) a message told."""
    order: Any = (0,)
    listed = columns_json([{"name": name, "type": type_, "key": name in keys} for name, type_ in columns])
    return Table(config.sources[0], NAME, NAME, Seen(SchemaHistory([], [(NAME, order, listed)]), [], set(), []))


def test_a_table_that_has_another_name_since(make_config: Callable[..., Config]):
    config = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])
    other: Name = ("shop", "u")

    def after(name: Name, *effects: Effect) -> Table:
        order: Any = [(i,) for i in range(len(effects))]
        steps = [Step(order[i], ("t", 0, i, 0), "", effect) for i, effect in enumerate(effects)]
        return Table(config.sources[0], name, name, Seen(SchemaHistory(steps, []), [], set(), []))

    move, made, gone = Effect(0, NAME, other), Effect(0, None, NAME), Effect(0, other, None)
    assert after(NAME, made).renamed is None
    assert after(NAME, made, move).renamed == other
    assert after(other, made, move).renamed is None
    assert after(NAME, made, move, made).renamed is None, "another table has the name"
    assert after(NAME, made, move, gone).renamed is None, "and is gone"

    assert after(other, made, move).shared == {}
    assert after(other, made, move, made).shared == {NAME: NAME}
    assert after(NAME, made, move, made).shared == {NAME: other}
    assert after(NAME, made, move, made, gone).shared == {}


def test_columns_of_a_key_compare_each_by_its_type(make_config: Callable[..., Config]):
    config = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])
    keyed = table(config, ("at", "datetime"), ("Code", "varchar(9)"), ("n", "decimal(9,2)"), keys=("at", "Code"))
    alike = keyed.alike
    assert alike.one("at", "2026-01-01 00:00:00.50Z") == "2026-01-01 00:00:00.5"
    assert [alike.one(name, text) for name in ("Code", "code") for text in ("JAZZ", "1.10")] == ["JAZZ", "1.10"] * 2
    whole = table(config, ("n", "decimal(9,2)"), ("code", "varchar(9)"), keys=())
    assert (whole.alike.one("n", "1.10"), whole.alike.one("code", "1.10")) == ("1.1", "1.10")


def test_a_column_is_meant_without_its_case_where_one_is(make_config: Callable[..., Config]):
    config = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])
    found = table(config, ("status", "int"), ("Name", "text"), ("NAME", "text"), keys=("status",))
    assert [found.column(c) for c in ("STATUS", "status", "NAME", "Name")] == ["status", "status", "NAME", "Name"]
    for given, valid in (("name", ("Name", "NAME")), ("state", ("status", "Name", "NAME"))):
        with pytest.raises(ConfigError) as raised:
            found.column(given)
        assert (raised.value.key, raised.value.valid) == ("--column", valid)
