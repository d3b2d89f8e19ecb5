"""Arrow batches of messages: with a decoder's exact types, and a message that a decoder can't bear by itself."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from cdc_platform.formats.contract import MESSAGE


def isolated(
    messages: pa.RecordBatch,
    work: Callable[[pa.RecordBatch], pa.RecordBatch],
    refused: Callable[[pa.RecordBatch, Exception], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """`work` on the batch; where it raises, on ever smaller pieces, until `refused` answers for a single message.

    Decoders don't raise for bad bytes. Should one do so all the same, that message must stop neither its
    neighbours nor the run.
    """
    try:
        out = work(messages)
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to one message
        if messages.num_rows == 1:
            yield refused(messages, error)
            return
        middle = messages.num_rows // 2
        yield from isolated(messages.slice(0, middle), work, refused)
        yield from isolated(messages.slice(middle), work, refused)
    else:
        yield out


def as_message_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spark's Arrow batch with exactly MESSAGE's types; headers may be left out."""
    if "headers" not in batch.schema.names:
        batch = batch.append_column("headers", pa.nulls(batch.num_rows, MESSAGE.field("headers").type))
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in MESSAGE], schema=MESSAGE)
