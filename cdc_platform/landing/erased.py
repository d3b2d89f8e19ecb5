"""Records whose bytes were erased at a subject's request: how they stand in landing, and how one that is read from
Kafka once more is known."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import hashlib
import hmac
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.config import Config, Source
from cdc_platform.errors import LakeChanged
from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.erased import kept
from cdc_platform.kafka.reader import Range
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.lake.store import Store
from cdc_platform.landing import positions
from cdc_platform.tables import ERASURES, Name, name_in, name_of
from cdc_platform.units import count

Place = tuple[str, int, int]
"""(topic, partition, offset)."""
NOTHING = kept(EVENT.empty_table())
"""What is left of a record that held the subject's rows alone."""


class Known(NamedTuple):
    """A record that was erased: by which digest its payload is known (HMAC under `salt`), and what is left of it."""

    digest: str
    salt: bytes
    left: bytes


def digest(salt: bytes, value: bytes) -> str:
    """By which bytes are known again without being kept."""
    return hmac.new(salt, value, hashlib.sha256).hexdigest()


def payload(value: bytes | None, key: bytes | None) -> bytes | None:
    """The bytes by which a record is known: a Kafka tombstone's are its key."""
    return key if value is None else value


def key_digest(salt: bytes, key: Mapping[str, str | None]) -> str:
    """The same of a row's key: texts by column."""
    return digest(salt, json.dumps(dict(key), sort_keys=True).encode())


def erased_before(
    config: Config, source: str, names: Iterable[Name], key: Mapping[str, str | None]
) -> dict[str, Any] | None:
    """The newest finished erasure of a key, of a table by any of its names: `number`, `at`. None: there is
    none."""
    path, wanted = ERASURES.at(stores.lake(config)), frozenset[Name | None](names)
    if not delta_table.exists(path):
        return None
    told = 'at, "number", db, schema, "table", salt, key_digest'
    rows = delta_table.ask(f"SELECT {told} FROM {{t}} WHERE source = '{source}' AND stage = 'done'", t=path)
    return max((r for r in rows if is_of(r, wanted, key)), key=lambda r: r["number"], default=None)


def of_source(config: Config, source: Source) -> list[dict[str, Any]]:
    """What was erased of a source at subjects' requests, the newest first: number, table, records, left (places where
    something was found afterwards; None: it was begun, and isn't done), again (messages that the capture has sent once
    more since, and that are landed), at; name: of the table, in parts."""
    found = queries.query(
        'SELECT "number", stage, db, schema, "table", records, proof, at FROM t '
        f"WHERE source = {queries.text(source.name)} ORDER BY at",
        t=ERASURES.at(stores.lake(config)),
    )
    rows = found or []
    gone = {_address(m) for r in rows if r["stage"] == "begun" for m in r["records"]}
    proofs = {r["number"]: r for r in rows if r["stage"] == "done"}
    again: dict[int, set[Place]] = {}
    for r in (r for r in rows if r["stage"] == "again"):
        again.setdefault(r["number"], set()).update(at for m in r["records"] if (at := _address(m)) not in gone)
    return [
        {
            **{"number": n, "table": ".".join(name_of(r)), "name": name_of(r), "records": len(r["records"] or ())},
            **{"at": done["at"], "left": None if done["proof"] is None else json.loads(done["proof"])["left"]},
            "again": len(again.get(n, ())),
        }
        for r in reversed(rows)
        if r["stage"] == "begun"
        for n in (r["number"],)
        for done in (proofs.get(n, r),)
    ]


class Erased(NamedTuple):
    """That a row was taken out of a table at a time, so that it isn't proven until a comparison after that."""

    at: datetime
    text: str


def unproven(told: Sequence[Mapping[str, Any]]) -> tuple[list[Erased], list[str]]:
    """Why a table isn't proven after erasures of its rows (of_source): until a comparison, and until `erase` was done
    once more."""
    compare, erase = list[Erased](), list[str]()
    for i, e in enumerate(told):
        of = f"erasure {e['number']}"
        if e["left"] is None:
            erase += [f"{of} of a row isn't finished"] if i == 0 else []
            continue
        compare.append(Erased(e["at"], f"it was compared before {of} took a row out of it"))
        if e["left"] and all(later["left"] != 0 for later in told[:i]):
            erase.append(f"{of} left something in {count(e['left'], 'place')}")
        if e["again"]:
            erase.append(f"messages of {of} were sent again: {e['again']:,}")
    return compare, erase


def _address(record: Mapping[str, Any]) -> Place:
    return record["topic"], record["partition"], record["offset"]


def is_of(row: Mapping[str, Any], names: Container[Name | None], key: Mapping[str, str | None]) -> bool:
    """Whether a row of ERASURES is of this key of a table with one of these names."""
    mine = key_digest(bytes.fromhex(row["salt"]), key)
    return name_in(row) in names and hmac.compare_digest(row["key_digest"], mine)


def blanked(batch: pa.RecordBatch, left: Mapping[int, bytes]) -> pa.RecordBatch:
    """Rows of LANDING or ENVELOPES of which some (by number) have nothing but what is left of them."""
    gone = np.zeros(batch.num_rows, bool)
    gone[list(left)] = True
    now = pa.array([left.get(i) for i in range(batch.num_rows)], pa.binary())
    made = {name: nulled(batch.column(name), gone) for name in ("value", "key", "headers")}
    made["erased"] = pc.coalesce(now, batch.column("erased"))
    columns = [made.get(f.name, batch.column(f.name)) for f in batch.schema]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def nulled(column: pa.Array, gone: np.ndarray) -> pa.Array:
    """With NULL in some rows; of any type."""
    return column.take(pa.array(np.where(gone, 0, np.arange(len(column))), mask=gone))


def without_erased(batch: pa.RecordBatch, known: Mapping[Place, Sequence[Known]]) -> pa.RecordBatch:
    """Records as they are read, but those that were erased before: the same bytes at the same place. Of a topic that
    was made again other bytes stand there."""
    if not known:
        return batch
    found: dict[int, bytes] = {}
    rows = batch.select(["topic", "partition", "offset"]).to_pylist()
    for number, row in enumerate(rows):
        here = known.get((row["topic"], row["partition"], row["offset"]), ())
        told = payload(*(batch.column(name)[number].as_py() for name in ("value", "key"))) if here else None
        if told is None:
            continue
        for one in here:
            if hmac.compare_digest(digest(one.salt, told), one.digest):
                found[number] = one.left
    return blanked(batch, found) if found else batch


def among(config: Config, source: Source, landing: Store, ranges: Iterable[Range]) -> dict[Place, list[Known]]:
    """Erased records in ranges that are about to be read, by the addresses that they would get: none, but where a topic
    is read once more, be it under another id (a copy of it). Several have one address where a topic was made again more
    than once: a copy may be of each. Raises LakeChanged where such a record held rows of others, and landing doesn't
    have them any more."""
    path = ERASURES.at(stores.lake(config))
    if not delta_table.exists(path):
        return {}
    rows = delta_table.ask(
        f"SELECT salt, records FROM {{t}} WHERE source = '{source.name}' AND stage = 'begun'", t=path
    )
    numbered, spans = positions.numberings(config, source), {s[:2]: s for s in ranges}
    again = [
        (place, at, r, bytes.fromhex(row["salt"]))
        for row in rows
        for r in row["records"]
        if (span := spans.get(where := (r["topic"], r["partition"]))) is not None
        for place in ((*where, r["offset"]),)
        for at in (r["offset"] - positions.base_of(r["offset"], numbered.get(where, ())) + span.base,)
        if span.start <= at < span.end
    ]
    left = _left(landing, [place for place, *_ in again])
    for place, _, record, _ in again:
        if record["shared"] and place not in left:
            problem = f"{'/'.join(map(str, place))} was erased, and the rows of others in it aren't here any more"
            raise LakeChanged(landing.uri(), problem)
    found: dict[Place, list[Known]] = {}
    for place, at, record, salt in again:
        found.setdefault((*place[:2], at), []).append(Known(record["digest"], salt, left.get(place, NOTHING)))
    return found


def _left(landing: Store, places: list[Place]) -> dict[Place, bytes]:
    """What is left of records, where landing has them."""
    if not places or "erased" not in (queries.columns(landing) or ()):
        return {}
    offsets = ", ".join(str(int(offset)) for _, _, offset in places)
    rows = delta_table.ask(
        f'SELECT topic, "partition", "offset", erased FROM {{t}} WHERE erased IS NOT NULL AND "offset" IN ({offsets})',
        t=landing,
    )
    return {(r["topic"], r["partition"], r["offset"]): r["erased"] for r in rows}
