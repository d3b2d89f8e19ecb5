"""Kafka to snapshots for databases with schemas: Debezium's PostgreSQL and SQL Server connectors."""

import json

import pytest
import yaml

from cdc_platform.automation.naming import Naming
from cdc_platform.cli.status import _tables as status_tables
from cdc_platform.config import load_config
from cdc_platform.lake import queries
from cdc_platform.reading import Snapshots, described
from tests.e2e.e2e_shop import FAST, facts, run_stages, unaccounted
from tests.e2e.other_databases import PLACEHOLDER, Postgresql, documented, image, send

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e]


def configured(folder, servers, *sources):
    file = folder / "cdc.yaml"
    told = [{"format": "debezium", **s} for s in sources]
    spark = {"master": "local[2]", "conf": FAST}
    file.write_text(
        yaml.safe_dump({"lake": "./lake", "kafka": {"bootstrap.servers": servers}, "sources": told, "spark": spark})
    )
    return load_config(file)


def rows(config, name):
    found = Snapshots(config.lake).arrow(name, columns=["id", "name", "big"])
    return sorted(tuple(r.values()) for r in found.to_pylist())


def test_two_schemas_with_the_same_table_never_meet(broker, spark, tmp_path):
    a, b = Postgresql("two", "a"), Postgresql("two", "b")
    config = configured(tmp_path, broker.bootstrap_servers, {"name": "pg", "topic_pattern": r"two\..*"})
    first = [
        *(
            t.row("r", None, image(i, f"{t.schema}{i}", "x" * 9000), (None, 100), snapshot="true")
            for t in (a, b)
            for i in (1, 2)
        ),
        # One transaction's rows lie behind those of another that was committed earlier.
        a.row("u", image(1), image(1, "a1 later", PLACEHOLDER), (110, 108)),
        b.row("c", None, image(3, "b3", "y"), (120, 105)),
    ]
    send(broker.bootstrap_servers, first)
    run_stages(spark, config)
    assert rows(config, "pg/app.a.t") == [(1, "a1 later", "x" * 9000), (2, "a2", "x" * 9000)]
    assert rows(config, "pg/app.b.t") == [(1, "b1", "x" * 9000), (2, "b2", "x" * 9000), (3, "b3", "y")]

    message = {"op": "m", "ts_ms": 1, "source": {"connector": "postgresql", "db": "app", "schema": "", "table": ""}}
    send(
        broker.bootstrap_servers,
        [
            b.row("d", image(1), None, (200, 190)),
            b.tombstone(1),
            b.row("d", image(2), None, (210, 205)),  # its key becomes 20
            b.tombstone(2),
            b.row("c", None, image(20, "b20", "z"), (210, 206)),
            b.row("u", image(3), image(3, None, PLACEHOLDER), (220, 215)),
            ("two.message", None, json.dumps(message).encode()),
            a.truncate((230, 225)),
            a.row("c", None, image(9, "a9", ""), (240, 235)),
        ],
    )
    run_stages(spark, config)
    assert rows(config, "pg/app.a.t") == [(9, "a9", "")]
    assert rows(config, "pg/app.b.t") == [(3, None, "y"), (20, "b20", "z")]

    found = facts(config)
    assert unaccounted(found["outcomes"]) == {}
    assert found["quarantine"] == []
    [source] = config.sources
    names = [("app", "a", "t"), ("app", "b", "t")]
    assert queries.known_tables(config) == [(source, n) for n in names]
    found = status_tables(config, {source.name: None})
    assert {t["table"]: t["rows"] for t in found} == {"app.a.t": 1, "app.b.t": 2}
    assert [Naming(config).table(source, *n).key.path for n in names] == [
        ["snapshots", "pg", "app", s, "t"] for s in ("a", "b")
    ]
    name = described.find(config, "app.b.t")
    assert [c["column"] for c in described.columns(config, name)] == ["id", "name", "big"]
    read = Snapshots(config.lake)
    assert read.arrow("pg/app.a.t", columns=["id"]).num_rows == 1
    cut = read.at_cut("pg", kind="any")
    assert {str(t) for t in cut.tables()} == {"pg/app.a.t", "pg/app.b.t"}
    assert cut.arrow("app.b.t").num_rows == 2

    again = run_stages(spark, config)
    assert {key: result.batches for key, result in again.items()} == dict.fromkeys(again, 0)


def test_patterns_name_schemas(broker, spark, tmp_path):
    a, b = Postgresql("patterns", "a"), Postgresql("patterns", "b")
    tables = {"include": ["app.*"], "exclude": ["app.b.*"]}
    source = {"name": "pg", "topic_pattern": r"patterns\..*", "tables": tables}
    config = configured(tmp_path, broker.bootstrap_servers, source)
    send(broker.bootstrap_servers, [t.row("c", None, image(1, "n", "b"), (1, 2)) for t in (a, b)])
    run_stages(spark, config)
    assert [n for _, n in queries.known_tables(config)] == [("app", "a", "t")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("scenario", "table", "kept"),
    [
        ("postgresql_documented", "doc/postgres.public.customers", ("Anne Marie", "annek@noanswer.org")),
        pytest.param(
            *("sqlserver_documented", "doc/testDB.dbo.customers", ("john", "noreply@example.org")),
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_the_vendors_messages_end_without_a_row(broker, spark, tmp_path, scenario, table, kept):
    """Insert, update, delete, tombstone, and what is no row; as the vendor's pages print them."""
    prefix = scenario.replace("_", "-")
    config = configured(tmp_path, broker.bootstrap_servers, {"name": "doc", "topic_pattern": rf"{prefix}\..*"})
    messages, read = documented(prefix, scenario), Snapshots(config.lake)
    send(broker.bootstrap_servers, messages[:2])
    run_stages(spark, config)
    assert [(r["first_name"], r["email"]) for r in read.arrow(table).to_pylist()] == [kept]
    send(broker.bootstrap_servers, messages[2:])
    run_stages(spark, config)
    assert read.arrow(table).num_rows == 0
    assert (tmp_path / "lake" / "snapshots" / table.replace(".", "/") / "_delta_log").is_dir()
    found = facts(config)
    assert unaccounted(found["outcomes"]) == {}
    assert found["quarantine"] == []
