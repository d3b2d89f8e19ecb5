"""Names of tables: their parts, as text, as paths and in columns."""

import pytest

from cdc_platform.tables import SNAPSHOT_PATH, as_name, name_columns, name_in, name_of

NAMES = [("d", "t"), ("d", "s", "t"), ("d.s", "t"), ("d", "s.t"), ("d", ""), ("", "s", "t")]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_same_from_its_columns(name):
    assert name_of(name_columns(name)) == name == as_name(*name)


def test_an_empty_schema_is_none():
    assert name_of({"db": "d", "schema": "", "table": "t"}) == ("d", "t")
    assert name_of({"db": "d", "table": "t"}) == ("d", "t")


def test_a_row_that_names_no_table():
    assert name_in({"db": "d", "schema": "s", "table": None}) is None
    assert name_in({"db": None, "schema": "s", "table": "t"}) is None


def test_a_schema_is_a_segment_of_the_path():
    paths = [SNAPSHOT_PATH.of("lake", "src", name) for name in NAMES]
    assert paths[:4] == [
        "lake/snapshots/src/d/t",
        "lake/snapshots/src/d/s/t",
        "lake/snapshots/src/d.s/t",
        "lake/snapshots/src/d/s.t",
    ]
    assert len({*paths}) == len(paths)
    assert paths[0] == SNAPSHOT_PATH.at("lake", source="src", db="d", table="t")
    assert SNAPSHOT_PATH.of("lake", "src", ("../x", "a/b", ".")) == "lake/snapshots/src/~2E.~2Fx/a~2Fb/~2E"
