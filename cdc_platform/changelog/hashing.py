"""Hashes of texts, the same on every machine. Arrow and numpy only."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

_HASHED = 16
"""Bytes of a text's end that its hash is made of."""


def mixed(numbers: np.ndarray) -> np.ndarray:
    """64-bit numbers that differ in few bits → such that differ in all; in place (Steele and others' SplitMix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(31)
    return numbers


def hashes(columns: list[pa.StringArray]) -> np.ndarray:
    """A hash of each row of texts, the same for the same texts on every machine."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
        sizes, ends = np.diff(offsets), offsets[1:].astype(np.int64) - offsets[0]
        for word in _words(column.buffers()[2].to_pybytes()[offsets[0] : offsets[-1]], sizes, ends):
            found ^= word
            mixed(found)
        found ^= sizes.astype(np.uint64)
        mixed(found)
    return found


def _words(texts: bytes, sizes: np.ndarray, ends: np.ndarray) -> Iterator[np.ndarray]:
    """The last bytes of each text as numbers of 64 bits, the last one first."""
    padded = bytes(_HASHED) + texts
    every = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))  # the number that begins at each byte
    for behind in range(0, _HASHED, 8):
        mine = np.clip(sizes - behind, 0, 8)  # bytes; those before are another text's
        word = every[ends + (_HASHED - 8 - behind)] >> ((8 - np.maximum(mine, 1)) * 8).astype(np.uint64)
        yield np.where(mine > 0, word, np.uint64(0))
