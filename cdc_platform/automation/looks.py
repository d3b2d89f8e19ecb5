"""The stages, and how their assets look: what is constant of them in whatever place they are declared."""

from dataclasses import dataclass

from cdc_platform import tables

STAGES = ("landing", "envelopes", "changes", "changelog", "offset_ledger", "quarantine", "snapshots")
"""The chain, in the order of the data; one asset each per source."""
SHARED = ("changelog", "offset_ledger", "quarantine", "health")
"""Assets that show the state of all sources."""
KAFKA, MAINTENANCE, RECONCILE = "kafka", "maintenance", "reconcile"
SHADOW, TABLE, COMPLETE = "shadow", "table", "complete"


@dataclass(frozen=True, slots=True)
class Look:
    """Constant attributes of a stage's assets."""

    group: str
    kinds: frozenset[str]
    description: str
    table: tables.Table | None = None


SPARK, DELTA = frozenset(("spark", "deltalake")), frozenset(("deltalake",))
OF_SOURCE = {
    "landing": Look(
        "landing",
        frozenset(("kafka", "spark", "deltalake")),
        "Kafka records of {source}, byte for byte, each exactly once.",
        tables.LANDING,
    ),
    "envelopes": Look(
        "envelopes",
        SPARK,
        "Complete messages of {source}: split messages are put together again.{whole}",
        tables.ENVELOPES,
    ),
    "changes": Look("changes", SPARK, "Decoded events of {source}. {summary}", tables.CHANGES),
    "changelog": Look(
        "changelog",
        SPARK,
        "Row changes of {source} in the vocabulary all formats share; beside it schema_history and control_events.",
        tables.CHANGELOG,
    ),
    "offset_ledger": Look(
        "accounting",
        DELTA,
        "What became of every offset landed from {source}: applied, control, filtered, waiting, …",
        tables.OFFSET_LEDGER,
    ),
    "quarantine": Look(
        "accounting",
        DELTA,
        "What of {source} could not be used, and why. The bytes stay in landing under the same address.",
        tables.QUARANTINE,
    ),
    "snapshots": Look("snapshots", SPARK, "All snapshots of {source}: one Delta table per source table."),
    MAINTENANCE: Look(
        "accounting",
        SPARK,
        "Upkeep of {source}'s tables: small files compacted, old versions vacuumed, old tombstones expired. "
        "The job `maintain` reports here.",
    ),
    COMPLETE: Look(
        "accounting",
        DELTA,
        "Up to when all tables of {source} are complete, by the source's clock: the data version of its observations. "
        "The checkpoint sensor observes it; what is to run when a time is reached depends on it.",
        tables.WATERMARKS,
    ),
    RECONCILE: Look(
        "accounting",
        SPARK,
        "What the last comparison of all tables of {source} with its database found: see its check.",
    ),
    SHADOW: Look(
        "accounting",
        SPARK,
        "What comparisons of {source}'s tables with those of another feed of its database found: see its check.",
        tables.SHADOW_COMPARISONS,
    ),
}
OF_ALL = {
    "changelog": Look(
        "changelog", DELTA, "Row changes of all sources, with the state of each source's part.", tables.CHANGELOG
    ),
    "offset_ledger": Look(
        "accounting", DELTA, "What became of every landed offset, of all sources.", tables.OFFSET_LEDGER
    ),
    "quarantine": Look("accounting", DELTA, "What could not be used, of all sources.", tables.QUARANTINE),
    "health": Look(
        "accounting",
        DELTA,
        "One row per source: state, lag, complete up to, stopped tables, held rows, last run, last reconciliation.",
    ),
}
