"""The job `replay`: what was landed of a source decoded again, and how its tables differ. A partition is a source, so
that a back-fill replays several."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_platform.automation.metadata import table_of
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.stages import RETRY, failing, interruptible, source_of, spark_of
from cdc_platform.errors import ConfigError
from cdc_platform.replay.kinds import KINDS, ONLY_IN_REPLAY, ONLY_IN_USE
from cdc_platform.units import quoted_value

REPLAY = "replay"
_CALLED = {"--table": "tables", "--from": "since", "--options": "options", "--swap": "swap"}
_OPTION = re.compile("|".join(_CALLED))


class ReplayConfig(dg.Config):
    """What a run replays of its source."""

    tables: list[str] = Field(default=[], description="db.table; none: all")
    since: list[str] = Field(default=[], description="topic/partition/offset to begin at; none: all")
    options: dict[str, Any] = Field(default={}, description="of the format, instead of those of cdc.yaml")
    samples: int = Field(
        default=0,
        ge=0,
        description="differing rows that are shown of each table: their values then stand in Dagster's database, where "
        "`cdc-platform erase` doesn't look",
    )
    swap: bool = Field(default=False, description="then put what was made in place, of the whole source")


def replay_job(naming: Naming) -> Any:
    """An op job, so that "materialize all" leaves it out. The difference is the metadata of its output."""

    @dg.op(
        name=naming.name("replay_source"),
        required_resource_keys={naming.resource_key},
        out=dg.Out(dg.Nothing),
        retry_policy=RETRY,
    )
    def replay_source(context: dg.OpExecutionContext, config: ReplayConfig) -> None:
        from cdc_platform.replay.run import replay as replayed

        with failing(), interruptible(), _named():
            source = source_of(context, naming.config.sources)
            found = replayed(
                spark_of(context, naming),
                naming.config,
                source,
                tables=config.tables,
                since=config.since,
                options=config.options,
                samples=config.samples,
                swap=config.swap,
            )
        context.add_output_metadata(difference(found))

    @dg.job(
        name=naming.name(REPLAY),
        executor_def=dg.in_process_executor,
        partitions_def=dg.StaticPartitionsDefinition([s.name for s in naming.config.sources]),
        description="Decode what was landed of a source again, by the decoder and the options of today, and tell how "
        "its tables differ. The partition is the source. Nothing in use changes, unless `swap` is set.",
    )
    def replay() -> None:
        replay_source()

    return replay


@contextmanager
def _named() -> Iterator[None]:
    """Errors name what is wrong as the run's configuration does, not as the command does."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(_named_so(error.key), error.problem, map(_named_so, error.valid)) from error


def _named_so(text: str) -> str:
    return _OPTION.sub(lambda found: _CALLED[found[0]], text)


def difference(found: dict[str, Any]) -> dict[str, Any]:
    """Metadata of what `replay` found: figures that chart, and tables."""
    tables = found["tables"]
    named = {part: [{"table": t["table"], **row} for t in tables for row in t[part]] for part in ("columns", "reasons")}
    rows = [
        {"table": t["table"], "row": s["kind"], "key": _key(s["key"]), "column": cell["column"], **_values(s, cell)}
        for t in tables
        for s in t["samples"]
        for cell in s["cells"]
    ]
    told: dict[str, Any] = {kind: sum(t[kind] for t in tables) for kind in KINDS}
    told |= {"equal": found["equal"], "swapped": found["swapped"], "seconds": found["seconds"]}
    told |= {f"held_{side}": count for side, count in found["held"].items()}
    told |= {"decoder": found["decoders"]["replay"]}
    if not found["swapped"]:  # else it is gone
        told |= {"side_lake": dg.MetadataValue.path(found["path"])}
    shown = {"tables": [_summary(t) for t in tables], **named, "rows": rows}
    return {**told, **{name: table_of(records) for name, records in shown.items() if records}}


def _summary(table: dict[str, Any]) -> dict[str, Any]:
    states = {f"state_{side}": state for side, state in table["state"].items()}
    return {"table": table["table"], **states, **{kind: table[kind] for kind in KINDS}}


def _key(key: dict[str, str | None]) -> str:
    return ", ".join(f"{name}={quoted_value(value)}" for name, value in key.items())


def _values(row: dict[str, Any], cell: dict[str, Any]) -> dict[str, str]:
    lacks = {ONLY_IN_USE: "replay", ONLY_IN_REPLAY: "in_use"}.get(row["kind"])
    return {side: "(no row)" if side == lacks else quoted_value(cell[side]) for side in ("in_use", "replay")}
