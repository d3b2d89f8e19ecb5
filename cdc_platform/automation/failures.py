"""Why a step of a run failed, in one line. Dagster's pages have the stack."""

from typing import Any


def reason(failure: Any) -> str:
    """failure: Dagster's StepFailureData. The stage's own words, else the class and the text of the innermost cause."""
    told = failure.user_failure_data
    return _line(told.description) if told and told.description else cause(failure.error)


def cause(error: Any) -> str:
    """error: Dagster's SerializableErrorInfo, or None: "". Class and text of its innermost cause."""
    while error and error.cause:
        error = error.cause
    return _line(error.message) if error else ""


def _line(text: str) -> str:
    """The first line; with those it announces (`2 blocking asset checks failed …:`)."""
    first, *more = text.strip().splitlines() or [""]
    return " ".join([first, *(" ".join(part.split()) for part in more)]) if first.endswith(":") else first
