"""Paths of tables: injective, and never outside the lake; schemas of their rows."""

from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_platform.tables import CHANGELOG, LANDING, SNAPSHOT_PATH, path_name

NAMES = st.text(max_size=12) | st.text(alphabet="~._-%/\\ aA0EF2", max_size=8)
ALLOWED = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.~")


@given(NAMES, NAMES)
@example("a/b", "a~2Fb")
@example("", "~")
@example(".", "~2E")
@example("_x", "~5Fx")
@example("é", "e\u0301")
def test_two_names_never_share_a_path(a, b):
    assert (path_name(a) == path_name(b)) == (a == b)


@given(NAMES)
@example("..")
@example("../../etc")
@example("_delta_log")
@example("\x00")
@example("%2e%2e")
def test_a_name_is_one_plain_segment(name):
    segment = path_name(name)
    assert segment
    assert set(segment) <= ALLOWED
    assert segment[0] not in "_."  # Spark and Delta skip such folders as hidden
    assert segment[-1] != "."


@given(NAMES, NAMES, NAMES)
def test_every_table_stays_under_the_lake(source, db, table):
    path = PurePosixPath(SNAPSHOT_PATH.at("/data/lake", source=source, db=db, table=table))
    assert path.parts[:4] == ("/", "data", "lake", "snapshots")
    assert len(path.parts) == 7
    assert ".." not in path.parts


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("orders", "orders"),
        ("order-items_2", "order-items_2"),
        ("v1.orders", "v1.orders"),
        ("_tmp", "~5Ftmp"),
        (".hidden", "~2Ehidden"),
        ("end.", "end~2E"),
        ("a/b", "a~2Fb"),
        ("50%", "50~25"),
        ("订单", "~E8~AE~A2~E5~8D~95"),
        ("a~b", "a~7Eb"),
        ("", "~"),
    ],
)
def test_names_are_escaped_as_the_design_says(name, segment):
    assert path_name(name) == segment


def test_a_schema_has_the_columns_asked_for_in_that_order():
    assert LANDING.arrow("offset", "topic").names == ["offset", "topic"]
    assert CHANGELOG.arrow(but=CHANGELOG.partition_by).names == list(CHANGELOG.names[1:])
    with pytest.raises(KeyError, match="ofset"):
        LANDING.arrow("ofset")


def test_comments_are_in_the_schema_only_for_the_log():
    told = LANDING.arrow(comments=True)
    assert told.field("topic").metadata == {b"comment": b"Kafka topic"}
    assert told.field("key").metadata is None
    assert all(f.metadata is None for f in LANDING.arrow())
    assert told.equals(LANDING.arrow())
