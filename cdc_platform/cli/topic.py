"""`cdc-platform topic create|list|send`: topics for trying things, by the Kafka properties of cdc.yaml."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.cluster import TIMEOUT_S, Bootstrap, ConfigFile, OfSource, check_topics, cluster, topics_there
from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.errors import ConfigError

app = typer.Typer(
    help="Kafka topics: create, list, send records.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_CONFIG = Path("cdc.yaml")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
Topic = Annotated[str, typer.Argument(help="Kafka topic.")]


@app.command("list")
@printed
def list_command(config: ConfigFile = _CONFIG, source: OfSource = None, bootstrap: Bootstrap = None) -> Report:
    """List topics with their partitions and records (offsets that are still there)."""
    from cdc_platform.kafka.offsets import kafka_state

    ready, feed = cluster([], config, source, bootstrap)
    there = topics_there(ready, feed)
    rows: dict[str, dict[str, Any]] = {
        name: {"topic": name, "partitions": n, "records": 0} for name, n in there.items()
    }
    if rows:
        _, feed = cluster(list(rows), config, source, bootstrap)
        for one in kafka_state(ready, feed):
            rows[one.topic]["records"] += one.end - one.begin
    found = list(rows.values())
    return Report(found, shown=found or "no topics: `cdc-platform topic create NAME` makes one")


@app.command("create")
@printed
def create_command(
    topic: Topic,
    partitions: Annotated[int, typer.Option(min=1, max=100_000, help="Number of partitions.")] = 1,
    replication: Annotated[int, typer.Option(min=1, max=100, help="Copies of each partition.")] = 1,
    setting: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Topic setting, e.g. retention.ms=-1; repeatable.")
    ] = None,
    config: ConfigFile = _CONFIG,
    source: OfSource = None,
    bootstrap: Bootstrap = None,
) -> dict[str, Any]:
    """Make a topic."""
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    from cdc_platform.feeds.publish import PublishFailed
    from cdc_platform.kafka.client import reach

    _check_name(topic)
    settings = dict(_pair(text) for text in setting or [])
    ready, feed = cluster([topic], config, source, bootstrap)
    client, metadata = reach(ready, feed, TIMEOUT_S)
    if topic in metadata.topics:
        raise ConfigError(
            "TOPIC", f"{topic!r} is there already, with {len(metadata.topics[topic].partitions)} partitions"
        )
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replication, config=settings)
    try:
        client.create_topics([wanted], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S * 2)
    except KafkaException as error:
        raise PublishFailed(topic, error.args[0].str()) from None
    return {"topic": topic, "partitions": partitions, "replication": replication, "settings": settings}


@app.command("send")
@printed
def send_command(
    topic: Topic,
    file: Annotated[Path, typer.Argument(help="Records, one a line; `-`: standard input.", allow_dash=True)],
    binary: Annotated[bool, typer.Option("--binary", help="The whole file is one record.")] = False,
    key: Annotated[str | None, typer.Option(help="Key of every record; it decides the partition.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Partition. [default: by the key, else spread]")] = None,
    config: ConfigFile = _CONFIG,
    source: OfSource = None,
    bootstrap: Bootstrap = None,
) -> dict[str, Any]:
    """Send records from a file and wait until Kafka has them. Empty lines are left out."""
    from cdc_platform.feeds.publish import Record, publish
    from cdc_platform.kafka.client import librdkafka_properties

    ready, feed = cluster([topic], config, source, bootstrap)
    there = topics_there(ready, feed)
    check_topics([topic], there, "TOPIC")
    if partition is not None and partition >= there[topic]:
        raise ConfigError("--partition", f"{topic!r} has no partition {partition}", map(str, range(there[topic])))
    skipped = [0]
    values = [_read(file)] if binary else _lines(file, skipped)
    records = (Record(topic, partition, key.encode() if key is not None else None, value) for value in values)
    properties = librdkafka_properties(ready, feed)
    sent = publish(records, properties["bootstrap.servers"], config=properties)
    if skipped[0]:
        progress(f"{skipped[0]} empty lines left out")
    return {"topic": topic, "records": sent.records, "bytes": sent.bytes, "seconds": round(sent.seconds, 2)}


def _check_name(topic: str) -> None:
    if not _NAME.fullmatch(topic) or topic in (".", ".."):
        raise ConfigError("TOPIC", f"{topic!r} is no topic name", ["letters, digits, . _ and - (at most 249)"])


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not (key and found):
        raise ConfigError("--setting", f"{text!r} is no setting", ["KEY=VALUE"])
    return key, value


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise ConfigError("FILE", f"{file}: {error.strerror}") from None


def _lines(file: Path, skipped: list[int]) -> Iterator[bytes]:
    """Lines without their ends, one at a time; empty ones are counted."""
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as stream:
            for line in stream:
                if value := line.rstrip(b"\r\n"):
                    yield value
                else:
                    skipped[0] += 1
    except OSError as error:
        raise ConfigError("FILE", f"{file}: {error.strerror}") from None
