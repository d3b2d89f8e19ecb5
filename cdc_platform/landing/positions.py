"""Where landing stands, by the ledger, and how the lake numbers the records of a partition that began again.

Topic, partition and offset are the address of a record, and of two records of a partition the one with the larger
offset came later: all rooms rely on both. A topic that is deleted and made again, or that loses its end, would break
them. So from there on a *base* is added to Kafka's offsets. The ledger keeps it, in the rows that tell where landing
went on, with the id of a topic that was made again. No Spark here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.kafka.offsets import Before, PartitionState, Where, kafka_state, numbered, raised
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.lake.store import Store
from cdc_platform.landing.ended import GONE
from cdc_platform.tables import LOADED, OFFSET_LEDGER

GENERATION = 1 << 40
"""Ledger batches of generation g are numbered from g * 2**40 on: newer always means larger."""


class Numbering(NamedTuple):
    """How a partition is numbered from some offset on (`first`). base: what is added to Kafka's offsets; topic_id: of a
    topic that was made again ("": Kafka tells none); None: the topic is the one of before, which had lost its end."""

    base: int
    first: int
    topic_id: str | None


class LostPartition(NamedTuple):
    """A partition that was lost with its topic. offset: where landing was; topic_id: what it was landed under; None: an
    earlier version noted it."""

    offset: int
    topic_id: str | None


class Position(NamedTuple):
    """generation: how often losses were accepted; landed: next offset to land of each partition; batch: the newest of
    the ledger; gone: partitions of which nothing more is landed, as they aren't there; bases, ids: of partitions that
    began again what is added to Kafka's offsets now, and the topic's id if it is another; reached: above all offsets
    that a partition ever had."""

    generation: int
    landed: dict[Where, int]
    batch: int
    gone: dict[Where, LostPartition]
    bases: dict[Where, int]
    ids: dict[Where, str]
    reached: dict[Where, int]

    def before(self, topic_ids: Mapping[str, Sequence[str]], back: "Back") -> Before:
        """What tells losses. topic_ids: under which topics were landed, the newest last."""
        landed = {**self.landed, **back.same, **back.new}
        return Before(landed, topic_ids, self.ids, self.reached, frozenset(back.new), back.unsure)


def position(ledger: Store, source: Source) -> Position:
    """Where landing stands.

    Each accepted loss begins a new checkpoint: one that remembers offsets which no longer exist would skip the
    first records of a topic that was made again. A partition goes on at its restart; one that is gone, or that
    another took the place of, is left out of `landed`.
    """
    told = _known_columns(ledger)
    gone = f"outcome = 'lost' AND to_offset = {GONE}"
    rows = delta_table.ask(
        "SELECT topic, \"partition\", max(named_struct('batch', batch, 'to_offset', to_offset)) AS last, "
        f"max(CASE WHEN {gone} THEN named_struct('batch', batch, 'at', from_offset, 'id', {told['topic_id']}) END) "
        f"AS gone, max(to_offset) AS reached, max({told['base']}) AS base, "
        f"max(CASE WHEN {told['base']} IS NOT NULL AND {told['topic_id']} IS NOT NULL "
        f"THEN named_struct('base', {told['base']}, 'id', {told['topic_id']}) END) AS id, "
        "max(CASE WHEN outcome = 'lost' THEN batch END) AS lost, max(batch) AS batch FROM {ledger} "
        f"WHERE source = '{source.name}' AND outcome IN ('landed', 'lost') AND topic <> '{LOADED}' "
        'GROUP BY topic, "partition"',
        ledger=ledger,
    )
    generation = (max((r["lost"] for r in rows if r["lost"] is not None), default=-1) + 1) // GENERATION
    of = {(r["topic"], r["partition"]): r for r in rows}
    last = {where: r["last"]["to_offset"] for where, r in of.items()}
    return Position(
        generation,
        {where: at + 1 for where, at in last.items() if at > GONE},
        max((generation * GENERATION, *(r["batch"] for r in rows))),
        {w: LostPartition(r["gone"]["at"], r["gone"]["id"]) for w, r in of.items() if last[w] == GONE and r["gone"]},
        {where: r["base"] for where, r in of.items() if r["base"] is not None},
        {where: r["id"]["id"] for where, r in of.items() if r["id"]},
        {where: r["reached"] + 1 for where, r in of.items()},
    )


def _known_columns(ledger: Store) -> dict[str, str]:
    """Columns in SQL of a ledger that an earlier version may have made, which had none such."""
    there = queries.columns(ledger) or ()
    kinds = {"base": "BIGINT", "topic_id": "VARCHAR"}
    return {name: name if name in there else f"CAST(NULL AS {kind})" for name, kind in kinds.items()}


def numberings(config: Config, source: Source) -> dict[Where, list[Numbering]]:
    """Of partitions that began again, in order; what came before has Kafka's own offsets."""
    path = OFFSET_LEDGER.at(stores.lake(config))
    if "base" not in (queries.columns(path) or ()):  # there is none, or an earlier version made it
        return {}
    rows = queries.query(
        "SELECT topic, partition, base, max(to_offset) + 1 AS first, max(topic_id) AS topic_id FROM t "
        f"WHERE source = {queries.text(source.name)} AND base IS NOT NULL "
        "GROUP BY topic, partition, base ORDER BY base",
        t=path,
    )
    found: dict[Where, list[Numbering]] = {}
    for r in rows or []:
        found.setdefault((r["topic"], r["partition"]), []).append(Numbering(r["base"], r["first"], r["topic_id"]))
    return found


def bases(config: Config, source: Source) -> dict[Where, int]:
    """Of partitions that began again, what is added to Kafka's offsets now."""
    return {where: of[-1].base for where, of in numberings(config, source).items()}


def base_of(offset: int, of: Sequence[Numbering]) -> int:
    """What an offset of the lake has above Kafka's. of: the numberings of its partition."""
    return max((n.base for n in of if n.base <= offset), default=0)


def in_kafka(config: Config, source: Source) -> list[PartitionState]:
    """`kafka_state` with offsets as the lake numbers them. Raises what that raises."""
    return numbered(kafka_state(config, source), bases(config, source))


def base_here(now: Position, state: PartitionState, topic_ids: Sequence[str]) -> int:
    """What is added to Kafka's offsets of a partition that a source goes on with for another one, as another source
    reads it (`state`). topic_ids: under which the source landed the topic: it may have read the partition before."""
    where = state.topic, state.partition
    if where not in now.reached:
        return state.base
    is_same = _is_same(state, LostPartition(0, now.ids.get(where)), topic_ids)
    return now.bases.get(where, 0) if is_same else raised(max(now.reached[where], state.base))


def may_be_there(offset: int, state: PartitionState, of: Sequence[Numbering]) -> bool:
    """Whether Kafka may have a record of the lake still. state: of its partition, however numbered; of: numberings."""
    base = base_of(offset, of)
    later = [n for n in of if n.base > base]
    if any(n.topic_id for n in later):
        return False  # another topic's partition is there
    at, end = offset - base, state.end - state.base
    if later and later[0].topic_id is None:  # the end that was lost
        end = min(end, later[0].first - later[0].base)
    return state.begin - state.base <= at < end


def seams(ledger: Store, source: Source) -> dict[Where, list[int]]:
    """Offsets before which records of a partition are missing, or are those of another topic."""
    base = _known_columns(ledger)["base"]
    rows = delta_table.ask(
        f'SELECT topic, "partition", coalesce({base}, to_offset + 1) AS at FROM {{ledger}} '
        f"WHERE source = '{source.name}' AND to_offset >= 0 AND (outcome = 'lost' OR {base} IS NOT NULL)",
        ledger=ledger,
    )
    found: dict[Where, list[int]] = {}
    for r in rows:
        found.setdefault((r["topic"], r["partition"]), []).append(r["at"])
    return found


class Back(NamedTuple):
    """Partitions that had gone and are there again → next offset to land. same: of the same topic, where landing was;
    new: of one that was made again, or of which that isn't known (`unsure`), the base that its offsets get."""

    same: dict[Where, int]
    new: dict[Where, int]
    unsure: frozenset[Where]


def back(now: Position, state: list[PartitionState], topic_ids: Mapping[str, Sequence[str]]) -> Back:
    """topic_ids: under which topics were landed."""
    found = Back({}, {}, frozenset())
    for s in state:
        where = s.topic, s.partition
        if (gone := now.gone.get(where)) is None:
            continue
        same = _is_same(s, gone, topic_ids.get(s.topic, ()))
        if same:
            found.same[where] = gone.offset
        else:
            found.new[where] = raised(max(gone.offset, now.reached[where]))
        if same is None:
            found = found._replace(unsure=found.unsure | {where})
    return found


def _is_same(state: PartitionState, gone: LostPartition, topic_ids: Sequence[str]) -> bool | None:
    """Whether a topic is the one of before. None: nothing tells."""
    if not state.topic_id:
        return None
    if gone.topic_id:
        return gone.topic_id == state.topic_id
    if state.topic_id not in topic_ids:
        return False if topic_ids else None
    return True if len(topic_ids) == 1 else None


def noted(at: Mapping[Where, int], of: Back, state: list[PartitionState]) -> list[dict[str, Any]]:
    """Columns of ledger rows that say where landing goes on: topic, partition, from_offset, to_offset, base, topic_id.
    at: next offsets of partitions that are back."""
    ids = {(s.topic, s.partition): s.topic_id for s in state}
    return [
        {
            **{"topic": where[0], "partition": where[1], "from_offset": offset, "to_offset": offset - 1},
            **({"base": offset, "topic_id": ids[where]} if where in of.new else {}),
        }
        for where, offset in sorted(at.items())
    ]
