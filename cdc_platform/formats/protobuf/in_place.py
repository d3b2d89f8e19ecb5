"""Small serialized messages → their fields, by numpy: many times faster than a parser for hundreds of thousands.

Messages are plain whose fields come in order, none twice and none but those asked for, every length ending where it
should. Writers write no others; for these, `read_plain` finds what protobuf's parser does, but that it doesn't check
text to be UTF-8.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cdc_platform.formats.protobuf.arrow import bytes_of
from cdc_platform.formats.protobuf.varint import byte_at, read_number

_AT_ONCE = 1 << 13  # messages: their bytes, read again for each field, stay near the processor
_MANY, _LITTLE = 256, 4096  # texts of a message, bytes of them all: behind so many, a parser is faster for so little


@dataclass(frozen=True, slots=True)
class Texts:
    """A field of text or bytes: that of message i is data[offsets[2 * i]:offsets[2 * i + 1]], empty where it isn't
    there."""

    offsets: np.ndarray
    data: pa.Buffer

    @classmethod
    def of(cls, values: pa.BinaryArray) -> "Texts":
        """Byte strings without nulls, where they are."""
        offsets, data = bytes_of(values)
        return cls(_pairs(offsets[:-1], offsets[1:]).view(np.int32), data)

    def __len__(self) -> int:
        return len(self.offsets) // 2

    def only(self, which: np.ndarray) -> "Texts":
        """The texts at the places `which`, empty ones elsewhere."""
        offsets = self.offsets.copy()
        np.copyto(offsets[1::2], offsets[::2], where=~which)
        return Texts(offsets, self.data)

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
        return self.at(np.arange(len(self)))

    def chosen(self, places: np.ndarray) -> "Texts":
        """Some texts, where they are."""
        return Texts(self.offsets.view(np.int64)[places].view(np.int32), self.data)

    def at(self, places: np.ndarray) -> pa.BinaryArray:
        """Some texts, as they stand."""
        return self.spread(pa.binary()).take(pa.array(2 * places))

    def strings(self) -> pa.StringArray:
        """All texts. Raises pa.ArrowInvalid where one is no UTF-8."""
        return self.bytes().cast(pa.string())


@dataclass(frozen=True, slots=True)
class Plain:
    """Fields of plain messages by their tag: `numbers`, `texts`, and of those that repeat, how many texts each message
    has (`counts`), `texts` being those of all messages, one message after another."""

    numbers: dict[int, np.ndarray]
    texts: dict[int, Texts]
    counts: dict[int, np.ndarray]


@dataclass(frozen=True, slots=True)
class Fields:
    """What messages are made of. `tags`: those of one byte of all fields, in order; their last bits (the wire type)
    tell numbers (0) from texts (2). `repeated`: those of texts that come any number of times, one next to the other.
    `absent`: what a number is that isn't there, where that isn't 0."""

    tags: tuple[int, ...]
    repeated: frozenset[int] = frozenset()
    absent: Mapping[int, int] = field(default_factory=dict)


def read_plain(values: Texts, fields: Fields) -> Plain | None:
    """Serialized messages → their fields; None where one isn't plain, or so few have so many texts of one field that a
    parser is faster."""
    raw = np.frombuffer(values.data, np.uint8) if len(values.data) else np.zeros(1, np.uint8)
    found = _FieldReader(raw, fields)
    for first in range(0, len(values), _AT_ONCE):
        here = values.offsets[2 * first : 2 * (first + _AT_ONCE)]
        if not found.read(here[::2].astype(np.int64), here[1::2]):
            return None
    return found.build(values.data)


class _FieldReader:
    """What is read of messages, part by part."""

    def __init__(self, raw: np.ndarray, fields: Fields):
        self._raw, self._fields = raw, fields
        self._numbers: dict[int, list[np.ndarray]] = {t: [np.zeros(0, np.uint8)] for t in fields.tags if t & 7 == 0}
        self._texts: dict[int, list[np.ndarray]] = {t: [np.zeros(0, np.int32)] for t in fields.tags if t & 7}
        self._counts: dict[int, list[np.ndarray]] = {t: [np.zeros(0, np.int32)] for t in fields.repeated}

    def build(self, data: pa.Buffer) -> Plain:
        """All of it."""
        return Plain(
            {tag: np.concatenate(found) for tag, found in self._numbers.items()},
            {tag: Texts(np.concatenate(found), data) for tag, found in self._texts.items()},
            {tag: np.concatenate(found) for tag, found in self._counts.items()},
        )

    def read(self, at: np.ndarray, end: np.ndarray) -> bool:
        """Whether the messages from `at` (which is moved) to `end` are plain; only then is anything told."""
        raw = self._raw
        for tag in self._fields.tags:
            if tag in self._fields.repeated:
                if not self._read_repeated(tag, at, end):
                    return False
                continue
            # What is read behind a message's end is none of it, but then its end isn't met in the end.
            there = (byte_at(raw, at) == tag) & (at < end)
            at += there
            number = read_number(raw, at, there)
            if number is None:
                return False
            if tag & 7 == 0:
                absent = self._fields.absent.get(tag)
                self._numbers[tag].append(number if absent is None else np.where(there, number, absent))
            elif _is_length(number, raw):
                self._texts[tag].append(_pairs(at, at + number).view(np.int32))
                at += number
            else:
                return False
        return bool((at == end).all())

    def _read_repeated(self, tag: int, at: np.ndarray, end: np.ndarray) -> bool:
        """Whether all texts of this tag could be read; `at` is moved behind them."""
        raw, which, place = self._raw, np.arange(len(at)), at.copy()
        rounds: list[tuple[np.ndarray, np.ndarray]] = []  # which messages have an nth text, and its offsets
        count = np.zeros(len(at), np.int32)
        while len(which):
            there = (byte_at(raw, place) == tag) & (place < end)
            if not there.all():
                at[which] = place
                count[which[~there]] = len(rounds)
                which, place, end = which[there], place[there], end[there]
            place += 1
            number = read_number(raw, place, 1)
            if number is None or not _is_length(number, raw):
                return False
            if len(rounds) >= _MANY and number.sum() < _LITTLE:
                return False
            start = place
            place = place + number
            rounds.append((which, _pairs(start, place)))
        offsets = np.empty(int(count.sum()), np.int64)
        first = np.cumsum(count) - count
        for number, (which, pairs) in enumerate(rounds):
            offsets[first[which] + number] = pairs
        self._texts[tag].append(offsets.view(np.int32))
        self._counts[tag].append(count)
        return True


def _pairs(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Offsets, start and end of a text in one number."""
    out = np.empty(len(starts), np.int64)
    both = out.view(np.int32)
    both[::2], both[1::2] = starts, ends
    return out


def _is_length(number: np.ndarray, raw: np.ndarray) -> bool:
    return number.max(initial=0) <= len(raw) and number.min(initial=0) >= 0
