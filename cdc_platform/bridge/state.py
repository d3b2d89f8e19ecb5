"""What a bridge last did, in a file beside its lock: for `cdc-platform status`, which may run long after it.

`<state_dir>/bridges/<name>.json`, replaced as a whole. It tells, it doesn't decide: the position that counts is the
server's, and a file that is missing, old or broken loses nothing. Only while a topic begins (`begin`) does it say what
was left out already: without it the bridge may refuse to begin.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from google.protobuf.message import DecodeError

from cdc_platform.bridge.begin import BinlogPosition, LeftOut
from cdc_platform.bridge.errors import BridgeRunning
from cdc_platform.bridge.frames import Batch
from cdc_platform.config import Config
from cdc_platform.config.bridges import Bridge
from cdc_platform.errors import CdcError
from cdc_platform.formats.pb import canal_entry_pb2 as pb

_EVERY_S = 1.0
_LOCK_S = 1.0  # longer than `look` holds it
_LONGEST = 500  # characters of a text from the wire

NEVER, STARTING, RUNNING, FAILING, STOPPED, ENDED, DIED = (
    "never run", "starting", "running", "failing", "stopped", "ended", "died",
)  # fmt: skip
"""Never: no bridge has run beside this cdc.yaml. Stopped: on request, or idle. Ended: by an error that no retry mends.
Died: without a word (killed, or the machine went down)."""
_ALIVE = (STARTING, RUNNING, FAILING)


@dataclass(frozen=True)
class State:
    """Times are ISO 8601 in UTC. `since`: when the state began; `reason`: of failing and ended. `batch`, `position`
    (binlog file:offset), `gtid`, `source_time`: of the last acked batch, `acked_at` when that was; also an earlier
    run's. `caught_up_at`: when the server last had nothing more. `failures`, `entries`: of this run.
    `left_out`: entries from before the place at which the topic begins (`begin`), `left_out_from`: position of the
    first of them; `begun_at`, `begun`: source time in ms and position of the first that was carried; also an earlier
    run's."""

    state: str = NEVER
    since: str | None = None
    reason: str | None = None
    server: str | None = None
    batch: int | None = None
    position: str | None = None
    gtid: str | None = None
    source_time: str | None = None
    acked_at: str | None = None
    caught_up_at: str | None = None
    entries: int = 0
    failures: int = 0
    left_out: int = 0
    left_out_from: str | None = None
    begun_at: int | None = None
    begun: str | None = None


class Journal:
    """Writes a bridge's State: at once when the state changes, else at most once a second. Never raises: a full disk
    must not stop the changes."""

    def __init__(self, config: Config, bridge: Bridge):
        self._file = _file(config, bridge)
        self._state = replace(_read(self._file), entries=0, failures=0)
        self._written_at = 0.0
        self.enter(STARTING)

    def enter(self, state: str, reason: str | None = None, server: str | None = None) -> None:
        """The bridge is now in this state; `since` stays while it only says so again."""
        old = self._state
        since = old.since if old.state == state and state in _ALIVE[1:] else _now()
        changed = old.state != state or old.reason != reason
        self._state = replace(old, state=state, since=since, reason=reason and reason[:_LONGEST], server=server)
        if changed:
            self._write()

    def failed(self, error: CdcError) -> None:
        """A try failed; another will follow."""
        self.enter(FAILING, str(error))
        self._state = replace(self._state, failures=self._state.failures + 1)
        self._write()

    @property
    def left_out(self) -> LeftOut:
        """What was left out by now, also by earlier runs."""
        s = self._state
        return LeftOut(s.left_out > 0, BinlogPosition.parse(s.left_out_from), s.begun_at, BinlogPosition.parse(s.begun))

    def leaves_out(self, entries: int, left_out: LeftOut) -> None:
        """So many entries of the next batch aren't carried; `left_out`: what is known then. Written before the topic
        has the batch: what the server sends again after a crash is then left out again."""
        if not entries and left_out == self.left_out:
            return
        first, begun = (p and f"{p.file}:{p.position}" for p in (left_out.first, left_out.begun))
        known = {"left_out_from": first, "begun_at": left_out.begun_at, "begun": begun}
        self._state = replace(self._state, left_out=self._state.left_out + entries, **known)
        self._write()

    def acked(self, batch: Batch, carried: int, server: str) -> None:
        """A batch is acked; so many of its entries are in Kafka."""
        known = _last_position(batch.entries)
        entries = self._state.entries + carried
        self._state = replace(self._state, batch=batch.id, acked_at=_now(), entries=entries, **known)
        self._going_on(server)

    def caught_up(self, server: str) -> None:
        """The server had nothing more."""
        self._state = replace(self._state, caught_up_at=_now())
        self._going_on(server)

    def _going_on(self, server: str) -> None:
        self.enter(RUNNING, server=server)
        if time.monotonic() - self._written_at >= _EVERY_S:
            self._write()

    def _write(self) -> None:
        self._written_at = time.monotonic()
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            new = self._file.with_suffix(f".{os.getpid()}.tmp")
            new.write_text(json.dumps(asdict(self._state), indent=1) + "\n", encoding="utf-8")
            new.replace(self._file)


@contextmanager
def one_process(config: Config, bridge: Bridge) -> Iterator[None]:
    """The bridge's lock file: the system frees it when the process dies. It covers the machine. Raises
    BridgeRunning."""
    try:
        lock = _lock(config, bridge)
        Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=_LOCK_S)
    except Timeout:
        raise BridgeRunning(bridge.name) from None
    try:
        yield
    finally:
        lock.release()


def look(config: Config, bridge: Bridge) -> State:
    """What is known of a bridge, alive or not."""
    # The lock first: a bridge that ends in between has then written how.
    alive = _alive(config, bridge)
    file = _file(config, bridge)
    state = _read(file)
    if alive or state.state not in _ALIVE:
        return state
    with suppress(OSError):
        last_word = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="milliseconds")
        return replace(state, state=DIED, since=last_word, reason=f"its process is gone; last it was {state.state}")
    return State()


def _alive(config: Config, bridge: Bridge) -> bool:
    lock = _lock(config, bridge)
    try:
        with lock.acquire(timeout=0) if Path(lock.lock_file).exists() else nullcontext():
            return False
    except (Timeout, OSError):  # OSError: another user's, which this one can't try; the file's word stands
        return True


def forget(config: Config, bridge: Bridge) -> None:
    """The server has forgotten the position: nothing is known any more."""
    _file(config, bridge).unlink(missing_ok=True)


def _lock(config: Config, bridge: Bridge) -> FileLock:
    return FileLock(config.state_dir / "locks" / f"bridge-{bridge.slug}.lock")


def _file(config: Config, bridge: Bridge) -> Path:
    return config.state_dir / "bridges" / f"{bridge.slug}.json"


def _read(file: Path) -> State:
    names = {f.name for f in fields(State)}
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return State(**{k: v for k, v in told.items() if k in names})
    except (OSError, ValueError, AttributeError):
        return State()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _last_position(entries: Sequence[bytes]) -> dict[str, Any]:
    """Position and time of the last entry that has a binlog position; {} without one (heartbeats)."""
    for entry in reversed(entries):
        try:
            header = pb.Entry.FromString(entry).header
        except DecodeError:
            continue  # the decoder's business; the bridge carries whatever came
        if header.logfileName:
            position = f"{header.logfileName[:_LONGEST]}:{header.logfileOffset}"
            return {"position": position, "gtid": header.gtid[:_LONGEST] or None, "source_time": _time(header)}
    return {}


def _time(header: pb.Header) -> str | None:
    try:
        return datetime.fromtimestamp(header.executeTime / 1000, UTC).isoformat() if header.executeTime else None
    except (ValueError, OverflowError, OSError):
        return None
