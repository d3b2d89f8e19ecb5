"""Where another feed took over (`cdc-platform shadow cutover`): which partition a source reads no more, and from which
offset on it reads another in its place. One commit of the ledger says both. No Spark here."""

from collections.abc import Iterable, Mapping
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.errors import ConfigError
from cdc_platform.kafka.offsets import PartitionState
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.tables import LOADED, OFFSET_LEDGER

Where = tuple[str, int]
"""Topic and partition."""
GONE = -2
"""to_offset of a row behind which nothing of its partition is landed: it was lost with the topic (`lost`), or another
took its place (`landed`). -1 says that landing goes on at offset 0."""


def ended(config: Config, source: Source) -> frozenset[Where]:
    """Partitions that others took the place of."""
    last = "last_value({} ORDER BY batch, to_offset)"
    rows = queries.query(
        f"SELECT topic, partition, {last.format('to_offset')} AS last, {last.format('outcome')} AS outcome FROM t "
        f"WHERE source = {queries.text(source.name)} AND outcome IN ('landed', 'lost') AND topic <> '{LOADED}' "
        "GROUP BY topic, partition",
        t=OFFSET_LEDGER.at(stores.lake(config)),
    )
    return frozenset((r["topic"], r["partition"]) for r in rows or [] if (r["last"], r["outcome"]) == (GONE, "landed"))


def successors(config: Config, source: Source) -> frozenset[Where]:
    """Partitions that took the place of others, as far as the ledger still has the batch."""
    mine = f"source = {queries.text(source.name)} AND outcome = 'landed'"
    rows = queries.query(
        f"SELECT DISTINCT topic, partition FROM t WHERE {mine} AND to_offset <> {GONE} AND records = 0 "
        f"AND batch IN (SELECT batch FROM t WHERE {mine} AND to_offset = {GONE})",
        t=OFFSET_LEDGER.at(stores.lake(config)),
    )
    return frozenset((r["topic"], r["partition"]) for r in rows or [])


def check(source: Source, over: frozenset[Where], state: list[PartitionState], landed: dict[Where, int]) -> None:
    """Raises ConfigError where the configuration still names a topic that another took the place of. over: what
    `ended` told; landed: what is read now."""
    if still := sorted({s.topic for s in state} & {topic for topic, _ in over}):
        now = ", ".join(sorted({topic for topic, _ in landed}))
        problem = f"`shadow cutover` has put another topic in place of {', '.join(still)}, which isn't read any more"
        raise ConfigError(f"source {source.name}: topics", problem, [f"topics: [{now}]"])


def take_over(
    config: Config,
    source: Source,
    batch: int,
    old: Iterable[Where],
    new: Where,
    offset: int,
    numbering: Mapping[str, Any],
) -> None:
    """Notes that nothing more is read of some partitions, and another is from an offset on; all at once. batch: of the
    ledger, above all that the source has; numbering: base and topic_id of the ledger, if they are to be noted."""
    said = {"source": source.name, "batch": batch, "room": "landing", "outcome": "landed", "records": 0}
    rows = [
        *({**said, "topic": t, "partition": p, "from_offset": -1, "to_offset": GONE} for t, p in sorted(old)),
        {**said, "topic": new[0], "partition": new[1], "from_offset": offset, "to_offset": offset - 1, **numbering},
    ]
    delta_table.append_rows(OFFSET_LEDGER.at(stores.lake(config)), rows)
