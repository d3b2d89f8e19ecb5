"""What a benchmark is told, and what every one of them needs: a folder, a broker, a configuration."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_platform.config import Config, parse_config
from cdc_platform.errors import ConfigError
from cdc_platform.feeds.generators import OPTIONS

if TYPE_CHECKING:
    from cdc_platform.kafka.broker import BrokerInfo

FORMATS = ("tencent_dts", "debezium", "canal_json", "canal", "dataworks", "tdsql")
WHAT = ("chain", "increments", "breadth", "ddl", "explain", "latency")
_USUAL = ("chain", "increments")

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


def check(settings: Settings) -> None:
    """Raises ConfigError."""
    for given, valid, key in ((settings.what, WHAT, "--what"), (settings.formats, FORMATS, "--format")):
        for name in given:
            if name not in valid:
                raise ConfigError(key, f"there is no {name!r}", valid)
    if (settings.topic is None) != (settings.servers is None):
        raise ConfigError("--topic", "a topic and its Kafka are given together", ["--topic T --servers HOST:PORT"])
    if settings.topic is not None and len(settings.formats) != 1:
        raise ConfigError("--topic", "needs its format", [f"--format {f}" for f in FORMATS])


@contextmanager
def folder(folder: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cdc-bench-", dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def broker(work: Path, say: Say) -> "Iterator[BrokerInfo]":
    from cdc_platform.kafka import broker
    from cdc_platform.setup.ports import free_port

    say("starting a broker")
    try:
        yield broker.start(work / "broker", free_port())
    finally:
        broker.stop(work / "broker")


def config_of(work: Path, settings: Settings, lake: str, format_name: str, topic: str, servers: str) -> Config:
    return parse_config(lake_config(work, settings, lake, format_name, topic, servers), work / "cdc.yaml")


def lake_config(
    work: Path, settings: Settings, lake: str, format_name: str, topic: str, servers: str
) -> dict[str, Any]:
    """cdc.yaml of one source `bench`: of a lake and a topic."""
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
