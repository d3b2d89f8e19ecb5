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
from cdc_platform.formats.protobuf.arrow import bytes_of
from cdc_platform.formats.protobuf.in_place import Fields, Texts, read_plain

UNKNOWN = 15
"""Stands for any number that DataType doesn't have."""
NUMBERS = (*range(pb.INT8, pb.FLOAT64 + 1), pb.DECIMAL)
_MAY_HOLD_SV = np.isin(np.arange(16), (*NUMBERS, UNKNOWN))
_MAY_HOLD_BV = np.isin(np.arange(16), (pb.STRING, pb.BYTES, UNKNOWN))

_KIND, _CHARSET, _SV, _BV = 0x08, 0x12, 0x1A, 0x22  # tags of the fields
_FIELDS = Fields((_KIND, _CHARSET, _SV, _BV))


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
        wire = _wire(told)
        odd = _misplaced(wire, *(pc.binary_length(values.field(n)).to_numpy() for n in ("sv", "bv")))
        return cls(told, wire, odd, 1, *(values.field(n) for n in ("charset", "sv", "bv")))

    @classmethod
    def plain(cls, values: pa.BinaryArray) -> "Data | None":
        """Serialized messages → what they hold; None where one isn't plain."""
        found = read_plain(Texts.of(values), _FIELDS)
        if found is None:
            return None
        charset, sv, bv = (found.texts[tag] for tag in (_CHARSET, _SV, _BV))
        if not _ascii(values, sv.offsets[1::2]):  # the parser takes no text but UTF-8, which ASCII is
            return None
        told = found.numbers[_KIND].astype(np.int32)
        wire = _wire(told)
        odd = _misplaced(wire, sv.lengths(), bv.lengths())
        texts = charset.spread(pa.string()), sv.spread(pa.string()), bv.spread(pa.binary())
        return cls(told, wire, odd, 2, *texts)


def _wire(told: np.ndarray) -> np.ndarray:
    return np.where((told < 0) | (told > UNKNOWN), UNKNOWN, told).astype(np.uint8)


def _misplaced(wire: np.ndarray, sv: np.ndarray, bv: np.ndarray) -> np.ndarray:
    """Whether each value is where its DataType has none, by the lengths of both."""
    return ((sv > 0) & ~_MAY_HOLD_SV.take(wire)) | ((bv > 0) & ~_MAY_HOLD_BV.take(wire))


def _ascii(values: pa.BinaryArray, ends: np.ndarray) -> bool:
    """Whether each value is ASCII from where it begins to the place in `ends`."""
    offsets, data = bytes_of(values)
    raw = np.frombuffer(data, np.uint8)
    if raw.max(initial=0) < 0x80:
        return True
    places = np.empty(2 * len(ends), np.int64)
    places[::2], places[1::2] = offsets[:-1], ends
    places = places[: np.searchsorted(places, len(raw))]  # values behind the last byte are empty
    return bool(np.bitwise_or.reduceat(raw, places)[::2].max(initial=0) < 0x80)
