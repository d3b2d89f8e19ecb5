"""The one place that knows how a Spark session is made: classic or Spark Connect, by configuration alone."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cdc_platform.config import Catalog, Config
from cdc_platform.config.secrets import SECRET_KEYS
from cdc_platform.config.storage import Kind, kind
from cdc_platform.errors import ConfigError, SparkUnreachable
from cdc_platform.lake.lease import Lease
from cdc_platform.setup.packaged import packaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_AT_ONCE, FEW_ROWS_AT_ONCE = "spark.sql.parquet.columnarReaderBatchSize", "64"
_HEAP_MB, _TASK_HEAP_MB = 800, 200
_HOT = 16
"""How many times later than by itself Java compiles a method with its slower, better compiler. A round of the stages
calls thousands of planning's methods often enough for that, which never pays: half of the JVM's CPU while it is young.
Methods that see every row get there within a second all the same."""
_JIT = {
    "Tier4InvocationThreshold": 5_000,  # Java's own thresholds, of each condition that C2 waits for
    "Tier4MinInvocationThreshold": 600,
    "Tier4CompileThreshold": 15_000,
    "Tier4BackEdgeThreshold": 40_000,
}
_OLD_TO_YOUNG = 5
"""How many times its young generation Java's old one is at most. Java's own 2 lets the young one grow, run by run, to a
third of the heap, of which almost nothing outlives a collection; nothing is slower without it."""
_CLASS_PATH, _JAVA, _JARS = "spark.driver.extraClassPath", "spark.driver.extraJavaOptions", "spark.jars"
_COLLECTOR = "-XX:+UseParallelGC"
_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_BASE = {
    "spark.app.name": "cdc-platform",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.showConsoleProgress": "false",  # `[Stage 3:==>` with carriage returns, into files as well
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",  # a name or key like ${env:HOME} from the wire stays as it is
    "spark.sql.ansi.enabled": "true",  # a value that doesn't fit is an error, never a silent NULL
    "spark.sql.streaming.numRecentProgressUpdates": "100000",  # every batch's figures, for the run's metadata
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # The line of Python behind each expression, for Spark's error texts: nearly half of all calls to Java.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16777216",  # big messages: Python's memory stays bounded
    # Rows that Spark's Parquet reader holds at once for each column, whatever their size: with its 4096, two tasks that
    # read messages of 28 KB each took more than a gigabyte. Only rows that deletion vectors thin out are read slower.
    ROWS_AT_ONCE: FEW_ROWS_AT_ONCE,
    # Spark takes a table's files for its size in memory and sends what is below 10 MB to every task: 2,000,000 rows in
    # less than 10 MB of zstd then found no place in a heap of 1.2 GB.
    "spark.sql.sources.fileCompressionFactor": "20.0",
    # What is written has few partition values per task, mostly one: without this, whole rows are sorted by them first.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # What follows from a plan's filters is looked for in every spelling: of an expression over n renamed columns that
    # are 2^n (SPARK-33152), and a row's digest is over all columns of a table.
    _CONSTRAINTS: "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Programs made for queries, kept: a round of the stages needs some 200, and Spark's 100 threw each away before the
    # next round, which then compiled it again and ran it cold.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Raw payloads never repeat: trying a dictionary on them costs half of the landing's time. Row images do, but what a
    # dictionary spares there zstd spares as well, at its fastest level too: a twentieth of the chain's CPU.
    "spark.hadoop.parquet.enable.dictionary#value": "false",
    **{f"spark.hadoop.parquet.enable.dictionary#{c}.key_value.value": "false" for c in ("before", "after", "key")},
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    # A row group is what a task reads, and what a writer holds: with Parquet's 128 MB (compressed, five times as much
    # before) cores waited for the last task.
    "spark.hadoop.parquet.block.size": "16777216",
    # OPTIMIZE's default of 1 GB would leave MERGE no files to pass over, and readers little to share. Files below 32 MB
    # are put together, larger ones written anew when so many of their rows have been replaced.
    "spark.databricks.delta.optimize.maxFileSize": "134217728",
    "spark.databricks.delta.optimize.minFileSize": "33554432",
    "spark.databricks.delta.optimize.maxDeletedRowsRatio": "0.3",
    _LISTING: "64",  # VACUUM runs so many tasks; the default is 10000
    "spark.redaction.regex": (
        "(?i)secret|password|passwd|passphrase|token|(access|account)[.]?key|jaas|credential|ssl[.]key"
    ),
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|passwd|token|jaas|credential|ssl[.]key",
}

_LOCAL = {  # one machine: listen on loopback only, no UI port, small shuffles
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # What it would show is kept even so: hundreds of MB of plans after some hundred batches.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "5",
    # Nor are its texts to be written with all details each time that a plan changes: up to 90 KB for one of Delta's.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "5",
    # Batches are planned alike each time: looking again after each shuffle cost a tenth of their time.
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
    _LISTING: "8",
    _JAVA: " ".join(
        (
            f"{_COLLECTOR} -XX:NewRatio={_OLD_TO_YOUNG} -Dio.netty.tryReflectionSetAccessible=true",
            *(f"-XX:{name}={times * _HOT}" for name, times in _JIT.items()),
        )
    ),
}

_LOG_STORE = "cdc_platform.LogStore"
"""Spark's commits are put-if-absent, and made only under the source's lease (data/LogStore.java)."""
_LEASE = "cdc.lease"
"""The record of the lease that a session commits under; read there."""
_STORES: dict[Kind, dict[str, str]] = {
    "folder": {
        "spark.delta.logStore.file.impl": _LOG_STORE,
        # What Spark takes by itself starts some ten programs (readlink) more per commit.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    },
    "s3": {"spark.delta.logStore.s3a.impl": _LOG_STORE, "spark.delta.logStore.s3.impl": _LOG_STORE},
}


def spark_config(config: Config) -> dict[str, str]:
    """Properties for dagster-pyspark's LazyPySparkResource and for the Connect server: with `remote` just the
    address (the server was started with its own), else everything. Raises SetupError when jars are missing."""
    if config.spark.remote:
        return {"spark.remote": config.spark.remote}
    return {"spark.master": config.spark.master, **server_config(config)}


MASTERS = ("local", "local[4]", "local[*]", "spark://host:7077", "k8s://https://host:443", "yarn")
_MASTER = re.compile(
    r"local|local\[(\*|\d+)(\s*,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^\s:/,]+:\d+(,[^\s:/,]+:\d+)*|k8s://\S+|yarn"
)


def check_master(master: str, key: str = "spark.master") -> None:
    """Raises ConfigError where this is no Spark master: Spark itself says so after a Java has started."""
    if not _MASTER.fullmatch(master):
        raise ConfigError(key, f"{master!r} is no Spark master", MASTERS)


def server_config(config: Config) -> dict[str, str]:
    """Properties of the process that runs Spark. Raises ConfigError, SetupError."""
    from cdc_platform.setup.jars import spark_jars

    check_master(config.spark.master)
    local = config.spark.master == "local" or config.spark.master.startswith("local[")
    store = kind(config.lake)
    jars = spark_jars(store)
    there = _on_one_machine(config.spark.master, jars) if local else {_JARS: ",".join(jars)}
    own = dict(config.spark.conf)
    there = _beside(there, own)
    reached = config.storage.spark_options(config.lake)
    return {**_BASE, **_STORES.get(store, {}), **reached, **_hive(config.catalog), **there, **own}


def _hive(catalog: Catalog | None) -> dict[str, str]:
    """A Hive metastore as Spark's own catalog."""
    if catalog is None or catalog.kind != "hive":
        return {}
    uris = {"spark.hadoop.hive.metastore.uris": catalog.uris} if catalog.uris else {}
    return {"spark.sql.catalogImplementation": "hive", **uris}


def _beside(ours: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """What holds several things has the user's `own` after ours, not in their place; taken out of `own`."""
    both = dict(ours)
    for key, separator in ((_CLASS_PATH, os.pathsep), (_JARS, ",")):
        if key in ours and (more := own.pop(key, None)):
            both[key] = separator.join((ours[key], more))
    if _JAVA in ours and (options := own.pop(_JAVA, None)):
        # Java takes the last of two values, but no second garbage collector.
        first = ours[_JAVA].replace(_COLLECTOR, "").strip() if re.search(r"-XX:\+Use\w*GC\b", options) else ours[_JAVA]
        both[_JAVA] = f"{first} {options}"
    return both


def _on_one_machine(master: str, jars: list[str]) -> dict[str, str]:
    """The jars on the JVM's own class path: nothing has to be sent, and the archive of classes holds them, too. Not
    those of a store: no class of the archive would be used with another class path than its own."""
    from cdc_platform.setup.jars import spark_jars
    from cdc_platform.spark.class_archive import options

    archived = spark_jars()
    sent = {_JARS: ",".join(j for j in jars if j not in archived)} if len(jars) > len(archived) else {}
    told = re.match(r"local\[(\d+)", master)
    tasks = int(told[1]) if told else (os.cpu_count() or 2)
    return {
        **_LOCAL,
        _JAVA: f"{_LOCAL[_JAVA]} {options()}".strip(),
        **sent,
        _CLASS_PATH: os.pathsep.join(archived),
        "spark.default.parallelism": str(tasks),  # as Spark has it; a Connect server tells it by this key
        "spark.sql.shuffle.partitions": str(tasks * 2),
        # What each task holds, and what there is beside them. Java takes more where it may, and is no faster then.
        "spark.driver.memory": f"{_HEAP_MB + _TASK_HEAP_MB * tasks}m",
    }


@contextmanager
def leased(session: "SparkSession", lease: Lease) -> Iterator[None]:
    """Within it the session commits only while the lease is held."""
    session.conf.set(_LEASE, lease.lake.spark_uri(f"{lease.folder}/{lease.token}"))
    try:
        yield
    finally:
        with suppress(Exception):  # of a session that has ended; what ended it is told
            session.conf.unset(_LEASE)


def open_session(config: Config) -> "SparkSession":
    """A session outside Dagster (command line, tests). Classic sessions stop with the process."""
    return prepare(session_of(spark_config(config)), config.spark.remote, kind(config.lake))


def session_of(properties: Mapping[str, str]) -> "SparkSession":
    """A session with these properties, or the one that this process has."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need this environment's packages
    from pyspark.sql import SparkSession

    try:
        _start_java(properties)
        builder = SparkSession.builder
        for key, value in properties.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    except Exception as error:
        if (refused := _refused(properties, error)) is not None:
            raise refused from error
        raise


def _start_java(properties: Mapping[str, str]) -> None:
    """Starts the JVM without the secrets, where there are any: pyspark would give it all properties by its command
    line, which every user of the machine may see. They follow when the session is made."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    shown = {key: value for key, value in properties.items() if not SECRET_KEYS.search(key)}
    if len(shown) < len(properties) and "spark.remote" not in properties and SparkContext._gateway is None:
        gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(list(shown.items())))
        SparkContext._ensure_initialized(gateway=gateway)


def _refused(properties: Mapping[str, str], error: Exception) -> ConfigError | None:
    """What is wrong with the configuration, by the first line of Spark's reason; None: something else failed."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError

    if isinstance(error, Py4JJavaError):
        why = str(error.java_exception).split("\n", 1)[0].strip()
        return ConfigError("spark", f"no session from {properties.get('spark.master')}: {why}")
    if isinstance(error, PySparkRuntimeError) and "JAVA_GATEWAY_EXITED" in str(error):
        return ConfigError(
            "spark.conf", "Java ended while Spark started; .cdc/logs/cli.log, or in Dagster the step's stderr, says why"
        )
    return None


def prepare(session: "SparkSession", remote: str | None = None, store: Kind = "folder") -> "SparkSession":
    """Settings every session needs and a shared Connect server can't be trusted to have. remote: that server's
    address. Raises SparkUnreachable where none answers there, ConfigError for one that would commit to the lake's kind
    of store without the lease, or lose commits."""
    if remote:
        _reach(session, remote)
        key = next(key for key in _STORES[store] if key.startswith("spark.delta.logStore."))
        if session.conf.get(key, None) != _LOG_STORE:
            problem = f"the server commits by another log store than the platform's: it needs {key}={_LOG_STORE}"
            raise ConfigError("spark.remote", f"{problem} and {packaged('log-store.jar')} beside its Delta jars")
    for key in (
        "spark.sql.session.timeZone",
        "spark.sql.ansi.enabled",
        "spark.sql.variable.substitute",
        "spark.sql.parquet.compression.codec",
        _CONSTRAINTS,
    ):
        session.conf.set(key, _BASE[key])
    return session


def _reach(session: "SparkSession", remote: str) -> None:
    """The first call, tried once; each later one for a minute, for 4 s on this machine, where who refuses to talk is
    dead. Spark's client would try each for ten minutes, in silence."""
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException
    from pyspark.sql.connect.client.retries import DefaultPolicy

    client: Any = session.client
    client.set_retry_policies([])
    try:
        session.version  # noqa: B018 - asks the server
    except SparkConnectGrpcException as error:
        told = re.search(r'details = "(.*)"', str(error))
        raise SparkUnreachable(remote, told[1] if told else str(error)) from None
    here = remote.startswith(("sc://localhost:", "sc://127."))
    client.set_retry_policies([DefaultPolicy(max_retries=4 if here else 9, max_backoff=10_000)])
