"""Row messages exactly as DataWorks writes them."""

from itertools import compress
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from cdc_platform.formats.dataworks.messages import (
    FULL_LOAD,
    LONGEST,
    ROWS,
    VERSIONS,
    Changes,
    Group,
    group_of,
    log_position,
    micros,
    sequence,
)
from cdc_platform.formats.exact_json import compact_pairs, read_json
from cdc_platform.formats.json_scanner import JsonScanner
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
    version: Annotated[str, Meta(pattern=rf"^(?:{VERSIONS.pattern})$")]


_FIELDS = sum(len(shape.__struct_fields__) for shape in (_Message, _Payload, _Times))
_READ_SCHEMA = msgspec.json.Decoder(_Schema)


class _Source(NamedTuple):
    """What messages say of their table and its columns; `pairs`: those of the bytes that say it."""

    group: Group
    pairs: int


class Scanner(JsonScanner[_Message, _Source]):
    """Reads rows."""

    DECODER = msgspec.json.Decoder(_Message, float_hook=Number)
    HAS_NUMBERS = True

    def kinds(self, _start: int, messages: list[_Message | None]) -> list[_Source | None]:
        kinds, last, source = [], None, None
        for m in messages:
            if m is None:
                kinds.append(None)
                continue
            if last is None or last != m.schema:
                last = m.schema
                block = bytes(last)
                source = self.remembered(block, _source, block)
            kinds.append(source)
        return kinds

    def pairs(self, kind: _Source, messages: list[_Message]) -> int:
        payloads = [m.payload for m in messages]
        unset = [p.ddl for p in payloads].count(msgspec.UNSET) + [p.scn for p in payloads].count(msgspec.UNSET)
        images = [len(p.before.dataColumn) + 1 for p in payloads if p.before is not None]
        images += [len(p.after.dataColumn) + 1 for p in payloads if p.after is not None]
        return (_FIELDS + kind.pairs) * len(payloads) - unset + sum(images)

    def add(self, kind: _Source, at: list[int], messages: list[_Message]) -> None:
        changes = _changes(kind.group, at, [m.payload for m in messages])
        self.rows.setdefault(kind.group, []).append(changes)


def _source(block: bytes) -> _Source | None:
    """None: its pairs can't be counted. Raises one of BAD."""
    _READ_SCHEMA.decode(block)
    pairs = compact_pairs(block)
    return None if pairs is None else _Source(group_of(read_json(block)), pairs)


def _changes(group: Group, at: list[int], payloads: list[_Payload]) -> Changes:
    """Raises ValueError where a message has a fault."""
    before = [None if (image := p.before) is None else image.dataColumn for p in payloads]
    after = [None if (image := p.after) is None else image.dataColumn for p in payloads]
    numbers = _numbers([p.sequenceId for p in payloads])
    ops, event_no = _ops(group, [p.op for p in payloads], before, after)
    if FULL_LOAD in numbers:
        loaded = [number == FULL_LOAD for number in numbers]
        if set(compress(ops, loaded)) != {"insert"}:
            raise ValueError("no INSERT, in the full load")
        ops = ["read" if is_loaded else op for op, is_loaded in zip(ops, loaded, strict=True)]
    file_no, position = map(list, zip(*map(log_position, numbers), strict=True))
    times = [micros(p.timestamp.eventTime) for p in payloads]
    return Changes(at, ops, file_no, position, event_no, before, after, times)


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
