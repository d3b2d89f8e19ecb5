"""The messages that hold a subject's events: what else is in them, and the records that they came in."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.config import Config, Source
from cdc_platform.erasing import tombstones
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.erasing.subject import CHANGE, Message, Subject, events_at, rows_at
from cdc_platform.explain import records
from cdc_platform.explain.records import Address
from cdc_platform.formats.contract import EVENT
from cdc_platform.lake import delta_table, stores
from cdc_platform.tables import CHANGES, LANDING

_OTHERS = ("row", "ddl")
_AFTER = 10_000
"""Records behind a message among which its parts may come once more."""


def of(config: Config, subject: Subject) -> list[Message]:
    """With Kafka's tombstones of the same keys. Raises EraseRefused where what a message holds of others isn't known,
    or others stand at its address."""
    source = subject.table.source
    _check_once(config, source, subject.addresses)
    changes = CHANGES.at(stores.lake(config), format=source.format, source=source.name)
    there, nothing = events_at(changes, subject.addresses), CHANGE.empty_table()
    # Nothing: it was decoded once, and by a replay since to nothing.
    found = [_message(config, source, subject, address, there.get(address, nothing)) for address in subject.addresses]
    records = {m.address._replace(offset=o) for m in found for o in m.offsets}
    landing = LANDING.at(stores.lake(config), source=source.name)
    bare = [a for a in tombstones.of(landing, records) if a not in records] if delta_table.exists(landing) else []
    _check_once(config, source, [*records, *bare])
    there = events_at(changes, bare)
    left = {a: there.get(a, nothing).select(EVENT.names) for a in bare}
    return sorted([*found, *(Message(a, left[a], False, 0, (a.offset,), 1) for a in bare)], key=lambda m: m.address)


_BYTES = ("key", "value", "erased")


def _check_once(config: Config, source: Source, addresses: Iterable[Address]) -> None:
    """Raises EraseRefused where two records stand at one of these addresses, as of a topic that was made again: nothing
    tells in the tables behind landing which of them a row is of. The same record landed twice is one."""
    path, place = LANDING.at(stores.lake(config), source=source.name), Address._fields
    if not delta_table.exists(path):
        return
    counted = Counter[Address]()
    for _, address, rows in rows_at(path, addresses, LANDING.arrow(*place)):
        counted[address] += rows.num_rows
    twice = [address for address, n in counted.items() if n > 1]
    first: dict[Address, tuple[bytes | None, ...]] = {}
    for _, address, rows in rows_at(path, twice, LANDING.arrow(*place, *_BYTES)):
        for told in zip(*(rows.column(name).to_pylist() for name in _BYTES), strict=True):
            if first.setdefault(address, told) != told:
                topic = f"{address.topic}/{address.partition}"
                problem = f"two records were landed as {address}: the offsets of {topic} began again, and rows of both"
                choices = ["a source of a new name for the topic as it is now; all that this one has landed goes then"]
                raise EraseRefused(source.name, f"{problem} can't be told apart", choices)


def _message(config: Config, source: Source, subject: Subject, address: Address, events: pa.Table) -> Message:
    parts, offsets = _records(config, source, address)
    own = [subject.holds(row) for row in events.select(list(_AT)).to_pylist()]
    left = events.filter(pc.invert(pa.array(own, pa.bool_()))).select(EVENT.names)
    kinds = left["kind"].to_pylist()
    if "error" in kinds:
        why = left["reason"].to_pylist()[kinds.index("error")]
        problem = f"{address} holds a row that could not be read ({why}): whether it is the subject's isn't known"
        raise EraseRefused(source.name, problem, ["`cdc-platform quarantine retry`, then this once more"])
    others = sum(kind in _OTHERS for kind in kinds)
    return Message(address, left, others > 0, others, offsets, parts)


_AT = ("topic", "partition", "offset", "entry_index", "row_index", "kind")


def _records(config: Config, source: Source, address: Address) -> tuple[int, tuple[int, ...]]:
    """How many records the message came in; their offsets, and those of parts that were sent once more."""
    message = records.message_of(config, source, address)
    if message is None or message["parts"] == 1:
        return 1, (address.offset,)
    found = records.part_offsets(config, source, address, message)
    verdicts = records.verdicts(config, source, address, address.offset, message["last_offset"] + _AFTER)
    mine = next((v["shard"] for v in verdicts if v["offset"] == address.offset), None)
    again = []
    for v in verdicts:
        if v["shard"] != mine or v["offset"] < address.offset:
            continue
        if v["verdict"] == "complete" and v["message"] != address.offset:
            break
        if v["verdict"] == "duplicate":
            again.append(v["offset"])
    return len(found), tuple(sorted({*found, *again}))
