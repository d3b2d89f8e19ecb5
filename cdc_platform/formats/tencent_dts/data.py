"""Data messages of Tencent DTS, as columns: what kind of value each holds, its charset and its bytes.

`Data.parsed` takes what the parser made of them. `Data.plain` reads the serialized ones itself, far faster, as long
as all are as vendors write them: fields in order, none twice, none unknown, every length ending where it should.
"""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.formats.protobuf_arrow import bytes_of

UNKNOWN = 15
"""Stands for any number that DataType doesn't have."""
NUMBERS = (*range(pb.INT8, pb.FLOAT64 + 1), pb.DECIMAL)
_MAY_HOLD_SV = np.isin(np.arange(16), (*NUMBERS, UNKNOWN))
_MAY_HOLD_BV = np.isin(np.arange(16), (pb.STRING, pb.BYTES, UNKNOWN))

_KIND, _CHARSET, _SV, _BV = 0x08, 0x12, 0x1A, 0x22  # tags of the fields
_MAY_HOLD = np.zeros((256, 16), bool)
"""By tag and DataType."""
_MAY_HOLD[_SV], _MAY_HOLD[_BV] = _MAY_HOLD_SV, _MAY_HOLD_BV
_MAY_HOLD = _MAY_HOLD.ravel()


@dataclass(frozen=True, slots=True)
class Data:
    """Values by their index: `told` number of DataType, `wire` the same but UNKNOWN where there is no such, whether
    `misplaced` in a field where their DataType has none. The texts are at `index * step` of the arrays."""

    told: np.ndarray
    wire: np.ndarray
    misplaced: np.ndarray
    step: int
    _charset: pa.StringArray
    _sv: pa.StringArray
    _bv: pa.BinaryArray

    def charset(self, at: np.ndarray) -> pa.StringArray:
        """Charsets of the values `at`."""
        return self._charset.take(pa.array(at * self.step))

    def sv(self, at: np.ndarray) -> pa.StringArray:
        """Text of the values `at`, which are numbers."""
        return self._sv.take(pa.array(at * self.step))

    def bv(self, at: np.ndarray) -> pa.BinaryArray:
        """Bytes of the values `at`, which are STRING or BYTES."""
        return self._bv.take(pa.array(at * self.step))

    @classmethod
    def parsed(cls, values: pa.StructArray) -> "Data":
        """Parsed messages → what they hold."""
        told = values.field("dataType").to_numpy()
        wire = np.where((told < 0) | (told > UNKNOWN), UNKNOWN, told).astype(np.uint8)
        has_sv, has_bv = (pc.binary_length(values.field(n)).to_numpy() > 0 for n in ("sv", "bv"))
        odd = (has_sv & ~_MAY_HOLD_SV[wire]) | (has_bv & ~_MAY_HOLD_BV[wire])
        return cls(told, wire, odd, 1, *(values.field(n) for n in ("charset", "sv", "bv")))

    @classmethod
    def plain(cls, values: pa.BinaryArray) -> "Data | None":
        """Serialized messages → what they hold; None where one isn't plain."""
        offsets, data = bytes_of(values)
        raw = np.frombuffer(data, np.uint8) if len(data) else np.zeros(1, np.uint8)
        at, end = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        # What is read behind a value's end is none of it, but then no end is met later on.
        there = (_byte(raw, at) == _KIND) & (at < end)
        told = _byte(raw, at + 1) * there
        at += 2 * there
        there = (_byte(raw, at) == _CHARSET) & (at < end)
        size = _byte(raw, at + 1) * there
        charset = at + 2 * there
        tag_at = charset + size
        tag, start, wire = _byte(raw, tag_at), tag_at + 1, np.minimum(told, UNKNOWN)
        length = _varint(raw, start)
        holds = tag_at < end
        fits = np.where(holds, start + length, tag_at) == end
        may = _MAY_HOLD[tag.astype(np.uint16) << 4 | wire] | ~holds
        one_byte = (told | size).max(initial=0) < 0x80
        # The parser takes no text but UTF-8; ASCII is.
        if not (one_byte and fits.all() and may.all() and _ascii(raw, offsets, np.where(tag == _BV, tag_at, end))):
            return None
        start = np.minimum(start, end)  # that which holds nothing
        texts = (_spans(type_, start, end, data) for type_ in (pa.string(), pa.binary()))
        return cls(told, wire, np.zeros(len(wire), bool), 2, _spans(pa.string(), charset, tag_at, data), *texts)


def _byte(raw: np.ndarray, at: np.ndarray) -> np.ndarray:
    return raw.take(at, mode="clip")


def _varint(raw: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The number at each place, which `at` is moved behind; one that fits nothing where it has more than four bytes."""
    found = _byte(raw, at).astype(np.int64)
    at += 1
    more = np.nonzero(found >= 0x80)[0]
    for shift in (7, 14, 21):
        part = _byte(raw, at[more]).astype(np.int64)
        found[more] += (part << shift) - (0x80 << (shift - 7))
        at[more] += 1
        more = more[part >= 0x80]
    found[more] = -1 << 40
    return found


def _ascii(raw: np.ndarray, offsets: np.ndarray, ends: np.ndarray) -> bool:
    """Whether each value is ASCII from where it begins to the place in `ends`."""
    if raw.max(initial=0) < 0x80:
        return True
    places = np.empty(2 * len(ends), np.int64)
    places[::2], places[1::2] = offsets[:-1], ends
    places = places[: np.searchsorted(places, len(raw))]  # values behind the last byte are empty
    return bool(np.bitwise_or.reduceat(raw, places)[::2].max(initial=0) < 0x80)


def _spans(type_: pa.DataType, starts: np.ndarray, ends: np.ndarray, data: pa.Buffer) -> pa.Array:
    """data[start:end] of each, with what is between two of them in between: no byte is copied."""
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[::2], offsets[1::2] = starts, ends
    return pa.Array.from_buffers(type_, max(len(offsets) - 1, 0), [None, pa.py_buffer(offsets), data])
