"""Metrics of sources and tables for Prometheus, from the lake and from Kafka, without Spark and without Dagster.

Runs, steps and their durations are Dagster's to report (docs/monitoring-metrics.md); nobody but the platform knows how
far a source is behind, what is held in quarantine and which table is stopped.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cdc_platform.automation import observe, table_status
from cdc_platform.automation.observe import STATES
from cdc_platform.automation.table_status import Cut, TableStatus
from cdc_platform.certificate import BROKEN
from cdc_platform.config import Config, Source
from cdc_platform.errors import SetupError
from cdc_platform.lake import held_rows, queries, sequences
from cdc_platform.shadow import kept
from cdc_platform.shadow.kinds import COUNTS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

OF_SOURCE, OF_TABLE = ("source",), ("source", "db", "table")
METRICS: dict[str, tuple[tuple[str, ...], str]] = {
    "cdc_source_state": (("source", "state"), f"1 for the state that the source is in: {', '.join(STATES)}"),
    "cdc_source_lag_records": (OF_SOURCE, "Offsets in Kafka that have not landed; absent while Kafka doesn't answer"),
    "cdc_source_newest_record_timestamp_seconds": (OF_SOURCE, "Kafka time of the newest record"),
    "cdc_source_newest_change_timestamp_seconds": (OF_SOURCE, "Commit time at the source of the newest row change"),
    "cdc_source_complete_timestamp_seconds": (
        OF_SOURCE,
        "Time, by the source's clock, up to which all of its snapshots are complete; absent while one tells no time",
    ),
    "cdc_source_tables_behind": (OF_SOURCE, "Snapshots that are complete up to an earlier time than the source"),
    "cdc_source_cut": (OF_SOURCE, "Number of the last cut"),
    "cdc_source_unaccounted_records": (OF_SOURCE, "Landed offsets whose outcome is unknown; not 0: a fault"),
    "cdc_source_missing_records": (OF_SOURCE, "Records that their sender numbered and that never came"),
    "cdc_source_held_rows": (OF_SOURCE, "Rows and messages in quarantine, those that name no table too"),
    "cdc_table_held_rows": (OF_TABLE, "Rows that quarantine holds and the snapshot lacks"),
    "cdc_table_stopped": (OF_TABLE, "1: the table is not kept as a snapshot any more"),
    "cdc_table_invalid_dates": (OF_TABLE, "Dates that don't exist, NULL in the snapshot, so far"),
    "cdc_table_complete_timestamp_seconds": (OF_TABLE, "Time, by the source's clock, up to which it is complete"),
    "cdc_table_updated_timestamp_seconds": (OF_TABLE, "When a batch last touched the snapshot"),
    "cdc_table_broken": (OF_TABLE, "1: its certificate is broken: rows may be missing or wrong"),
    "cdc_beside_lacking": (
        (*OF_TABLE, "kind"),
        "1: a history or typed changes lack changes that the table has, or are stopped with it",
    ),
    "cdc_shadow_differences": (
        ("source", "by", "kind"),
        f"Rows that another feed of the same database has otherwise, by what they are: {', '.join(COUNTS.values())}",
    ),
}
"""Name → labels, help. All are gauges."""

Sample = tuple[str, tuple[str, ...], float]


def samples(config: Config) -> Iterator[Sample]:
    """(name, label values, value) of everything, as it is now. What can't be known has no sample."""
    kafka = observe.at_once(config, lambda source: observe.with_lag(config, source))
    cuts, held = table_status.cuts(config), held_rows.by_table(config)
    for source in config.sources:
        found = kafka[source.name]
        of_source = _of_source(config, source, *found, cuts.get(source.name))
        of_source["cdc_source_held_rows"] = sum(h["rows"] for h in held if h["source"] == source.name)
        yield from (("cdc_source_state", (source.name, s), float(s == found[0].state)) for s in STATES)
        yield from ((name, (source.name,), value) for name, value in of_source.items() if value is not None)
        for status in table_status.statuses(config, source):
            labels = (source.name, ".".join(status.id[:-1]), status.table)
            yield from ((n, labels, value) for n, value in _of_table(status).items() if value is not None)
            for one in status.certificate.beside if status.certificate else ():
                yield "cdc_beside_lacking", (*labels, one.kind), float(one.lacks_changes)
    yield from _of_pairs(config)


def _of_pairs(config: Config) -> Iterator[Sample]:
    """Of pairs of which a table was compared."""
    for pair in config.shadow:
        if found := kept.last(config, pair):
            told = kept.summary(pair, found)
            for kind in COUNTS.values():
                yield "cdc_shadow_differences", (pair.of, pair.by, kind), told[kind]


def _of_source(
    config: Config, source: Source, beat: observe.Heartbeat, lag: int | None, cut: Cut | None
) -> dict[str, float | None]:
    ledger, (up_to, behind) = queries.ledger(config, [source]), table_status.complete_of_all(config, source)
    return {
        "cdc_source_lag_records": lag,
        "cdc_source_newest_record_timestamp_seconds": _seconds(beat.newest),
        "cdc_source_newest_change_timestamp_seconds": _seconds(beat.change or queries.newest_change(config, source)),
        "cdc_source_complete_timestamp_seconds": _seconds(up_to),
        "cdc_source_tables_behind": behind,
        "cdc_source_cut": cut.number if cut else None,
        "cdc_source_missing_records": sum(gap.records for gap in sequences.open_gaps(config, source)),
        "cdc_source_unaccounted_records": sum(abs(r["unaccounted"]) for r in ledger),
    }


def _of_table(status: TableStatus) -> dict[str, float | None]:
    return {
        "cdc_table_held_rows": status.held,
        "cdc_table_stopped": float(status.state == "stopped"),
        "cdc_table_invalid_dates": status.invalid_dates,
        "cdc_table_complete_timestamp_seconds": _seconds(status.complete_up_to),
        "cdc_table_updated_timestamp_seconds": _seconds(status.updated_at),
        "cdc_table_broken": float(status.certificate.verdict == BROKEN) if status.certificate else None,
    }


def _seconds(at: datetime | None) -> float | None:
    """Seconds since 1970; a time without a zone is UTC."""
    return None if at is None else (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def registry(config: Config) -> "CollectorRegistry":
    """A registry that looks anew at each scrape. Raises SetupError where prometheus_client isn't installed."""
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.core import GaugeMetricFamily
    except ImportError:
        problem = "prometheus-client is not installed: pip install 'cdc-platform[metrics]'"
        raise SetupError(problem) from None

    class Collector:
        """What prometheus_client asks for metrics."""

        def describe(self) -> Iterable[Any]:
            """Nothing: registering would otherwise collect once."""
            return []

        def collect(self) -> Iterable[Any]:
            """One family per metric, also those without a sample."""
            families = {n: GaugeMetricFamily(n, text, labels=labels) for n, (labels, text) in METRICS.items()}
            for name, labels, value in samples(config):
                families[name].add_metric(labels, value)
            return families.values()

    found = CollectorRegistry()
    found.register(Collector())  # pyright: ignore[reportArgumentType]
    return found
