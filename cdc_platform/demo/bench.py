"""The benchmark: row changes through the chain, room by room, against a raw copy of the same records.

The raw copy is what Structured Streaming needs at least to bring the records from Kafka into a Delta table
with the landing's settings: the limit that the rooms are held against. A room's figures are those of one
catch-up over the whole backlog. Nothing is measured that isn't also checked: the snapshot must equal the
generator's truth.
"""

import os
import platform
import tempfile
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from cdc_platform.config import Config, Source, parse_config
from cdc_platform.demo.generators import OPTIONS, bench_records, bench_truth
from cdc_platform.demo.meter import Reading, measured
from cdc_platform.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cdc_platform.broker import BrokerInfo

FORMATS = ("tencent_dts", "debezium", "canal_json", "canal", "dataworks", "tdsql")
RAW, CHAIN = "raw copy", "whole chain"
_LOG_ROOMS = ("landing", "envelopes", "changes", "changelog")
_WARM_ROWS, _WARM_KEYS = 2_000, 500

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """rows: row changes per format; keys: rows of the table; repeats: measured runs, after a small one that
    isn't. folder: where broker and lakes are made (and removed); None: the system's temporary folder."""

    formats: tuple[str, ...] = FORMATS
    rows: int = 200_000
    keys: int = 50_000
    repeats: int = 1
    master: str = "local[*]"
    folder: Path | None = None


@dataclass(slots=True)
class Trial:
    """One run of one format: records and bytes in Kafka, a reading per stage, the differences found."""

    format: str
    records: int
    bytes: int
    publish_s: float
    stages: dict[str, Reading] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


def run_bench(settings: Settings, say: Say) -> dict[str, Any]:
    """machine, settings, stages (one row per format and stage), ratios (one per format), differences.

    Raises ConfigError (unknown format), SetupError, BrokerError, KafkaUnreachable, PublishFailed.
    """
    for name in settings.formats:
        if name not in FORMATS:
            raise ConfigError("--format", f"no generator for {name!r}", FORMATS)
    trials: list[Trial] = []
    warm_rows, warm_keys = min(settings.rows, _WARM_ROWS), min(settings.keys, _WARM_KEYS)
    with _work(settings.folder) as work, _broker(work, say) as info:
        bench = _Bench(work, info, settings, say)
        for name in settings.formats:
            say(f"{name}: warming up")
            warm = bench.trial(name, "warm", warm_rows, warm_keys)
            if warm.differences:
                return _result(settings, [warm])
            for i in range(settings.repeats):
                say(f"{name}: run {i + 1} of {settings.repeats}")
                trials.append(bench.trial(name, f"run{i}", settings.rows, settings.keys))
    return _result(settings, trials)


@contextmanager
def _work(folder: Path | None) -> "Iterator[Path]":
    with tempfile.TemporaryDirectory(prefix="cdc-bench-", dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def _broker(work: Path, say: Say) -> "Iterator[BrokerInfo]":
    from cdc_platform import broker
    from cdc_platform.resources.ports import free_port

    say("starting a broker")
    try:
        yield broker.start(work / "broker", free_port())
    finally:
        broker.stop(work / "broker")


class _Bench:
    """One broker and one Spark session for all trials; a topic and a lake for each."""

    def __init__(self, work: Path, info: "BrokerInfo", settings: Settings, say: Say):
        from cdc_platform.resources.spark import open_session

        self.work, self.info, self.settings, self.say = work, info, settings, say
        say("starting Spark")
        self.spark = open_session(self._config("none", "debezium", "none"))

    def _config(self, lake: str, format_name: str, topic: str) -> Config:
        return parse_config(
            {
                "lake": str(self.work / lake),
                "spark": {
                    "master": self.settings.master,
                    "conf": {
                        "spark.log.level": "ERROR",
                        "spark.ui.showConsoleProgress": "false",
                        "spark.sql.warehouse.dir": str(self.work / "warehouse"),
                    },
                },
                "kafka": {"bootstrap.servers": str(self.info.bootstrap_servers)},
                "sources": [
                    {
                        "name": "bench",
                        "format": format_name,
                        "topics": [topic],
                        "options": OPTIONS.get(format_name, {}),
                    }
                ],
            },
            self.work / "cdc.yaml",
        )

    def trial(self, format_name: str, name: str, rows: int, keys: int) -> Trial:
        """Publish, copy raw, run every room, compare."""
        from cdc_platform.chain import ROOMS
        from cdc_platform.demo.publish import publish

        topic = f"bench-{format_name}-{name}"
        config = self._config(topic, format_name, topic)
        [source] = config.sources
        records = bench_records(format_name, rows, keys, topic=topic)
        done = publish(records, str(self.info.bootstrap_servers))
        trial = Trial(format_name, done.records, done.bytes, done.seconds)
        with measured(self.info.pid) as trial.stages[RAW]:
            copied = raw_copy(self.spark, config, source)
        if copied != done.records:
            trial.differences.append(f"raw copy has {copied} of {done.records} records")
        for room, run in ROOMS.items():
            self.say(f"  {room}")
            with measured(self.info.pid) as trial.stages[room]:
                run(self.spark, config, source)
        trial.stages[CHAIN] = whole([trial.stages[room] for room in ROOMS])
        trial.differences += _differences(config, rows, keys)
        return trial


def raw_copy(spark: "SparkSession", config: Config, source: Source) -> int:
    """Kafka → a Delta table like the landing, by one plain stream; the number of records."""
    from cdc_platform.resources import lake
    from cdc_platform.resources.kafka import spark_options
    from cdc_platform.tables import LANDING

    path = lake.ensure(spark, LANDING, f"{config.lake}/raw")
    stream = (
        spark.readStream.format("kafka")
        .options(**spark_options(config, source))
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
    writer = stream.writeStream.format("delta").option("checkpointLocation", f"{config.lake}/raw_checkpoint")
    query = writer.trigger(availableNow=True).start(path)
    query.awaitTermination()
    return spark.read.format("delta").load(path).count()


def _differences(config: Config, rows: int, keys: int) -> list[str]:
    from cdc_platform.demo.compare import compare
    from cdc_platform.demo.shop import BENCH
    from cdc_platform.tables import SNAPSHOT_PATH

    path = SNAPSHOT_PATH.at(config.lake, source="bench", db=BENCH.db, table=BENCH.name)
    return compare(BENCH, bench_truth(rows, keys), path).describe()


def whole(readings: Iterable[Reading]) -> Reading:
    """Stretches one after another as one."""
    readings = list(readings)
    return Reading(
        sum(r.seconds for r in readings), sum(r.cpu_s for r in readings), max(r.peak_bytes for r in readings)
    )


def _result(settings: Settings, trials: list[Trial]) -> dict[str, Any]:
    by_format = {name: [t for t in trials if t.format == name] for name in settings.formats}
    return {
        "machine": machine(settings),
        "rows": settings.rows,
        "keys": settings.keys,
        "repeats": settings.repeats,
        "stages": [row for found in by_format.values() if found for row in stage_rows(settings.rows, found)],
        "ratios": [ratios(found) for found in by_format.values() if found],
        "differences": [f"{t.format}: {line}" for t in trials for line in t.differences],
    }


def stage_rows(rows: int, trials: list[Trial]) -> list[dict[str, Any]]:
    """One row per stage of one format's trials. events_per_s and mb_per_s go by the median of seconds. An
    event is a row change, a MB 10^6 bytes of keys and values in Kafka."""
    out = []
    for stage in trials[0].stages:
        readings = [t.stages[stage] for t in trials]
        seconds = [r.seconds for r in readings]
        mid = median(seconds)
        out.append(
            {
                "format": trials[0].format,
                "stage": stage,
                "seconds": round(mid, 2),
                "min_s": round(min(seconds), 2),
                "max_s": round(max(seconds), 2),
                # A room that has nothing to do for this format takes no time: no rate.
                "events_per_s": round(rows / mid) if mid >= 0.01 else None,
                "mb_per_s": round(trials[0].bytes / 1e6 / mid, 1) if mid >= 0.01 else None,
                "cpu_s": round(median(r.cpu_s for r in readings), 1),
                "peak_mb": round(max(r.peak_bytes for r in readings) / 1e6),
            }
        )
    return out


def ratios(trials: list[Trial]) -> dict[str, Any]:
    """raw_to_log: seconds of the raw copy ÷ those of landing to changelog (1 would be the limit);
    chain_to_raw: seconds of the whole chain ÷ those of the raw copy. Medians over the trials."""
    raw = [t.stages[RAW].seconds for t in trials]
    log = [sum(t.stages[room].seconds for room in _LOG_ROOMS) for t in trials]
    chain = [t.stages[CHAIN].seconds for t in trials]
    return {
        "format": trials[0].format,
        "records": trials[0].records,
        "mb": round(trials[0].bytes / 1e6, 1),
        "raw_to_log": round(median(r / x for r, x in zip(raw, log, strict=True)), 3),
        "chain_to_raw": round(median(c / r for c, r in zip(chain, raw, strict=True)), 2),
        "publish_s": round(median(t.publish_s for t in trials), 2),
    }


def machine(settings: Settings) -> dict[str, Any]:
    """Where the figures come from."""
    import psutil

    from cdc_platform.java import find_java

    return {
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_1m": round(os.getloadavg()[0], 1),
        "spark_master": settings.master,
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": find_java().version,
        **{name: version(name) for name in ("pyspark", "delta-spark", "pyarrow")},
    }
