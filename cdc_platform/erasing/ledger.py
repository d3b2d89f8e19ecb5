"""The ledger of a source after an erasure: records of which nothing is left but that they were erased count as that."""

from collections.abc import Iterable
from typing import Any

from cdc_platform.changelog.outcomes import RANK
from cdc_platform.config import Config, Source
from cdc_platform.erasing.subject import Message, Subject
from cdc_platform.explain import events
from cdc_platform.lake import delta_table, stores
from cdc_platform.tables import OFFSET_LEDGER

_BATCH = -(1 << 40)
"""Ledger batches of erasures are below this: no stage's batch, nor a back-fill, has such a number."""


def corrections(config: Config, source: Source, subject: Subject, messages: Iterable[Message]) -> list[dict[str, Any]]:
    """OFFSET_LEDGER rows but for source and batch: what each message counted as is taken back, and what is left of it
    counts."""
    found = []
    for message in messages:
        there = events.events_of(config, source, message.address)
        outcomes = [o["outcome"] for o in events.outcomes(config, source, message.address, there)]
        told = list(zip(there, outcomes, strict=True))
        before = _first(o for _, o in told)
        after = _first(["erased", *(o for e, o in told if not subject.holds(e))])
        if before is None or before == after or after is None:
            continue
        at = message.address
        said = {"room": "changelog", "topic": at.topic, "partition": at.partition}
        said |= {"from_offset": at.offset, "to_offset": at.offset}
        records = message.parts
        found += [{**said, "outcome": before, "records": -records}, {**said, "outcome": after, "records": records}]
    return found


def _first(outcomes: Iterable[str]) -> str | None:
    """As the ledger counts a message with several."""
    known = [o for o in outcomes if o in RANK]
    return min(known, key=RANK.index, default=None)


def append(config: Config, source: Source, number: int, entries: list[dict[str, Any]]) -> None:
    """Adds them, once."""
    rows = [{**e, "source": source.name, "batch": _BATCH - number} for e in entries]
    delta_table.append_rows(OFFSET_LEDGER.at(stores.lake(config)), rows, once=(f"erasure {source.name}", number))
