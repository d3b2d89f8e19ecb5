"""Why a step of a run failed, in one line. Dagster's pages have the stack."""

from typing import Any


def reason(failure: Any) -> str:
    """failure: Dagster's StepFailureData. The stage's own words, else the class and the text of the innermost cause."""
    told, error = failure.user_failure_data, failure.error
    if told and told.description:
        return line(told.description)
    while error and error.cause:
        error = error.cause
    return line(error.message) if error else ""


def line(text: str) -> str:
    """The first line; with those it announces (`2 blocking asset checks failed …:`)."""
    first, *more = text.strip().splitlines() or [""]
    return " ".join([first, *(" ".join(part.split()) for part in more)]) if first.endswith(":") else first
