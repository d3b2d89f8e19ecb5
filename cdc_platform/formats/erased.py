"""What is left of a message whose bytes were erased at a subject's request: the events of others that were in it, as
they had been decoded. They stand in `erased` of landing and envelopes, in place of the bytes.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.contract import EVENT
from cdc_platform.formats.events import event_batch

KIND = "erased"
WHY = "its bytes were erased at a subject's request"
_ADDRESS = ("topic", "partition", "offset", "landed_at")
EMPTY_AT = 0
"""`entry_index` of the event that says so, where nothing else is left."""


def kept(events: pa.Table) -> bytes:
    """EVENT rows of one message → as they are kept."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, EVENT, options=options) as out:
        out.write_table(events.select(EVENT.names).cast(EVENT))
    return sink.getvalue().to_pybytes()


def left(message: bytes) -> pa.Table:
    """The other way; columns that an earlier version lacked are NULL."""
    found = pa.ipc.open_stream(message).read_all()
    columns = [
        found[f.name].cast(f.type) if f.name in found.schema.names else pa.nulls(len(found), f.type) for f in EVENT
    ]
    return pa.Table.from_arrays(columns, schema=EVENT)


def apart(messages: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Messages with their bytes, without the column `erased`; and those without (None: there are none)."""
    if "erased" not in messages.schema.names:
        return messages, None
    gone = pc.is_valid(messages.column("erased"))
    bare = messages.drop_columns(["erased"])
    return (bare.filter(pc.invert(gone)), messages.filter(gone)) if gone.true_count else (bare, None)


def decode(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Messages with `erased` → EVENT batches: what is left of each, and behind it an event of kind `erased`. A message
    that was landed again, of a topic that was made again, has another address than what is left of it was kept with."""
    for message in messages.select([*_ADDRESS, "erased"]).to_pylist():
        events = left(message.pop("erased"))
        for name, value in message.items():
            at = EVENT.get_field_index(name)
            events = events.set_column(
                at, EVENT.field(at), pa.repeat(pa.scalar(value, EVENT.field(at).type), len(events))
            )
        yield from events.combine_chunks().to_batches()
        last = pc.max(events["entry_index"]).as_py()
        at = EMPTY_AT if last is None else last + 1
        yield event_batch([{**message, "entry_index": at, "row_index": 0, "kind": KIND, "reason": WHY}])
