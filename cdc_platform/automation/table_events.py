"""What Dagster is told of snapshots: a materialization per table that changed, and its checks.

A table's events come from runs of its own source only, materialization and checks in one run, so that no other run
can overwrite them and Dagster never calls a check of the newest materialization "not evaluated".
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from shlex import quote
from typing import Any, NamedTuple

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    NULL_EVENT_POINTER,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

from cdc_platform.automation import evidence
from cdc_platform.automation.markup import literal
from cdc_platform.automation.naming import SOURCE_TAG, Naming
from cdc_platform.automation.table_status import Column, TableStatus
from cdc_platform.certificate import BROKEN
from cdc_platform.lake.watermarks import lag_seconds
from cdc_platform.units import count, when

NOT_STOPPED, NO_HELD_ROWS, SCHEMA_UNCHANGED = "not_stopped", "no_held_rows", "schema_unchanged"
CERTIFIED = "certified"
CHECKS = {
    NOT_STOPPED: "Fails while the table can't be kept as a snapshot. Its changes are still in changelog.",
    NO_HELD_ROWS: "Fails while quarantine holds rows that name this table: the snapshot lacks them.",
    CERTIFIED: "Fails while anything is known by which the table may lack rows or hold wrong ones: blocks what lies "
    "downstream.",
    SCHEMA_UNCHANGED: "Warns where columns differ from those of the materialization before.",
}
"""Name → description of the checks that every snapshot has."""
_NO_CODE_VERSION = "none"
"""Dagster takes no event without a code version for one that says what it was made from."""
DATA_VERSION = "dagster/data_version"
STEADY = "see the tables"
"""Data version of snapshots/<source>: a run that brought changes to one table leaves the others in step with their
source, so none is to be called out of date for it. Each table has a data version of its own."""


Shown = Mapping[str, dg.MetadataValue]
"""Metadata of an asset's newest materialization: what its page shows."""


def check_specs(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """The checks of one snapshot."""
    return [
        dg.AssetCheckSpec(name, asset=key, description=text, blocking=name == CERTIFIED)
        for name, text in CHECKS.items()
    ]


def _erased(status: TableStatus) -> str | None:
    """Erasures of rows of the table, the newest first."""
    facts = status.certificate.facts.get("erasures", ()) if status.certificate else ()
    mine = [e for e in facts if e["table"] == status.name]
    told = (
        ("isn't finished" if e["left"] is None else f"{e['left']} left")
        + (f", {count(e['again'], 'message')} sent again since" if e["again"] else "")
        for e in mine
    )
    return "; ".join(f"erasure {e['number']} at {when(e['at'])}: {t}" for e, t in zip(mine, told, strict=True)) or None


def metadata(status: TableStatus, brought: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Metadata of a materialization. brought: what the stage's run reports of the table (`changes`)."""
    changes = int((brought or {}).get("changes", 0))
    found: dict[str, Any] = {
        "table": status.name,
        "dagster/uri": status.path.uri(),
        "state": status.state,
        "reason": status.reason or None,
        "changes": changes,
        "held_rows": status.held,
        "invalid_dates": status.invalid_dates,
        "delta_version": status.version,
        "not_told_by_the_feed": "; ".join(status.limits) or None,
        "certificate": status.certificate and status.certificate.text,
        "erased": _erased(status),
    }
    if status.rows is not None:
        found["dagster/row_count"] = status.rows
    if status.columns:
        found["dagster/column_schema"] = column_schema(status.columns)
    if cut := status.cut:
        found |= {
            "cut": cut.number,
            "cut_kind": cut.kind,
            "cut_position": cut.position,
            "cut_gtid": cut.gtid,
        }
    return {k: v for k, v in {**found, **completeness(status), **evidence.metadata(status)}.items() if v is not None}


def completeness(status: TableStatus) -> dict[str, Any]:
    """Metadata on up to when a table is complete, and why not further; nothing where no run has told, or no batch has
    met it."""
    if (told := status.complete) is None or status.state == "waiting":
        return {}
    behind, up_to = told.behind.get(status.id), status.complete_up_to
    found = {
        "complete_up_to": up_to and dg.MetadataValue.timestamp(up_to),
        "complete_up_to_is": up_to and ("proven" if told.proven_of(status.id) else "assumed"),
        "complete_up_to_reason": behind.reason if behind else told.reason,
        "complete_up_to_position": told.position_of(status.id),
        "complete_up_to_gtids": told.gtids(status.id),
        "lag_seconds": lag_seconds(up_to),
    }
    return {k: v for k, v in found.items() if v is not None}


def column_schema(columns: Iterable[Column]) -> dg.TableSchema:
    """Columns with types, key, comments, and what the feed can't tell."""

    def column(c: Column) -> dg.TableColumn:
        untold = f"Not told by the feed: {'; '.join(c.untold)}" if c.untold else None
        return dg.TableColumn(
            c.name,
            c.type,
            description=". ".join(filter(None, (c.comment, untold))) or None,
            constraints=dg.TableColumnConstraints(nullable=c.nullable and not c.key, other=["key"] if c.key else []),
        )

    return dg.TableSchema(columns=[column(c) for c in columns])


def check_results(status: TableStatus, key: dg.AssetKey, before: Shown | None = None) -> list[dg.AssetCheckResult]:
    """The table's checks. before: what its page shows so far."""
    columns = (before or {}).get("dagster/column_schema")
    known = columns.schema if isinstance(columns, dg.TableSchemaMetadataValue) else None
    changed = schema_difference(known, column_schema(status.columns)) if known and status.columns else []
    stopped, held = status.state == "stopped", status.held
    of = f"--source {status.source.name} --table {quote(status.name)}"
    broken = status.certificate.text if status.certificate and status.certificate.verdict == BROKEN else None
    fix = f"`cdc-platform run {of} --rebuild` rebuilds it once the cause is gone"
    found = {
        NOT_STOPPED: (
            not stopped,
            f"stopped: {status.reason}. {fix}" if stopped else status.state,
            {"state": status.state},
        ),
        NO_HELD_ROWS: (
            not held,
            f"{count(held, 'row')} held, the newest because: {status.held_reason}. "
            f"`cdc-platform quarantine list {of}` lists them"
            if held
            else "no rows held",
            {"held_rows": held},
        ),
        CERTIFIED: (
            broken is None,
            broken or (status.certificate.text if status.certificate else "it has no certificate yet"),
            {"verdict": status.certificate.verdict if status.certificate else "none"},
        ),
        SCHEMA_UNCHANGED: (not changed, "; ".join(changed) or "same columns as before", {"changes": len(changed)}),
    }
    return [
        dg.AssetCheckResult(
            asset_key=key,
            check_name=name,
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN if name == SCHEMA_UNCHANGED else dg.AssetCheckSeverity.ERROR,
            description=literal(text),
            metadata=more,
        )
        for name, (passed, text, more) in found.items()
    ]


def schema_difference(before: dg.TableSchema, now: dg.TableSchema) -> list[str]:
    """What changed between two lists of columns, in words."""
    old, new = ({c.name: c.type for c in s.columns} for s in (before, now))
    return [
        *(f"column {n} {t} added" for n, t in new.items() if n not in old),
        *(f"column {n} removed" for n in old if n not in new),
        *(f"column {n} was {old[n]}, is {t}" for n, t in new.items() if n in old and old[n] != t),
    ]


def newest(instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey]) -> dict[dg.AssetKey, dg.EventLogRecord]:
    """Asset key → its newest materialization, where it was materialized."""
    entries = (r.asset_entry for r in instance.get_asset_records(list(keys)))
    return {e.asset_key: made for e in entries if (made := e.last_materialization_record) is not None}


def shown(made: Mapping[dg.AssetKey, dg.EventLogRecord]) -> dict[dg.AssetKey, Shown]:
    """Asset key → what its page shows. made: newest materializations."""
    return {key: of.metadata for key, record in made.items() if (of := record.asset_materialization) is not None}


class LastEvaluation(NamedTuple):
    """A check's newest evaluation: whether it passed, of which run it is, and whether Dagster takes it for one of the
    asset's newest materialization. Another doesn't let what lies downstream begin, whatever it said."""

    passed: bool
    run_id: str
    counts: bool


def last_evaluations(
    instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey], names: Iterable[str]
) -> dict[dg.AssetCheckKey, LastEvaluation]:
    """Checks of these names that were evaluated."""
    keys = list(keys)
    made = newest(instance, keys)
    wanted = [dg.AssetCheckKey(k, n) for k, n in product(keys, names)]
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(wanted)
    return {
        key: LastEvaluation(of.passed, record.run_id, _counts(record, of, made.get(key.asset_key)))
        for key, record in records.items()
        if isinstance(of := record.evaluation, dg.AssetCheckEvaluation)  # else planned
    }


def _counts(record: Any, of: dg.AssetCheckEvaluation, made: dg.EventLogRecord | None) -> bool:
    """As AssetCheckExecutionRecord.targets_latest_materialization has it."""
    if made is None or made.run_id == record.run_id:
        return True
    if (target := of.target_materialization_data) is not None:
        return target.storage_id == made.storage_id
    return made.timestamp < record.create_timestamp


def says_otherwise(status: TableStatus, page: Shown) -> bool:
    """Whether a stopped table's page shows another state, or another reason."""
    told = {name: value and value.value for name, value in ((n, page.get(n)) for n in ("state", "reason"))}
    return status.state == "stopped" and told != {"state": status.state, "reason": status.reason or None}


def events(
    naming: Naming,
    statuses: Iterable[TableStatus],
    brought: Mapping[str, Mapping[str, Any]],
    made: Mapping[dg.AssetKey, dg.EventLogRecord],
) -> Iterator[tuple[dg.AssetMaterialization | dg.AssetObservation, list[dg.AssetCheckEvaluation]]]:
    """Events of tables that nobody selected, for `context.log_event`: a materialization where the table is live, an
    observation of its state where it isn't, and its checks. One that has stopped is materialized once, with the data
    version of before: an asset's page shows its newest materialization, and would call it live. made: the newest
    materializations so far."""
    before = shown(made)
    for status in statuses:
        key = naming.table(status.source, *status.id).key
        stops = (so_far := before.get(key)) is not None and says_otherwise(status, so_far)
        of: Any = dg.AssetMaterialization if status.state == "live" or stops else dg.AssetObservation
        event = of(
            key,
            metadata=metadata(status, brought.get(status.name)),
            tags={SOURCE_TAG: naming.tag(status.source), **version_tags(naming, status)},
        )
        on = None if of is dg.AssetMaterialization else made.get(key)
        yield event, [evaluation(r, on) for r in check_results(status, key, so_far)]


def version_tags(naming: Naming, status: TableStatus) -> dict[str, str]:
    """The data version: what lies downstream is out of date only where the Delta table has moved. And what it was made
    from, as Dagster tags what a step yields: of an event without that it compares times, and would call the table out
    of date ("Unsynced") as soon as a run of its source brings it no change."""
    if status.version is None:
        return {}
    spec, stage = naming.table(status.source, *status.id), naming.key("snapshots", status.source)
    return {
        DATA_VERSION: str(status.version),
        DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
        CODE_VERSION_TAG: spec.code_version or _NO_CODE_VERSION,
        get_input_data_version_tag(stage): STEADY,
        get_input_event_pointer_tag(stage): NULL_EVENT_POINTER,
    }


def evaluation(
    result: dg.AssetCheckResult | dg.AssetCheckEvaluation, on: dg.EventLogRecord | None = None
) -> dg.AssetCheckEvaluation:
    """A check's result as an event of a step that isn't the check's own. on: the materialization of another run that it
    is of: Dagster compares times else, and those of SQLite are whole seconds."""
    assert result.asset_key is not None
    return dg.AssetCheckEvaluation(
        asset_key=result.asset_key,
        check_name=str(result.check_name),
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
        target_materialization_data=on
        and AssetCheckEvaluationTargetMaterializationData(
            storage_id=on.storage_id, run_id=on.run_id, timestamp=on.timestamp
        ),
    )
