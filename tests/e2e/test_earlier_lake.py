"""A lake that an earlier version made goes on where it stands: nothing lands twice, nothing is left out, and its
tables say what a new lake of the same topics says."""

import base64
import gzip
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from cdc_platform.config import load_config
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.feeds.publish import Record, publish
from cdc_platform.feeds.shop import TABLES
from cdc_platform.kafka.offsets import kafka_state
from cdc_platform.lake import stores
from cdc_platform.snapshots.target import Target
from cdc_platform.tables import LANDING, TOPICS
from tests.e2e.e2e_shop import FAST, facts, run_stages, unaccounted

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.e2e, pytest.mark.thorough]
FIXTURE = Path(__file__).parents[1] / "fixtures" / "lake_of_6df2a2e"
SOURCES = [
    {"name": "dts", "format": "tencent_dts", "topics": ["old-dts"]},
    {"name": "deb", "format": "debezium", "topic_pattern": r"(__debezium-heartbeat\.)?old-deb.*"},
]


def records(part):
    def read(text):
        return None if text is None else base64.b64decode(text)

    with gzip.open(FIXTURE / "records.json.gz") as file:
        for topic, partition, key, value, headers, at in json.load(file)[part]:
            yield Record(topic, partition, read(key), read(value), tuple((k, read(v)) for k, v in headers), at)


def config_in(folder, servers):
    folder.mkdir(exist_ok=True)
    (folder / "cdc.yaml").write_text(
        yaml.safe_dump(
            {
                "lake": "./lake",
                "kafka": {"bootstrap.servers": servers},
                "sources": SOURCES,
                "spark": {"master": "local[2]", "conf": FAST},
            }
        )
    )
    return load_config(folder / "cdc.yaml")


def adopt_topics(config):
    """Tells the lake the ids that this broker gave the topics: of other ids it would say, rightly, that they were
    made again."""
    at = TOPICS.at(stores.lake(config))
    had = read_snapshot(at.uri(), at.options)
    ids = {s.topic: s.topic_id for source in config.sources for s in kafka_state(config, source)}
    now = pa.array([ids[topic] for topic in had["topic"].to_pylist()])
    write_deltalake(at.uri(), had.set_column(had.column_names.index("topic_id"), "topic_id", now), mode="append")


def rows(config, source, name):
    at = Target.of(config, source, *name.split(".")).snapshot
    table = read_snapshot(at.uri(), at.options)
    return sorted(map(str, table.select([c for c in table.column_names if not c.startswith("_cdc_")]).to_pylist()))


def landed(config, source):
    at = LANDING.at(stores.lake(config), source=source)
    return read_snapshot(at.uri(), at.options).num_rows


def test_a_lake_of_an_earlier_version_goes_on(spark, broker, tmp_path):
    servers = broker.bootstrap_servers
    with tarfile.open(FIXTURE / "lake.tar.gz") as file:
        file.extractall(tmp_path / "earlier", filter="data")
    publish(records("before"), servers, partitions={"old-dts": 2}, default_partitions=1)
    earlier = config_in(tmp_path / "earlier", servers)
    had = {source["name"]: landed(earlier, source["name"]) for source in SOURCES}
    assert had == {"dts": 37, "deb": 79}

    adopt_topics(earlier)
    publish(records("after"), servers)
    results = run_stages(spark, earlier)
    found = facts(earlier)
    for source, count in had.items():
        assert count + results[source, "landing"].rows == len(found["landed"][source])
    assert unaccounted(found["outcomes"]) == {}
    assert found["quarantine"] == []

    new = config_in(tmp_path / "new", servers)
    run_stages(spark, new)
    expected = facts(new)
    assert found["landed"] == expected["landed"]
    assert found["changelog"] == expected["changelog"]
    for source in had:
        for name in TABLES:
            assert rows(earlier, source, name) == rows(new, source, name), (source, name)
            assert rows(earlier, source, name)
    again = run_stages(spark, earlier)
    assert {key: result.batches for key, result in again.items()} == dict.fromkeys(again, 0)
    assert facts(earlier) == found
