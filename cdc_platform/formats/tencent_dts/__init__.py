"""Tencent DTS data subscription, Kafka edition, protobuf. Wire definition: proto/tencent_dts.proto.

A Kafka record is one Envelope; `total` envelopes together carry one serialized Entries, a list of binlog
events of any tables and transactions. proto3 leaves zeros out: an INSERT has no dmlEventType on the wire, a
BEGIN no messageType, a NULL is an empty sub-message. So a header's messageType counts only together with the
event body that belongs to it.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from cdc_platform.formats.contract import EVENT, PART, Beat, Context, Format, GtidSets, Liveness, Part
from cdc_platform.formats.option_types import ZoneName
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.formats.protobuf.arrow import bools, joined, only, parse, pieces, take_or_null
from cdc_platform.formats.protobuf.in_place import Fields, Texts, read_plain
from cdc_platform.formats.table_schemas.lookup import TableSchemas
from cdc_platform.formats.table_schemas.options import SchemaOptions
from cdc_platform.formats.table_schemas.states import States, build
from cdc_platform.formats.tencent_dts.events import KIND, assemble, read_entries
from cdc_platform.formats.tencent_dts.known import completed
from cdc_platform.formats.tencent_dts.rows import row_changes, tables
from cdc_platform.formats.tencent_dts.wire import read
from cdc_platform.mysql.charsets import decode_text

_ENVELOPE = Fields((0x08, 0x10, 0x18, 0x22))


class Options(SchemaOptions):
    """Options of a Tencent DTS source."""

    time_zone: ZoneName = Field(
        default="UTC",
        description="Zone of TIMESTAMP text that carries no offset (IANA name or offset). DTS writes one: `+00:00`.",
        examples=["Asia/Shanghai"],
    )
    untold_source: bool = Field(
        default=False,
        description="Whether rows whose header says no source type (0, which is Oracle's, too) are MySQL's",
        examples=[True],
    )


def parse_part(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Kafka records → their place in a split message. `shard` and `seq` come from the Kafka headers `ShardId`
    (TDSQL: parts and sequences run per shard) and `ps` (running number within the partition or shard)."""
    value, headers = batch.column("value"), batch.column("headers")
    version, total, index, data, unreadable = _envelopes(value)
    shard, shard_ok = decode_text(_last_header(headers, "ShardId"), "utf8mb4")
    ps, ps_ok = decode_text(_last_header(headers, "ps"), "utf8mb4")
    digits = pc.match_substring_regex(ps, "^[0-9]{1,20}$")
    checks: list[tuple[np.ndarray, Callable[[int], str]]] = [
        (~shard_ok, lambda _: "Kafka header ShardId is no UTF-8 text"),
        (~(ps_ok & bools(digits, True)), lambda _: "Kafka header ps is no decimal number of up to 20 digits"),
        (
            (index >= total) & ((total > 0) | (index > 0)),
            lambda i: f"Envelope says part {index[i]} of {total[i]}",
        ),
        (version != 1, lambda i: f"Envelope version {version[i]}; only 1 is known"),
        (pc.fill_null(pc.binary_length(value), 0).to_numpy() == 0, lambda _: "no value, so no Envelope"),
        (_marked(len(value), list(unreadable)), lambda i: f"not an Envelope: {unreadable[i]}"),
    ]
    error = np.full(len(value), None, object)
    for mask, reason in checks:  # the last one that fits wins
        for i in np.nonzero(mask)[0]:
            error[i] = reason(int(i))
    fine = np.array([e is None for e in error], bool)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.maximum(total, 1), mask=~fine),
            pa.array(index, mask=~fine),
            only(fine, data),
            pc.fill_null(shard, ""),
            pc.if_else(pc.fill_null(digits, False), ps, None).cast(pa.decimal128(20, 0)),
            pa.array(error, pa.string()),
        ],
        schema=PART,
    )


def _envelopes(
    values: pa.BinaryArray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, pa.BinaryArray, dict[int, str]]:
    """Serialized Envelopes → (version, total, index, data, what is wrong with those that can't be read)."""
    plain = None if values.null_count else read_plain(Texts.of(values), _ENVELOPE)
    if plain is not None:
        kinds = {0x08: np.int32, 0x10: np.uint32, 0x18: np.uint32}
        version, total, index = (plain.numbers[tag].astype(kind).astype(np.int64) for tag, kind in kinds.items())
        return version, total, index, plain.texts[0x22].bytes(), {}
    parsed, unreadable = parse(values, pb.Envelope)
    version, total, index = (parsed.column(n).cast(pa.int64()).to_numpy() for n in ("version", "total", "index"))
    return version, total, index, parsed.column("data"), unreadable


def _last_header(headers: pa.Array, name: str) -> pa.Array:
    """Value of the last Kafka header of this name in each record; null when there is none."""
    flat, parent = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    hits = np.nonzero(bools(pc.equal(flat.field("key"), name), False))[0]
    place = np.full(len(headers), -1)
    place[parent[hits]] = hits
    return take_or_null(flat.field("value"), place)


def _marked(length: int, at: list[int]) -> np.ndarray:
    mask = np.zeros(length, bool)
    mask[at] = True
    return mask


def decode(batch: pa.RecordBatch, options: Options, states: States | None = None) -> pa.RecordBatch:
    """MESSAGE batch whose values are serialized Entries → EVENT batch, in the order of the messages. `states`: the
    tables' columns over time, as `table_schemas.states.build` gives them."""
    seen: set[str] = set()  # schema versions told already
    schemas = TableSchemas(states)
    return joined([_decode_piece(piece, options, schemas, seen) for piece in pieces(batch)], EVENT)


def _decode_piece(batch: pa.RecordBatch, options: Options, schemas: TableSchemas, seen: set[str]) -> pa.RecordBatch:
    messages, unreadable = read(batch.column("value"))
    entries = read_entries(messages.items.values, untold_source=options.untold_source)
    is_row = KIND["row"]
    messages = completed(batch, messages, entries.header, np.nonzero(entries.kind == is_row)[0], schemas)
    found = tables(entries.header, messages, np.nonzero(entries.kind == is_row)[0])
    unusable = np.isin(found.group, list(found.problems)) & (found.group >= 0)
    entries.mark(unusable, "error", lambda i: found.problems[int(found.group[i])])
    none = (entries.kind == is_row) & (messages.rows.lengths == 0)
    entries.mark(none, "skip", lambda _: "DML event without rows")
    usable = np.nonzero(entries.kind == is_row)[0]
    ops = entries.event.field("dmlEvent").field("dmlEventType").to_numpy()
    rows = row_changes(entries.header, ops, messages, found, usable, zone=options.time_zone)
    return assemble(batch, messages.items, entries, rows, unreadable, seen=seen)


FORMAT = Format(
    name="tencent_dts",
    version="2",
    summary="Tencent DTS data subscription (Kafka edition), protobuf: TencentDB for MySQL, MariaDB, TDSQL",
    options=Options,
    decode=decode,
    # the vendor doesn't say whose time a checkpoint has
    log_times=frozenset({"row", "ddl", "begin", "commit", "rollback", "heartbeat"}),
    gtid_sets=GtidSets("synced_gtid"),
    log_positions=True,
    beats=(Beat("heartbeat"), Beat("checkpoint")),
    liveness=Liveness("Tencent DTS sends a checkpoint about every 10 s", interval_s=10),
    part=Part(parse=parse_part),
    context=Context(build=build),
    transactions="brackets",
)
