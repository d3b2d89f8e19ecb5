"""Numbers of serialized protobuf messages, as varints: many at once, by numpy."""

import numpy as np

_LONGEST = 10  # bytes of a number


def byte_at(raw: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The byte at each place; some byte where the data has ended."""
    return raw.take(at, mode="clip")


def read_number(raw: np.ndarray, at: np.ndarray, there: np.ndarray | int) -> np.ndarray | None:
    """The varint at each place where one is `there`, which `at` is moved behind; None where one is too long."""
    head = byte_at(raw, at) * there
    at += there
    if head.max(initial=0) < 0x80:
        return head
    more = np.nonzero(head >= 0x80)[0]
    place = at[more]
    part = byte_at(raw, place)
    number = (head & 0x7F).astype(np.int64)
    number[more] |= (part & 0x7F).astype(np.int64) << 7
    place += 1
    at[more] = place
    longer = part >= 0x80
    if longer.any():
        more, place = more[longer], place[longer]
        bits, size = _next_bits(raw, place)
        number[more] |= bits << 14
        at[more] = place + size
        long = size == 0
        if long.any() and not _read_long(raw, at, number, more[long]):
            return None
    return number


_ENDS = np.uint64(0x8080808080808080)  # bits that aren't set in a varint's last byte
_HALVES = [
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
]


def _next_bits(raw: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(what the bytes of a varint from each place on say, how many they are); 0 of 0 bytes where they are more than
    seven, or the data ends."""
    if len(raw) < 8:
        return np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    bits = _eight(raw)[np.minimum(at, len(raw) - 8)]
    ends = ~bits & (_ENDS >> np.uint64(8))
    ends[at > len(raw) - 8] = 0
    told = ends ^ (ends - (ends > 0))  # all bits up to the lowest one of `ends`
    bits &= told & ~_ENDS
    for low, high, shift in _HALVES:  # seven bits of each byte move together
        bits = (bits & low) | ((bits & high) >> shift)
    return bits.view(np.int64), np.bitwise_count(told).astype(np.int64) >> 3


def _read_long(raw: np.ndarray, at: np.ndarray, number: np.ndarray, which: np.ndarray) -> bool:
    """Whether some varints whose first two bytes are read already, of which many may be negative, could be read."""
    place = at[which] - 1
    negative = _ends_as_negative(raw, place)
    small = which[negative]
    number[small] = (number[small] & 0x7F) - 0x80
    at[small] += _LONGEST - 2
    which = which[~negative]
    for index in range(2, _LONGEST):
        part = byte_at(raw, at[which]).astype(np.int64)
        if index == _LONGEST - 1 and (part > 1).any():
            return False
        number[which] |= (part & 0x7F) << 7 * index
        at[which] += 1
        which = which[part >= 0x80]
        if not len(which):
            break
    return True


def _ends_as_negative(raw: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Where a number goes on as those from -128 to -1 do, in nine bytes."""
    if len(raw) < 8:
        return np.zeros(len(at), bool)
    return (_eight(raw)[np.minimum(at, len(raw) - 8)] == 2**64 - 1) & (byte_at(raw, at + 8) == 1)


def _eight(raw: np.ndarray) -> np.ndarray:
    """Eight bytes from any place on."""
    return np.ndarray(len(raw) - 7, "<u8", raw, strides=(1,))
