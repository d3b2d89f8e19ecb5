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
_BEHIND = np.zeros(512, np.uint8)
"""Read behind the last value where it ends too early: no field's head and charset are longer."""


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
        told, wire = _kinds(values.field("dataType").to_numpy())
        has_sv, has_bv = (pc.binary_length(values.field(n)).to_numpy() > 0 for n in ("sv", "bv"))
        odd = (has_sv & ~_MAY_HOLD_SV[wire]) | (has_bv & ~_MAY_HOLD_BV[wire])
        return cls(told, wire, odd, 1, *(values.field(n) for n in ("charset", "sv", "bv")))

    @classmethod
    def plain(cls, values: pa.BinaryArray) -> "Data | None":
        """Serialized messages → what they hold; None where one isn't plain."""
        offsets, data = bytes_of(values)
        raw = np.concatenate([np.frombuffer(data, np.uint8), _BEHIND])
        at, end = offsets[:-1].astype(np.int64), offsets[1:]
        there = (raw[at] == _KIND) & (at < end)
        told, wire = _kinds(np.where(there, raw[at + 1], 0))
        at += 2 * there
        there = (raw[at] == _CHARSET) & (at < end)
        charset = at + 2 * there
        size = np.where(there, raw[at + 1], 0)
        at = charset + size
        tag, start = raw[at], at + 1
        held = _length(raw, start)
        holds = at < end
        fits = np.where(holds, start + held == end, at == end)
        may = np.where(tag == _SV, _MAY_HOLD_SV[wire], (tag == _BV) & _MAY_HOLD_BV[wire]) | ~holds
        if (told | size).max(initial=0) >= 0x80 or not (fits & may).all():
            return None
        # The parser wants UTF-8 in text: ASCII is.
        text_end = np.where(holds & (tag == _BV), at, end)
        if not _all_ascii(raw, offsets[:-1], text_end):
            return None
        start[~holds] = end[~holds]
        return cls(
            told,
            wire,
            np.zeros(len(wire), bool),
            2,
            _spans(pa.string(), charset, charset + size, data),
            _spans(pa.string(), start, end, data),
            _spans(pa.binary(), start, end, data),
        )


def _kinds(told: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wire = told.astype(np.int64)
    wire[(wire < 0) | (wire > UNKNOWN)] = UNKNOWN
    return told, wire


def _length(raw: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The varint at each place, which `at` is moved behind; none that fits where it has more than four bytes."""
    found = raw[at].astype(np.int64)
    at += 1
    more = np.nonzero(found >= 0x80)[0]
    for shift in (7, 14, 21):
        if not len(more):
            break
        part = raw[at[more]].astype(np.int64)
        found[more] += (part << shift) - (0x80 << (shift - 7))
        at[more] += 1
        more = more[part >= 0x80]
    found[more] = -1 << 40
    return found


def _all_ascii(raw: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> bool:
    high = raw >= 0x80
    if not high.any():
        return True
    before = np.append(0, np.cumsum(high))
    return bool((before[ends] == before[starts]).all())


def _spans(type_: pa.DataType, starts: np.ndarray, ends: np.ndarray, data: pa.Buffer) -> pa.Array:
    """data[start:end] of each, with what is between two of them in between: no byte is copied."""
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[::2], offsets[1::2] = starts, ends
    return pa.Array.from_buffers(type_, max(len(offsets) - 1, 0), [None, pa.py_buffer(offsets), data])
