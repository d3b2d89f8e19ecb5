"""Why feeds aren't compared, or don't take each other's place."""

from collections.abc import Iterable

from cdc_platform.errors import CdcError


class ShadowRefused(CdcError):
    """It can't be done for certain, or not now; nothing has been changed. Fields: `of`, `by` (the sources), `problem`,
    `choices` (what to do instead)."""

    def __init__(self, of: str, by: str, problem: str, choices: Iterable[str] = ()):
        self.of, self.by, self.problem, self.choices = of, by, problem, tuple(choices)
        hint = f"; what would do: {', '.join(self.choices)}" if self.choices else ""
        super().__init__(f"shadow of {of} by {by}: {problem}{hint}")
