"""Kafka values as canal's writers write them, read where they lie: Packet → Messages → Entry → Header and RowChange.

Nearly all values are so, and reading them by numpy, with no bytes copied but the texts, costs half as much as by a
parser. What isn't so is for the parser to read, or to refuse.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_platform.formats.canal.columns import plain_rows
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.pb import canal_protocol_pb2 as net
from cdc_platform.formats.protobuf.arrow import as_lists, bytes_of
from cdc_platform.formats.protobuf.in_place import Texts
from cdc_platform.formats.protobuf.layout import Layout, NotPlain

_PACKET = Layout(net.Packet, magic_number=17, version=1)
_MESSAGES = Layout(net.Messages)
_ENTRY = Layout(pb.Entry, entryType=pb.ROWDATA)
_HEADER = Layout(pb.Header, version=1, sourceType=pb.MYSQL)
_CHANGE = Layout(pb.RowChange, eventType=pb.UPDATE)
_BODIES = {m: Layout(m) for m in (pb.TransactionBegin, pb.TransactionEnd, pb.Pair)}


@dataclass(frozen=True, slots=True)
class PlainEntries:
    """Entries of Kafka values: how many each value has (none has none), header, entry type and storeValue of each
    entry, and the RowChange in it, an empty one where it isn't ROWDATA; of their columns, `heads` (see
    `columns.plain_rows`)."""

    lengths: np.ndarray
    header: pa.StructArray
    said: np.ndarray
    stored: Texts
    changes: pa.RecordBatch
    heads: pa.StructArray


def read(values: pa.BinaryArray) -> PlainEntries | None:
    """Packets, or bare Entries, but not both; None where anything isn't plain, or is an error."""
    try:
        found, lengths = _entries(values)
        entries = _ENTRY.read(found)
        headers = _headers(entries.texts("header"))
        said, stored = entries.number("entryType"), entries.texts("storeValue")
        changes, heads = _changes(stored.only(said == pb.ROWDATA), _table(headers))
    except NotPlain:
        return None
    return PlainEntries(lengths, headers, said, stored, changes, heads)


def body(values: Texts, message: type) -> pa.RecordBatch | None:
    """What else entries hold: TransactionBegin, TransactionEnd or Pair; None where one isn't plain."""
    layout = _BODIES[message]
    try:
        return pa.RecordBatch.from_pydict(layout.read(values).arrays(*layout.types))
    except NotPlain:
        return None


def _entries(values: pa.BinaryArray) -> tuple[Texts, np.ndarray]:
    """(serialized entries, how many each value has). Raises NotPlain."""
    whole = Texts.of(values)
    if values.null_count or not whole.lengths().all():
        raise NotPlain
    offsets, data = bytes_of(values)
    if (np.frombuffer(data, np.uint8)[offsets[:-1]] == _ENTRY.tags["header"]).all():
        return whole, np.ones(len(values), np.int32)
    packets = _PACKET.read(whole)
    told = {"magic_number": (17,), "version": (1,), "type": (net.MESSAGES,), "compression": (0, net.NONE)}
    if not all(np.isin(packets.number(name), known).all() for name, known in told.items()):
        raise NotPlain
    messages = _MESSAGES.read(packets.texts("body"))
    if not messages.lengths("messages").all():
        raise NotPlain
    return messages.texts("messages"), messages.lengths("messages")


def _headers(values: Texts) -> pa.StructArray:
    """Headers, but for what isn't used of them. Raises NotPlain."""
    if not values.lengths().all():  # absent, or empty
        raise NotPlain
    names = (n for n in _HEADER.types if n not in ("version", "eventLength"))
    found = _HEADER.read(values)
    if not np.isin(found.number("version"), (0, 1)).all():
        raise NotPlain
    fields = found.arrays(*names)
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))


def _table(headers: pa.StructArray) -> np.ndarray:
    """A number for each entry's table."""
    db, table = (headers.field(n).dictionary_encode() for n in ("schemaName", "tableName"))
    return db.indices.to_numpy() * len(table.dictionary) + table.indices.to_numpy()


def _changes(values: Texts, table: np.ndarray) -> tuple[pa.RecordBatch, pa.StructArray]:
    """RowChanges of entries of these tables, and the heads of their columns. Raises NotPlain."""
    found = _CHANGE.read(values)
    lengths = found.lengths("rowDatas")
    rows = plain_rows(found.texts("rowDatas"), np.repeat(table, lengths))
    if rows is None:
        raise NotPlain
    fields = found.arrays("eventType", "isDdl", "sql", "ddlSchemaName", "props")
    return pa.RecordBatch.from_pydict({**fields, "rowDatas": as_lists(lengths, rows[0])}), rows[1]
