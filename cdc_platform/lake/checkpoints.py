"""Checkpoints in the format of Structured Streaming's, as folders: those that queries of earlier versions wrote go on.

Before a batch its end is recorded (`offsets`), after it that it is done (`commits`); `metadata` has the id under which
Delta tables know its writes.
"""

import json
import uuid
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import lease
from cdc_platform.lake.store import Store

_KEPT = 100
"""Batches a checkpoint tells of, as spark.sql.streaming.minBatchesToRetain."""


def newest(checkpoint: Store, log: str) -> int:
    """The newest batch a log tells of, -1: none."""
    return max((int(name) for name, _ in checkpoint.names(log) if name.isdigit()), default=-1)


def end(checkpoint: Store, batch: int) -> Any:
    """Where a batch ends, by its source's own notation."""
    *_, text = _read(checkpoint, f"offsets/{batch}").splitlines()
    return json.loads(text)


def query_id(checkpoint: Store) -> str:
    """Under which name the writes of a checkpoint's batches are known to Delta tables: that of its query. There is one
    from the first batch on."""
    return json.loads(_read(checkpoint, "metadata"))["id"]


def settings(spark: SparkSession, checkpoint: Store, before: int, *, now_ms: int | None = None) -> str:
    """What a batch's entry tells of the query: as the one before; a query stops where they differ. now_ms: the batch's
    time, where its rows tell it (Spark's current_timestamp)."""
    if before >= 0:
        told = _settings(checkpoint, before)
    else:
        conf = {"spark.sql.shuffle.partitions": spark.conf.get("spark.sql.shuffle.partitions")}
        told = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}
    return json.dumps(told if now_ms is None else {**told, "batchTimestampMs": now_ms})


def time_ms(checkpoint: Store, batch: int) -> int:
    """A batch's time: the same however often it is done."""
    return _settings(checkpoint, batch)["batchTimestampMs"]


def _settings(checkpoint: Store, batch: int) -> dict[str, Any]:
    return json.loads(_read(checkpoint, f"offsets/{batch}").splitlines()[1])


def _read(checkpoint: Store, name: str) -> str:
    if (data := checkpoint.read(name)) is None:
        raise LakeChanged(checkpoint.uri(name), "it is gone")
    return data.decode()


def note(checkpoint: Store, log: str, batch: int, text: str) -> None:
    """An entry of a log, which isn't there yet; those too old to be asked for go. Raises LakeChanged where another run
    has made it."""
    lease.check()
    if batch == 0 and log == "offsets":
        checkpoint.put_new("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    if not checkpoint.put_new(f"{log}/{batch}", f"v1\n{text}".encode()):
        problem = "another run has made this entry meanwhile: two runs of one source were at work"
        raise LakeChanged(checkpoint.uri(f"{log}/{batch}"), problem)
    if batch >= _KEPT:
        checkpoint.remove(f"{log}/{name}" for name in (f"{batch - _KEPT}", f".{batch - _KEPT}.crc"))
