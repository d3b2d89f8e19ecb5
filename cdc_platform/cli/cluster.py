"""Which Kafka a command talks to: that of cdc.yaml, or one without login named on the command line."""

import difflib
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.config import Config, Source, load_config, parse_config
from cdc_platform.errors import ConfigError

ConfigFile = Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")]
OfSource = Annotated[str | None, typer.Option("--source", help="Take this source's Kafka properties.")]
Bootstrap = Annotated[str | None, typer.Option(help="host:port of a Kafka without login; no cdc.yaml then.")]
TIMEOUT_S = 10.0


def cluster(topics: list[str], file: Path, source: str | None, bootstrap: str | None) -> tuple[Config, Source]:
    """A configuration that reaches the cluster, and a source of nothing but these topics. Raises ConfigError."""
    feed: dict[str, Any] = {"name": "cli", "format": "debezium", "topics": topics or ["none"]}
    if bootstrap:
        made = parse_config({"lake": ".", "kafka": {"bootstrap.servers": bootstrap}, "sources": [feed]})
        return made, made.sources[0]
    loaded = load_config(file)
    properties = loaded.source(source).kafka if source else {}
    return loaded, Source.model_validate({**feed, "kafka": properties})


def topics_there(config: Config, source: Source) -> dict[str, int]:
    """Topic → number of partitions, of all that aren't Kafka's own. Raises KafkaUnreachable, KafkaAccessDenied."""
    from cdc_platform.kafka.client import reach

    _, metadata = reach(config, source, TIMEOUT_S)
    return {name: len(t.partitions) for name, t in sorted(metadata.topics.items()) if not name.startswith("__")}


def check_topics(wanted: list[str], there: dict[str, int], option: str) -> None:
    """Raises ConfigError with the names most alike, where a topic isn't there."""
    for name in wanted:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=20, cutoff=0)  # the most alike first
            raise ConfigError(option, f"this Kafka has no topic {name!r}", near or ["it has no topics at all"])
