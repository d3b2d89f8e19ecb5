"""What the driver tells the executors about a source, had it seen certain messages."""

import json

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changes.run import ddl_of
from cdc_platform.formats import senders
from cdc_platform.formats.contract import DDL


def statement(db, sql, offset=-1, **said):
    """A DDL event as `Context.build` gets it; `said`: other fields of contract.DDL."""
    return {**dict.fromkeys(DDL), "topic": "c", "partition": 0, "offset": offset, "db": db, "ddl": sql, **said}


def context_of(format_, options, events, messages=None):
    """The format's context from the DDL among EVENT rows (and from the messages' senders), as executors get it."""
    ddl = pa.Table.from_batches([events]).select(DDL).filter(pc.equal(events["kind"], "ddl"))
    if messages is not None and (pattern := format_.context.senders):
        seen = senders.events(senders.first(messages, pattern), pattern)
        ddl = pa.concat_tables([ddl, pa.Table.from_pylist(seen, ddl.schema)])
    return json.loads(json.dumps(format_.context.build(options, ddl_of(ddl))))


def decode_with_context(format_, batch, options):
    """Events of a batch, after all of its own DDL has been seen where the format needs that."""
    events = format_.decode(batch, options)
    return format_.decode(batch, options, context_of(format_, options, events, batch)) if format_.context else events
