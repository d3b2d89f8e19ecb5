"""Which tables of a source a run has to tell Dagster of, and what.

Dagster's storage takes some 10 ms of CPU for an event (SQLite), some events a table: of a thousand tables it is told
for longer than a round takes. So a run that goes on tells for a few seconds at a time, and of a check once, until it
says otherwise: Dagster takes a check for one of the newest materialization if both are of one run.
"""

import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from cdc_platform.automation import beside, completeness, silence, table_events, table_status
from cdc_platform.automation.naming import Naming
from cdc_platform.automation.table_status import TableStatus
from cdc_platform.certificate import BROKEN
from cdc_platform.config import Source
from cdc_platform.results import StageResult
from cdc_platform.tables import Name

TELLING_S = 5.0
"""How long a run that goes on tells of tables at a time."""
_AT_ONCE = 16
_Check = tuple[dg.AssetKey, str]
"""Asset, and name of its check."""


class TableNews:
    """What one run tells of its source's tables, but of those `asked` for, whose events are the step's results."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        naming: Naming,
        source: Source,
        asked: Collection[Name] = (),
        run_id: str = "",
    ):
        self.instance, self.naming, self.source, self.asked, self.run_id = instance, naming, source, asked, run_id
        self.left = False
        """Whether there was more to tell than time for it."""
        self._fresh = silence.freshness(naming.config, source)
        self._changes: dict[str, int] = {}
        self._told: dict[_Check, bool] = {}
        self._own: set[_Check] = set()
        """Those that the run has told."""
        self._overtaken: set[_Check] = set()
        """Those of them that another run has told since: what this one says again goes into its row of before, and
        Dagster looks at the newest row. So it is told outside of the run."""
        self._beside: dict[dg.AssetKey, str | None] = {}

    def add(self, result: StageResult) -> None:
        """What a run of the stage brought."""
        for name, figures in result.tables.items():
            self._changes[name] = self._changes.get(name, 0) + int(figures.get("changes", 0))

    def events(self, statuses: list[TableStatus], seconds: float | None = None) -> Iterator[Any]:
        """For `context.log_event`. seconds: after so many what is left stays for the next time."""
        until = None if seconds is None else time.monotonic() + seconds
        due = [s for s in self._due(statuses) if s.id not in self.asked]
        whole = {s.id for s in due}
        due += self._with_news_beside([s for s in statuses if s.id not in whole and s.id not in self.asked])
        for start in range(0, len(due), _AT_ONCE):
            self.left = start > 0 and until is not None and time.monotonic() > until
            if self.left:
                return
            some = due[start : start + _AT_ONCE]
            for status in some:
                yield from beside.events(self.instance, self.naming, status)
                self._beside |= beside.states(self.naming, status)
            yield from self._events([s for s in some if s.id in whole])
        self.left = False

    def _with_news_beside(self, statuses: list[TableStatus]) -> list[TableStatus]:
        """Those of which what is kept beside them was made, or began or ceased to lack changes, since Dagster was told:
        a run may do so that brings the table itself none."""
        now = {s.id: beside.states(self.naming, s) for s in statuses}
        if new := sorted({key for said in now.values() for key in said} - self._beside.keys()):  # once a run
            self._beside |= beside.last_recorded_states(self.instance, new)
        return [s for s in statuses if any(self._beside[key] != said for key, said in now[s.id].items())]

    def _events(self, some: list[TableStatus]) -> Iterator[Any]:
        keys = [self.naming.table(s.source, *s.id).key for s in some]
        made = table_events.newest(self.instance, keys)
        brought = {s.name: {"changes": self._changes.pop(s.name, 0)} for s in some}
        opened = table_status.opened(self.naming.config, some)
        for table, checks in table_events.events(self.naming, opened, brought, made):
            yield table
            for check in checks:
                which = check.asset_key, check.check_name
                if self._told.get(which) is check.passed:
                    continue
                self._told[which] = check.passed
                if which in self._overtaken:
                    made_now = table_events.newest(self.instance, [check.asset_key]).get(check.asset_key)
                    self.instance.report_runless_asset_event(table_events.evaluation(check, made_now))
                else:
                    self._own.add(which)
                    yield check

    def _due(self, statuses: list[TableStatus]) -> list[TableStatus]:
        """Tables of which Dagster doesn't know, or whose checks say otherwise than the lake, then the others that
        changed since it was told or whose freshness window asks for it: first those it was told of longest ago."""
        keys = {s.id: self.naming.table(self.source, *s.id).key for s in statuses}
        seen = {r.asset_entry.asset_key: r.asset_entry for r in self.instance.get_asset_records(list(keys.values()))}
        names = (table_events.NOT_STOPPED, table_events.NO_HELD_ROWS, table_events.CERTIFIED)
        before = table_events.last_evaluations(self.instance, keys.values(), names)

        def told_at(s: TableStatus) -> float | None:
            """When Dagster was told; 0: never, or otherwise. None: there is no need."""
            key = keys[s.id]
            newest = (entry := seen.get(key)) and entry.last_materialization_record
            if s.state == "live" and newest is None:
                return 0.0
            made = newest and newest.asset_materialization
            if made and table_events.says_otherwise(s, made.metadata):
                return 0.0
            intact = s.certificate is None or s.certificate.verdict != BROKEN
            now = (s.state != "stopped", not s.held, intact)
            last = {n: before.get(dg.AssetCheckKey(key, n)) for n in names}
            said = {n: of.passed if of and of.counts else None for n, of in last.items()}
            wrong = [n for n, ok in zip(names, now, strict=True) if said[n] is not ok]
            overtaken = {n for n, of in last.items() if of and of.run_id != self.run_id and (key, n) in self._own}
            self._overtaken |= {(key, n) for n in overtaken}
            for name in (*wrong, *overtaken):
                self._told.pop((key, name), None)
            if wrong:
                return 0.0 if s.state != "waiting" or s.held else None
            at = newest.timestamp if newest else 0.0
            return at if self._changes.get(s.name) or (s.state == "live" and self._old(s, at, known)) else None

        known = completeness.newest_source_time(self.naming.config, self.source)[0] if self._fresh else None
        times = {s.id: at for s in statuses if (at := told_at(s)) is not None}
        return sorted((s for s in statuses if s.id in times), key=lambda s: times[s.id])

    def _old(self, status: TableStatus, told: float, newest: datetime | None) -> bool:
        """Whether a live table changed since Dagster was told, or its freshness window asks for it to be told again.
        newest: time that its source told. A table that is held at a time before the window isn't fresh."""
        changed, window = status.updated_at, self._fresh
        if changed and (changed if changed.tzinfo else changed.replace(tzinfo=UTC)).timestamp() > told:
            return True
        now = datetime.now(UTC)
        return bool(window) and now.timestamp() - told > window / 2 and not _lacks(status, newest, now, window)


def _lacks(status: TableStatus, newest: datetime | None, now: datetime, window: int) -> bool:
    """Whether a table has lacked for longer than its window what its source told. Of a quiet database, whose capture
    alone is heard, nothing is lacking."""
    if newest is None or status.complete is None or status.complete.source_time is None:
        return False  # nothing of the source tells times, or not each of its partitions does
    up_to = status.complete_up_to
    return up_to is None or (up_to < newest and now - up_to > timedelta(seconds=window))
