"""`cdc-platform as-of SOURCE DB.TABLE MOMENT --to PATH`: a table as it was."""

from pathlib import Path
from typing import Annotated

import typer

from cdc_platform import tables
from cdc_platform.cli.output import Report, printed, progress, working
from cdc_platform.cli.run import with_spark
from cdc_platform.config import Config, Source, load_config
from cdc_platform.errors import ConfigError
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.store import Store
from cdc_platform.launch import log_followed
from cdc_platform.reading import moments
from cdc_platform.reading.catalog import TableName, complete_up_to
from cdc_platform.units import when


@printed
def command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source of cdc.yaml.")],
    table: Annotated[str, typer.Argument(metavar="DB.TABLE", help="As it is called today.")],
    moment: Annotated[
        str,
        typer.Argument(
            metavar="TIME|GTID|CUT",
            help="A time of the source (ISO 8601, else UTC), the last transaction in it, the last of a set of them, "
            "or a cut's number.",
        ),
    ],
    to: Annotated[str, typer.Option("--to", help="Where the table is made: a folder, or a URI of the lake's store.")],
    master: Annotated[str | None, typer.Option(help="Spark master of an own session, e.g. local[2].")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Make a table as it was at a moment, from the changelog, in the columns that it had then. The lake stays as it is.

    Exit code 1 where the table isn't complete up to that time; `proven` says whether that is proven or assumed.
    """
    from cdc_platform import chain
    from cdc_platform.reading import described
    from cdc_platform.spark.session import open_session

    loaded = load_config(config)
    feed = loaded.source(source)
    name = described.find(loaded, table, source)
    at = moments.parse(loaded, source, moment, "TIME|GTID|CUT", gtids=True)
    place = _destination(loaded, to)
    ready = with_spark(loaded, master)
    progress(f"Spark: {ready.spark.remote or ready.spark.master}")
    with working(f"making {name.text} as it was"), log_followed(progress):
        named, made = chain.as_of(open_session(ready), ready, feed, name.name, at.point, place)
    complete, proven, reason = _complete(loaded, feed, name.name, at)
    data = {
        **{"source": source, "table": name.text, "then": ".".join(named), "at": moments.to_json(at)},
        **{"rows": made.rows, "changes": made.changes, "path": place.uri()},
        **{"complete": complete, "proven": proven, "reason": reason},
    }
    return Report(data, 0 if complete else 1)


def _destination(config: Config, given: str) -> Store:
    """Where the table is to be. Raises ConfigError where something is there, or the lake."""
    place = stores.of(given if "://" in given else str(Path(given).absolute()), config.storage)
    lake = stores.lake(config)
    if f"{place.uri()}/".startswith(f"{lake.uri()}/") or f"{lake.uri()}/".startswith(f"{place.uri()}/"):
        raise ConfigError("--to", f"{given} is in the lake, or the lake in it", ["a place of its own"])
    if delta_table.exists(place):
        raise ConfigError("--to", f"{given} is a Delta table already", ["a place where nothing is"])
    return place


def _complete(
    config: Config, source: Source, name: tables.Name, at: moments.Moment
) -> tuple[bool, bool | None, str | None]:
    """Whether all that the source had committed by then is in the table; whether that is proven, or assumed of
    partitions to which nothing comes (None: not complete, or a cut, which tells offsets and no time); and why."""
    if at.cut is not None:
        return not (at.cut.reason or "").endswith(tables.CUT_LACKS), None, at.cut.reason
    up_to = complete_up_to(stores.lake(config), TableName.of(source.name, name))
    if up_to is None:
        return False, None, "nothing tells up to when it is complete"
    if at.time is None or at.time >= up_to.time:  # what was committed before `up_to` is there
        return False, None, f"the table is complete up to {when(up_to.time)}"
    if not at.whole:
        return False, None, f"neither the end of {at.gtid} nor a change behind it has come"
    return True, up_to.proven, None if up_to.proven else f"assumed: {up_to.reason}"
