"""Checkpoints in the format of Structured Streaming's, as folders: those that queries of earlier versions wrote go on.

Before a batch its end is recorded (`offsets`), after it that it is done (`commits`); `metadata` has the id under which
Delta tables know its writes.
"""

import json
import uuid
from typing import TYPE_CHECKING, Any

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import lease
from cdc_platform.lake.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT = 100
"""Batches a checkpoint tells of, as spark.sql.streaming.minBatchesToRetain."""


def newest(checkpoint: Store) -> tuple[int, int]:
    """The newest batch that was begun, and the newest that is done; -1: none."""
    found = [path.split("/") for path in checkpoint.below("")]
    begun, done = (
        max((int(name) for log, *names in found for name in names if log == which and name.isdigit()), default=-1)
        for which in ("offsets", "commits")
    )
    return begun, done


def begun(checkpoint: Store, batch: int) -> str | None:
    """The entry of a batch that was begun; -1: None."""
    return _read(checkpoint, f"offsets/{batch}") if batch >= 0 else None


def end(entry: str) -> Any:
    """Where a batch ends, by its source's own notation."""
    return json.loads(entry.splitlines()[-1])


def query_id(checkpoint: Store) -> str:
    """Under which name the writes of a checkpoint's batches are known to Delta tables: that of its query. There is one
    from the first batch on."""
    return json.loads(_read(checkpoint, "metadata"))["id"]


def settings(
    spark: "SparkSession", before: str | None, *, now_ms: int | None = None, looked_ms: int | None = None
) -> str:
    """What a batch's entry tells of the query: as the one before (None: there is none); a query stops where they
    differ. now_ms: the batch's time, where its rows tell it (Spark's current_timestamp); looked_ms: when the run had
    looked at its source's ends, of the batch that reaches them."""
    if before is not None:
        told = {k: v for k, v in json.loads(before.splitlines()[1]).items() if k != "lookedMs"}
    else:
        conf = {"spark.sql.shuffle.partitions": spark.conf.get("spark.sql.shuffle.partitions")}
        told = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}
    times = {"batchTimestampMs": now_ms, "lookedMs": looked_ms}
    return json.dumps({**told, **{name: at for name, at in times.items() if at is not None}})


def time_ms(checkpoint: Store, batch: int) -> int:
    """A batch's time: the same however often it is done."""
    return json.loads(_read(checkpoint, f"offsets/{batch}").splitlines()[1])["batchTimestampMs"]


def looked_ms(entry: str) -> int | None:
    """When the run of a batch had looked at its source's ends; None: the batch doesn't reach them, or an earlier
    version began it."""
    return json.loads(entry.splitlines()[1]).get("lookedMs")


def note_look(checkpoint: Store, at_ms: int) -> None:
    """Notes when a run looked at its source's ends and found nothing new."""
    lease.check()
    checkpoint.put("looked", str(at_ms).encode())


def last_look(checkpoint: Store) -> int | None:
    """The newest such look; None: there was none."""
    found = checkpoint.read("looked")
    return None if found is None else int(found)


def _read(checkpoint: Store, name: str) -> str:
    if (data := checkpoint.read(name)) is None:
        raise LakeChanged(checkpoint.uri(name), "it is gone")
    return data.decode()


def note(checkpoint: Store, log: str, batch: int, text: str) -> str:
    """An entry of a log, which isn't there yet; those too old to be asked for go. Returns it. Raises LakeChanged where
    another run has made it."""
    lease.check()
    entry = f"v1\n{text}"
    if batch == 0 and log == "offsets":
        checkpoint.put_new("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    if not checkpoint.put_new(f"{log}/{batch}", entry.encode()):
        problem = "another run has made this entry meanwhile: two runs of one source were at work"
        raise LakeChanged(checkpoint.uri(f"{log}/{batch}"), problem)
    if batch >= _KEPT:
        checkpoint.remove(f"{log}/{name}" for name in (f"{batch - _KEPT}", f".{batch - _KEPT}.crc"))
    return entry
