"""Tables whose columns' types became known after rows of them were decoded: the rows are decoded again
(changelog/retyped.py), and the snapshots made of them once more. Where a value can't be of its type, the table is
stopped."""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform.changelog.doubted import Doubted
from cdc_platform.changelog.retyped import Retyped
from cdc_platform.changelog.schema import Upcast
from cdc_platform.config import Config, Source
from cdc_platform.config.tables import origin_of
from cdc_platform.lake import delta_table, stores
from cdc_platform.snapshots import state
from cdc_platform.snapshots.batch_tables import AffectedTable
from cdc_platform.snapshots.schema.history import History
from cdc_platform.tables import TABLE_STATE, Name

log = logging.getLogger(__name__)

OLDER = "types of its columns became known; it is made again from the changelog"
_BY_TYPE = re.compile("is kept as .* and now comes as|a value doesn't fit its column|types of its columns became known")
"""Reasons of tables that other types may heal."""


def retype(spark: SparkSession, config: Config, source: Source) -> frozenset[str]:
    """Does that where something became known. Returns the column lists whose rows were decoded again, ever. Once more
    changes nothing."""
    doubted = Doubted(config, source)
    if doubted.lists:
        retyped = Retyped(spark, doubted)
        found = retyped.find()
        if found.changed or found.failed:
            changed, failed = (dict[Name, str](of.items()) for of in found)
            _note(config, source, History(spark, config, source), changed, failed)
        retyped.replace()
    return doubted.replaced()


def _note(
    config: Config, source: Source, history: History, changed: Mapping[Name, str], failed: Mapping[Name, str]
) -> None:
    path = TABLE_STATE.at(stores.lake(config))
    before = state.now(path, source)
    outcomes: dict[Name, state.Outcome] = {}
    events: list[dict[str, Any]] = []
    for reasons, became in ((changed, "stale"), (failed, "stopped")):
        for name, reason in reasons.items():
            log.warning("%s: %s", ".".join(name), reason)
            for today in _today(history.full.upcasts(name), source):
                last = before.get(today)
                events.append(_event(source, name, today, "rebuilt" if became == "stale" else "stopped", reason))
                if last is not None and _is_final(last):
                    continue  # it isn't followed for another reason
                # Also where no batch has met it yet: that one will bring the rows as they were.
                outcomes[today] = state.Outcome(today, became, reason, 0, 0)
    delta_table.append_rows(history.changes, events)
    batch_id = max((before[n]["batch"] for n in outcomes if n in before), default=state.BEFORE)
    state.keep(stores.lake(config), source, list(outcomes.values()), before, batch_id, anew=True)


def _is_final(last: Mapping[str, Any]) -> bool:
    healable = last["state"] == "stopped" and _BY_TYPE.search(str(last["reason"]))
    return not healable and last["state"] not in ("live", "stale")


def _today(carries: Iterable[Upcast], source: Source) -> set[Name]:
    """The snapshots that rows of a name are in."""
    return {source.tables.routed(*c.today) for c in carries if c.today is not None}


def _event(source: Source, name: Name, today: Name, decision: str, reason: str) -> dict[str, Any]:
    return {
        "source": source.name,
        **dict(zip(("db_before", "table_before"), origin_of(name), strict=True)),
        **dict(zip(("db_after", "table_after"), origin_of(today), strict=True)),
        "decision": decision,
        "reason": reason,
    }


def older(
    source: Source, spans: Mapping[Name, list[Upcast]], touched: Iterable[AffectedTable], replaced: frozenset[str]
) -> set[Name]:
    """Today's snapshots of which a batch brings rows as they were before they were decoded again."""
    found: set[Name] = set()
    for t in touched:
        if not replaced.isdisjoint(t.versions):
            name = t.name
            found |= _today(spans[name], source) if name in spans else {source.tables.routed(*name)}
    return found
