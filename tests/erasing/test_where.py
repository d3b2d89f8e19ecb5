"""Every place of the lake is decided about."""

from cdc_platform import tables
from cdc_platform.erasing.where import WHERE
from cdc_platform.tables import Location


def test_every_table_has_a_word():
    there = {of.path for of in vars(tables).values() if isinstance(of, Location)}
    assert {one.table.path for one in WHERE} == there
    assert len({one.table.path for one in WHERE}) == len(WHERE)


def test_columns_with_texts_are_the_tables_own():
    for one in WHERE:
        assert bool(one.columns) == (one.how == "texts")
        assert set(one.columns) <= set(getattr(one.table, "names", ()))
