"""Why nothing is erased."""

from collections.abc import Iterable

from cdc_platform.errors import CdcError


class EraseRefused(CdcError):
    """It can't be erased for certain, or not without loss for others; nothing has been changed. Fields: `source`,
    `problem`, `choices` (what to do instead)."""

    def __init__(self, source: str, problem: str, choices: Iterable[str] = ()):
        self.source, self.problem, self.choices = source, problem, tuple(choices)
        hint = f"; what would do: {', '.join(self.choices)}" if self.choices else ""
        super().__init__(f"source {source}: nothing is erased: {problem}{hint}")
