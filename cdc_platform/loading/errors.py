"""Why rows can't be loaded. No message holds a DSN."""

from collections.abc import Iterable

from cdc_platform.errors import CdcError


class LoadRefused(CdcError):
    """Rows of the server can't be loaded so that their order among the feed's changes is proven, or not as what they
    are. Fields: `source`, `problem`, `choices` (what would do), `retriable`."""

    def __init__(self, source: str, problem: str, choices: Iterable[str] = (), *, retriable: bool = False):
        self.source, self.problem, self.choices, self.retriable = source, problem, tuple(choices), retriable
        hint = f". What would do: {'; or '.join(self.choices)}" if self.choices else ""
        super().__init__(f"source {source}: {problem}{hint}")


class EvidencePurged(LoadRefused):
    """The server has purged the file of its log in which the feed's newest change stands: a newer one would do."""
