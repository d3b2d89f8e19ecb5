"""Dagster's folder."""

import os
import socket
import sqlite3
import subprocess
import sys

from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from cdc_platform.automation.instance import (
    PROCESS_TAG,
    dagster_home,
    end_orphans,
    is_gone,
    make_storage,
    process_tag,
)


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


def test_runs_of_a_code_server_that_ended_are_ended_and_others_left_alone():
    """As the launcher leaves them behind: its tag tells its runs from those of the command line."""
    with DagsterInstance.local_temp() as instance:
        launched = {".dagster/grpc_info": "{}"}
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        host = socket.gethostname()
        runs = {
            name: create_run_for_test(instance, job_name="j", status=status, tags=tags).run_id
            for name, status, tags in (
                ("started", DagsterRunStatus.STARTED, launched),
                ("canceling", DagsterRunStatus.CANCELING, launched),
                ("by hand", DagsterRunStatus.STARTED, {}),
                ("commanded", DagsterRunStatus.STARTED, {PROCESS_TAG: process_tag()}),
                ("killed", DagsterRunStatus.STARTED, {PROCESS_TAG: f"{host}/{ended.pid}/1.5"}),
                ("its number is another's", DagsterRunStatus.STARTED, {PROCESS_TAG: f"{process_tag()}0"}),
                ("noted by a time", DagsterRunStatus.STARTED, {PROCESS_TAG: f"{host}/{os.getpid()}/1.5"}),
                ("elsewhere", DagsterRunStatus.STARTED, {PROCESS_TAG: f"not{host}/{ended.pid}/1.5"}),
                ("done", DagsterRunStatus.SUCCESS, launched),
            )
        }
        orphans = ("started", "canceling", "killed", "its number is another's")
        assert set(end_orphans(instance)) == {runs[name] for name in orphans}
        found = {name: instance.get_run_by_id(run_id) for name, run_id in runs.items()}
        assert {name: run.status.value for name, run in found.items() if run} == {
            "started": "FAILURE",
            "canceling": "CANCELED",
            "by hand": "STARTED",
            "commanded": "STARTED",
            "killed": "FAILURE",
            "its number is another's": "FAILURE",
            "noted by a time": "STARTED",
            "elsewhere": "STARTED",
            "done": "SUCCESS",
        }
        assert end_orphans(instance) == []


def test_a_clock_that_is_set_ends_no_run(clock_set):
    tag = {PROCESS_TAG: process_tag()}
    clock_set(3600)
    with DagsterInstance.local_temp() as instance:
        run = create_run_for_test(instance, job_name="j", status=DagsterRunStatus.STARTED, tags=tag)
        assert not is_gone(run)
