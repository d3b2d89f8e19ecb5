"""The files of a Delta table's log, read action by action: commits and checkpoints.

Delta's protocol, "Delta Log Entries", "Checkpoints".
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq

from cdc_platform.errors import LakeChanged
from cdc_platform.lake.store import File, Store, commit_name

Action = dict[str, Any]
Key = tuple[str, Any]

_DECODER = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()


class Checkpoint(NamedTuple):
    """The newest checkpoint that the log names. version: -1 where it names none of one file. actions: how many it
    holds."""

    version: int
    actions: int


def key(of: Action) -> Key:
    """What a data file is known by: the same file with another deletion vector is another."""
    vector = of.get("deletionVector")
    return of["path"], vector and (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))


def actions(path: Store, version: int) -> Iterator[Action]:
    """Actions of one commit. Raises FileNotFoundError, LakeChanged where it isn't JSON."""
    if (lines := path.read(commit_name(version))) is None:
        raise FileNotFoundError(f"{path.uri()}: commit {version}")
    try:
        yield from (_DECODER.decode(line) for line in lines.split(b"\n") if line.strip())
    except msgspec.DecodeError as error:
        raise LakeChanged(path.uri(), f"commit {version} can't be read: {error}") from None


def encoded(lines: Iterable[Action]) -> bytes:
    """A commit of these actions."""
    return _ENCODER.encode_lines(lines)


def checkpoint(path: Store) -> Checkpoint:
    """The newest checkpoint of one file."""
    hint = path.read("_delta_log/_last_checkpoint")
    told = _DECODER.decode(hint) if hint else {}
    return Checkpoint(told.get("version", -1), told.get("size", 0)) if "parts" not in told else Checkpoint(-1, 0)


def of_checkpoint(path: Store, version: int, *kinds: str) -> Iterator[Action]:
    """Actions of some kinds that a checkpoint tells; -1: none. Raises FileNotFoundError."""
    if version < 0:
        return
    named = File(path, f"_delta_log/{version:020d}.checkpoint.parquet")
    with named.open() as opened, pq.ParquetFile(opened, pre_buffer=path.remote) as file:
        there = [kind for kind in kinds if kind in file.schema_arrow.names]
        for batch in file.iter_batches(columns=there, use_threads=False):
            for kind in there:
                found = batch.column(kind)
                yield from ({kind: action} for action in found.filter(found.is_valid()).to_pylist())


def _without_nulls(action: Action) -> Action:
    return {k: v for k, v in action.items() if v is not None}


def as_added(action: Action) -> Action:
    """An `add` action, from a commit or a checkpoint, as commits have it."""
    told = {k: v for k, v in _without_nulls(action).items() if not k.endswith("_parsed")}
    told |= {k: dict(told[k]) for k in ("partitionValues", "tags") if k in told}
    if vector := told.get("deletionVector"):
        told["deletionVector"] = _without_nulls(vector)
    return told


def as_metadata(action: Action) -> Action:
    """A `metaData` action likewise."""
    told, form = _without_nulls(action), dict(action["format"])
    form["options"] = dict(form.get("options") or ())
    return {**told, "configuration": dict(action.get("configuration") or ()), "format": form}
