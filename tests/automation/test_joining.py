"""Tables that the newest publication doesn't know are complete up to no time: one that the rules newly include has a
backlog to be taken in."""

import json
from datetime import UTC, datetime

import pytest

from cdc_platform import metrics
from cdc_platform.automation import table_status
from cdc_platform.cli.app import run
from cdc_platform.config import load_config
from cdc_platform.lake import stores
from cdc_platform.reading import Snapshots
from cdc_platform.snapshots import state
from tests.automation.conftest import complete, schema_history, snapshot

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NAME = ("shop", "payments")


@pytest.fixture
def config(tmp_path):
    feed = {"name": "shop", "format": "canal", "topics": ["t"]}
    raw = {"lake": "./lake", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "sources": [feed]}
    (tmp_path / "cdc.yaml").write_text(json.dumps(raw))
    return load_config(tmp_path / "cdc.yaml")


@pytest.fixture
def told(config, capsys, monkeypatch):
    """Up to when the table is complete, by all who say it; and its state."""
    monkeypatch.setenv("CDC_CONFIG", str(config.file))
    source = config.sources[0]
    snapshot(config, source.name, "shop.orders", 1)
    complete(config, source.name, 0, NOON)
    schema_history(config, (source.name, "shop", "payments"))

    def found():
        run(["status", "--json"])
        [row] = [t for t in json.loads(capsys.readouterr().out)["tables"] if t["table"] == "shop.payments"]
        [page] = [s for s in table_status.statuses(config, source) if s.id == NAME]
        name = "cdc_table_complete_timestamp_seconds"
        metric = [v for n, labels, v in metrics.samples(config) if n == name and "payments" in str(labels)]
        times = {row["complete_up_to"] and datetime.fromisoformat(row["complete_up_to"]), page.complete_up_to}
        assert metric == [t.timestamp() for t in {page.complete_up_to} - {None}]
        [time] = times
        return row["state"], time

    return found


def test_a_table_that_no_batch_has_met_tells_no_time(config, told):
    assert told() == ("waiting", None)


def test_a_table_of_which_a_run_takes_in_what_came_tells_no_time(config, told):
    """The run ends between two batches."""
    source, lake = config.sources[0], stores.lake(config)
    reader, text = Snapshots(config.lake), f"{source.name}/shop.payments"
    state.keep(lake, source, [state.Outcome(NAME, "live", None, 5, 0)], {}, 7)
    snapshot(config, source.name, "shop.payments", 5)
    assert told() == ("live", None)
    assert reader.complete_up_to(text) is None
    assert reader.complete_up_to(f"{source.name}/shop.orders") == NOON
    [behind] = table_status.complete(config, source).behind.values()
    assert behind.reason == "a run that isn't done is taking in what has come of it"
    state.keep(lake, source, [state.Outcome(NAME, "live", None, 5, 0)], {NAME: {}}, 8)
    assert table_status.complete(config, source).number == 1, "that is told once"
    complete(config, source.name, 2, NOON)  # the run is done
    assert told() == ("live", NOON)
    assert reader.complete_up_to(text) == NOON
