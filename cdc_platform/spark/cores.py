"""How many tasks run at once, wherever Spark's executors are."""

import re
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST = 2
"""Of a cluster whose executors aren't there yet, as Spark itself has it."""
_KNOWN_S = 60.0
_AT_FIRST = (
    "spark.executor.instances",
    "spark.dynamicAllocation.initialExecutors",
    "spark.dynamicAllocation.minExecutors",
)
"""How many executors an application asks for when it begins. Of dynamic allocation this is the least: more come while
more tasks wait, and then count."""
_SPLITS = re.compile(r"\bRange \(.*\bsplits=(?:Some\()?(\d+)")
_remote: dict[str, tuple[float, int]] = {}
"""Session of Spark Connect → when it was asked, and what it answered."""


def cores_of(spark: "SparkSession") -> int:
    """How many tasks a session runs at once: `spark.default.parallelism` where it is set, else the cores of the
    executors that are there, or of those that the application begins with where these are more."""
    session: str | None = getattr(spark, "session_id", None)
    if session is None:  # the JVM is this process's own
        return max(1, spark.sparkContext.defaultParallelism, _asked_for(spark))
    at, found = _remote.get(session, (float("-inf"), 0))
    if time.monotonic() - at > _KNOWN_S:
        found = _of_server(spark)
        _remote.clear()
        _remote[session] = (time.monotonic(), found)
    return found


def _of_server(spark: "SparkSession") -> int:
    """The same of a server, which only shows it in a plan: a range without a number of parts has one for each core."""
    if told := spark.conf.get("spark.default.parallelism", None):
        return max(1, int(told))
    frame: Any = spark.range(1)
    shown = _SPLITS.search(frame._explain_string())
    return max(int(shown[1]) if shown else LEAST, _asked_for(spark), 1)


def _asked_for(spark: "SparkSession") -> int:
    """Cores of the executors that the application begins with, as far as its settings say: some may be yet to come."""
    if spark.conf.get("spark.default.parallelism", None):
        return 0
    executors = max(int(spark.conf.get(key, None) or 0) for key in _AT_FIRST)
    return executors * int(spark.conf.get("spark.executor.cores", None) or 1)
