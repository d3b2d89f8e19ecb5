"""The Delta tables of one source table: made, evolved, made anew."""

from typing import Any

import pytest

from cdc_platform.mysql.types import parse_type
from cdc_platform.resources import lake
from cdc_platform.snapshots.columns import TableColumn
from cdc_platform.snapshots.target import Target, prepare

pytestmark = pytest.mark.spark


def columns(**types: str) -> list[TableColumn]:
    return [TableColumn(name, parse_type(type_), name == "id") for name, type_ in types.items()]


@pytest.mark.parametrize("anew", [False, True], ids=["added", "made anew"])
def test_the_first_datetime_column_of_a_table(spark: Any, make_config: Any, anew: bool) -> None:
    target = Target.of(make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s", "d", "t")
    prepare(spark, target, columns(id="int"))
    key = "datetime" if anew else "int"
    prepare(spark, target, columns(id=key, at="datetime(6)"), anew=anew)
    found = {f.name: f.dataType.simpleString() for f in lake.read(spark, target.snapshot).schema.fields}
    assert found["at"] == "timestamp_ntz"
    assert found["id"] == ("timestamp_ntz" if anew else "int")
