"""Spark commits only while its session's source is leased to it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cdc_platform.config.storage import Storage
from cdc_platform.lake import delta_table, lease, stores

_STOPPED = """
import sys
from contextlib import suppress
from pathlib import Path
from cdc_platform.config import parse_config
from cdc_platform.lake import lease, stores
from cdc_platform.spark import delta_sql
from cdc_platform.spark.session import leased, open_session
source = {"name": "s", "format": "debezium", "topics": ["t"]}
conf = {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}
config = parse_config({"lake": sys.argv[1], "spark": {"master": "local[1]", "conf": conf}, "sources": [source]},
                      Path(sys.argv[1], "cdc.yaml"))
spark = open_session(config)
with lease.held(stores.lake(config), "s", "s", 0, 2) as mine, leased(spark, mine):
    for n in range(10 ** 6):
        delta_sql.append(spark.range(1), stores.lake(config).at("t"))
        print(n, flush=True)
"""


@pytest.mark.spark
@pytest.mark.thorough
def test_a_stopped_process_whose_source_was_taken_over_commits_no_more(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", _STOPPED, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout
        while int(process.stdout.readline()) < 3:
            pass
        os.killpg(process.pid, signal.SIGSTOP)  # with its Java
        lake = stores.of(str(tmp_path), Storage())
        with lease.held(lake, "s", "s", 20):
            before = delta_table.version(lake.at("t"))
            os.killpg(process.pid, signal.SIGCONT)
            _, said = process.communicate(timeout=60)
        assert "LeaseLost: source s: this process was stopped" in said
        assert delta_table.version(lake.at("t")) - before <= 1  # one that was stopped on its last step
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
