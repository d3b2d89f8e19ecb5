"""What a feed can't tell of a snapshot, in the table's own metadata: property `cdc.limits`, a JSON object of column
name → texts, and `*` → those about whole rows."""

import json
from collections.abc import Mapping
from functools import partial

from pyspark.sql import SparkSession

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.limits import limits_of
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.looks import Look
from cdc_platform.snapshots.schema.history import History
from cdc_platform.spark import delta_sql
from cdc_platform.tables import LOADED, SCHEMA_HISTORY, Name, name_of

PROPERTY = "cdc.limits"
ROWS = "*"


def note(
    spark: SparkSession, config: Config, source: Source, history: History, looked: Mapping[Name, Look | None]
) -> dict[Name, str]:
    """Says it of these snapshots (None: there is none); where nothing has changed, nothing is written. Returns the
    texts, for people."""
    names = sorted(looked)
    format_ = FORMATS[source.format]
    rows = {m: texts for n in names for m in history.members(n) if (texts := history.untold_rows(m))}
    said = any(look and look.properties.get(PROPERTY) for look in looked.values())  # by another feed before
    if not names or not (format_.limits or rows or said):
        return {}
    writers = _writers(config, source) if format_.limits else {}
    told: dict[Name, dict[str, list[str]]] = {}
    for name in names:
        members = history.lists(name) if source.tables.merged(*name) else {name: history.full.columns(name)}
        told[name] = found = {}
        for member, columns in members.items():
            own = limits_of(format_, source.options, columns or "[]", writers.get(member, set()))
            for column, texts in own.items():
                found[column] = list(dict.fromkeys([*found.get(column, []), *texts]))
        if texts := dict.fromkeys(t for m in history.members(name) for t in rows.get(m, ())):
            found[ROWS] = list(texts)
    delta_sql.run_parallel(
        [
            partial(_set, spark, looked[name], json.dumps(found, ensure_ascii=False) if found else "")
            for name, found in told.items()
        ]
    )
    return {
        name: "\n".join(f"{column}: {'; '.join(texts)}" for column, texts in found.items())
        for name, found in told.items()
        if found
    }


def _set(spark: SparkSession, look: Look | None, value: str) -> None:
    """A commit only where the property isn't so yet."""
    if look is None or look.properties.get(PROPERTY, "") == value:
        return
    delta_sql.configure(spark, look.path, {PROPERTY: value or None})


def _writers(config: Config, source: Source) -> dict[Name, set[str]]:
    """Which tools told the columns of each table. A load states what they told."""
    lists = delta_table.ask(
        f"SELECT db, schema, \"table\", info FROM {{history}} WHERE source = '{source.name}' AND kind = 'message' "
        f"AND topic <> '{LOADED}'",
        history=SCHEMA_HISTORY.at(stores.lake(config)),
    )
    found: dict[Name, set[str]] = {}
    for r in lists:
        writer = dict(r["info"] or ()).get("writer") or source.format
        found.setdefault(name_of(r), set()).add(writer)
    return found
