"""Row messages exactly as DataWorks writes them, read by their declared shape, and field by field: a fraction of the
time of `messages.read`, which reads whatever is not so.

What messages say of their table and its columns is parsed once for all messages of a batch that say it in the same
bytes.
"""

from typing import Any, Literal, NamedTuple

import msgspec

from cdc_platform.formats.dataworks.messages import (
    FULL_LOAD,
    LONGEST,
    ROWS,
    Changes,
    Group,
    group_of,
    micros,
    place,
    sequence,
)
from cdc_platform.formats.exact_json import compact_pairs, decoded, has_minus_zero, read_json
from cdc_platform.formats.texts import Number

_Flat = dict[str, str | int | float | bool | None]


class _Schema(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    dataColumn: list[_Flat]
    primaryKey: list[str] | None
    source: _Flat


class _Image(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    dataColumn: dict[str, Any]


class _Times(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    eventTime: int | None
    systemTime: int | None
    checkpointTime: int | None


class _Payload(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    before: _Image | None
    after: _Image | None
    sequenceId: str | int
    timestamp: _Times
    op: Literal["INSERT", "DELETE", "UPDATE_BEFOR", "UPDATE_BEFORE", "UPDATE_AFTER"]
    ddl: msgspec.UnsetType | None = msgspec.UNSET
    scn: str | int | msgspec.UnsetType | None = msgspec.UNSET  # Oracle's


class _Message(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: _Payload
    version: str


_FIELDS = sum(len(shape.__struct_fields__) for shape in (_Message, _Payload, _Times))
_READ = msgspec.json.Decoder(_Message, float_hook=Number)
_READ_SCHEMA = msgspec.json.Decoder(_Schema)
_AT_A_TIME = 500  # messages: so many fit, parsed, into a processor's cache


class Plain(NamedTuple):
    """`rows`: those of the plain messages of a batch. `others`: which messages are no such, or have a fault."""

    rows: dict[Group, list[Changes]]
    others: list[int]


class _Told(NamedTuple):
    """What messages say of their table and its columns; `pairs` shows in the bytes in which they say it."""

    group: Group
    pairs: int


class _Alike(NamedTuple):
    """Messages that say the same of their columns; `at`: their numbers in the batch."""

    told: _Told
    at: list[int]
    payloads: list[_Payload]


class PlainReader:
    """Plain messages of one batch; remembers what they say of their columns."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Told | None] = {}

    def __call__(self, values: list[bytes | None]) -> Plain:
        """The messages of the batch. Never raises for bad bytes."""
        plain = Plain({}, [])
        for start in range(0, len(values), _AT_A_TIME):
            part = values[start : start + _AT_A_TIME]
            for alike in self._sound(part, start, plain.others):
                for changes in _changes(alike, plain.others):
                    plain.rows.setdefault(alike.told.group, []).append(changes)
        return Plain(plain.rows, sorted(plain.others))

    def _sound(self, values: list[bytes | None], start: int, others: list[int]) -> list[_Alike]:
        """The plain messages among some, the first of which has the number `start`. Adds the rest to `others`."""
        found = self._alike(decoded(_READ, values), start, others)
        # What a text shows beyond what was parsed is a name that stands twice. No message shows less than was parsed of
        # it, so equal sums are equal in each.
        data = b"".join([values[at - start] or b"" for alike in found for at in alike.at])
        if _clear(data, sum(map(_pairs, found))):
            return found
        clear = []
        for alike in found:
            kept = _Alike(alike.told, [], [])
            for at, payload in zip(alike.at, alike.payloads, strict=True):
                one = _Alike(alike.told, [at], [payload])
                if _clear(values[at - start] or b"", _pairs(one)):
                    kept.at.append(at)
                    kept.payloads.append(payload)
                else:
                    others.append(at)
            if kept.at:
                clear.append(kept)
        return clear

    def _alike(self, parsed: list[_Message | None], start: int, others: list[int]) -> list[_Alike]:
        found: dict[bytes, _Alike] = {}
        last: tuple[msgspec.Raw, _Alike] | None = None
        for at, m in enumerate(parsed, start):
            if m is None:
                others.append(at)
                continue
            if last is None or last[0] != m.schema:
                block = bytes(m.schema)
                if (told := self._told(block)) is None:
                    others.append(at)
                    continue
                last = m.schema, found.setdefault(block, _Alike(told, [], []))
            last[1].at.append(at)
            last[1].payloads.append(m.payload)
        return list(found.values())

    def _told(self, block: bytes) -> _Told | None:
        """None: it's for `messages.read`."""
        if block not in self._known:
            try:
                _READ_SCHEMA.decode(block)
                pairs = compact_pairs(block)
                self._known[block] = None if pairs is None else _Told(group_of(read_json(block)), pairs)
            except (ValueError, RecursionError):
                self._known[block] = None
        return self._known[block]


def _pairs(alike: _Alike) -> int:
    """Pairs of all objects in some messages, as far as they were kept."""
    payloads = alike.payloads
    unset = [p.ddl for p in payloads].count(msgspec.UNSET) + [p.scn for p in payloads].count(msgspec.UNSET)
    images = [len(p.before.dataColumn) + 1 for p in payloads if p.before is not None]
    images += [len(p.after.dataColumn) + 1 for p in payloads if p.after is not None]
    return (_FIELDS + alike.told.pairs) * len(payloads) - unset + sum(images)


def _clear(data: bytes, pairs: int) -> bool:
    """Whether messages show so many pairs, and no -0, which looks like 0 when it is parsed."""
    return compact_pairs(data) == pairs and not has_minus_zero(data)


def _changes(alike: _Alike, others: list[int]) -> list[Changes]:
    """Rows of some messages. Adds the messages that have a fault to `others`."""
    try:
        return [_changes_of(alike)]
    except ValueError:
        if len(alike.at) == 1:
            others += alike.at
            return []
    middle = len(alike.at) // 2
    first, second = (
        _Alike(alike.told, alike.at[half], alike.payloads[half]) for half in (slice(middle), slice(middle, None))
    )
    return [*_changes(first, others), *_changes(second, others)]


def _changes_of(alike: _Alike) -> Changes:
    """Raises ValueError where a message has a fault."""
    payloads, group = alike.payloads, alike.told.group
    before = [None if (image := p.before) is None else image.dataColumn for p in payloads]
    after = [None if (image := p.after) is None else image.dataColumn for p in payloads]
    numbers = _numbers([p.sequenceId for p in payloads])
    ops, event_no = _ops(group, [p.op for p in payloads], before, after)
    if FULL_LOAD in numbers:
        loaded = [number == FULL_LOAD for number in numbers]
        if {op for op, is_loaded in zip(ops, loaded, strict=True) if is_loaded} != {"insert"}:
            raise ValueError("no INSERT, in the full load")
        ops = ["read" if is_loaded else op for op, is_loaded in zip(ops, loaded, strict=True)]
    file_no, position = map(list, zip(*map(place, numbers), strict=True))
    times = [micros(p.timestamp.eventTime) for p in payloads]
    return Changes(alike.at, ops, file_no, position, event_no, before, after, times)


def _numbers(sequences: list[str | int]) -> list[int]:
    """Raises ValueError."""
    texts = [value for value in sequences if type(value) is str]
    if len(texts) == len(sequences) and max(map(len, texts)) <= LONGEST:
        joined = "".join(texts)
        if joined.isascii() and joined.isdecimal():
            return list(map(int, texts))
    return list(map(sequence, sequences))


def _ops(
    group: Group, ops: list[str], before: list[dict[str, Any] | None], after: list[dict[str, Any] | None]
) -> tuple[list[str], list[int]]:
    """What the rows' ops are here, and their event_no. Raises ValueError where images contradict them."""
    whole = dict.fromkeys(group.names)
    shapes = [(op, b is None, a is None) for op, b, a in zip(ops, before, after, strict=True)]
    found = {(op, b, a): ROWS[op](None if b else whole, None if a else whole, group) for op, b, a in set(shapes)}
    if ("UPDATE_AFTER", True, False) in found:
        for op, old, new in zip(ops, before, after, strict=True):
            if old is None:
                ROWS[op](old, new, group)
    kinds = [found[shape] for shape in shapes]
    return [kind for kind, _ in kinds], [event_no for _, event_no in kinds]
