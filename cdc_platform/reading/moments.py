"""Moments that people ask about: a time by the source's clock, or a cut."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_platform.config import Config
from cdc_platform.errors import ConfigError
from cdc_platform.lake import stores
from cdc_platform.reading.catalog import Cut, find_cut


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment that is asked about. time: by the source's clock; cut: of the source. Neither: now."""

    time: datetime | None = None
    cut: Cut | None = None

    @property
    def now(self) -> bool:
        """Whether it is now."""
        return self.time is None and self.cut is None

    @property
    def point(self) -> datetime | int:
        """The time, or the cut's number. Raises ValueError: it is now."""
        found = self.cut.number if self.cut else self.time
        if found is None:
            raise ValueError("now is no point")
        return found


def parse(config: Config, source: str, given: str, asked: str) -> Moment:
    """A cut's number, or a time as ISO 8601 has it, in UTC where it names no zone. asked: what the user calls it, for
    the error. Raises ConfigError, NotReadable."""
    if re.fullmatch("[0-9]+", given):
        return Moment(cut=find_cut(stores.lake(config), source, int(given), "any"))
    try:
        told = datetime.fromisoformat(given)
    except ValueError:
        valid = ["2026-11-20T12:00:00Z", "2026-11-20 12:00:00+08:00", "the number of a cut (`cdc-platform cut list`)"]
        raise ConfigError(asked, f"{given!r} is no time and no cut", valid) from None
    return Moment(time=told.astimezone(UTC) if told.tzinfo else told.replace(tzinfo=UTC))


def told(of: Moment) -> dict[str, Any] | None:
    """What a command says of it: `time`; `cut` and its `source_time`; None: now."""
    if of.now:
        return None
    return {"cut": of.cut.number, "source_time": of.cut.source_time} if of.cut else {"time": of.time}
