"""Checkpoints in the format of Structured Streaming's, as folders: those that queries of earlier versions wrote go on.

Before a batch its end is recorded (`offsets`), after it that it is done (`commits`); `metadata` has the id under which
Delta tables know its writes.
"""

import json
import os
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_KEPT = 100
"""Batches a checkpoint tells of, as spark.sql.streaming.minBatchesToRetain."""


def newest(checkpoint: Path, log: str) -> int:
    """The newest batch a log tells of, -1: none."""
    folder = checkpoint / log
    return max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=-1) if folder.is_dir() else -1


def end(checkpoint: Path, batch: int) -> Any:
    """Where a batch ends, by its source's own notation."""
    *_, text = (checkpoint / "offsets" / f"{batch}").read_text().splitlines()
    return json.loads(text)


def query_id(checkpoint: str) -> str:
    """Under which name the writes of a checkpoint's batches are known to Delta tables: that of its query. There is one
    from the first batch on."""
    return json.loads((Path(checkpoint) / "metadata").read_text())["id"]


def settings(spark: SparkSession, checkpoint: Path, before: int, *, now_ms: int | None = None) -> str:
    """What a batch's entry tells of the query: as the one before; a query stops where they differ. now_ms: the batch's
    time, where its rows tell it (Spark's current_timestamp)."""
    if before >= 0:
        told = _settings(checkpoint, before)
    else:
        conf = {"spark.sql.shuffle.partitions": spark.conf.get("spark.sql.shuffle.partitions")}
        told = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}
    return json.dumps(told if now_ms is None else {**told, "batchTimestampMs": now_ms})


def time_ms(checkpoint: Path, batch: int) -> int:
    """A batch's time: the same however often it is done."""
    return _settings(checkpoint, batch)["batchTimestampMs"]


def _settings(checkpoint: Path, batch: int) -> dict[str, Any]:
    return json.loads((checkpoint / "offsets" / f"{batch}").read_text().splitlines()[1])


def note(checkpoint: Path, log: str, batch: int, text: str) -> None:
    """An entry of a log; those too old to be asked for go."""
    folder = checkpoint / log
    folder.mkdir(parents=True, exist_ok=True)
    if not (query := checkpoint / "metadata").exists():
        _write(query, json.dumps({"id": str(uuid.uuid4())}))
    _write(folder / f"{batch}", f"v1\n{text}")
    for gone in (f".{batch}.crc", f"{batch - _KEPT}", f".{batch - _KEPT}.crc"):
        (folder / gone).unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """A file that is there in whole or not at all."""
    part = path.with_name(f".{path.name}.tmp")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
