"""`cdc-platform init`: writes a commented cdc.yaml for topics that are there."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.cluster import check_topics, topics_there
from cdc_platform.cli.output import Report, printed, progress
from cdc_platform.config import Config, Source, load_config, parse_config
from cdc_platform.errors import ConfigError

_RECORDS = 200
_HEAD = """\
# What to follow, and where to. All keys: docs/reference/configuration.md. `cdc-platform validate` checks this file.
# Any text may hold ${{ENV_VAR}}; passwords and other secrets must come in that way.
lake: {lake} # a folder (relative to this file's), or s3://bucket/folder with a section `storage:`

spark:
  master: "local[*]" # or spark://…, k8s://…, yarn; or instead of it: remote: sc://host:15002

kafka: # client properties for all sources: security.protocol, sasl.*, ssl.* go here
{kafka}

sources:
"""
_SOURCE = """\
  - name: {name} # in assets, paths and tables
    format: {format} # {summary}
    topics: {topics}
    # tables: # all, unless said otherwise
    #   include: ["db.*"] # patterns of db.table
    #   exclude: []
    #   keys: {{"db.table": [id]}} # where the messages name no key, or the wrong one
"""


@printed(redirect=False)
def command(
    topic: Annotated[list[str] | None, typer.Option(help="Kafka topic; may be repeated.")] = None,
    bootstrap: Annotated[str | None, typer.Option(help="bootstrap.servers: host:port[,host:port…].")] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="Further Kafka property; secrets as '${ENV_VAR}'."),
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Wire format. [default: recognized from the newest records]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the source. [default: from the topic]")] = None,
    lake: Annotated[str, typer.Option(help="Where the tables go.")] = "./lake",
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="File to write.")] = Path("cdc.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> Report:
    """Write a cdc.yaml: asks for Kafka's address and topics, or takes them from the options, and recognizes the format
    from the newest records."""
    from cdc_platform.formats import FORMATS

    file = config.expanduser().absolute()
    if file.exists() and not force:
        raise ConfigError("--config", f"{file} is there already", ["--force, to overwrite it", "another --config FILE"])
    if format_ is not None and format_ not in FORMATS:
        raise ConfigError("--format", f"unknown format {format_!r}", FORMATS)
    properties = {"bootstrap.servers": bootstrap or _asked("--bootstrap", "Kafka (host:port)", "127.0.0.1:9092")}
    properties |= dict(_pair(text) for text in property_ or [])
    ready, feed = _cluster(properties, lake, ["none"], file)
    there = topics_there(ready, feed)
    topics = list(dict.fromkeys(topic or _asked_topics(there)))
    check_topics(topics, there, "--topic")
    by_format: dict[str, list[str]] = {}
    for one in topics:
        by_format.setdefault(format_ or _recognized(properties, lake, one, file), []).append(one)
    sources = _named(by_format, name)
    text = _HEAD.format(lake=_yaml(lake), kafka="\n".join(f"  {_yaml(k)}: {_yaml(v)}" for k, v in properties.items()))
    text += "\n".join(_SOURCE.format(**_filled(*one)) + _options(one[1]) for one in sources)
    _write(file, text)
    data = {
        "file": str(file),
        "sources": [{"source": n, "format": f, "topics": t} for n, f, t in sources],
        "next": [f"cdc-platform validate --config {file}", f"cdc-platform run --config {file}"],
    }
    return Report(data)


def _asked(option: str, question: str, default: str) -> str:
    """What the user answers; where nobody can be asked, an error that names the option."""
    if not sys.stdin.isatty():
        raise ConfigError(option, "is needed where nobody can be asked", [f"{option} {default}"])
    return typer.prompt(question, default=default, err=True)


def _asked_topics(there: dict[str, int]) -> list[str]:
    if not there:
        raise ConfigError("--topic", "this Kafka has no topics", ["`cdc-platform topic create NAME` makes one"])
    if not sys.stdin.isatty():
        raise ConfigError("--topic", "is needed where nobody can be asked", there)
    for one, partitions in there.items():
        progress(f"  {one} ({partitions} partition{'' if partitions == 1 else 's'})")
    answer = typer.prompt("Topics (separated by commas)", default=next(iter(there)), err=True)
    return [part.strip() for part in answer.split(",") if part.strip()]


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not (key and found):
        raise ConfigError("--property", f"{text.partition('=')[0]!r} has no value", ["KEY=VALUE"])
    return key, value


def _cluster(properties: dict[str, str], lake: str, topics: list[str], file: Path) -> tuple[Config, Source]:
    """A configuration of these properties as the file would have it; errors are those of the file."""
    feed = {"name": "init", "format": "debezium", "topics": topics}
    made = parse_config({"lake": lake, "kafka": dict(properties), "sources": [feed]}, file)
    return made, made.sources[0]


def _recognized(properties: dict[str, str], lake: str, topic: str, file: Path) -> str:
    """The wire format of a topic. Raises ConfigError: none is recognized for sure."""
    from cdc_platform.changes.recognize import sure, verdicts
    from cdc_platform.formats import FORMATS
    from cdc_platform.kafka.offsets import kafka_state
    from cdc_platform.kafka.sample import newest

    ready, feed = _cluster(properties, lake, [topic], file)
    sample = newest(ready, feed, kafka_state(ready, feed), _RECORDS)
    if not sample.num_rows:
        raise ConfigError("--format", f"topic {topic!r} holds no record to recognize its format by", FORMATS)
    found = verdicts(sample, FORMATS)
    how = sure(found)
    if how == "none":
        raise ConfigError(
            "--format", f"the {sample.num_rows} newest records of {topic!r} are of no known format", FORMATS
        )
    progress(f"{topic}: {found[0].format} ({how}, by {sample.num_rows} records)")
    return found[0].format


def _named(by_format: dict[str, list[str]], name: str | None) -> list[tuple[str, str, list[str]]]:
    """(name, format, topics) of each source; names are valid and differ."""
    found = []
    for format_, topics in by_format.items():
        base = name or re.sub(r"[^A-Za-z0-9_-]+", "_", topics[0]).strip("_-") or "feed"
        base = base if base[0].isalpha() else f"feed_{base}"
        found.append((f"{base[:48]}_{format_}" if len(by_format) > 1 and name else base[:64], format_, topics))
    return found


def _filled(name: str, format_: str, topics: list[str]) -> dict[str, str]:
    from cdc_platform.formats import FORMATS

    return {"name": name, "format": format_, "summary": FORMATS[format_].summary, "topics": _yaml(topics)}


def _options(format_: str) -> str:
    """The format's options as comments: default and what it is."""
    from cdc_platform.formats import FORMATS

    lines = ["    # options: # of the format; what is left out is as here"]
    for option, field in FORMATS[format_].options.model_fields.items():
        default = _yaml(field.get_default(call_default_factory=True))
        lines.append(f"    #   {option}: {default} # {' '.join(str(field.description).split())}")
    return "\n".join(lines) + "\n"


def _yaml(value: Any) -> str:
    """A value in YAML's flow style, which JSON is a part of."""
    return json.dumps(value, ensure_ascii=False)


def _write(file: Path, text: str) -> None:
    """The file, if it is a valid configuration; else nothing is written, and the error is told."""
    import yaml

    parse_config(yaml.safe_load(text), file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError("--config", f"{file} can't be written: {error.strerror}") from None
    load_config(file)
