"""The bridge's loop: get a batch, write it to Kafka, ack it; on any failure roll back, pause, connect again.

Every batch reaches Kafka at least once. One that Kafka took but whose ack never reached the server comes a second
time, with the same binlog positions, by which the changelog drops it.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from cdc_platform.bridge import frames, state
from cdc_platform.bridge.begin import Start
from cdc_platform.bridge.publisher import Publisher
from cdc_platform.bridge.session import Session, open_session
from cdc_platform.config import Config
from cdc_platform.config.bridges import Bridge
from cdc_platform.errors import CdcError

_TELL_EVERY_S = 30.0
_FIRST_BACKOFF_S = 1.0
_STEP_S = 0.2  # how soon a pause notices a stop
_EMPTY_PAUSE_S = 0.05  # a server that answers an empty GET at once must not be asked in a tight loop


@dataclass
class Totals:
    """What one run of a bridge has done. `batches`: acked ones; `records`, `bytes`: Kafka's; `failures`: rollbacks
    and lost connections that it got over; `left_out`: entries from before the place at which the topic begins."""

    bridge: str
    destination: str
    topic: str
    batches: int = 0
    entries: int = 0
    records: int = 0
    bytes: int = 0
    failures: int = 0
    last_batch: int | None = None
    left_out: int = 0


def run(
    config: Config,
    bridge: Bridge,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
    until_idle_s: float | None = None,
) -> Totals:
    """Carries batches until `stopped()`, or until the server's answers have been empty for `until_idle_s` seconds.

    Raises BridgeRunning, ConfigError, and what no retry mends: CanalLoginRefused, CanalUnsupported,
    CanalBeginsElsewhere.
    """
    with state.one_process(config, bridge):
        return _Loop(config, bridge, stopped, say, until_idle_s).run()


def unsubscribe(config: Config, bridge: Bridge) -> None:
    """Makes the server forget the bridge's position. Raises errors of `bridge.errors`."""
    with state.one_process(config, bridge), open_session(bridge) as session:
        session.unsubscribe()
        state.forget(config, bridge)


class _Loop:
    def __init__(
        self,
        config: Config,
        bridge: Bridge,
        stopped: Callable[[], bool],
        say: Callable[[str], None],
        until_idle_s: float | None,
    ):
        self._bridge, self._stopped, self._say, self._until_idle_s = bridge, stopped, say, until_idle_s
        self._publisher = Publisher(config, bridge)
        self._journal = state.Journal(config, bridge)
        self._totals = Totals(bridge.name, bridge.destination, bridge.topic)
        self._failed_in_a_row = 0
        # The first empty answer since the last batch. What connecting and pausing take is no idle time.
        self._empty_since: float | None = None
        self._told_at = time.monotonic()
        self._told_batches = 0

    def run(self) -> Totals:
        try:
            self._until_done()
        except BaseException as error:
            self._journal.enter(state.ENDED, str(error) if isinstance(error, CdcError) else type(error).__name__)
            raise
        finally:
            self._publisher.close()
        self._journal.enter(state.STOPPED)
        return self._totals

    def _until_done(self) -> None:
        while not self._done():
            try:
                self._connected()
            except CdcError as error:
                if not error.retriable:
                    raise
                self._pause(error)

    def _connected(self) -> None:
        """One connection, until it fails or the work is done."""
        self._publisher.ensure_topic()
        with open_session(self._bridge) as session:
            start = self._start(session)
            self._say(f"{self._bridge.name}: subscribed to {self._bridge.destination!r} at {session.server}")
            while not self._done():
                self._copy_entries(session, start)
                self._failed_in_a_row = 0
                self._log_progress()

    def _start(self, session: Session) -> Start:
        empty = self._bridge.begin is not None and self._publisher.is_empty()
        return Start(self._bridge, session.server, empty=empty, known=self._journal.left_out)

    def _copy_entries(self, session: Session, start: Start) -> None:
        asked_at = time.monotonic()
        batch = session.get()
        if batch.id is None:
            self._empty_since = self._empty_since or asked_at
            self._journal.caught_up(session.server)
            time.sleep(_EMPTY_PAUSE_S)
            return
        before = start.before(batch.entries)
        wanted = frames.without_first(batch, before)
        self._journal.leaves_out(before, start.left_out)
        values = frames.records(wanted, self._bridge.max_record_bytes)
        self._publisher.publish(values, self._stopped)  # on failure the session rolls back as it closes
        session.ack()
        self._empty_since = None
        self._totals.batches += 1
        self._totals.entries += len(wanted.entries)
        self._totals.left_out += before
        self._totals.records += len(values)
        self._totals.bytes += sum(map(len, values))
        self._totals.last_batch = batch.id
        self._journal.acked(batch, len(wanted.entries), session.server)

    def _done(self) -> bool:
        if self._stopped():
            return True
        if self._until_idle_s is None or self._empty_since is None:
            return False
        return time.monotonic() - self._empty_since >= self._until_idle_s

    def _pause(self, error: CdcError) -> None:
        """Doubling pauses up to `max_backoff_s`, spread so that many bridges don't come back in one moment."""
        self._totals.failures += 1
        self._empty_since = None
        if self._stopped():
            return
        self._journal.failed(error)
        longest = min(self._bridge.max_backoff_s, _FIRST_BACKOFF_S * 2**self._failed_in_a_row)
        self._failed_in_a_row = min(self._failed_in_a_row + 1, 30)
        seconds = longest * random.uniform(0.5, 1.0)  # noqa: S311  no secret
        self._say(f"{self._bridge.name}: {error}; rolled back, again in {seconds:.1f} s")
        end = time.monotonic() + seconds
        while not self._stopped() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _STEP_S))

    def _log_progress(self) -> None:
        now = time.monotonic()
        new = self._totals.batches - self._told_batches
        if new and now - self._told_at >= _TELL_EVERY_S:
            self._say(f"{self._bridge.name}: {new} batches since the last line, {self._totals.entries} entries in all")
            self._told_at, self._told_batches = now, self._totals.batches
