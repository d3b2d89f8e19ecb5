"""Protobuf in bulk: columns of serialized messages → Arrow structs (by `ptars`, in Rust), and index
arithmetic over the nested lists that come out. Knows no vendor."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError, Message

_PIECE_BYTES = 16 << 20  # decoded at a time: bounds memory, keeps Arrow's 32-bit offsets far away


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A MESSAGE batch in slices of at most 16 MiB of `value`, or of one message that is larger."""
    size = np.cumsum(pc.fill_null(pc.binary_length(batch.column("value")), 0).to_numpy().astype(np.int64))
    start = 0
    while start < len(batch):
        done = size[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(size, done + _PIECE_BYTES, side="right")))
        yield batch.slice(start, end - start)
        start = end


@lru_cache(maxsize=16)
def _handler(message: type[Message]):
    return ptars.HandlerPool([message.DESCRIPTOR.file]).get_for_message(message.DESCRIPTOR)


def parse(values: pa.BinaryArray, message: type[Message]) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Serialized messages → (one row each, what is wrong with those that can't be read by their index).

    Unreadable values and nulls come out as an empty message. Each value is read by protobuf's own parser first
    (a fifth of the time of decoding): ptars takes the length of an inner message at its word, past the end of the
    outer one, so that broken bytes may come out as other values. What ptars alone refuses is found by halving."""
    handler = _handler(message)
    errors = dict.fromkeys(_broken(values, message), "a field is cut short, or a length or text in it is wrong")
    if errors:
        values = _without(values, errors)
    try:
        return _read(handler, values), errors
    except ValueError:
        errors |= dict(_bad_ones(values, 0, handler))
        return _read(handler, _without(values, errors)), errors


def _broken(values: pa.BinaryArray, message: type[Message]) -> Iterator[int]:
    for i, value in enumerate(values.to_pylist()):
        try:
            if value:
                message.FromString(value)
        except DecodeError:
            yield i


def _without(values: pa.BinaryArray, errors: dict[int, str]) -> pa.BinaryArray:
    fine = np.ones(len(values), bool)
    fine[list(errors)] = False
    return pc.if_else(pa.array(fine), values, None)


def _read(handler, values: pa.BinaryArray) -> pa.RecordBatch:
    try:
        return handler.array_to_record_batch(values)
    except BaseException as error:
        # Some lengths that lie make ptars panic, and pyo3's PanicException is no Exception.
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise ValueError(f"broken lengths ({error})") from None


def _bad_ones(values: pa.BinaryArray, base: int, handler) -> Iterator[tuple[int, str]]:
    try:
        _read(handler, values)
    except ValueError as problem:
        if len(values) == 1:
            yield base, str(problem)
            return
        half = len(values) // 2
        yield from _bad_ones(values.slice(0, half), base, handler)
        yield from _bad_ones(values.slice(half), base + half, handler)


@dataclass(frozen=True, slots=True)
class Lists:
    """A repeated field: `values` of all lists, one list after another; list i begins at `starts[i]` and has
    `lengths[i]` of them."""

    values: pa.StructArray
    starts: np.ndarray
    lengths: np.ndarray


def lists(array: pa.ListArray) -> Lists:
    """A repeated field of sub-messages → Lists. A null list counts as empty."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return Lists(array.values, offsets[:-1], lengths)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[start, start+length) of each, one after another: starts [5, 9], lengths [2, 1] → [5, 6, 9]."""
    return np.repeat(starts, lengths) + counts(lengths)


def counts(lengths: np.ndarray) -> np.ndarray:
    """0..length-1 of each, one after another: [2, 1] → [0, 1, 0]."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def present(array: pa.Array) -> np.ndarray:
    """Which sub-messages are on the wire."""
    return array.is_valid().to_numpy(zero_copy_only=False)


def bools(values: pa.Array, null: bool) -> np.ndarray:
    """Arrow booleans → numpy, `null` for nulls."""
    return pc.fill_null(values, null).to_numpy(zero_copy_only=False)


def take_or_null(values: pa.Array, index: np.ndarray) -> pa.Array:
    """values[index], null where the index is -1."""
    return values.take(pa.array(index, mask=index < 0))


def build_maps(of_row: np.ndarray, keys: pa.Array, values: pa.Array, has_map: np.ndarray) -> pa.MapArray:
    """Entries with their row (ascending) → one map<string,string> per row; null where `has_map` is False
    (such rows must have no entries)."""
    offsets = np.zeros(len(has_map) + 1, np.int32)
    np.cumsum(np.bincount(of_row, minlength=len(has_map)), out=offsets[1:])
    starts = pa.array(offsets, mask=np.append(~has_map, False)) if not has_map.all() else pa.array(offsets)
    return pa.MapArray.from_arrays(starts, keys, values)
