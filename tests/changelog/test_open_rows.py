"""Spark and DataFusion find the same rows open, and the same decoded by another one."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.changelog.open_rows import may_differ, may_differ_sql, not_by, not_by_sql
from cdc_platform.formats.table_schemas.doubts import Doubt, Stretch
from cdc_platform.formats.table_schemas.places import Place
from cdc_platform.lake import delta_table, stores
from cdc_platform.tables import CHANGELOG

pytestmark = pytest.mark.spark

COLUMNS = ("topic", "partition", "offset", "order_key", "source_time", "schema_version")
VERSIONS = ("0a", "0b")
START = datetime(2026, 1, 1, tzinfo=UTC)


def rows(made: random.Random) -> list[dict[str, Any]]:
    """Some with a position, some with a time."""
    order = CHANGELOG.arrow().field("order_key").type.names
    found = []
    for n in range(400):
        key = dict.fromkeys(order, 0) | {"file": made.choice((-1, 3, 4, 5)), "pos": made.choice((7, 2**40, 2**63 + n))}
        time = made.choice((None, START + timedelta(microseconds=made.randrange(6))))
        at = {"topic": made.choice("ab"), "partition": made.randrange(2), "offset": made.randrange(9)}
        found.append({**at, "order_key": key, "source_time": time, "schema_version": made.choice(VERSIONS)})
    return found


def stretches(made: random.Random) -> tuple[Stretch, ...]:
    def place() -> Place:
        number = made.choice((None, (4, made.choice((8, 2**40, 2**63 + 50)))))
        micros = int(START.timestamp()) * 1_000_000 + made.randrange(6)
        at = made.choice("ab"), made.randrange(2), made.randrange(9)
        return Place(*at, number=number, time=made.choice((None, micros)))

    def stretch() -> Stretch:
        return Stretch(made.choice((None, place())), tuple(place() for _ in range(made.randrange(3))))

    return tuple(stretch() for _ in range(made.randrange(3)))


@pytest.mark.thorough
def test_rows_of_another_decoder_or_of_none_that_is_noted(spark, make_config):
    path = stores.lake(make_config([{"name": "s", "format": "canal_json", "topics": ["t"]}])).at("rows")
    told = [{"decoded_by": by, "offset": n} for n, by in enumerate(("ab", "cd", None))]
    write_deltalake(path.uri(), pa.Table.from_pylist(told, CHANGELOG.arrow("decoded_by", "offset")))
    frame = spark.read.format("delta").load(path.spark_uri())
    assert sorted(r["offset"] for r in frame.where(not_by("ab")).collect()) == [1, 2]
    sql = f'SELECT "offset" FROM {{t}} WHERE {not_by_sql("ab")} AND true ORDER BY 1'
    assert [r["offset"] for r in delta_table.ask(sql, t=path)] == [1, 2]


@pytest.mark.thorough
def test_both_find_the_same_rows(spark, make_config):
    made = random.Random(5)
    path = stores.lake(make_config([{"name": "s", "format": "canal_json", "topics": ["t"]}])).at("rows")
    write_deltalake(path.uri(), pa.Table.from_pylist(rows(made), CHANGELOG.arrow(*COLUMNS)))
    frame, counts = spark.read.format("delta").load(path.spark_uri()), set()
    for _ in range(25):
        doubt = Doubt("", stretches(made))
        mine = frame.where(frame.schema_version == VERSIONS[0]).where(may_differ(doubt)).count()
        sql = f"SELECT count(*) AS n FROM {{t}} WHERE {may_differ_sql(VERSIONS[0], doubt)}"
        assert delta_table.ask(sql, t=path)[0]["n"] == mine, doubt
        counts.add(mine)
    assert len(counts) > 5
