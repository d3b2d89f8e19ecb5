"""Cron expressions of cdc.yaml, by Dagster's own rules."""

import re
from typing import Annotated

from pydantic import AfterValidator

_PLAIN = re.compile(r"(\*|[0-5]?[0-9])(/[1-9]|/[1-5][0-9])? (\*|1?[0-9]|2[0-3])(/[1-9]|/1[0-9])? \* \* (\*|[0-6])")
"""Expressions that need no look at Dagster's rules, whose import takes most of a second: minutes, hours, a weekday."""
_VALID = "five fields (minute hour day month weekday) such as '*/10 * * * *' or '0 3 * * 1-5', or @hourly, @daily …"


def _cron(value: str) -> str:
    if not (_PLAIN.fullmatch(value) or _dagster_takes(value)):
        raise ValueError(f"{value!r} is no cron expression; valid: {_VALID}")
    return value


def _dagster_takes(value: str) -> bool:
    from dagster._utils.schedules import is_valid_cron_string  # what ScheduleDefinition checks by

    try:
        return is_valid_cron_string(value)
    except (ValueError, KeyError):  # croniter's own errors are ValueErrors; some texts it doesn't expect at all
        return False


Cron = Annotated[str, AfterValidator(_cron)]
"""A cron expression of five fields."""
