"""Protobuf in bulk: columns of serialized messages → Arrow structs (by `ptars`, in Rust), and index
arithmetic over the nested lists that come out. Knows no vendor."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

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


def joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """What came of each piece as one batch; a single one isn't copied."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)


def _edited(
    message: type[Message], edit: Callable[[str, FieldDescriptorProto], None], *others: type[Message]
) -> type[Message]:
    """The message as a type of its own, `edit` having changed the fields of all messages of its file and of the files
    it imports, and of `others`, which they may refer to."""
    own = message.DESCRIPTOR.file
    imported = {file.name: file for file in (*own.dependencies, *(other.DESCRIPTOR.file for other in others))}
    imported.pop(own.name, None)
    pool, known = DescriptorPool(), []
    for file in (*imported.values(), own):
        copy = FileDescriptorProto()
        file.CopyToProto(copy)
        copy.dependency[:] = known
        for inner in copy.message_type:
            for field in inner.field:
                edit(f"{inner.name}.{field.name}", field)
        pool.Add(copy)
        known.append(file.name)
    return GetMessageClass(pool.FindMessageTypeByName(message.DESCRIPTOR.full_name))


def opaque(message: type[Message], *fields: str) -> type[Message]:
    """The message with some fields (`Message.field`, each a sub-message or a list of them) left as their bytes."""

    def edit(name: str, field: FieldDescriptorProto) -> None:
        if name in fields:
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")

    return _edited(message, edit)


def nested(message: type[Message], fields: dict[str, type[Message]]) -> type[Message]:
    """The message with what it holds serialized, in fields of type bytes (`Message.field`), as sub-messages."""

    def edit(name: str, field: FieldDescriptorProto) -> None:
        if name in fields:
            field.type = FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = f".{fields[name].DESCRIPTOR.full_name}"

    return _edited(message, edit, *fields.values())


_NEVER_PACKED = (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)


@lru_cache(maxsize=32)
def _single(message: type[Message]) -> type[Message]:
    """The message with its lists as single fields. Protobuf's parser takes the same bytes for either, but reads a
    field that comes again into what it has: less memory to fill, where all that matters is whether it can be read."""

    def edit(_: str, field: FieldDescriptorProto) -> None:
        if field.label == FieldDescriptorProto.LABEL_REPEATED and field.type in _NEVER_PACKED:
            field.label = FieldDescriptorProto.LABEL_OPTIONAL

    return _edited(message, edit)


@lru_cache(maxsize=32)
def _handler(message: type[Message]):
    return ptars.HandlerPool([message.DESCRIPTOR.file]).get_for_message(message.DESCRIPTOR)


def parse(
    values: pa.BinaryArray, message: type[Message], *, sound: bool = False
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Serialized messages → (one row each, what is wrong with those that can't be read by their index).

    Unreadable values and nulls come out as an empty message. Each value is read by protobuf's own parser first
    (a tenth to a fifth of the time of decoding), unless that is known to take all (`sound`): ptars takes the length of
    an inner message at its word, past the end of the outer one, so that broken bytes may come out as other values.
    What ptars alone refuses is found by halving."""
    handler = _handler(message)
    broken = () if sound else _broken(values, message)
    errors = dict.fromkeys(broken, "a field is cut short, or a length or text in it is wrong")
    if errors:
        values = _without(values, errors)
    try:
        return _read(handler, values), errors
    except ValueError:
        errors |= dict(_bad_ones(values, 0, handler))
        return _read(handler, _without(values, errors)), errors


def readable(values: pa.BinaryArray, message: type[Message]) -> bool:
    """Whether protobuf's own parser takes all values."""
    return next(_broken(values, message), None) is None


def _broken(values: pa.BinaryArray, message: type[Message]) -> Iterator[int]:
    if values.null_count == len(values):
        return
    read = _single(message).FromString
    for i, value in enumerate(values.to_pylist()):
        try:
            if value:
                read(value)
        except DecodeError:
            yield i


def only(which: np.ndarray, values: pa.BinaryArray) -> pa.BinaryArray:
    """The values at the places `which`, null elsewhere."""
    if which.all():
        return values
    if values.null_count:
        return pc.if_else(pa.array(which), values, None)
    _, offsets, data = values.buffers()  # copied by if_else
    buffers = [pa.array(which).buffers()[1], offsets.slice(values.offset * 4), data or pa.py_buffer(b"")]
    return pa.Array.from_buffers(values.type, len(values), buffers)


def _without(values: pa.BinaryArray, errors: dict[int, str]) -> pa.BinaryArray:
    fine = np.ones(len(values), bool)
    fine[list(errors)] = False
    return only(fine, values)


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


def as_lists(lengths: np.ndarray, values: pa.Array) -> pa.ListArray:
    """A list of so many values each, one after another."""
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32)), values)


def bytes_of(values: pa.BinaryArray) -> tuple[np.ndarray, pa.Buffer]:
    """(offsets, data) of byte strings without nulls: value i is data[offsets[i]:offsets[i + 1]]."""
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, np.int32) if offsets else np.zeros(1, np.int32)
    return places[values.offset : values.offset + len(values) + 1], data or pa.py_buffer(b"")


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


def distinct(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(place of the first of each distinct number, which of them each number is), in order of appearance."""
    which = pa.array(keys).dictionary_encode().indices.to_numpy()
    first = np.zeros(int(which.max(initial=-1)) + 1, np.int64)
    first[which[::-1]] = np.arange(len(which))[::-1]
    return first, which


def take_or_null(values: pa.Array, index: np.ndarray) -> pa.Array:
    """values[index], null where the index is -1."""
    if len(index) == len(values) and (index == np.arange(len(index))).all():
        return values
    missing = index < 0
    return values.take(pa.array(index, mask=missing) if missing.any() else pa.array(index))


def non_empty_text(values: pa.StringArray, index: np.ndarray) -> pa.StringArray:
    """values[index], null where the index is -1 or the text is empty: proto3 leaves empty fields out."""
    empty = np.append(pc.fill_null(pc.binary_length(values), 0).to_numpy() == 0, True)  # -1 hits the last
    return take_or_null(values, np.where(empty[index], -1, index))


def build_maps(of_row: np.ndarray, keys: pa.Array, values: pa.Array, has_map: np.ndarray) -> pa.MapArray:
    """Entries with their row (ascending) → one map<string,string> per row; null where `has_map` is False
    (such rows must have no entries)."""
    offsets = np.zeros(len(has_map) + 1, np.int32)
    np.cumsum(np.bincount(of_row, minlength=len(has_map)), out=offsets[1:])
    starts = pa.array(offsets, mask=np.append(~has_map, False)) if not has_map.all() else pa.array(offsets)
    return pa.MapArray.from_arrays(starts, keys, values)
