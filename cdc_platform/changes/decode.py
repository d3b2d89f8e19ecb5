"""Decoders on Spark: a DataFrame of whole messages → a DataFrame of change events, batch by Arrow batch.

Executors get the format's name, its options and its context as JSON, never a closure over the registry.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.changes.decoded_by import decoded_by
from cdc_platform.changes.file_stats import Summary
from cdc_platform.config.replay import Start
from cdc_platform.formats import senders
from cdc_platform.formats.batches import as_message_batch, isolated
from cdc_platform.formats.contract import EVENT, MESSAGE
from cdc_platform.formats.events import event_batch
from cdc_platform.formats.senders import Sender
from cdc_platform.lake.data_files import Output
from cdc_platform.landing.counting import Asked
from cdc_platform.spark import workers
from cdc_platform.spark.arrow_tasks import spark_schema
from cdc_platform.tables import DDL_SEEN, LANDING, LOADED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


MESSAGE_READ = pa.schema([*(f for f in MESSAGE if f.name != "headers"), *LANDING.arrow("erased")])
"""What decoders get. For each row that goes to Python, Spark asks every vector of the Arrow batch for its size
(`ArrowFieldWriter.getSizeInBytes`, to keep `maxBytesPerBatch`): of a list of structs that takes as long as decoding."""


STATEMENT = DDL_SEEN.arrow()
"""Rows of DDL_SEEN."""


def decode(messages: "DataFrame", format_name: str, options: dict[str, Any], context: str | None = None) -> "DataFrame":
    """Messages (MESSAGE's columns) → EVENT rows. `context`: as `Decoding.of`."""
    work = Decoding.of(format_name, options, context)
    if "erased" not in messages.columns:  # of a table that an earlier version made
        from pyspark.sql import functions as F

        messages = messages.withColumn("erased", F.lit(None).cast("binary"))
    return messages.select(*MESSAGE_READ.names).mapInArrow(partial(_decode, work), spark_schema(EVENT))


def _decode(work: "Decoding", batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    workers.configure()
    for batch in batches:
        yield from work.events(batch)


@dataclass(frozen=True, slots=True)
class Decoding:
    """A decoder with its options and context, as executors get it. digest: `Known.digest`; None: the format has no
    context."""

    format_name: str
    options_json: str
    context_json: str
    digest: str | None

    @classmethod
    def of(
        cls, format_name: str, options: dict[str, Any], context: str | None = None, digest: str | None = None
    ) -> "Decoding":
        """context: JSON of what the format's own `context` gave, if it has one. digest: of that and the options, for
        files to note what they were decoded by."""
        return cls(format_name, json.dumps(options), context or "null", digest)

    def events(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """MESSAGE_READ rows (`erased` may be left out) → EVENT batches."""
        from cdc_platform.formats import FORMATS, erased, loaded

        messages, gone = erased.apart(messages)
        if gone is not None:
            yield from erased.decode(gone)
            if not messages.num_rows:
                return

        ours = pc.equal(messages.column("topic"), LOADED)
        if ours.true_count:
            yield from isolated(as_message_batch(messages.filter(ours)), loaded.decode, _undecodable)
            messages = messages.filter(pc.invert(ours))
            if not messages.num_rows:
                return
        format_ = FORMATS[self.format_name]
        options = format_.options.model_validate_json(self.options_json)
        beside = () if format_.context is None else (_context(self.context_json),)
        yield from isolated(as_message_batch(messages), lambda m: format_.decode(m, options, *beside), _undecodable)

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> int:
        """The work of a pass: events into the output `events`, DDL into `ddl`, too, if there is such an output; tells
        the number of messages."""
        summary, messages = Summary(), 0
        for batch in batches:
            messages += batch.num_rows
            for events in self.events(batch):
                summary.add(events)
                out["events"].write(events)
                if "ddl" in out:
                    out["ddl"].write(statements(events))
        by = None if self.digest is None else decoded_by(self.digest)
        out["events"].note = {**summary.to_json(), "decoded_by": by}
        return messages


@dataclass(frozen=True, slots=True)
class Later:
    """The work of a decoder on messages from these offsets on; of partitions that aren't named, on all."""

    decoding: Decoding
    since: tuple[Start, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> int:
        return self.decoding((later for batch in batches if (later := self._later(batch)).num_rows), out)

    def _later(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for topic, partition, offset in self.since:
            here = pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), partition))
            batch = batch.filter(pc.invert(pc.and_(here, pc.less(batch.column("offset"), offset))))
        return batch


@lru_cache(maxsize=4)
def _context(text: str) -> Any:
    return json.loads(text)


@dataclass(frozen=True, slots=True)
class Statements:
    """The work of a pass ahead of the decoder's: DDL into the output `events` (STATEMENT), and the senders that aren't
    known; tells the number of messages. asked: of each message whether it may hold DDL, and whose it is."""

    decoding: Decoding
    asked: Asked
    known: frozenset[Sender] = frozenset()

    def __call__(self, batches: Iterator[pa.RecordBatch], out: Mapping[str, Output]) -> int:
        messages, known = 0, set(self.known)
        for batch in batches:
            messages += batch.num_rows
            if new := senders.news(senders.first(batch, self.asked.senders, known), known):
                known |= new.keys()
                rows = senders.events(new, str(self.asked.senders))
                out["events"].write(pa.RecordBatch.from_pylist(rows, STATEMENT))
            may = pc.fill_null(pc.match_substring_regex(batch.column("value"), str(self.asked.marker)), False)
            may_hold = batch.filter(pc.or_(may, pc.is_valid(batch.column("erased"))))
            for events in self.decoding.events(may_hold) if may_hold.num_rows else ():
                out["events"].write(statements(events))
        return messages


def statements(events: pa.RecordBatch) -> pa.RecordBatch:
    """DDL among EVENT rows (STATEMENT)."""
    return events.filter(pc.equal(events.column("kind"), "ddl")).select(STATEMENT.names)


def _undecodable(message: pa.RecordBatch, error: Exception) -> pa.RecordBatch:
    address = message.select(["topic", "partition", "offset", "landed_at"]).to_pylist()[0]
    reason = f"the decoder failed ({type(error).__name__}): a fault of the decoder; retry after an update"
    return event_batch([{**address, "entry_index": 0, "row_index": 0, "kind": "error", "reason": reason}])
