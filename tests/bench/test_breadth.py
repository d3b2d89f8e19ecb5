"""Rounds of changes of several tables by several partitions, from a real broker."""

from pathlib import Path
from typing import Any

import pytest

from cdc_platform.bench.breadth import Tables, measurements
from cdc_platform.config import parse_config
from cdc_platform.kafka.broker import BrokerInfo
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots import together

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.thorough]


def test_tables_by_several_partitions_go_together_and_are_what_the_changes_say(
    spark: Any, broker: BrokerInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, kept = [], together.bring_up

    def bring_up(*a: Any) -> Any:
        found = kept(*a)
        done.append(len(found))
        return found

    monkeypatch.setattr(snapshots.together, "bring_up", bring_up)
    source = {"name": "bench", "format": "canal_json", "topics": ["breadth"]}
    servers = str(broker.bootstrap_servers)
    told = {"lake": str(tmp_path / "lake"), "kafka": {"bootstrap.servers": servers}, "sources": [source]}
    config = parse_config(told, tmp_path / "cdc.yaml")
    tables = Tables("breadth", 8, 3)
    rounds = measurements(spark, config, servers, tables, 80, 4)
    assert [(r["round"], r["changes"]) for r in rounds] == [
        ("first load", 160),
        ("some", 80),
        ("each", 8),
        ("nothing new", 0),
    ]
    assert tables.differences(config) == []
    assert done == [8, 4, 8]
    tables.rows[3][0] = {**tables.rows[3][0], "name": "other"}
    assert tables.differences(config) == ["t0003: 2 rows differ"]
