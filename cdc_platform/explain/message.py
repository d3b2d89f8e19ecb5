"""What became of one Kafka record: its outcome, the message that it is or is a part of, and the events in it."""

from typing import Any

from cdc_platform import tables
from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError
from cdc_platform.explain import events, records
from cdc_platform.explain.records import Address
from cdc_platform.formats.erased import WHY
from cdc_platform.formats.loaded import NAME
from cdc_platform.kafka.client import topic_filter
from cdc_platform.lake import queries, stores
from cdc_platform.lake.queries import query, text
from cdc_platform.landing import positions
from cdc_platform.landing.ended import ended
from cdc_platform.landing.positions import in_kafka

_RANK = ("quarantined", "not applied yet", "applied", "filtered", "duplicate", "resolved", "erased", "control")
"""A message with several outcomes is of the first of these; as the ledger counts it (changelog/outcomes.py)."""


def look(config: Config, source: Source, address: Address) -> dict[str, Any]:
    """address, kafka_offset (where it is another: the topic was made again), source, format, outcome (applied, control,
    filtered, waiting, joined, duplicate, quarantined, resolved, erased, not decoded yet, not applied yet, not landed,
    lost, none), why (in words); of a landed record timestamp, landed_at, headers, key, value (bytes), erased (whether
    its bytes were); message: address of the first record, `parts`: addresses of all, value: the whole; of what was
    decoded `events`: rows of `changes`, each with its outcome; quarantine: its rows about the record."""
    told: dict[str, Any] = {"address": str(address), "source": source.name}
    numbered = positions.numberings(config, source).get((address.topic, address.partition), [])
    if base := positions.base_of(address.offset, numbered):
        told["kafka_offset"] = address.offset - base
    told["format"] = NAME if address.topic == tables.LOADED else source.format
    record = records.raw_record(config, source, address)
    if record is None:
        return {**told, **_not_here(config, source, address)}
    told |= {"outcome": None, "why": None, **record}
    message = records.message_of(config, source, address)
    held = _quarantined(config, source, address)
    if message is None:
        return {**told, **_no_message(config, source, address, held), "quarantine": held}
    offsets = records.part_offsets(config, source, address, message)
    first = address._replace(offset=message["offset"])
    told["message"] = {
        "address": str(first),
        "parts": [str(address._replace(offset=o)) for o in offsets],
        "value": message["value"],
    }
    found = events.events_of(config, source, first)
    outcomes = events.outcomes(config, source, first, found)
    told["events"] = [{**event, **outcome} for event, outcome in zip(found, outcomes, strict=True)]
    told["quarantine"] = held or _quarantined(config, source, first)
    told |= _of_events(told["events"], erased=record["erased"])
    if len(offsets) > 1:
        part = f"part {offsets.index(address.offset) + 1} of {len(offsets)} of the message at {first}"
        told |= {"whole": told["outcome"], "outcome": "joined", "why": f"{part}, which is {told['outcome']}"}
    return told


def _of_events(found: list[dict[str, Any]], *, erased: bool) -> dict[str, Any]:
    if erased:
        found = [*found, {"outcome": "erased", "why": f"{WHY}; events of others in it stay as they were decoded"}]
    if not found:
        return {"outcome": "not decoded yet", "why": "it is landed, and no run has decoded it: `cdc-platform run` does"}
    first = min(found, key=lambda e: _RANK.index(e["outcome"]))
    return {"outcome": first["outcome"], "why": first["why"]}


def _no_message(config: Config, source: Source, address: Address, held: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a record that carries no whole message, or isn't taken up yet."""
    if held:
        return {"outcome": "quarantined", "why": held[0]["reason"]}
    if (part := records.waiting_part(config, source, address)) is not None:
        there = [str(address._replace(offset=o)) for o in part["there"]]
        lacking = part["total"] - len(there)
        why = f"part {part['index'] + 1} of {part['total']}: {lacking} more must come; with it wait {', '.join(there)}"
        return {"outcome": "waiting", "why": why, "waiting": {**part, "there": there}}
    if records.repeated_part(config, source, address):
        return {"outcome": "duplicate", "why": "the same part of the same message came before"}
    why = "it is landed, and no run has looked at it: `cdc-platform run` does"
    return {"outcome": "not decoded yet", "why": why}


def _quarantined(config: Config, source: Source, address: Address) -> list[dict[str, Any]]:
    rows = query(
        f"SELECT * FROM t WHERE source = {text(source.name)} AND {address.condition()} ORDER BY entry_index, row_index",
        t=tables.QUARANTINE.at(stores.lake(config)),
    )
    left = ("source", "topic", "partition", "offset", "format")
    return [{k: dict(v) if k == "key" and v else v for k, v in r.items() if k not in left} for r in rows or []]


# -- records that aren't in the lake -----------------------------------------------------------------------


def _not_here(config: Config, source: Source, address: Address) -> dict[str, Any]:
    lost = query(
        f"SELECT from_offset, to_offset, records FROM t WHERE source = {text(source.name)} AND outcome = 'lost' AND "
        f"{address.condition(f'from_offset <= {address.offset} AND to_offset >= {address.offset}')} LIMIT 1",
        t=tables.OFFSET_LEDGER.at(stores.lake(config)),
    )
    if lost:
        span = lost[0]["from_offset"], lost[0]["to_offset"]
        told = {"outcome": "lost", "lost": {"from_offset": span[0], "to_offset": span[1]}}
        if span[1] - span[0] + 1 == lost[0]["records"]:
            why = f"Kafka had removed offsets {span[0]} to {span[1]} before they were landed, and the loss was accepted"
            return {**told, "why": why}
        why = f"the topic was made again, or lost its end: what was there from {span[0]} on isn't known"
        base = positions.bases(config, source).get((address.topic, address.partition), 0)
        now = address._replace(offset=base + address.offset)
        goes_on = f"; what Kafka has at offset {address.offset} now is {now}" if address.offset < base else ""
        return {**told, "why": why + goes_on}
    landed = queries.landed(config, source).get((address.topic, address.partition))
    if (address.topic, address.partition) in ended(config, source):
        why = "another feed's topic took the place of this one: `shadow cutover`, and nothing more of it is landed"
        return {"outcome": "not landed", "why": why}
    end = _kafka(config, source, address)
    if landed is None or address.offset >= landed:
        return {"outcome": "not landed", "why": _beyond(landed, address, end)}
    first = query(
        f'SELECT min("offset") AS first FROM t WHERE {address.condition("TRUE")}',
        t=tables.LANDING.at(stores.lake(config), source=source.name),
    )
    begins = first[0]["first"] if first else None
    if begins is not None and address.offset < begins:
        return {"outcome": "not landed", "why": f"landing of this partition begins at offset {begins}"}
    why = "no record has this offset: Kafka's transaction markers and compaction leave such gaps"
    return {"outcome": "none", "why": why}


def _beyond(landed: int | None, address: Address, end: int | str) -> str:
    so_far = f"landed up to offset {landed - 1}" if landed else "nothing of this partition is landed"
    if isinstance(end, str):
        return f"{so_far}; whether Kafka has it isn't known: {end}"
    if address.offset >= end:
        return f"{so_far}; Kafka's next offset there is {end}: no such record has been written"
    return f"{so_far}; Kafka has it: `cdc-platform run` lands it"


def _kafka(config: Config, source: Source, address: Address) -> int | str:
    """The partition's end in Kafka, or why it isn't known."""
    try:
        for state in in_kafka(config, source):
            if (state.topic, state.partition) == (address.topic, address.partition):
                return state.end
    except CdcError as error:
        return str(error)
    return "the cluster has no such partition"


def source_of(config: Config, address: Address, given: str | None) -> list[Source]:
    """Sources that may have the record: the given one, else those whose topics it is of. Raises ConfigError."""
    if given is not None:
        return [config.source(given)]
    if address.topic == tables.LOADED:
        return [s for s in config.sources if records.raw_record(config, s, address)] or list(config.sources)
    return [s for s in config.sources if topic_filter(s)(address.topic)]
