"""The benchmark: row changes through the chain, stage by stage, against a raw copy of the same records.

The raw copy is what Structured Streaming needs at least to bring the records from Kafka into a Delta table
with the landing's settings: the limit that the stages are held against. A stage's figures are those of one
catch-up over the whole backlog. Nothing is measured that isn't also checked: the snapshot must equal the
generator's truth. Of a topic that was there before (`Settings.topic`) no truth is known: there every record must be
accounted for and none be in quarantine.
"""

import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_platform.bench.figures import CHAIN, IDLE, RAW, Trial, machine, ratios, stage_rows, whole
from cdc_platform.bench.latency import measure
from cdc_platform.bench.meter import measured
from cdc_platform.config import Config, Source, parse_config
from cdc_platform.errors import ConfigError
from cdc_platform.feeds.generators import OPTIONS, bench_records, bench_truth
from cdc_platform.lake import stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cdc_platform.kafka.broker import BrokerInfo

FORMATS = ("tencent_dts", "debezium", "canal_json", "canal", "dataworks", "tdsql")
WHAT = ("chain", "increments", "breadth", "ddl", "explain", "latency")
_DDL_TABLES = 25
_USUAL = ("chain", "increments")
_WARM_ROWS, _WARM_KEYS = 2_000, 500

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """rows: row changes per format; keys: rows of the table; repeats: measured runs, after a small one that
    isn't. folder: where broker and lakes are made (and removed); None: the system's temporary folder. lake: an empty
    place for the lakes instead, which stay there. topic, servers: of a Kafka that is there, in place of generated rows
    (then of one format). sizes: rows of the tables that increments of `changes` changes come into. tables, partitions:
    how many there are where breadth is measured; keyless: without keys. rate: changes per second whose way is timed for
    `seconds`, into `over` tables."""

    what: tuple[str, ...] = _USUAL
    formats: tuple[str, ...] = FORMATS
    rows: int = 200_000
    keys: int = 50_000
    repeats: int = 3
    master: str = "local[*]"
    folder: Path | None = None
    lake: str | None = None
    topic: str | None = None
    servers: str | None = None
    sizes: tuple[int, ...] = (100_000, 1_000_000)
    changes: int = 20_000
    tables: int = 1_000
    partitions: int = 1
    keyless: bool = False
    rate: int = 20
    seconds: int = 120
    over: int = 1


def run_bench(settings: Settings, say: Say) -> dict[str, Any]:
    """machine, settings, stages (one row per format and stage), ratios (one per format), increments (one per size and
    kind of keys), latency (one row), differences.

    Raises ConfigError, SetupError, BrokerError, KafkaUnreachable, PublishFailed.
    """
    _check(settings)
    trials: list[Trial] = []
    found: dict[str, Any] = {}
    with _work(settings.folder) as work:
        if "chain" in settings.what:
            with _broker(work, say) as info:
                trials = _trials(_Bench(work, info, settings, say))
        if "increments" in settings.what and not any(t.differences for t in trials):
            say("starting Spark")
            found = _increments(work, settings, say)
        if "breadth" in settings.what and not any(t.differences for t in trials):
            rows, touched, differences = _breadth(work, settings, say)
            found["breadth"], found["touched"] = rows, touched
            found["differences"] = found.get("differences", []) + differences
        if "ddl" in settings.what and not any(t.differences for t in trials):
            rows, differences = _ddl(work, settings, say)
            found["ddl"] = rows
            found["differences"] = found.get("differences", []) + differences
        if "explain" in settings.what and not any(t.differences for t in trials):
            rows, differences = _explain(work, settings, say)
            found["explain"] = rows
            found["differences"] = found.get("differences", []) + differences
        if "latency" in settings.what and not any(t.differences for t in trials):
            say("latency: starting the platform")
            latency, differences = measure(work / "latency", settings.rate, settings.seconds, settings.over)
            found["latency"] = [latency]
            found["differences"] = found.get("differences", []) + differences
    return _result(settings, trials, found)


def _check(settings: Settings) -> None:
    for given, valid, key in ((settings.what, WHAT, "--what"), (settings.formats, FORMATS, "--format")):
        for name in given:
            if name not in valid:
                raise ConfigError(key, f"there is no {name!r}", valid)
    if (settings.topic is None) != (settings.servers is None):
        raise ConfigError("--topic", "a topic and its Kafka are given together", ["--topic T --servers HOST:PORT"])
    if settings.topic is not None and len(settings.formats) != 1:
        raise ConfigError("--topic", "needs its format", [f"--format {f}" for f in FORMATS])


def _trials(bench: "_Bench") -> list[Trial]:
    settings, trials = bench.settings, []
    for name in settings.formats:
        bench.say(f"{name}: warming up")
        warm = bench.trial(name, "warm", min(settings.rows, _WARM_ROWS), min(settings.keys, _WARM_KEYS))
        if warm.differences:
            return [warm]
        for i in range(settings.repeats):
            bench.say(f"{name}: run {i + 1} of {settings.repeats}")
            if settings.topic is not None:
                trials.append(bench.of_topic(name, settings.topic, f"run{i}"))
            else:
                trials.append(bench.trial(name, f"run{i}", settings.rows, settings.keys))
    return trials


def _increments(work: Path, settings: Settings, say: Say) -> dict[str, Any]:
    """`increments`: per size and kind of keys seconds of an increment; `differences`."""
    from cdc_platform.bench.increments import Table, figures
    from cdc_platform.spark.session import open_session

    rows, differences = [], []
    for size in settings.sizes:
        config = _config(work, settings, f"increments-{size}", "canal_json", "none", "127.0.0.1:1")
        table = Table(open_session(config), config, config.sources[0], size)
        say(f"a table of {size} rows")
        table.fill()
        say(f"increments of {settings.changes} changes")
        rows += figures(table, settings.changes, settings.repeats)
        differences += table.differences()
    return {"increments": rows, "differences": differences}


def _breadth(work: Path, settings: Settings, say: Say) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """A row per round of changes of many tables; one per what users touch of them; differences."""
    from cdc_platform.bench import touched
    from cdc_platform.bench.breadth import Tables, figures
    from cdc_platform.spark.session import open_session

    with _broker(work / "breadth", say) as info:
        servers = str(info.bootstrap_servers)
        told = _told(work, settings, "breadth-lake", "canal_json", "breadth", servers)
        config = parse_config(told, work / "cdc.yaml")
        say(f"{settings.tables} tables")
        tables = Tables("breadth", settings.tables, settings.partitions, settings.keyless)
        some = max(1, settings.tables * 3 // 10)
        rows = figures(open_session(config), config, servers, tables, settings.changes, some)
        say("status, sensors and definitions")
        return rows, touched.figures(config, told, settings.tables), tables.differences(config)


def _ddl(work: Path, settings: Settings, say: Say) -> tuple[list[dict[str, Any]], list[str]]:
    """A row of a history of DDL; differences."""
    from cdc_platform.bench.ddl import figures
    from cdc_platform.spark.session import open_session

    with _broker(work / "ddl", say) as info:
        servers = str(info.bootstrap_servers)
        config = _config(work, settings, "ddl-lake", "canal_json", "ddl", servers)
        say("a history of DDL")
        return figures(open_session(config), config, servers, _DDL_TABLES)


def _explain(work: Path, settings: Settings, say: Say) -> tuple[list[dict[str, Any]], list[str]]:
    """A row per question; differences."""
    from cdc_platform.bench.explained import FORMAT, figures

    with _broker(work / "explain", say) as info:
        bench = _Bench(work / "explain", info, settings, say)
        say(f"{settings.rows} changes")
        trial = bench.trial(FORMAT, "explain", settings.rows, settings.keys)
        say("questions")
        config = bench.config(f"bench-{FORMAT}-explain", FORMAT)
        rows, wrong = figures(config, settings.rows, min(settings.rows, settings.keys))
        return rows, trial.differences + wrong


@contextmanager
def _work(folder: Path | None) -> "Iterator[Path]":
    with tempfile.TemporaryDirectory(prefix="cdc-bench-", dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def _broker(work: Path, say: Say) -> "Iterator[BrokerInfo]":
    from cdc_platform.kafka import broker
    from cdc_platform.setup.ports import free_port

    say("starting a broker")
    try:
        yield broker.start(work / "broker", free_port())
    finally:
        broker.stop(work / "broker")


class _Bench:
    """One broker and one Spark session for all trials; a topic and a lake for each."""

    def __init__(self, work: Path, info: "BrokerInfo", settings: Settings, say: Say):
        from cdc_platform.spark.session import open_session

        self.work, self.info, self.settings, self.say = work, info, settings, say
        self.servers = str(info.bootstrap_servers)
        say("starting Spark")
        self.spark = open_session(_config(work, settings, "none", "debezium", "none", self.servers))

    def trial(self, format_name: str, name: str, rows: int, keys: int) -> Trial:
        """Publish, copy raw, run every stage, compare."""
        from cdc_platform.feeds.publish import publish

        topic = f"bench-{format_name}-{name}"
        config = self.config(topic, format_name)
        done = publish(bench_records(format_name, rows, keys, topic=topic), self.servers)
        trial = Trial(format_name, done.records, done.bytes, done.seconds)
        records, _, ends = self._run(trial, config)
        if records != done.records:
            lacks = f"raw copy has {records} of {done.records} records; Kafka told it these ends: {ends}"
            trial.differences.append(lacks)
        trial.differences += _differences(config, rows, keys)
        return trial

    def config(self, topic: str, format_name: str) -> Config:
        """Of the lake of a topic."""
        return _config(self.work, self.settings, topic, format_name, topic, self.servers)

    def of_topic(self, format_name: str, topic: str, name: str) -> Trial:
        """A topic that is there: copy raw, run every stage."""
        config = _config(self.work, self.settings, name, format_name, topic, str(self.settings.servers))
        trial = Trial(format_name, 0, 0, 0.0)
        trial.records, trial.bytes, _ = self._run(trial, config)
        trial.differences += _unaccounted(config, trial.records)
        return trial

    def _run(self, trial: Trial, config: Config) -> tuple[int, int, str]:
        """All stages; what `raw_copy` tells."""
        from cdc_platform.chain import STAGES

        [source] = config.sources
        with measured(self.info.pid) as trial.stages[RAW]:
            copied = raw_copy(self.spark, config, source)
        for stage, run in STAGES.items():
            self.say(f"  {stage}")
            with measured(self.info.pid) as trial.stages[stage]:
                run(self.spark, config, source)
        trial.stages[CHAIN] = whole([trial.stages[stage] for stage in STAGES])
        with measured(self.info.pid) as trial.stages[IDLE]:
            for run in STAGES.values():
                run(self.spark, config, source)
        return copied


def _config(work: Path, settings: Settings, lake: str, format_name: str, topic: str, servers: str) -> Config:
    return parse_config(_told(work, settings, lake, format_name, topic, servers), work / "cdc.yaml")


def _told(work: Path, settings: Settings, lake: str, format_name: str, topic: str, servers: str) -> dict[str, Any]:
    """The same, as it is written."""
    source = {"name": "bench", "format": format_name, "topics": [topic], "options": OPTIONS.get(format_name, {})}
    conf = {
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
    }
    return {
        "lake": f"{settings.lake.rstrip('/')}/{lake}" if settings.lake else str(work / lake),
        "spark": {"master": settings.master, "conf": conf},
        "kafka": {"bootstrap.servers": servers},
        "sources": [source],
    }


_CONSUMER = {
    "kafka.isolation.level": "read_committed",
    # After each poll Spark asks which offsets there are (KafkaDataConsumer.scala, getAvailableOffsetRange), behind a
    # fetch that is on its way and waits for new records at the partition's end: two seconds of every landing, with
    # Kafka's 500 ms and 500 records. What is to be read is there already, and bytes bound a poll, too.
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.poll.records": "5000",
}


def raw_copy(spark: "SparkSession", config: Config, source: Source) -> tuple[int, int, str]:
    """Kafka → a Delta table like the landing, by one plain stream; the number of records, their bytes, and the ends
    per partition that Kafka told."""
    from cdc_platform.kafka.client import spark_options
    from cdc_platform.spark import delta_sql
    from cdc_platform.tables import LANDING

    path = delta_sql.ensure(LANDING, stores.lake(config).at("raw"))
    stream = (
        spark.readStream.format("kafka")
        .options(**{**_CONSUMER, **spark_options(config, source)})
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", source.max_records_per_batch)
        .load()
        .selectExpr(
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestampType AS timestamp_type",
            "key",
            "value",
            "headers",
            "current_timestamp() AS landed_at",
        )
    )
    writer = stream.writeStream.format("delta").option(
        "checkpointLocation", stores.lake(config).spark_uri("raw_checkpoint")
    )
    query = writer.trigger(availableNow=True).start(path.spark_uri())
    query.awaitTermination()
    sizes = ("count(*)", "coalesce(sum(coalesce(length(key), 0) + coalesce(length(value), 0)), 0)")
    copied = spark.read.format("delta").load(path.spark_uri()).selectExpr(*sizes).collect()[0]
    last = query.lastProgress
    return copied[0], copied[1], str(last.sources[0].endOffset) if last else "none"


def _differences(config: Config, rows: int, keys: int) -> list[str]:
    from cdc_platform.feeds.compare import compare
    from cdc_platform.feeds.shop import BENCH
    from cdc_platform.tables import SNAPSHOT_PATH

    path = SNAPSHOT_PATH.at(stores.lake(config), source="bench", db=BENCH.db, table=BENCH.name)
    return compare(BENCH, bench_truth(rows, keys), path.uri(), storage_options=path.options).describe()


def _unaccounted(config: Config, records: int) -> list[str]:
    from cdc_platform.lake.queries import OUTCOMES, ledger

    sums = {o: sum(int(row[o]) for row in ledger(config, config.sources)) for o in ("landed", *OUTCOMES)}
    found = []
    if sums["landed"] != records or sum(sums[o] for o in OUTCOMES) != records:
        found.append(f"the raw copy has {records} records, the ledger says {sums}")
    if sums["quarantined"]:
        found.append(f"{sums['quarantined']} records are in quarantine")
    return found


def _result(settings: Settings, trials: list[Trial], found: dict[str, Any]) -> dict[str, Any]:
    by_format = {name: [t for t in trials if t.format == name] for name in settings.formats}
    return {
        "machine": machine(settings.master),
        "rows": settings.rows,
        "keys": settings.keys,
        "repeats": settings.repeats,
        "stages": [row for of in by_format.values() if of for row in stage_rows(_events(settings, of[0]), of)],
        "ratios": [ratios(of) for of in by_format.values() if of],
        "increments": found.get("increments", []),
        "breadth": found.get("breadth", []),
        "touched": found.get("touched", []),
        "ddl": found.get("ddl", []),
        "explain": found.get("explain", []),
        "latency": found.get("latency", []),
        "differences": [f"{t.format}: {line}" for t in trials for line in t.differences] + found.get("differences", []),
    }


def _events(settings: Settings, trial: Trial) -> int:
    """Row changes, or records of a topic of which no more is known."""
    return settings.rows if settings.topic is None else trial.records
