"""Messages exactly as a vendor's own writer makes them, read by their declared shape and field by field: a fraction of
the time of reading each by itself, which is left for all other messages.

Why this reads what exact reading reads. msgspec checks the types that a shape declares, every digit of an integer and
that the text is JSON. What it drops without an error is a pair: an earlier one where a name stands twice, or one whose
name the shape doesn't have. So the pairs are counted. Those that a text shows are `exact_json.compact_pairs`; those
that were kept are the fields that are set, the entries of the dicts, and what was read exactly of raw blocks
(`JsonScanner.pairs`). Each pair that was kept is one that shows, so a text shows at least as many as were kept, and
just as many only if none was dropped. As no message can show less than was kept of it, the sums over many messages are
equal only if they are equal in each: a chunk takes one count. Where they differ, each message is counted by itself. A
text whose pairs can't be counted is left over. So is -0 where rows have numbers: parsed it looks like 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from itertools import compress
from operator import not_
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from cdc_platform.formats.exact_json import compact_pairs, decoded, has_minus_zero
from cdc_platform.formats.texts import BAD

_CHUNK = 500  # messages: so many fit, parsed, into a processor's cache

M = TypeVar("M", bound=msgspec.Struct)
K = TypeVar("K")
A = TypeVar("A")
S = TypeVar("S")


class _Alike(NamedTuple):
    """Messages of one kind; `at`: their numbers in the batch."""

    kind: Any
    at: list[int]
    messages: list[Any]


class JsonScanner(ABC, Generic[M, K]):
    """Reads the messages of one batch that have the declared shape. M: the shape; K: a kind of messages, which say the
    same of their table and its columns, parsed once."""

    DECODER: ClassVar[msgspec.json.Decoder]
    """Reads M."""
    HAS_NUMBERS: ClassVar[bool] = False
    """Whether numbers of a message get into its rows."""

    def __init__(self) -> None:
        self.rows: dict[Any, list[Any]] = {}
        """Rows by group, in the parts in which they were read."""
        self.events: list[tuple[int, dict[str, Any]]] = []
        """Events of messages without rows, with the numbers of their messages."""
        self._known: dict[Hashable, Any] = {}

    @abstractmethod
    def kinds(self, start: int, messages: list[M | None], /) -> list[K | None]:
        """The kind of each message, the same object for all of a kind; None: it is left over, as is a message that is
        None. `start`: number of the first. Raises nothing."""

    @abstractmethod
    def pairs(self, kind: K, messages: list[M], /) -> int:
        """Pairs of all objects in messages of a kind, at least one, as far as they were kept."""

    @abstractmethod
    def add(self, kind: K, at: list[int], messages: list[M], /) -> None:
        """Adds the rows or events of messages of a kind. Raises one of BAD, and adds nothing, where one has a fault."""

    def __call__(self, values: list[bytes | None]) -> list[int]:
        """Reads a batch; the numbers of the messages that are left over, in order. Never raises for bad bytes."""
        others: list[int] = []
        for start in range(0, len(values), _CHUNK):
            chunk = values[start : start + _CHUNK]
            for alike in self._whole(chunk, start, self._by_kind(chunk, start, others), others):
                others += self._add(alike)
        return sorted(others)

    def remembered(self, key: Hashable, describe: Callable[[A], S | None], of: A) -> S | None:
        """What `describe` says of the first thing with this key; None where it raised one of BAD."""
        if key not in self._known:
            try:
                self._known[key] = describe(of)
            except BAD:
                self._known[key] = None
        return self._known[key]

    def _by_kind(self, chunk: list[bytes | None], start: int, others: list[int]) -> list[_Alike]:
        """Messages by kind. Adds those of another shape or of no kind to `others`."""
        messages = decoded(self.DECODER, chunk)
        kinds = self.kinds(start, messages)
        if kinds[0] is not None and len(set(map(id, kinds))) == 1:
            return [_Alike(kinds[0], list(range(start, start + len(kinds))), messages)]
        found: dict[int, _Alike] = {}  # by the kind's id: to hash it would take what to compare the messages takes
        for at, (kind, message) in enumerate(zip(kinds, messages, strict=True), start):
            if kind is None:
                others.append(at)
                continue
            alike = found.get(id(kind))
            if alike is None:
                alike = found[id(kind)] = _Alike(kind, [], [])
            alike.at.append(at)
            alike.messages.append(message)
        return list(found.values())

    def _whole(self, chunk: list[bytes | None], start: int, found: list[_Alike], others: list[int]) -> list[_Alike]:
        """The messages of which no pair was dropped. Adds the rest to `others`."""
        data = b"".join([chunk[at - start] or b"" for alike in found for at in alike.at])
        if self._is_whole(data, sum(self.pairs(alike.kind, alike.messages) for alike in found)):
            return found
        whole = []
        for alike in found:
            fine = [
                self._is_whole(chunk[at - start] or b"", self.pairs(alike.kind, [message]))
                for at, message in zip(alike.at, alike.messages, strict=True)
            ]
            others += compress(alike.at, map(not_, fine))
            if any(fine):
                whole.append(_Alike(alike.kind, list(compress(alike.at, fine)), list(compress(alike.messages, fine))))
        return whole

    def _is_whole(self, data: bytes, pairs: int) -> bool:
        return compact_pairs(data) == pairs and not (self.HAS_NUMBERS and has_minus_zero(data))

    def _add(self, alike: _Alike) -> list[int]:
        """Adds the rows of some messages; the numbers of those that have a fault."""
        try:
            self.add(*alike)
        except BAD:
            if len(alike.at) == 1:
                return alike.at
        else:
            return []
        middle, faulty = len(alike.at) // 2, []
        for half in (slice(middle), slice(middle, None)):
            faulty += self._add(_Alike(alike.kind, alike.at[half], alike.messages[half]))
        return faulty
