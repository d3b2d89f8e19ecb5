"""Row changes through the chain, stage by stage, against a raw copy of the same records.

The raw copy is what Structured Streaming needs at least to bring the records from Kafka into a Delta table
with the landing's settings: the limit that the stages are held against. A stage's figures are those of one
catch-up over the whole backlog. Nothing is measured that isn't also checked: the snapshot must equal the
generator's truth. Of a topic that was there before (`Settings.topic`) no truth is known: there every record must be
accounted for and none be in quarantine.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from cdc_platform.bench.figures import CHAIN, IDLE, RAW, Trial, whole
from cdc_platform.bench.meter import measured
from cdc_platform.bench.settings import Say, Settings, config_of
from cdc_platform.config import Config, Source
from cdc_platform.feeds.generators import bench_records, bench_truth
from cdc_platform.lake import stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.kafka.broker import BrokerInfo

_WARM_ROWS, _WARM_KEYS = 2_000, 500


def trials(bench: "Chain") -> list[Trial]:
    """Of every format: a small one first, which isn't measured; where that differs it alone."""
    settings, found = bench.settings, []
    for name in settings.formats:
        bench.say(f"{name}: warming up")
        warm = bench.trial(name, "warm", min(settings.rows, _WARM_ROWS), min(settings.keys, _WARM_KEYS))
        if warm.differences:
            return [warm]
        for i in range(settings.repeats):
            bench.say(f"{name}: run {i + 1} of {settings.repeats}")
            if settings.topic is not None:
                found.append(bench.of_topic(name, settings.topic, f"run{i}"))
            else:
                found.append(bench.trial(name, f"run{i}", settings.rows, settings.keys))
    return found


class Chain:
    """One broker and one Spark session for all trials; a topic and a lake for each."""

    def __init__(self, work: Path, info: "BrokerInfo", settings: Settings, say: Say):
        from cdc_platform.spark.session import open_session

        self.work, self.info, self.settings, self.say = work, info, settings, say
        self.servers = str(info.bootstrap_servers)
        say("starting Spark")
        self.spark = open_session(config_of(work, settings, "none", "debezium", "none", self.servers))

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
        return config_of(self.work, self.settings, topic, format_name, topic, self.servers)

    def of_topic(self, format_name: str, topic: str, name: str) -> Trial:
        """A topic that is there: copy raw, run every stage."""
        config = config_of(self.work, self.settings, name, format_name, topic, str(self.settings.servers))
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
