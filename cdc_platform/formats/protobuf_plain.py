"""Small serialized messages → their fields, by numpy: many times faster than a parser for hundreds of thousands.

Messages are plain whose fields come in order, none twice and none but those asked for, every length ending where it
should. Writers write no others; for these, `read_plain` finds what protobuf's parser does, but that it doesn't check
text to be UTF-8.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_platform.formats.protobuf_arrow import bytes_of

_LONGEST = 10  # bytes of a number
_AT_ONCE = 1 << 14  # messages: their bytes, read again for each field, stay near the processor


@dataclass(frozen=True, slots=True)
class Texts:
    """A field of text or bytes: that of message i is data[offsets[2 * i]:offsets[2 * i + 1]], empty where it isn't
    there."""

    offsets: np.ndarray
    data: pa.Buffer

    def lengths(self) -> np.ndarray:
        """Bytes of each text."""
        return self.offsets[1::2] - self.offsets[::2]

    def spread(self, type_: pa.DataType) -> pa.Array:
        """All texts, that of message i at index 2 * i, with what lies between two of them in between: nothing is
        copied, nor checked."""
        buffers = [None, pa.py_buffer(self.offsets), self.data]
        return pa.Array.from_buffers(type_, max(len(self.offsets) - 1, 0), buffers)

    def bytes(self) -> pa.BinaryArray:
        """All texts, as they stand."""
        return self.spread(pa.binary()).take(pa.array(np.arange(0, len(self.offsets), 2)))

    def strings(self) -> pa.StringArray:
        """All texts. Raises pa.ArrowInvalid where one is no UTF-8."""
        return self.bytes().cast(pa.string())


@dataclass(frozen=True, slots=True)
class Plain:
    """Fields of plain messages by their tag: `numbers`, 0 where not there, and `texts`."""

    numbers: dict[int, np.ndarray]
    texts: dict[int, Texts]


def read_plain(values: pa.BinaryArray, tags: tuple[int, ...]) -> Plain | None:
    """Serialized messages → their fields; None where one isn't plain. `tags`: those of one byte of all its fields, in
    order; their last bits (the wire type) tell numbers (0) from texts (2)."""
    offsets, data = bytes_of(values)
    raw = np.frombuffer(data, np.uint8) if len(data) else np.zeros(1, np.uint8)
    texts = {tag: np.empty(2 * len(values), np.int32) for tag in tags if tag & 7}
    numbers: dict[int, list[np.ndarray]] = {tag: [np.zeros(0, np.uint8)] for tag in tags if tag & 7 == 0}
    for first in range(0, len(values), _AT_ONCE):
        here = slice(first, first + _AT_ONCE)
        places = {tag: (offsets_[::2][here], offsets_[1::2][here]) for tag, offsets_ in texts.items()}
        if not _read(raw, offsets[first : first + _AT_ONCE + 1].astype(np.int64), tags, numbers, places):
            return None
    return Plain(
        {tag: np.concatenate(found) for tag, found in numbers.items()},
        {tag: Texts(offsets_, data) for tag, offsets_ in texts.items()},
    )


def _read(
    raw: np.ndarray,
    offsets: np.ndarray,
    tags: tuple[int, ...],
    numbers: dict[int, list[np.ndarray]],
    texts: dict[int, tuple[np.ndarray, np.ndarray]],
) -> bool:
    """Whether the messages between the offsets are plain: then their `numbers`, by tag, have got theirs, and `texts`,
    by tag, where theirs start and end."""
    at, end = offsets[:-1].copy(), offsets[1:]
    for tag in tags:
        # What is read behind a message's end is none of it, but then its end isn't met in the end.
        there = (_byte(raw, at) == tag) & (at < end)
        at += there
        number = _number(raw, at, there)
        if number is None:
            return False
        if tag & 7 == 0:
            numbers[tag].append(number)
            continue
        if number.max(initial=0) > len(raw) or number.min(initial=0) < 0:
            return False
        starts, ends = texts[tag]
        starts[:] = at
        at += number
        ends[:] = at
    return bool((at == end).all())


def _byte(raw: np.ndarray, at: np.ndarray) -> np.ndarray:
    return raw.take(at, mode="clip")


def _number(raw: np.ndarray, at: np.ndarray, there: np.ndarray) -> np.ndarray | None:
    """The varint at each place where one is `there`, which `at` is moved behind; None where one is too long."""
    head = _byte(raw, at) * there
    at += there
    if head.max(initial=0) < 0x80:
        return head
    number = (head & 0x7F).astype(np.int64)
    more = np.nonzero(head >= 0x80)[0]
    small = more[_ends_as_negative(raw, at[more])]
    number[small] -= 0x80
    at[small] += _LONGEST - 1
    more = np.setdiff1d(more, small, assume_unique=True)
    for place in range(1, _LONGEST):
        part = _byte(raw, at[more]).astype(np.int64)
        if place == _LONGEST - 1 and (part > 1).any():
            return None
        number[more] |= (part & 0x7F) << 7 * place
        at[more] += 1
        more = more[part >= 0x80]
        if not len(more):
            break
    return number


def _ends_as_negative(raw: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Where a number goes on as those from -128 to -1 do, in nine bytes."""
    if len(raw) < 8:
        return np.zeros(len(at), bool)
    eight = np.ndarray(len(raw) - 7, "<u8", raw, strides=(1,))  # bytes from any place on
    return (eight[np.minimum(at, len(raw) - 8)] == 2**64 - 1) & (_byte(raw, at + 8) == 1)
