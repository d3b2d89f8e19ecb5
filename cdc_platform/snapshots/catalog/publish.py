"""Registering the snapshots of a source, after each of its runs. What kind of catalog it is, is a Backend's."""

import json
import logging
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import SparkSession

from cdc_platform.config import Catalog, Config, Source
from cdc_platform.lake import delta_table, folders, stores
from cdc_platform.snapshots import state
from cdc_platform.snapshots.catalog import retries
from cdc_platform.snapshots.catalog.backend import Backend, CatalogError, CatalogUnavailable, Snapshot, same
from cdc_platform.snapshots.catalog.glue import Glue
from cdc_platform.snapshots.catalog.metastore import Metastore
from cdc_platform.snapshots.catalog.names import Entry, entry
from cdc_platform.snapshots.catalog.unity import Unity
from cdc_platform.snapshots.target import Target
from cdc_platform.tables import Name

log = logging.getLogger(__name__)

_BACKENDS: dict[str, Callable[[Catalog, SparkSession], Backend]] = {
    "hive": lambda _, spark: Metastore(spark),
    "spark": lambda _, spark: Metastore(spark),
    "unity": lambda catalog, _: Unity(catalog),
    "glue": lambda catalog, _: Glue(catalog),
}


class _Wanted(NamedTuple):
    """A snapshot and its entry. exists: it is to be registered. due: this run changed it, or the last one could not
    bring its entry up to date."""

    name: Name
    entry: Entry
    target: Target
    exists: bool
    due: bool


def publish(spark: SparkSession, config: Config, source: Source, tables: state.Tables) -> dict[str, float]:
    """Registers the snapshots of a source that aren't yet, gives those whose columns have changed their present ones,
    and removes those of dropped tables. Returns figures, none without a catalog. What fails is logged and counted and
    doesn't fail the run: rows are in their snapshots, and the next run tries again."""
    if config.catalog is None:
        return {}
    folder = folders.folder(stores.lake(config), source.name)
    again, databases = retries.due(config, source), dict[str, list[_Wanted]]()
    for name, told in sorted(tables.items()):
        e, exists = entry(config.catalog, folder, name), told["state"] != "dropped"
        target = Target.of(config, source.name, *name)
        databases.setdefault(e.database, []).append(_Wanted(name, e, target, exists, told["touched"] or name in again))
    missed, left = list[_Wanted](), list(databases.values())
    try:
        backend = _BACKENDS[config.catalog.kind](config.catalog, spark)
        while left:
            missed += _database(backend, left[0])
            left = left[1:]
    except CatalogUnavailable as error:
        unseen = [one for wanted in left for one in wanted]
        log.warning("catalog: %s; tables that are not brought up to date: %d", error, len(unseen))
        missed += unseen
    retries.keep(config, source, {one.name for one in missed if one.due})
    return {"not_registered": float(len(missed))}


def _database(backend: Backend, wanted: list[_Wanted]) -> list[_Wanted]:
    """The same of one database; those of its tables that are not as they should be. Raises CatalogUnavailable."""
    first = wanted[0].entry
    try:
        there = backend.tables(first.catalog, first.database)
    except CatalogUnavailable:
        raise
    except CatalogError as error:
        log.warning("catalog: %s: %s", first.schema, error)
        return wanted
    return [one for one in wanted if not _registered(backend, one, one.entry.table in there)]


def _registered(backend: Backend, one: _Wanted, there: bool) -> bool:
    """Whether an entry is as it should be, after it was changed if need be. Raises CatalogUnavailable."""
    try:
        if not there:
            if one.exists and (snapshot := _described(one.target)) is not None:
                backend.create(one.entry, snapshot)
            return True
        return (one.exists and not one.due) or _is_published(backend, one)
    except CatalogUnavailable:
        raise
    except CatalogError as error:
        log.warning("catalog: %s: %s", one.entry, error)
        return False


def _is_published(backend: Backend, one: _Wanted) -> bool:
    """The same of one that the catalog has. Raises CatalogError."""
    found, path = backend.find(one.entry), one.target.snapshot.spark_uri()
    if found.location != path:
        if one.exists:
            log.warning("catalog: %s is a table at %s, not the snapshot %s", one.entry, found.location, path)
        return not one.exists
    if not one.exists:
        backend.drop(one.entry)
    elif found.fields is not None:
        snapshot = _described(one.target)
        if snapshot is not None and not same(snapshot.fields, found.fields):
            backend.alter(one.entry, snapshot, found)
    return True


def _described(target: Target) -> Snapshot | None:
    """A snapshot by Delta's log; None: there is none."""
    path = target.snapshot
    if not delta_table.exists(path):
        return None
    fields = json.loads(delta_table.schema_json(path))["fields"]
    return Snapshot(path.spark_uri(), tuple(fields), delta_table.comment(path))
