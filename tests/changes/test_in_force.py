"""Which options messages were decoded with: noted once per change, with the offsets from which they apply."""

import json

import pytest

from cdc_platform import advice, tables
from tests.changes.test_retry import Topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
GARBAGE = {"nothing": "known"}


def noted(topic):
    sql = "SELECT number, options, offsets FROM t ORDER BY number"
    return [
        (number, json.loads(options)["escapes"], dict(offsets or ()))
        for number, options, offsets in topic.query(sql, tables.DECODED_WITH)
    ]


def test_options_are_noted_once_per_change_with_their_first_offsets(spark, make_config, tmp_path):
    topic = Topic(spark, make_config, escapes="raw")
    topic.land(GARBAGE, GARBAGE)
    topic.read_on()
    topic.land(GARBAGE)
    topic.read_on()
    assert noted(topic) == [(0, "raw", {})]
    assert advice.warnings(topic.config) == []

    topic.with_options(escapes="backslash")
    [told] = advice.warnings(topic.config)
    assert 'options.escapes was "raw" and is "backslash" for messages decoded from now on' in told
    topic.land(GARBAGE)
    topic.read_on()
    topic.read_on()
    assert noted(topic) == [(0, "raw", {}), (1, "backslash", {"t/0": 3})]
    [told] = advice.warnings(topic.config)
    assert "t/0 from offset 3" in told


@pytest.mark.thorough
def test_the_content_of_a_schema_file_counts(spark, make_config, tmp_path):
    file = tmp_path / "schema.sql"
    file.write_text("CREATE TABLE d.t (id int primary key);")
    topic = Topic(spark, make_config, schema_file=str(file))
    topic.land(GARBAGE)
    topic.read_on()
    moved = tmp_path / "same.sql"
    moved.write_text(file.read_text())
    topic.with_options(schema_file=str(moved))
    assert advice.warnings(topic.config) == []
    moved.write_text("CREATE TABLE d.t (id bigint primary key);")
    [told] = advice.warnings(topic.config)
    assert "options.schema_file was " in told
