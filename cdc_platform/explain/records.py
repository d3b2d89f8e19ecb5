"""Kafka records as they were landed, the messages that they make, and which records are parts of one."""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from cdc_platform.config import Config, Source
from cdc_platform.envelopes.reassemble import META, classify_partition
from cdc_platform.envelopes.whole import parts_of
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.lake import checkpoints, stores
from cdc_platform.lake.queries import columns, query, text
from cdc_platform.tables import CHECKPOINT, ENVELOPES, LANDING, WAITING, Table

_NEVER_MS = 1 << 62
_REACH = 10_000
"""Records before a part among which the message that it repeats a part of is looked for."""


class Address(NamedTuple):
    """Where a record stands in Kafka."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    def condition(self, offset: str | None = None) -> str:
        """As a condition in SQL; offset: another one on the offset."""
        own = f'"offset" = {self.offset}'
        return f"topic = {text(self.topic)} AND partition = {self.partition} AND {offset or own}"


def splits(source: Source) -> bool:
    """Whether messages of the source's format may come in several records."""
    return FORMATS[source.format].part is not None


def raw_record(config: Config, source: Source, address: Address) -> dict[str, Any] | None:
    """timestamp, landed_at, key, value, headers of a record as it was landed, and whether its bytes were erased since
    (`erased`); None: there is none such."""
    path = LANDING.at(stores.lake(config), source=source.name)
    erased = "erased IS NOT NULL" if "erased" in (columns(path) or ()) else "FALSE"
    rows = query(
        f"SELECT timestamp, landed_at, key, value, headers, {erased} AS erased FROM t WHERE {address.condition()}",
        t=path,
    )
    return rows[0] if rows else None


def message_of(config: Config, source: Source, address: Address) -> dict[str, Any] | None:
    """The whole message that a record carries, or carries a part of: offset, last_offset, parts, shard, value; None: it
    isn't landed, or waits, or is no part of a message."""
    if not splits(source):
        found = raw_record(config, source, address)
        one = {"offset": address.offset, "last_offset": address.offset, "parts": 1, "shard": ""}
        return found and {**one, "value": found["value"]}
    reaching = f'"offset" <= {address.offset} AND last_offset >= {address.offset}'
    rows = query(
        f'SELECT "offset", last_offset, parts, shard, value FROM t WHERE {address.condition(reaching)} ORDER BY parts, '
        '"offset"',
        t=ENVELOPES.at(stores.lake(config), source=source.name),
    )
    alone = [r for r in rows or [] if r["parts"] == 1 and r["offset"] == address.offset]
    split = [r for r in rows or [] if r["parts"] > 1]
    return next((r for r in [*alone, *split] if address.offset in part_offsets(config, source, address, r)), None)


def part_offsets(config: Config, source: Source, address: Address, message: dict[str, Any]) -> list[int]:
    """Offsets of the records that a message came in, in order."""
    if message["parts"] == 1:
        return [message["offset"]]
    if message["value"] is None:
        return _erased_parts(config, source, address, message)
    told = verdicts(config, source, address, message["offset"], message["last_offset"])
    return [v["offset"] for v in told if v["verdict"] == "complete" and v["message"] == message["offset"]]


def _erased_parts(config: Config, source: Source, address: Address, message: dict[str, Any]) -> list[int]:
    """The same of a message whose bytes were erased: what tells its parts is gone with them."""
    between = address.condition(f'"offset" BETWEEN {message["offset"]} AND {message["last_offset"]}')
    path = LANDING.at(stores.lake(config), source=source.name)
    if "erased" not in (columns(path) or ()):
        return []
    rows = query(f'SELECT "offset" FROM t WHERE {between} AND erased IS NOT NULL ORDER BY "offset"', t=path)
    return [r["offset"] for r in rows or []]


def repeated_part(config: Config, source: Source, address: Address) -> bool:
    """Whether a record is a part that came before: the same bytes at the same place of the same message."""
    earlier = address.condition(f'"offset" < {address.offset}')
    rows = query(
        f'SELECT max("offset") AS before FROM t WHERE {earlier} '
        f"AND parts > 1 AND last_offset >= {address.offset - _REACH}",
        t=ENVELOPES.at(stores.lake(config), source=source.name),
    )
    begun = rows[0]["before"] if rows and rows[0]["before"] is not None else max(0, address.offset - _REACH)
    told = verdicts(config, source, address, begun, address.offset)
    return any(v["offset"] == address.offset and v["verdict"] == "duplicate" for v in told)


def waiting_part(config: Config, source: Source, address: Address) -> dict[str, Any] | None:
    """total and index of a part that waits for the rest, and `there`: offsets of the parts that wait with it; None: it
    doesn't wait."""
    rows = waiting_parts(config, source, address.condition("TRUE"))
    mine = next((r for r in rows if r["offset"] == address.offset), None)
    if mine is None:
        return None
    together = [r["offset"] for r in rows if (r["shard"], r["total"]) == (mine["shard"], mine["total"])]
    return {"total": mine["total"], "index": mine["index"], "there": sorted(together)}


def waiting_parts(config: Config, source: Source, where: str = "TRUE") -> list[dict[str, Any]]:
    """Parts that wait for the rest of their message now: topic, partition, offset, total, index, shard, timestamp."""
    _, done = checkpoints.newest(CHECKPOINT.at(stores.lake(config), room="envelopes", source=source.name))
    rows = query(
        f'SELECT topic, partition, "offset", total, "index", shard, timestamp FROM t WHERE {where} '
        f'AND batch = {done} ORDER BY topic, partition, "offset"',
        t=WAITING.at(stores.lake(config), source=source.name),
    )
    return rows or []


def verdicts(config: Config, source: Source, address: Address, low: int, high: int) -> list[dict[str, Any]]:
    """VERDICT rows of a partition's records between two offsets, by the rule of the envelopes stage."""
    landed = _arrow(LANDING, config, source, address.condition(f'"offset" BETWEEN {low} AND {high}'))
    messages = landed.cast(MESSAGE).combine_chunks().to_batches()
    if not messages:
        return []
    parts = parts_of(messages[0], source.format).to_pylist()
    records = [
        {
            "topic": address.topic,
            "partition": address.partition,
            "offset": offset,
            "shard": p["shard"] or "",
            "total": p["total"],
            "index": p["index"],
            "digest": _digest(p["data"]) if p["total"] > 1 else 0,
            "at": 0,
            "carried": False,
            "seq": int(p["seq"]) if p["seq"] is not None and p["seq"] < 1 << 63 else -1,
        }
        for offset, p in zip(messages[0].column("offset").to_pylist(), parts, strict=True)
        if p["error"] is None
    ]
    return classify_partition(pa.Table.from_pylist(records, META), _NEVER_MS).sort_by("offset").to_pylist()


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def _arrow(table: Table, config: Config, source: Source, where: str) -> pa.Table:
    from deltalake import QueryBuilder

    from cdc_platform.lake.handles import handle

    columns = ", ".join(f'"{n}"' for n in MESSAGE.names)
    with handle(table.at(stores.lake(config), source=source.name)) as opened:
        found = QueryBuilder().register("t", opened.table).execute(f"SELECT {columns} FROM t WHERE {where}")
        return pa.table(found.read_all())


def messages_of(config: Config, source: Source, addresses: Iterable[Address]) -> dict[Address, dict[str, Any]]:
    """`message_of` of several, with `offsets`: those of its records."""
    found = {}
    for address in dict.fromkeys(addresses):
        if (message := message_of(config, source, address)) is not None:
            found[address] = {**message, "offsets": part_offsets(config, source, address, message)}
    return found
