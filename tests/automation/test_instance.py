"""Dagster's folder."""

import sqlite3

from cdc_platform.automation.instance import dagster_home, make_storage


def test_all_tables_are_there_before_programs_start(make_config, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    config = make_config([{"name": "a", "format": "debezium", "topics": ["t"]}])
    make_storage(config)
    home = dagster_home(config)
    tables = {
        row[0]
        for file in ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")
        for row in sqlite3.connect(home / file).execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert {"runs", "daemon_heartbeats", "event_logs", "dynamic_partitions", "instigators", "job_ticks"} <= tables
    make_storage(config)
