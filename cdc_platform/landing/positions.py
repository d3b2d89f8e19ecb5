"""Where landing stands, by the ledger, and how the lake numbers the records of a partition that began again.

Topic, partition and offset are the address of a record, and of two records of a partition the one with the larger
offset came later: all rooms rely on both. A topic that is deleted and made again, or that loses its end, would break
them. So from there on a *base* is added to Kafka's offsets, which the ledger keeps. No Spark here.
"""

from typing import Any, NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.kafka.offsets import PartitionState, kafka_state, numbered, raised
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.lake.store import Store
from cdc_platform.landing.ended import GONE
from cdc_platform.tables import LOADED, OFFSET_LEDGER

Where = tuple[str, int]
"""Topic and partition."""
GENERATION = 1 << 40
"""Ledger batches of generation g are numbered from g * 2**40 on: newer always means larger."""


class Position(NamedTuple):
    """generation: how often losses were accepted; landed: next offset to land of each partition; batch: the newest of
    the ledger; gone: next offset of partitions that were lost with their topic; bases: as `bases`."""

    generation: int
    landed: dict[Where, int]
    batch: int
    gone: dict[Where, int]
    bases: dict[Where, int]


def position(ledger: Store, source: Source) -> Position:
    """Where landing stands.

    Each accepted loss begins a new checkpoint: one that remembers offsets which no longer exist would skip the
    first records of a topic that was made again. A partition goes on at its restart; one that is gone, or that
    another took the place of, is left out of `landed`.
    """
    rows = delta_table.ask(
        "SELECT topic, \"partition\", max(named_struct('batch', batch, 'to_offset', to_offset)) AS last, "
        f"max(CASE WHEN outcome = 'lost' AND to_offset = {GONE} THEN from_offset END) AS gone, "
        "max(CASE WHEN outcome = 'lost' THEN batch END) AS lost, max(base) AS base, max(batch) AS batch FROM {ledger} "
        f"WHERE source = '{source.name}' AND outcome IN ('landed', 'lost') AND topic <> '{LOADED}' "
        'GROUP BY topic, "partition"',
        ledger=ledger,
    )
    generation = (max((r["lost"] for r in rows if r["lost"] is not None), default=-1) + 1) // GENERATION
    batch = max((generation * GENERATION, *(r["batch"] for r in rows)))
    at = {(r["topic"], r["partition"]): r["last"]["to_offset"] for r in rows}
    gone = {w: r["gone"] for r in rows if at[w := (r["topic"], r["partition"])] == GONE and r["gone"] is not None}
    landed = {place: last + 1 for place, last in at.items() if last > GONE}
    return Position(generation, landed, batch, gone, _bases(rows))


def bases(config: Config, source: Source) -> dict[Where, int]:
    """Of partitions whose offsets have begun again, what is added to Kafka's now."""
    return _bases(_noted(config, source))


def kafka_offset(config: Config, source: Source, where: Where, offset: int) -> int:
    """What Kafka's offset of a record of the lake was in its topic."""
    return offset - max((r["base"] for r in _noted(config, source, where) if r["base"] <= offset), default=0)


def _bases(rows: list[dict[str, Any]]) -> dict[Where, int]:
    found: dict[Where, int] = {}
    for where, base in (((r["topic"], r["partition"]), r["base"]) for r in rows if r["base"] is not None):
        found[where] = max(base, found.get(where, 0))
    return found


def _noted(config: Config, source: Source, where: Where | None = None) -> list[dict[str, Any]]:
    """Bases that the ledger has, of all partitions or one: topic, partition, base."""
    path = OFFSET_LEDGER.at(stores.lake(config))
    if "base" not in (queries.columns(path) or ()):  # there is none, or an earlier version made it
        return []
    of = "" if where is None else f" AND topic = {queries.text(where[0])} AND partition = {where[1]}"
    return (
        queries.query(
            f"SELECT DISTINCT topic, partition, base FROM t WHERE source = {queries.text(source.name)} "
            f"AND base IS NOT NULL{of}",
            t=path,
        )
        or []
    )


def in_kafka(config: Config, source: Source) -> list[PartitionState]:
    """`kafka_state` with offsets as the lake numbers them. Raises what that raises."""
    return numbered(kafka_state(config, source), bases(config, source))


def returned(gone: dict[Where, int], state: list[PartitionState], known: dict[str, set[str]]) -> dict[Where, int]:
    """Partitions that had gone and are there again → next offset to land: of the same topic where landing was, of one
    that was made again the first of its base. known: ids under which topics were landed."""
    return {
        w: gone[w] if s.topic_id and s.topic_id in known.get(s.topic, ()) else raised(gone[w])
        for s in state
        if (w := (s.topic, s.partition)) in gone
    }
