"""Time zones as servers and captures are set to them: IANA names and offsets (MySQL manual, "Time Zone Support")."""

import re
from datetime import UTC, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

_OFFSET = re.compile(r"([+-])(\d{1,2}):([0-5]\d)", re.ASCII)
_EARLIEST, _LATEST = timedelta(hours=-14), timedelta(hours=14)  # of MySQL: -13:59 to +14:00


@lru_cache(maxsize=256)
def zone(name: str) -> tzinfo:
    """`Asia/Shanghai` or `+08:00`. Raises ValueError."""
    if name == "UTC":
        return UTC
    if found := _OFFSET.fullmatch(name):
        away = timedelta(hours=int(found[2]), minutes=int(found[3])) * (-1 if found[1] == "-" else 1)
        if not _EARLIEST < away <= _LATEST:
            raise ValueError(name)
        return timezone(away)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ValueError(name) from None
