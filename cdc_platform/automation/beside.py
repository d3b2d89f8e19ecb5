"""What Dagster is told of histories and typed changes: events of runs, and a check of each."""

from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg

from cdc_platform.automation import table_status
from cdc_platform.automation.markup import literal
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.table_events import DATA_VERSION, column_schema, evaluation, newest
from cdc_platform.automation.table_status import TableStatus
from cdc_platform.config import Source
from cdc_platform.lake import looks, queries, stores
from cdc_platform.lake.beside import KEPT, KINDS, WAITING, Beside
from cdc_platform.tables import Name

HAS_ALL_CHANGES = "has_all_changes"


def check(naming: Naming, source: Source, known: Iterable[Name]) -> list[dg.AssetChecksDefinition]:
    """One for all that a source keeps beside its tables, by what the lake says; runs tell its results, too."""
    keys = sorted({spec.key for name in known for spec in naming.beside(source, *name).values()})
    if not keys:
        return []
    about = "Fails while it lacks changes that its table has, or its table is stopped."
    # Outputs have names of their own: those that Dagster makes of keys must be identifiers, and table names aren't.
    specs = {
        f"check_{i}": dg.AssetCheckSpec(HAS_ALL_CHANGES, asset=key, description=about) for i, key in enumerate(keys)
    }

    @dg.op(
        name=naming.name(f"{HAS_ALL_CHANGES}_{source.slug}"),
        ins={"snapshots": dg.In(dg.Nothing)},
        out={name: dg.Out(None, is_required=False) for name in specs},
    )
    def look(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        asked = {c.asset_key for c in context.selected_asset_check_keys}
        for status in table_status.statuses(naming.config, source):
            yield from (result for key, result in _results(naming, status) if key in asked)

    return [
        dg.AssetChecksDefinition.create(
            keys_by_input_name={"snapshots": naming.key("snapshots", source)},
            node_def=look,
            check_specs_by_output_name=specs,
            can_subset=True,
        )
    ]


def _results(naming: Naming, status: TableStatus) -> Iterator[tuple[dg.AssetKey, dg.AssetCheckResult]]:
    found = status.certificate.beside if status.certificate else ()
    specs = naming.beside(status.source, *status.id) if found else {}
    yield from ((specs[one.kind].key, _result(specs[one.kind].key, one)) for one in found)


def _result(key: dg.AssetKey, one: Beside) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=HAS_ALL_CHANGES,
        passed=not one.lacks_changes,
        description=literal("it has all changes of its table" if one.state == KEPT else _state_text(one)),
    )


def events(
    instance: dg.DagsterInstance, naming: Naming, status: TableStatus
) -> Iterator[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation]:
    """For `context.log_event`: what is kept of a table beside its snapshot, and its check. Where it lacks changes, too,
    but once: an asset's page shows its newest materialization. Else, and where it was never made, an observation."""
    source, lake = status.source, stores.lake(naming.config)
    specs = naming.beside(source, *status.id)
    for one in status.certificate.beside if status.certificate else ():
        key, path = specs[one.kind].key, KINDS[one.kind].path.of(lake, source.name, status.id)
        look = looks.look(path)
        version, rows = (look.version, look.rows) if look else (None, None)
        if look and rows is None:
            rows = queries.row_count(path)
        found: dict[str, Any] = {"dagster/uri": path.uri(), "dagster/row_count": rows, "delta_version": version}
        if look:
            found["dagster/column_schema"] = column_schema(table_status.columns(look, (), {}, bookkeeping=True))
        metadata = {**{k: v for k, v in found.items() if v is not None}, "state": _state_text(one)}
        tags = {SOURCE_TAG: naming.tag(source)}
        lacks = one.lacks_changes and version is not None
        if one.state == KEPT or (lacks and last_recorded_states(instance, [key])[key] != _state_text(one)):
            yield dg.AssetMaterialization(key, metadata=metadata, tags={**tags, DATA_VERSION: str(version)})
        elif one.state != WAITING:
            yield dg.AssetObservation(key, metadata=metadata, tags=tags)
        if one.state != WAITING:
            yield evaluation(_result(key, one))


def states(naming: Naming, status: TableStatus) -> dict[dg.AssetKey, str]:
    """Asset of what is kept beside a table → "" where it has all changes, else what it lacks. Not what no run has
    made."""
    found = status.certificate.beside if status.certificate else ()
    specs = naming.beside(status.source, *status.id) if found else {}
    return {specs[one.kind].key: "" if one.state == KEPT else _state_text(one) for one in found if one.state != WAITING}


def last_recorded_states(instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey]) -> dict[dg.AssetKey, str | None]:
    """What the pages of these assets show: of the newest materialization, else observation; None: nothing."""
    keys = list(keys)
    made = newest(instance, keys)
    return {key: _shown(made.get(key) or _observed(instance, key)) for key in keys}


def _observed(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.EventLogRecord | None:
    return next(iter(instance.fetch_observations(key, limit=1).records), None)


def _shown(record: dg.EventLogRecord | None) -> str | None:
    event = record and (record.asset_materialization or record.asset_observation)
    if event is None:
        return None
    state = str(event.metadata["state"].value) if "state" in event.metadata else KEPT
    return "" if state == KEPT else state


def _state_text(one: Beside) -> str:
    return f"{one.state}: {one.reason}" if one.reason else one.state
