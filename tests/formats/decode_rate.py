"""How fast each decoder is by itself, per byte and per row: `python -m tests.formats.decode_rate`.

The benchmark's records, in batches as an executor gets them, on one core; the best of some runs. It counts CPU seconds,
so that other work on the machine slows it little. No Spark, no Kafka.
"""

import argparse
import sys
import time

import pyarrow as pa

from cdc_platform.feeds.generators import OPTIONS, bench_records
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import MESSAGE
from tests.formats.contexts import context_of

_BATCH = 10_000  # spark.sql.execution.arrow.maxRecordsPerBatch


FEEDS = {"debezium": ("debezium", False), "debezium with schemas": ("debezium", True)}
"""What is measured beside the formats by their own names: format, and whether messages carry their schemas."""


def messages(name: str, rows: int, schemas: bool) -> list[pa.RecordBatch]:
    """The benchmark's row changes as whole messages: a fifth inserts, then updates."""
    found = [
        {"topic": r.topic, "partition": r.partition, "offset": i, "key": r.key, "value": r.value, "headers": []}
        for i, r in enumerate(bench_records(name, rows, rows // 5, schemas=schemas))
    ]
    part = FORMATS[name].part
    out = []
    for start in range(0, len(found), _BATCH):
        batch = pa.RecordBatch.from_pylist(found[start : start + _BATCH], MESSAGE)
        if part is not None:  # none of these is split: a part is a message
            values = part.parse(batch).column("data")
            batch = batch.set_column(MESSAGE.get_field_index("value"), MESSAGE.field("value"), values)
        out.append(batch)
    return out


def seconds(name: str, batches: list[pa.RecordBatch], rows: int, repeats: int) -> float:
    """CPU seconds of the fastest decoding of all batches. Raises AssertionError where a row isn't decoded."""
    format_ = FORMATS[name]
    options, told = format_.options(**OPTIONS.get(name, {})), ()
    if format_.context is not None:
        told = (context_of(format_, options, format_.decode(batches[0].slice(0, 1), options)),)
    best = float("inf")
    for _ in range(repeats):
        started, decoded = time.process_time(), 0
        for batch in batches:
            decoded += format_.decode(batch, options, *told).column("kind").to_pylist().count("row")
        best = min(best, time.process_time() - started)
        assert decoded == rows, f"{name}: {decoded} of {rows} rows"
    return best


def main() -> None:
    """One line per feed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    for feed, (name, schemas) in ({name: (name, True) for name in FORMATS} | FEEDS).items():
        batches = messages(name, args.rows, schemas)
        size = sum(len(v) for b in batches for v in b.column("value").to_pylist()) / 1e6
        took = seconds(name, batches, args.rows, args.repeats)
        sys.stdout.write(
            f"{feed}: {size * 1e6 / args.rows:.0f} bytes and {took * 1e6 / args.rows:.1f} µs per row change, "
            f"{size / took:.1f} MB/s\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
