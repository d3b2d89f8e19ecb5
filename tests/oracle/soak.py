"""Logs of all sorts by the rule of order, then seed after seed of the oracle's workload through every format:
`python -m tests.oracle.soak --help`."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import settings

from cdc_platform.config import Config, parse_config
from tests.changelog.test_epochs import LOGS, ends_as_its_source_has_it
from tests.jvm import FAST
from tests.oracle import decoded, server, test_snapshots
from tests.oracle.feeds import FEEDS
from tests.oracle.lake import Lake
from tests.oracle.recorded import made
from tests.oracle.test_snapshots import NOT_YET
from tests.oracle.workload import DDL, DML

SNAPSHOT_FORMATS = tuple(f for f in FEEDS if f != "dataworks")
"""One option can't tell DataWorks' columns before and after a DDL statement."""


def main() -> int:
    """Exit code 0: no difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=10, help="how many, each on a server of its own")
    parser.add_argument("--changes", type=int, default=10_000, help="changed rows per seed")
    parser.add_argument("--ddl", type=int, default=500, help="DDL statements per seed")
    parser.add_argument("--snapshot-seeds", type=int, default=2, help="how many of them go through the stages on Spark")
    parser.add_argument("--snapshot-changes", type=int, default=2_000, help="changed rows of those")
    parser.add_argument("--snapshot-ddl", type=int, default=100, help="DDL statements of those")
    parser.add_argument("--logs", type=int, default=10_000, help="logs of servers, failovers and restarts with replays")
    parser.add_argument("--formats", nargs="+", choices=FEEDS, default=list(FEEDS))
    told = parser.parse_args()
    _logs(told.logs)
    if reason := server.missing():
        print(reason, file=sys.stderr)  # noqa: T201
        return 1
    failed = 0
    for seed in range(told.seed, told.seed + told.seeds):
        source, known = made(seed, told.changes, told.ddl)
        for format in told.formats:
            started = time.monotonic()
            failed += _report(f"seed {seed} {format} decoded", decoded.problems(format, source, known), started)
    for seed in range(told.seed, told.seed + told.snapshot_seeds):
        failed += _snapshots(seed, told)
    return int(failed > 0)


def _logs(examples: int) -> None:
    """Raises what Hypothesis raises, with the shortest log that shows it."""
    started = time.monotonic()
    if examples:
        settings(max_examples=examples, deadline=None, database=None)(LOGS(ends_as_its_source_has_it))()
    print(f"{examples} logs: 0 differences, {time.monotonic() - started:.1f} s", flush=True)  # noqa: T201


def _report(what: str, problems: list[str], started: float) -> int:
    print(f"{what}: {len(problems)} differences, {time.monotonic() - started:.1f} s", flush=True)  # noqa: T201
    for problem in problems[:20]:
        print("   ", problem, flush=True)  # noqa: T201
    return len(problems)


def _snapshots(seed: int, told: argparse.Namespace) -> int:
    from cdc_platform.spark.session import open_session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    kinds = frozenset((*DML, *DDL)) - NOT_YET
    sizes = (told.snapshot_changes, told.snapshot_ddl)
    source, known = made(seed, *sizes, checkpoints=3, kinds=kinds)
    failed = 0
    for format in (f for f in told.formats if f in SNAPSHOT_FORMATS):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="soak") as folder:

            def config(sources: list[dict], folder: str = folder) -> Config:
                told = {"lake": folder, "spark": {"master": "local[2]", "conf": FAST}, "sources": sources}
                return parse_config(told, Path(folder) / "cdc.yaml")

            unused = config([{"name": "unused", "format": "debezium", "topics": ["unused"]}])
            lake = Lake(open_session(unused), config, format, {})
            problems = test_snapshots.differences(lake, format, source, known)
        failed += _report(f"seed {seed} {format} snapshots", problems, started)
    return failed


if __name__ == "__main__":
    sys.exit(main())
