"""`cdc-platform replay SOURCE`: what today's decoder and options would make of the bytes in landing."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from cdc_platform.cli.output import Report, Verbatim, printed, progress
from cdc_platform.cli.run import with_spark
from cdc_platform.config import load_config
from cdc_platform.errors import ConfigError
from cdc_platform.launch import log_followed
from cdc_platform.units import count, quoted_value


@printed
def command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source of cdc.yaml.")],
    table: Annotated[
        list[str] | None, typer.Option(metavar="DB.TABLE", help="Make and compare only this table; may be repeated.")
    ] = None,
    since: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="OFFSET",
            help="Begin there: topic/partition/offset, or an offset alone where there is one partition; may be "
            "repeated. What was decoded before stays as it is.",
        ),
    ] = None,
    options: Annotated[
        str | None,
        typer.Option(
            metavar="YAML", help="Options of the format instead of cdc.yaml's, e.g. '{time_zone: Asia/Shanghai}'."
        ),
    ] = None,
    swap: Annotated[
        bool,
        typer.Option("--swap", help="Then put what it made in place, of the whole source."),
    ] = False,
    samples: Annotated[int, typer.Option(min=0, help="So many differing rows are shown of each table.")] = 10,
    discard: Annotated[bool, typer.Option("--discard", help="Remove the side lake, and do nothing else.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Decode what was landed once more, by the decoder and the options of today, beside the lake in use, and tell how
    its tables differ: how many rows, in which columns, and why.

    Without Kafka, and nothing in use changes but with --swap. A replay that was interrupted goes on. Exit code 1:
    something differs, and isn't put in place.
    """
    from cdc_platform.replay import run, side
    from cdc_platform.spark.session import open_session

    loaded = load_config(config)
    feed, given = loaded.source(source), _options(options)
    if discard:
        _check_alone({"--table": table, "--from": since, "--options": options, "--swap": swap})
        with side.held(loaded, feed):
            return Report({"source": source, "discarded": side.discard(loaded, feed)})
    run.asked(loaded, feed, table or (), since or (), given, swap=swap)  # told before Spark is started
    ready = with_spark(loaded, master)
    progress(f"Spark: {ready.spark.remote or ready.spark.master}")
    with log_followed(progress):
        spark, part = open_session(ready), {"tables": table or (), "since": since or ()}
        found = run.replay(spark, ready, feed, **part, options=given, samples=samples, swap=swap)
    return Report(found, 0 if found["equal"] or swap else 1, _shown(found))


def _check_alone(others: dict[str, Any]) -> None:
    """Raises ConfigError where `--discard` is asked for together with what makes a side lake."""
    if without := [f"without {name}" for name, given in others.items() if given]:
        raise ConfigError("--discard", "removes the side lake, and does nothing else", without)


def _options(text: str | None) -> dict[str, Any]:
    """Raises ConfigError."""
    try:
        given = yaml.safe_load(text or "{}")
    except yaml.YAMLError:
        given = None
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise ConfigError("--options", "must be a mapping in YAML or JSON", ["'{time_zone: Asia/Shanghai}'"])
    return given


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    """What people see: the tables, and of those that differ where, why and which rows."""
    decoders = ", ".join(
        f"{d['decoder_version']} ({count(d['changes'], 'change')})" for d in found["decoders"]["in_use"]
    )
    told: dict[str, Any] = {
        "source": found["source"],
        "side lake": None if found["swapped"] else found["path"],  # a swap leaves none
        "decoder": {"in use": decoders or None, "replay": found["decoders"]["replay"]},
        "held rows": _named(found["held"]),
    }
    if found["options"]:
        told["options"] = [{"option": name, **_named(both)} for name, both in found["options"].items()]
    told["tables"] = [_table(t) for t in found["tables"]] or "none"
    for one in found["tables"]:
        of = f" of {one['table']}"
        for part in ("types", "columns", "reasons"):
            if one[part]:
                told[f"{part}{of}"] = [_named(row) for row in one[part]]
        if rows := list(_rows(one)):
            told[f"rows{of}"] = Verbatim(rows)
    told["result"] = ("equal" if found["equal"] else "different") + (", put in place" if found["swapped"] else "")
    return told


def _named(values: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): value for name, value in values.items()}


def _table(one: dict[str, Any]) -> dict[str, Any]:
    states = dict.fromkeys(s or "none" for s in one["state"].values())
    counts = {kind.replace("_", " "): one[kind] for kind in ("only_in_use", "only_in_replay", "differing")}
    reasons = [f"{side.replace('_', ' ')}: {why}" for side, why in one["reason"].items() if why]
    told = {"table": one["table"], "state": ", replay ".join(states), "rows": one["rows"]["in_use"], **counts}
    return {**told, **({"why": "; ".join(reasons)} if reasons else {})}


def _rows(one: dict[str, Any]) -> Any:
    for row in one["samples"]:
        key = ", ".join(f"{k}={quoted_value(v)}" for k, v in row["key"].items()) or None
        for cell in row["cells"]:
            values = {"in use": quoted_value(cell["in_use"]), "replay": quoted_value(cell["replay"])}
            if row["kind"] != "differing":
                values["replay" if row["kind"] == "only_in_use" else "in use"] = "(no row)"
            yield {"row": row["kind"].replace("_", " "), "key": key, "column": cell["column"], **values}
