"""Where a topic begins, if the bridge's `begin` names a place: what the server sends from before it isn't carried.

canal's protocol can't ask for a place: its server looks neither at `start_timestamp` of the login nor at a packet DUMP.
So it is set to begin there or earlier (instance.properties), and what stands before the place is acknowledged and left
out here. That nothing is missing behind the place shows in something before it, which the server has sent: otherwise it
began later, and the bridge ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from google.protobuf.message import DecodeError

from cdc_platform.bridge.errors import CanalBeginsElsewhere
from cdc_platform.config.bridges import Begin, Bridge
from cdc_platform.formats.events import file_number
from cdc_platform.formats.pb import canal_entry_pb2 as pb

_LONGEST = 500  # characters of a name from the wire


class BinlogPosition(NamedTuple):
    """A place in a binlog, as `bridges/<name>.json` has it: mysql-bin.000007:300."""

    file: str
    position: int

    @classmethod
    def parse(cls, text: str | None) -> "BinlogPosition | None":
        """None: the text is none."""
        file, _, position = (text or "").rpartition(":")
        return cls(file, int(position)) if file and position.isdigit() else None

    def within(self, first: "BinlogPosition", end: "BinlogPosition") -> bool:
        """Whether it stands in a stretch of a log; other logs have other names."""
        numbers = [(file_number(p.file), p.position) for p in (first, self, end)]
        if len({_base(p.file) for p in (first, self, end)}) > 1 or any(n is None for n, _ in numbers):
            return False
        return numbers[0] <= numbers[1] < numbers[2]  # pyright: ignore[reportOperatorIssue]


@dataclass(frozen=True)
class LeftOut:
    """What connections before this one have left out. `any`: whether it was anything. `first`: the first place.
    `begun_at`: source time in ms of the first entry that was to be carried, `begun`: its place."""

    any: bool = False
    first: BinlogPosition | None = None
    begun_at: int | None = None
    begun: BinlogPosition | None = None


class Start:
    """Of one connection. `empty`: whether the topic has no record yet."""

    def __init__(self, bridge: Bridge, server: str, *, empty: bool, known: LeftOut):
        self._begin, self._server = bridge.begin or Begin.model_construct(), server
        self._empty, self._known = empty, known
        self._seen = False  # something that stands before the place
        self._open = False  # within a transaction that began before
        self.left_out = known
        """The same with what this connection has left out."""
        # Of a topic with records only what the server sends again can stand before the place: it stands where something
        # was left out, and is as old. Alone neither shows it: positions begin at 4 once more (RESET MASTER), and a
        # session may set its clock (SET TIMESTAMP). Where that isn't known nothing is left out.
        self.over = bridge.begin is None or (not empty and None in (known.first, known.begun, known.begun_at))

    def before(self, entries: Sequence[bytes]) -> int:
        """How many of a batch's first entries stand before the place; what follows is carried, and all that comes
        after. Raises CanalBeginsElsewhere."""
        if self.over:
            return 0
        for n, entry in enumerate(entries):
            header, kind = _read(entry)
            if header is not None and self._is_before(header, kind):
                if header.logfileName and not self._seen:
                    self._seen = True
                    self.left_out = replace(self.left_out, any=True, first=self.left_out.first or _at(header))
                continue
            if self._empty and header is not None:
                if not self._follows(header):
                    raise CanalBeginsElsewhere(self._server, _later(header, self._begin))
                self.left_out = replace(self.left_out, begun_at=header.executeTime, begun=_at(header))
            self.over = True
            return n
        return len(entries)

    def _is_before(self, header: pb.Header, kind: int) -> bool:
        if not header.logfileName:  # a heartbeat, say
            return True
        if not self._empty and not self._again(header):
            return False
        if self._begin.time is None:
            return self._position(header) < (file_number(self._begin.file) or 0, self._begin.position or 0)
        within, self._open = self._open, (self._open or kind == pb.TRANSACTIONBEGIN) and kind != pb.TRANSACTIONEND
        return within or header.executeTime < (_millis(self._begin) or 0)

    def _again(self, header: pb.Header) -> bool:
        """Whether an entry can be one that was left out before."""
        first, begun, begun_at = self._known.first, self._known.begun, self._known.begun_at
        if first is None or begun is None or begun_at is None:
            return False
        return header.executeTime <= begun_at and _at(header).within(first, begun)

    def _position(self, header: pb.Header) -> tuple[int, int]:
        number = file_number(header.logfileName)
        if number is None or _base(header.logfileName) != _base(self._begin.file or ""):
            raise CanalBeginsElsewhere(
                self._server,
                f"its binlog is {header.logfileName[:200]!r}; the order to {self._begin.file!r} of `begin` isn't known",
            )
        return number, header.logfileOffset

    def _follows(self, header: pb.Header) -> bool:
        """Whether the first entry to be carried is the one at the place, or something before it was seen. The topic may
        have been made again since: then what was left out once says nothing of what comes now."""
        earlier = self._known.any and self._known.begun_at in (None, header.executeTime)
        if self._seen or earlier:
            return True
        asked = file_number(self._begin.file), self._begin.position
        return self._begin.time is None and self._position(header) == asked


def _read(entry: bytes) -> tuple[pb.Header | None, int]:
    """Header and type of an entry; None where it can't be read: that is the decoder's business."""
    try:
        found = pb.Entry.FromString(entry)
    except DecodeError:
        return None, 0
    return found.header, found.entryType


def _at(header: pb.Header) -> BinlogPosition:
    return BinlogPosition(header.logfileName[:_LONGEST], header.logfileOffset)


def _millis(begin: Begin) -> int | None:
    return None if begin.time is None else round(begin.time.timestamp() * 1000)


def _base(file: str) -> str:
    return file.rpartition(".")[0]


def _later(header: pb.Header, begin: Begin) -> str:
    asked = begin.time.isoformat() if begin.time else f"{begin.file}:{begin.position}"
    return (
        f"the first change that it sends is at {header.logfileName[:200]}:{header.logfileOffset}, later than `begin` "
        f"({asked}), and what lies between isn't known. Let its instance begin at that place or before it "
        "(canal.instance.master.journal.name with position, or timestamp, in instance.properties), forget the client's "
        "position (--unsubscribe); or leave `begin` out"
    )
