"""Ways to break a message: its bytes, the structure of its JSON, the structure of its protobuf."""

import json
import random
from collections.abc import Callable
from typing import Any

Rng = random.Random

NASTY_BYTES = [
    b"\x00", b"\xff" * 9, b"\x80" * 11, b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\xed\xa0\x80", b"\xc3\x28", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\\ud800", b'"', b"\\", b"{", b"}", b"[",
    b"]", b",", b":", b"null", b"1e999999999", b"9" * 5000, b"-", b"NaN", b" ", b"\n",
]  # fmt: skip

NASTY_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**40, 1.5, -0.0, 1e308, "", " ", "0", "-0",
    "null", "1e9", "9" * 400, "\x00", "\ud7ff\ue000", "😀" * 50, "2021-02-30", "0000-00-00", "24:61:61", "####",
    "A" * 3000, [], {}, [[]], [None], {"": None}, [{}], {"a": {"b": {"c": []}}}, "INSERT", "u", "enum('a','b'",
    "decimal(999,-5)", "set()",
]  # fmt: skip


def broken(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    """`data` after one to three mutations of one family; `others` are messages to take pieces from."""
    family = rng.choice((_break_bytes, _break_structure, _break_structure))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = family(rng, data, others)
    return data


def _break_structure(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        fields = read_fields(data)
        return write_fields(_break_fields(rng, fields)) if fields else _break_bytes(rng, data, others)
    try:
        if type(value) in (dict, list):
            return rng.choice(_JSON_BREAKS)(rng, value)
    except RecursionError:  # too deep from an earlier round for Python's own writer
        pass
    return _break_bytes(rng, data, others)


# -- bytes -------------------------------------------------------------------------------------------------


def _span(rng: Rng, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 1, 2, 4, 16, 256)))


def _break_bytes(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    return rng.choice(_BYTE_BREAKS)(rng, data, others)


def _replace(rng: Rng, data: bytes, _: list[bytes]) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + rng.randbytes(end - start) + data[end:]


def _cut(rng: Rng, data: bytes, _: list[bytes]) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def _double(rng: Rng, data: bytes, _: list[bytes]) -> bytes:
    start, end = _span(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 2, 50)) + data[end:]


def _insert(rng: Rng, data: bytes, _: list[bytes]) -> bytes:
    start, _end = _span(rng, data)
    return data[:start] + rng.choice(NASTY_BYTES) + data[start:]


def _splice(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


_BYTE_BREAKS: list[Callable[[Rng, bytes, list[bytes]], bytes]] = [
    _replace,
    _replace,
    _cut,
    _double,
    _insert,
    _insert,
    _splice,
    lambda rng, data, _: data[: rng.randrange(len(data) + 1)],
    lambda rng, data, _: data + rng.choice(NASTY_BYTES),
    lambda rng, data, _: b"[" * rng.choice((100, 5000)) + data,
    lambda rng, _data, _others: rng.choice((b"\x0a", b"\x12", b'{"a":', b"[")) * 20_000,
]


# -- JSON --------------------------------------------------------------------------------------------------


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) in a JSON value."""
    found, todo = [], [value]
    while todo:
        node = todo.pop()
        places = list(node) if type(node) is dict else range(len(node))
        for place in places:
            found.append((node, place))
            if type(node[place]) in (dict, list):
                todo.append(node[place])
    return found


def _other_value(rng: Rng, value: Any) -> bytes:
    if places := _places(value):
        node, place = rng.choice(places)
        node[place] = rng.choice(NASTY_VALUES)
    return _dumps(value)


def _other_type(rng: Rng, value: Any) -> bytes:
    """A value as the same of another JSON type: "1" → 1, x → [x], {…} → its text."""
    if places := _places(value):
        node, place = rng.choice(places)
        old = node[place]
        ways = (lambda: [old], lambda: {"a": old}, lambda: str(old), lambda: json.dumps(old), lambda: [old, old])
        node[place] = rng.choice(ways)()
        if type(old) is str and old.lstrip("-").isdecimal() and len(old) < 4000:
            node[place] = int(old)
    return _dumps(value)


def _drop(rng: Rng, value: Any) -> bytes:
    if places := _places(value):
        node, place = rng.choice(places)
        del node[place]
    return _dumps(value)


def _rename(rng: Rng, value: Any) -> bytes:
    if places := [(n, p) for n, p in _places(value) if type(n) is dict]:
        node, place = rng.choice(places)
        node[rng.choice((place.swapcase(), place + " ", "", "\x00", rng.choice(places)[1]))] = node.pop(place)
    return _dumps(value)


def _swap(rng: Rng, value: Any) -> bytes:
    if len(places := _places(value)) > 1:
        (a, x), (b, y) = rng.sample(places, 2)
        one, two = json.dumps(a[x]), json.dumps(b[y])  # copies: one may hold the other
        b[y] = json.loads(one)
        a[x] = json.loads(two)
    return _dumps(value)


def _repeat(rng: Rng, value: Any) -> bytes:
    """A list's element again, or an object's name a second time."""
    places = _places(value)
    lists = [n for n, _ in places if type(n) is list and n]
    if lists and rng.random() < 0.5:
        chosen = rng.choice(lists)
        chosen.insert(rng.randrange(len(chosen) + 1), chosen[rng.randrange(len(chosen))])
        return _dumps(value)
    names = [p for n, p in places if type(n) is dict]
    if not names:
        return _dumps(value)
    name = _dumps(rng.choice(names)) + b":"
    return _dumps(value).replace(name, name + rng.choice((b"0,", b'"x",', b"null,")) + name, 1)


def _deepen(rng: Rng, value: Any) -> bytes:
    if not (places := _places(value)):
        return _dumps(value)
    node, place = rng.choice(places)
    node[place] = "@@"
    depth = rng.choice((30, 900, 3000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return _dumps(value).replace(b'"@@"', opened * depth + b"1" + closed * depth, 1)


def _widen(rng: Rng, value: Any) -> bytes:
    if places := [(n, p) for n, p in _places(value) if type(n[p]) in (dict, list, str)]:
        node, place = rng.choice(places)
        old = node[place]
        many = min(rng.choice((300, 3000)), 1 + 1_000_000 // len(_dumps(old)))
        if type(old) is dict:
            old.update({f"c{i}": rng.choice(NASTY_VALUES[:20]) for i in range(many)})
        elif type(old) is list:
            old.extend(old[:1] * many)
        else:
            node[place] = (old or "x") * many
    return _dumps(value)


_JSON_BREAKS: list[Callable[[Rng, Any], bytes]] = [
    *(_other_value,) * 6,
    *(_other_type,) * 4,
    *(_drop,) * 3,
    *(_rename,) * 3,
    *(_swap,) * 3,
    *(_repeat,) * 2,
    _deepen,
    *(_widen,) * 1,
]


# -- protobuf ----------------------------------------------------------------------------------------------

Fields = list[tuple[int, Any]]
"""Tag and value of each field: int (varint), bytes, or the fields of what can be read as a message."""


def read_fields(data: bytes, depth: int = 0) -> Fields | None:
    """Serialized message → its fields; None when it is none."""
    found: Fields = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag is None or not tag >> 3:
            return None
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            if value is None:
                return None
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        elif kind == 2:
            size, at = _varint(data, at)
            if size is None or at + size > len(data):
                return None
            raw, at = data[at : at + size], at + size
            value = (read_fields(raw, depth + 1) if depth < 12 and raw else None) or raw
        else:
            return None
        found.append((tag, value))
    return found if at == len(data) else None


def _varint(data: bytes, at: int) -> tuple[int | None, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    return None, at


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def write_fields(fields: Fields) -> bytes:
    """Fields → serialized message; a value that doesn't go with its tag is written as the tag says, roughly."""
    out = []
    for tag, value in fields:
        out.append(_varint_bytes(tag))
        if type(value) is int:
            out.append(_varint_bytes(value))
        else:
            raw = write_fields(value) if type(value) is list else value
            out.append(_varint_bytes(len(raw)) + raw if tag & 7 == 2 else raw)
    return b"".join(out)


def _break_fields(rng: Rng, fields: Fields) -> Fields:
    """One change somewhere in the tree."""
    fields = list(fields)
    inner = [i for i, (_, v) in enumerate(fields) if type(v) is list]
    if inner and rng.random() < 0.8:
        i = rng.choice(inner)
        fields[i] = (fields[i][0], _break_fields(rng, fields[i][1]))
        return fields
    i = rng.randrange(len(fields))
    tag, value = fields[i]
    ways: list[Callable[[], list[tuple[int, Any]]]] = [
        lambda: [],
        lambda: [(tag, value)] * rng.choice((2, 3, 200)),
        lambda: [(rng.choice((tag ^ 1, tag ^ 2, tag + 8, tag & 7 | 15 << 3, 2**29 << 3 | 2)), value)],
        lambda: [(tag, rng.choice((0, 1, 7, 127, 128, 2**31, 2**32 - 1, 2**63, 2**64 - 1)))],
        lambda: [(tag & ~7 | 2, rng.choice((b"", b"\x00", b"\xff\xfe", b"x" * 3000, rng.randbytes(9), b"-1")))],
        lambda: [(tag & ~7 | 2, [(tag & ~7 | 2, value if type(value) is list else b"x")])],
        lambda: [(tag & ~7 | 2, b"\x0a\xff\xff\xff\xff\x07")],
    ]  # fmt: skip
    fields[i : i + 1] = rng.choice(ways)()
    if len(fields) > 1 and rng.random() < 0.1:
        rng.shuffle(fields)
    return fields
